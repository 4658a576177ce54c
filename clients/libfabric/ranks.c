// SPDX-License-Identifier: GPL-2.0
/*
 * usage: ranks ADDRESS RANK RANKS DIRECTORY [ROUNDS]
 *
 * A rank of a job over libfabric, on the node of ADDRESS. In every round each
 * rank sends 64 KiB to each other one, and checks what it gets. Ranks find each
 * other by files in DIRECTORY. Without ROUNDS, they end by the files of rounds.h.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include "rounds.h"

enum { SIZE = 65536 };

static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid *objects[5];
static fi_addr_t addresses[RANKS_MAX];
static int rank, ranks;
static const char *directory;

static void check(int ret, const char *what)
{
	if (ret)
		errx(1, "rank %d: %s: %s", rank, what, fi_strerror(-ret));
}

/* Completions since the last call; waits for some time. */
static int completions(int timeout_ms)
{
	struct fi_cq_tagged_entry entries[16];
	struct fi_cq_err_entry error = {};
	ssize_t n = fi_cq_sread(cq, entries, 16, NULL, timeout_ms);

	if (n == -FI_EAVAIL) {
		fi_cq_readerr(cq, &error, 0);
		errx(1, "rank %d: completion: %s", rank, fi_strerror(error.err));
	}
	if (n < 0 && n != -FI_EAGAIN && n != -FI_EINTR)
		check(n, "fi_cq_sread");
	return n > 0 ? n : 0;
}

static void path_of(char *path, const char *kind, int whose)
{
	snprintf(path, 4096, "%s/%s.%d", directory, kind, whose);
}

/* Appears with its content. */
static void publish(const char *kind, const void *data, size_t size)
{
	char path[4096], temporary[4096];
	int fd;

	path_of(path, kind, rank);
	path_of(temporary, "new", rank);
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd) ||
	    rename(temporary, path))
		err(1, "%s", path);
}

static void await(const char *kind, int whose, void *data, size_t size)
{
	char path[4096];
	int fd;

	path_of(path, kind, whose);
	while ((fd = open(path, O_RDONLY)) < 0)
		if (completions(20))
			errx(1, "rank %d: a completion of nothing", rank);
	if (read(fd, data, size) != (ssize_t)size)
		err(1, "%s", path);
	close(fd);
}

static void open_endpoint(const char *address)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .count = RANKS_MAX };
	struct fi_cq_attr cq_attr = {
		.format = FI_CQ_FORMAT_TAGGED,
		.wait_obj = FI_WAIT_UNSPEC,
	};
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	char name[64];
	size_t size = sizeof(name);

	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED;
	hints->addr_format = FI_SOCKADDR_IN;
	hints->fabric_attr->prov_name = strdup("verbs;ofi_rxm");
	check(fi_getinfo(FI_VERSION(2, 0), address, NULL, FI_SOURCE, hints,
			 &info), "fi_getinfo");
	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	check(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
	check(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
	check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	check(fi_enable(ep), "fi_enable");

	objects[0] = &ep->fid;
	objects[1] = &av->fid;
	objects[2] = &cq->fid;
	objects[3] = &domain->fid;
	objects[4] = &fabric->fid;
	memset(name, 0, sizeof(name));
	check(fi_getname(&ep->fid, name, &size), "fi_getname");
	publish("address", name, sizeof(name));
	for (int peer = 0; peer < ranks; peer++) {
		await("address", peer, name, sizeof(name));
		if (fi_av_insert(av, name, 1, &addresses[peer], 0, NULL) != 1)
			errx(1, "fi_av_insert");
	}
}

/* Returns whether a rank has seen the next file. */
static bool exchange(int round)
{
	bool seen = gone_exists(directory);
	static uint32_t out[RANKS_MAX][SIZE / 4], in[RANKS_MAX][SIZE / 4];
	int wanted = 0, peer, i;
	ssize_t ret;

	for (peer = 0; peer < ranks; peer++) {
		if (peer == rank || is_gone[peer])
			continue;
		out[peer][0] = seen;
		for (i = 1; i < SIZE / 4; i++)
			out[peer][i] = word(rank, peer, round, i);
		memset(in[peer], 0xff, SIZE);
		do {
			ret = fi_trecv(ep, in[peer], SIZE, NULL, addresses[peer],
				       (uint64_t)round << 32 | peer, 0, NULL);
			if (ret == -FI_EAGAIN)
				wanted -= completions(0);
		} while (ret == -FI_EAGAIN);
		check(ret, "fi_trecv");
		do {
			ret = fi_tsend(ep, out[peer], SIZE, NULL, addresses[peer],
				       (uint64_t)round << 32 | rank, NULL);
			if (ret == -FI_EAGAIN)
				wanted -= completions(0);
		} while (ret == -FI_EAGAIN);
		check(ret, "fi_tsend");
		wanted += 2;
	}
	while (wanted)
		wanted -= completions(100);

	for (peer = 0; peer < ranks; peer++) {
		if (peer == rank || is_gone[peer])
			continue;
		for (i = 1; i < SIZE / 4; i++)
			if (in[peer][i] != word(peer, rank, round, i))
				errx(1, "rank %d: wrong data of rank %d", rank, peer);
		if (in[peer][0] > 1)
			errx(1, "rank %d: wrong first word of rank %d", rank, peer);
		seen |= in[peer][0];
	}
	return seen;
}

static void progress(void)
{
	completions(1000);
}

int main(int argc, char **argv)
{
	int rounds, round;
	bool seen;
	char done = 0;

	if (argc < 5)
		return 2;
	rank = atoi(argv[2]);
	ranks = atoi(argv[3]);
	directory = argv[4];
	rounds = argc > 5 ? atoi(argv[5]) : 0;
	if (ranks > RANKS_MAX)
		errx(2, "at most %d ranks", RANKS_MAX);
	setlinebuf(stdout);
	printf("rank %d: process %d\n", rank, getpid());

	open_endpoint(argv[1]);
	for (round = 0; !rounds || round < rounds; round++) {
		seen = exchange(round);
		printf("rank %d: round %d\n", rank, round);
		if (seen && !gone_read(directory, rank, ranks, progress))
			break;
	}

	/* The end of an endpoint ends transfers of the others. */
	publish("done", &done, 1);
	for (int peer = 0; peer < ranks; peer++)
		if (!is_gone[peer])
			await("done", peer, &done, 1);
	for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++)
		check(fi_close(objects[i]), "fi_close");
	printf("rank %d: passed\n", rank);
	return 0;
}
