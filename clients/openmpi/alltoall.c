// SPDX-License-Identifier: GPL-2.0
/*
 * usage: alltoall ROUNDS
 *	  alltoall DIRECTORY
 *
 * In every round each rank sends 64 KiB to each other one, and checks what it
 * gets; with DIRECTORY until its files end the job, see rounds.h. When a rank is
 * gone the others send point to point, for a collective operation is one of all
 * ranks.
 */

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "rounds.h"

enum { WORDS = 65536 / 4 };

static uint32_t (*out)[WORDS], (*in)[WORDS];
static MPI_Request *requests;
static int rank, ranks;
static const char *directory;

static void fill(int round)
{
	bool seen = directory && gone_exists(directory);

	for (int peer = 0; peer < ranks; peer++) {
		out[peer][0] = seen;
		for (int i = 1; i < WORDS; i++)
			out[peer][i] = word(rank, peer, round, i);
	}
	memset(in, 0xff, ranks * sizeof(*in));
}

/* Returns whether a rank has seen the next file. */
static bool check(int round)
{
	bool seen = false;

	for (int peer = 0; peer < ranks; peer++) {
		bool right = in[peer][0] <= 1;

		if (is_gone[peer])
			continue;
		for (int i = 1; i < WORDS; i++)
			right &= in[peer][i] == word(peer, rank, round, i);
		if (!right) {
			printf("rank %d: wrong data of rank %d\n", rank, peer);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
		seen |= in[peer][0];
	}
	printf("rank %d: round %d\n", rank, round);
	return seen;
}

static void exchange(int round)
{
	int n = 0;

	for (int peer = 0; peer < ranks; peer++) {
		if (is_gone[peer])
			continue;
		if (peer == rank) {
			memcpy(in[peer], out[peer], sizeof(*in));
			continue;
		}
		MPI_Irecv(in[peer], WORDS, MPI_UINT32_T, peer, round,
			  MPI_COMM_WORLD, &requests[n++]);
		MPI_Isend(out[peer], WORDS, MPI_UINT32_T, peer, round,
			  MPI_COMM_WORLD, &requests[n++]);
	}
	MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

static void progress(void)
{
	int flag;

	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag,
		   MPI_STATUS_IGNORE);
	usleep(10000);
}

/* Whether all that were not killed have passed: before that they need each other. */
static bool have_passed(void)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/passed", directory);
	return !access(path, F_OK);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1;

	if (!rounds)
		directory = argv[1];
	setlinebuf(stdout);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks > RANKS_MAX)
		errx(2, "at most %d ranks", RANKS_MAX);
	out = malloc(ranks * sizeof(*out));
	in = malloc(ranks * sizeof(*in));
	requests = malloc(2 * ranks * sizeof(*requests));
	printf("rank %d: process %d\n", rank, getpid());

	for (int round = 0; directory || round < rounds; round++) {
		fill(round);
		if (gone)
			exchange(round);
		else
			MPI_Alltoall(out, WORDS, MPI_UINT32_T, in, WORDS,
				     MPI_UINT32_T, MPI_COMM_WORLD);
		if (check(round) &&
		    !gone_read(directory, rank, ranks, progress))
			break;
	}
	printf("rank %d: passed\n", rank);
	fflush(stdout);
	/* MPI_Finalize() waits for all ranks, those that were killed too. */
	if (gone) {
		while (!have_passed())
			progress();
		_exit(0);
	}
	MPI_Finalize();
	return 0;
}
