// SPDX-License-Identifier: GPL-2.0
/*
 * A program for OFED that polls in signal handlers and forks while another
 * thread is in the layer: neither ever waits for that thread.
 *
 * usage: signals DEVICE
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "ktap.h"

static struct ibv_device *device;
static struct ibv_context *context;
static struct ibv_xrc_domain *domain;
static atomic_bool stop;
static atomic_uint opened, handled;
static atomic_int wrong;

/* In the layer all the time: it takes every lock that there is. */
static void *open_and_close(void *unused)
{
	(void)unused;
	while (!stop) {
		struct ibv_context *other = ibv_open_device(device);

		if (!other || ibv_close_device(other))
			wrong++;
		opened++;
	}
	return NULL;
}

/* So many that a copy of them does not fit on the stack. */
#define MANY 200

static void handler(int signal)
{
	static struct pollfd many[MANY];
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };
	struct timeval now = { 0 };
	int i, saved = errno;
	fd_set set;

	(void)signal;
	if (poll(&fd, 1, 0))
		wrong++;
	for (i = 0; i < MANY; i++)
		many[i] = fd;
	if (poll(many, MANY, 0))
		wrong++;
	FD_ZERO(&set);
	FD_SET(context->async_fd, &set);
	if (select(context->async_fd + 1, &set, NULL, NULL, &now))
		wrong++;
	errno = saved;
	handled++;
}

/* A signal at a time, wherever it finds the other thread. */
static bool signals(pthread_t thread)
{
	unsigned int i, waited;

	for (i = 0; i < 300; i++) {
		if (pthread_kill(thread, SIGUSR1))
			return false;
		for (waited = 0; handled <= i; waited++) {
			if (waited > 20000) {
				ktap_note("handler %u does not return", i);
				return false;
			}
			usleep(waited < 100 ? 10 : 1000);
		}
	}
	ktap_note("%u signals, %u devices opened, %d wrong answers", i, opened, wrong);
	return !wrong;
}

static int child(void)
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
	int i, waited, status;
	pid_t pid;

	for (i = 0; i < 20; i++) {
		pid = fork();
		if (!pid)
			_exit(child());
		for (waited = 0; !waitpid(pid, &status, WNOHANG); waited++) {
			if (waited > 20000) {
				kill(pid, SIGKILL);
				waitpid(pid, &status, 0);
				ktap_note("child %d does not return", i);
				return false;
			}
			usleep(1000);
		}
		if (status) {
			ktap_note("child %d: status %#x", i, status);
			return false;
		}
	}
	return true;
}

/* An event is still seen through a copy that does not fit on the stack. */
static bool many_descriptors(void)
{
	struct ibv_qp_init_attr init_attr = { .xrc_domain = domain };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	static struct pollfd many[MANY];
	struct ibv_async_event event;
	uint32_t qpn;
	int i;

	if (ibv_create_xrc_rcv_qp(&init_attr, &qpn) ||
	    ibv_modify_xrc_rcv_qp(domain, qpn, &attr,
				  IBV_QP_STATE | IBV_QP_PORT |
				  IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS))
		return false;
	attr.qp_state = IBV_QPS_ERR;
	if (ibv_modify_xrc_rcv_qp(domain, qpn, &attr, IBV_QP_STATE))
		return false;
	for (i = 0; i < MANY; i++)
		many[i] = (struct pollfd){ .fd = -1, .events = POLLIN, .revents = -1 };
	many[150].fd = context->async_fd;
	if (poll(many, MANY, 10000) != 1 || many[150].revents != POLLIN ||
	    many[150].fd != context->async_fd || many[149].revents)
		return false;
	if (ibv_get_async_event(context, &event))
		return false;
	ibv_ack_async_event(&event);
	return poll(many + 150, 1, 0) == 0 && !ibv_unreg_xrc_rcv_qp(domain, qpn);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	pthread_t thread;

	if (argc != 2)
		errx(2, "usage: signals DEVICE");
	while (list && *list && strcmp(ibv_get_device_name(*list), argv[1]))
		list++;
	if (!list || !*list)
		errx(1, "no device %s", argv[1]);
	device = *list;
	context = ibv_open_device(device);
	domain = context ? ibv_open_xrc_domain(context, -1, O_CREAT) : NULL;
	if (!domain)
		err(1, "%s", argv[1]);
	sigaction(SIGUSR1, &action, NULL);

	ktap_start("OFED layer: signals and forks", 3);
	ktap_result(many_descriptors(), "poll() takes many descriptors");
	if (pthread_create(&thread, NULL, open_and_close, NULL))
		err(1, "thread");
	ktap_result(signals(thread), "poll() and select() work in a signal handler");
	ktap_result(forks(), "a child is forked while another thread is in the layer");
	stop = true;
	pthread_join(thread, NULL);
	return ktap_end();
}
