// SPDX-License-Identifier: GPL-2.0
/*
 * The end of XRC domains, with a driver that is reluctant to deallocate them and memory that a QP
 * does not get: see test-modules/reluctant, which has to be loaded.
 *
 * tags: part
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "files.h"
#include "ktap.h"
#include "node.h"

/* Each test has a file of its own: the domain of a file may stay. */
#define MEMORY_FILE "/tmp/domains.memory"
#define REFUSED_FILE "/tmp/domains.refused"
#define HELD_FILE "/tmp/domains.held"
#define STRANGERS_FILE "/tmp/domains.stranger"
#define PARAMETERS "/sys/module/reluctant/parameters/"

enum {
	MOST_ALLOCATIONS = 200,
	POLL_US = 10000,
	BLOCKED = 100,		/* polls in a row that find a thread in an uninterruptible sleep */
};

static struct node first, second;

/* Of the file, or without one; an existing one only, unless "oflags" has O_CREAT. */
static struct ibv_xrcd *open_domain(struct node *node, const char *path, int oflags)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = path ? open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600) : -1,
		.oflags = oflags,
	};
	struct ibv_xrcd *domain;
	int error;

	if (path && attr.fd < 0)
		err(1, "%s", path);
	domain = ibv_open_xrcd(node->context, &attr);
	error = errno;
	if (path)
		close(attr.fd);
	errno = error;
	return domain;
}

static bool exists(const char *path)
{
	struct ibv_xrcd *domain = open_domain(&second, path, 0);

	if (!domain && errno != EAGAIN)
		err(1, "domain of %s", path);
	return domain && !ibv_close_xrcd(domain);
}

/* ---- memory ---- */

/* Each allocation fails once, for a QP of a domain of its own. */
static bool closes_without_memory(const char *path)
{
	unsigned int n, refused = 0;

	for (n = 1; n < MOST_ALLOCATIONS; n++) {
		struct ibv_xrcd *domain = open_domain(&first, path, O_CREAT);
		struct ibv_qp_init_attr_ex attr = {
			.qp_type = IBV_QPT_XRC_RECV,
			.comp_mask = IBV_QP_INIT_ATTR_XRCD,
			.xrcd = domain,
		};
		struct ibv_qp *qp;
		bool had_so_many;

		HOLDS(domain);
		write_number(PARAMETERS "allocation", n);
		qp = ibv_create_qp_ex(first.context, &attr);
		had_so_many = !read_number(PARAMETERS "allocation");
		write_number(PARAMETERS "allocation", 0);
		if (qp)
			HOLDS(!ibv_destroy_qp(qp));
		else	/* ENFILE: of a socket */
			HOLDS(errno == ENOMEM || errno == ENFILE);
		refused += !qp;
		errno = ibv_close_xrcd(domain);
		if (errno || (path && exists(path))) {
			ktap_note("allocation %u failed, and the domain stays: %s", n,
				  errno ? strerror(errno) : "it is found");
			return false;
		}
		if (!had_so_many)
			break;
	}
	ktap_note("%u allocations, %u refusals", n, refused);
	HOLDS(refused > 3 && n < MOST_ALLOCATIONS);
	return true;
}

/* ---- a driver that fails once ---- */

static bool closes_at_the_second_attempt(void)
{
	struct ibv_xrcd *domain = open_domain(&first, NULL, O_CREAT);

	HOLDS(domain);
	write_number(PARAMETERS "refusals", 1);
	HOLDS(ibv_close_xrcd(domain) == EBUSY);
	errno = ibv_close_xrcd(domain);
	HOLDS(!errno);
	return true;
}

/* Meanwhile another process may open the file, and get another domain or this one. */
static bool others_keep_theirs(void)
{
	struct ibv_xrcd *domain = open_domain(&first, REFUSED_FILE, O_CREAT), *others;

	HOLDS(domain);
	write_number(PARAMETERS "refusals", 1);
	HOLDS(ibv_close_xrcd(domain) == EBUSY);
	others = open_domain(&second, REFUSED_FILE, O_CREAT);
	HOLDS(others);
	HOLDS(!ibv_close_xrcd(domain));
	HOLDS(exists(REFUSED_FILE));
	HOLDS(!ibv_close_xrcd(others));
	HOLDS(!exists(REFUSED_FILE));
	return true;
}

/* ---- a driver that is slow ---- */

