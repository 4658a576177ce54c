// SPDX-License-Identifier: GPL-2.0
/*
 * A program for OFED that forks while another of its threads is in the layer, and
 * that cancels a thread which waits for events.
 *
 * usage: threads DEVICE
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "ktap.h"

static struct ibv_device *device;
static struct ibv_context *context;
static struct ibv_xrc_domain *domain;
static atomic_bool stop;
/* Whether the thread that takes events is in the layer, and how often it came back. */
static atomic_bool inside;
static atomic_int returned;

/* In the layer all the time: it takes every lock that there is. */
static void *open_and_close(void *unused)
{
	(void)unused;
	while (!stop) {
		struct ibv_context *other = ibv_open_device(device);

		if (!other || ibv_close_device(other))
			errx(1, "a device is not opened");
	}
	return NULL;
}

/* The status of a child that runs CHILD, or -1 if it does not return. */
static int run(int (*child)(void))
{
	int waited, status;
	pid_t pid = fork();

	if (!pid)
		_exit(child());
	for (waited = 0; !waitpid(pid, &status, WNOHANG); waited++) {
		if (waited > PATIENCE_MS) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		usleep(1000);
	}
	return status;
}

static int use_layer(void)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct ibv_qp_init_attr attr = { .xrc_domain = domain };
	struct ibv_context *own;
	uint32_t qpn;

	if (poll(&fd, 1, 0))
		return 1;
	if (ibv_create_xrc_rcv_qp(&attr, &qpn) ||
	    ibv_unreg_xrc_rcv_qp(domain, qpn))
		return 2;
	own = ibv_open_device(device);
	return own && !ibv_close_device(own) ? 0 : 3;
}

static bool forks(void)
{
	pthread_t thread;
	int i, status = 0;

	if (pthread_create(&thread, NULL, open_and_close, NULL))
		err(1, "thread");
	for (i = 0; i < 20 && !status; i++)
		status = run(use_layer);
	stop = true;
	pthread_join(thread, NULL);
	if (status)
		ktap_note("child %d: status %#x", i - 1, status);
	return !status;
}

/* Asks for events, and is cancelled wherever it is. */
static void *take_events(void *unused)
{
	struct ibv_async_event event;

	(void)unused;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;) {
		inside = true;
		if (!ibv_get_async_event(context, &event))
			ibv_ack_async_event(&event);
		inside = false;
		returned++;
	}
	return NULL;
}

/* A lock that a cancelled thread left stops the others, and a reference keeps the QP. */
static int cancel(void)
{
	struct ibv_qp_init_attr attr = { 0 };
	struct ibv_xrc_domain *left;
	struct ibv_context *other;
	FILE *file = tmpfile();
	int i, waits = 0, calls = 0;
	pthread_t thread;
	uint32_t qpn;
	void *result;

	context = ibv_open_device(device);
	other = ibv_open_device(device);
	if (!file || !context || !other)
		return 1;
	attr.xrc_domain = ibv_open_xrc_domain(context, fileno(file), O_CREAT);
	left = ibv_open_xrc_domain(other, fileno(file), O_CREAT);
	if (!attr.xrc_domain || !left || ibv_create_xrc_rcv_qp(&attr, &qpn))
		return 2;
	for (i = 0; i < 200; i++) {
		/* Every second one is in the layer all the time, the others wait. */
		fcntl(context->async_fd, F_SETFL, i % 2 ? O_NONBLOCK : 0);
		inside = false;
		returned = 0;
		if (pthread_create(&thread, NULL, take_events, NULL))
			return 3;
		while (i % 2 ? !returned : !inside)
			sched_yield();
		usleep(i % 40 * 50);
		if (pthread_cancel(thread) || pthread_join(thread, &result) ||
		    result != PTHREAD_CANCELED)
			return 4;
		if (i % 2)
			calls += inside;
		else
			waits += inside && !returned;
	}
	/* All that wait are cancelled in their call, and few of the others between two calls. */
	if (waits < 100 || calls < 50)
		return 8;
	if (ibv_reg_xrc_rcv_qp(left, qpn) || ibv_unreg_xrc_rcv_qp(left, qpn))
		return 5;
	if (ibv_close_device(context))
		return 6;
	return ibv_reg_xrc_rcv_qp(left, qpn) == EINVAL ? 0 : 7;
}

static bool cancellations(void)
{
	int status = run(cancel);

	if (status)
		ktap_note("child: status %#x", status);
	return !status;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (argc != 2)
		errx(2, "usage: threads DEVICE");
	while (list && *list && strcmp(ibv_get_device_name(*list), argv[1]))
		list++;
	if (!list || !*list)
		errx(1, "no device %s", argv[1]);
	device = *list;

	ktap_start("OFED layer: threads", 2);
	ktap_result(cancellations(), "a thread that asks for events is cancelled asynchronously");
	context = ibv_open_device(device);
	domain = context ? ibv_open_xrc_domain(context, -1, O_CREAT) : NULL;
	if (!domain)
		err(1, "%s", argv[1]);
	ktap_result(forks(), "a child is forked while another thread is in the layer");
	return ktap_end();
}
