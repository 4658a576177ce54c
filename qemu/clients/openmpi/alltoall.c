// SPDX-License-Identifier: GPL-2.0
/*
 * usage: alltoall ROUNDS [DIRECTORY]
 *
 * In every round each rank sends 64 KiB to each other one, and checks what it
 * gets. With a DIRECTORY the file "gone" there names a rank after the first
 * round. It waits to be killed while the others continue without it: those
 * send point to point, for a collective operation is one of all ranks.
 */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 65536 / 4 };

static uint32_t (*out)[WORDS], (*in)[WORDS];
static MPI_Request *requests;
static int rank, ranks, gone = -1;

static uint32_t word(int from, int to, int round, int i)
{
	return (uint32_t)from << 24 ^ to << 16 ^ round << 20 ^ i * 2654435761u;
}

static void fill(int round)
{
	for (int peer = 0; peer < ranks; peer++)
		for (int i = 0; i < WORDS; i++)
			out[peer][i] = word(rank, peer, round, i);
	memset(in, 0, ranks * sizeof(*in));
}

static void check(int round)
{
	for (int peer = 0; peer < ranks; peer++)
		for (int i = 0; i < WORDS; i++)
			if (peer != gone && in[peer][i] != word(peer, rank, round, i)) {
				printf("rank %d: wrong data of rank %d\n", rank, peer);
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
	printf("rank %d: round %d\n", rank, round);
}

static void exchange(int round)
{
	int n = 0;

	fill(round);
	for (int peer = 0; peer < ranks; peer++) {
		if (peer == gone)
			continue;
		MPI_Irecv(in[peer], WORDS, MPI_UINT32_T, peer, round,
			  MPI_COMM_WORLD, &requests[n++]);
		MPI_Isend(out[peer], WORDS, MPI_UINT32_T, peer, round,
			  MPI_COMM_WORLD, &requests[n++]);
	}
	MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
	check(round);
}

static void progress(void)
{
	int flag;

	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag,
		   MPI_STATUS_IGNORE);
	usleep(10000);
}

static void read_gone(const char *directory)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/gone", directory);
	while (!(file = fopen(path, "r")))
		progress();
	if (fscanf(file, "%d", &gone) != 1)
		MPI_Abort(MPI_COMM_WORLD, 2);
	fclose(file);
	while (rank == gone)
		progress();
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1;

	setlinebuf(stdout);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	out = malloc(ranks * sizeof(*out));
	in = malloc(ranks * sizeof(*in));
	requests = malloc(2 * ranks * sizeof(*requests));
	printf("rank %d: process %d\n", rank, getpid());

	for (int round = 0; round < rounds; round++) {
		if (gone < 0) {
			fill(round);
			MPI_Alltoall(out, WORDS, MPI_UINT32_T, in, WORDS,
				     MPI_UINT32_T, MPI_COMM_WORLD);
			check(round);
		} else {
			exchange(round);
		}
		if (argc > 2 && !round)
			read_gone(argv[2]);
	}
	printf("rank %d: passed\n", rank);
	fflush(stdout);
	/* MPI_Finalize() waits for all ranks. */
	if (gone >= 0) {
		sleep(5);
		_exit(0);
	}
	MPI_Finalize();
	return 0;
}