struct call {
	void (*function)(struct call *call);
	struct node *node;
	const char *path;
	struct ibv_xrcd *domain;
	pthread_t thread;
	atomic_int tid;
	atomic_bool done;
	int error;
};

static void *call_thread(void *argument)
{
	struct call *call = argument;

	call->tid = gettid();
	call->function(call);
	call->done = true;
	return NULL;
}

static void begin(struct call *call)
{
	errno = pthread_create(&call->thread, NULL, call_thread, call);
	if (errno)
		err(1, "pthread_create");
}

static void close_call(struct call *call)
{
	call->error = ibv_close_xrcd(call->domain);
}

static void open_and_close(struct call *call)
{
	struct ibv_xrcd *domain = open_domain(call->node, call->path, O_CREAT);

	call->error = domain ? ibv_close_xrcd(domain) : errno;
}

static void open_call(struct call *call)
{
	call->domain = open_domain(call->node, call->path, O_CREAT);
	call->error = call->domain ? 0 : errno;
}

static bool sleeps(const struct call *call)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)call->tid);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(file);
	return state == 'D';
}

/* Whether a call returns, which begins while a domain is being deallocated. */
static bool returns(struct call *call)
{
	unsigned int polls = 0;

	begin(call);
	while (!call->done && polls < BLOCKED) {
		usleep(POLL_US);
		polls = call->tid && sleeps(call) ? polls + 1 : 0;
	}
	return call->done;
}

static bool others_pass(void)
{
	struct call closer = {
		.function = close_call,
		.domain = open_domain(&first, HELD_FILE, O_CREAT),
	};
	/* The file of "stranger" is another one; "successor" has the one whose domain ends. */
	struct call stranger = {
		.function = open_and_close, .node = &second, .path = STRANGERS_FILE,
	};
	struct call successor = {
		.function = open_call, .node = &second, .path = HELD_FILE,
	};
	bool stranger_passes = false, successor_passes = false;

	HOLDS(closer.domain);
	/* The stranger's own domain is not held. */
	stranger.domain = open_domain(&first, STRANGERS_FILE, O_CREAT);
	HOLDS(stranger.domain);
	write_number(PARAMETERS "held", 1);
	begin(&closer);
	while (!read_number(PARAMETERS "waiting")) {
		HOLDS(!closer.done);
		usleep(POLL_US);
	}
	stranger_passes = returns(&stranger);
	successor_passes = returns(&successor);
	HOLDS(!closer.done);
	write_number(PARAMETERS "held", 0);
	pthread_join(closer.thread, NULL);
	pthread_join(stranger.thread, NULL);
	pthread_join(successor.thread, NULL);

	HOLDS(!closer.error && !stranger.error && !successor.error);
	HOLDS(exists(HELD_FILE));
	HOLDS(!ibv_close_xrcd(successor.domain) && !exists(HELD_FILE));
	HOLDS(!ibv_close_xrcd(stranger.domain) && !exists(STRANGERS_FILE));
	ktap_note("the stranger %s, the successor %s", stranger_passes ? "passed" : "waited",
		  successor_passes ? "passed" : "waited");
	return stranger_passes && successor_passes;
}

static bool all_close(struct node *node)
{
	HOLDS(!ibv_dealloc_pd(node->pd));
	HOLDS(!ibv_close_device(node->context));
	return true;
}

int main(void)
{
	static const char *const files[] = { MEMORY_FILE, REFUSED_FILE, HELD_FILE, STRANGERS_FILE };
	unsigned int i;

	ktap_start("the end of XRC domains", 6);
	node_enter("left");
	node_open(&first, "left");
	node_open(&second, "left");
	ktap_result(closes_without_memory(NULL),
		    "a domain without a file is closed, whichever allocation of a QP failed");
	ktap_result(closes_without_memory(MEMORY_FILE),
		    "the domain of a file is, whichever allocation of a QP failed");
	ktap_result(closes_at_the_second_attempt(),
		    "a domain without a file is closed at the second attempt, after its driver failed");
	ktap_result(others_keep_theirs(), "the domain of a file is, and others of the file stay open");
	ktap_result(others_pass(), "others open and close domains while one is being deallocated");
	ktap_result(all_close(&first) && all_close(&second), "nothing keeps the device");
	for (i = 0; i < sizeof(files) / sizeof(*files); i++)
		unlink(files[i]);
	return ktap_end();
}
