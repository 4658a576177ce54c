// SPDX-License-Identifier: GPL-2.0
/*
 * rcvctl caps DEVICE
 * rcvctl driver DEVICE
 * rcvctl channel DEVICE
 * rcvctl hold [-d] [-e] [-u UID] [-m EVENTS] [-l LABEL] DOMAIN-FILE COUNT
 * rcvctl alloc DOMAIN-FILE
 * rcvctl join DOMAIN-FILE
 * rcvctl error DOMAIN-FILE [TIMES]
 *
 * Receive QPs from a shell script, on the device of the node it runs in.
 *
 * caps: the results of QUERY_CAPS, a line of NAME=VALUE each.
 * driver: the result of the method of driver_def.ko.
 * channel: keeps an event channel of a file that it has closed.
 * hold: creates COUNT QPs (-d: for the domain's lifetime, -e: with an event
 *	channel; -u: as that user; -m: with that event mask; -l: with that label)
 *	and says "qp NUMBER" for each, or the error that ends it; then "ready", and
 *	stays until its input ends.
 * alloc: says "ready", and creates a QP for each byte of its input likewise.
 * join: registers with all QPs of the domain, says "ready" and stays likewise.
 * error: takes every QP of the domain into the error state, TIMES times.
 */

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../modules/driver_def/driver_def.h"
#include "member.h"

static struct node node;
static struct domain domain;
static struct choice choice;

static struct ibv_context *open_device(const char *device_name)
{
	struct ibv_device **device = ibv_get_device_list(NULL);
	struct ibv_context *context;

	for (; device && *device; device++)
		if (!strcmp(ibv_get_device_name(*device), device_name))
			break;
	context = device && *device ? ibv_open_device(*device) : NULL;
	if (!context)
		errx(1, "no device %s", device_name);
	return context;
}

static int driver(const char *device_name)
{
	uint32_t answer = 0;
	struct call call;
	int result;

	call_start(&call, DRIVER_DEF_OBJECT, DRIVER_DEF_METHOD);
	call_out(&call, DRIVER_DEF_ATTR_ANSWER, &answer, sizeof(answer));
	result = call_run(&call, open_device(device_name)->cmd_fd);
	if (result) {
		printf("%s\n", strerrorname_np(-result));
		return 2;
	}
	printf("%u\n", answer);
	return 0;
}

static int caps(const char *device_name)
{
	struct xrc_rcv_caps caps;
	int result = rcv_caps(open_device(device_name)->cmd_fd, &caps);

	if (result) {
		printf("%s\n", strerrorname_np(-result));
		return 2;
	}
	printf("version=%u\nalloc_flags=%#x\nevent_types=%#" PRIx64 "\n", caps.version,
	       caps.alloc_flags, (uint64_t)caps.event_types);
	printf("max_qps_per_domain=%u\nmax_qps_per_user=%u\nevent_size=%u\n"
	       "max_registrations_per_qp=%u\n",
	       caps.max_qps_per_domain, caps.max_qps_per_user, caps.event_size,
	       caps.max_registrations_per_qp);
	return 0;
}

static int stay(void)
{
	char byte;

	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}

static int channel(const char *device_name)
{
	struct ibv_context *context = open_device(device_name);

	if (rcv_channel(context->cmd_fd) < 0 || ibv_close_device(context))
		err(1, "channel");
	return stay();
}

static bool create(uint32_t flags, int channel)
{
	struct registration registration;
	int result = rcv_alloc_with(domain, flags, NULL, channel, 0, choice, &registration);

	if (result)
		printf("%s\n", strerrorname_np(-result));
	else
		printf("qp %u\n", registration.qp_num);
	return !result;
}

static int hold(unsigned int count, uint32_t flags, bool with_channel)
{
	int channel = with_channel ? rcv_channel(domain.uverbs_fd) : NO_CHANNEL;

	while (count-- && create(flags, channel))
		;
	return stay();
}

static int alloc(void)
{
	char byte;

	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0) {
		create(0, NO_CHANNEL);
		fflush(stdout);
	}
	return 0;
}

static void visit_qps(void (*function)(uint32_t qp_num))
{
	struct xrc_rcv_qp_info infos[64];
	uint32_t after = 0, count, i;

	for (;;) {
		count = 64;
		errno = -rcv_list(domain, after, infos, &count, NULL);
		if (errno)
			err(1, "QUERY_DOMAIN");
		if (!count)
			return;
		for (i = 0; i < count; i++)
			function(infos[i].qp_num);
		after = infos[count - 1].qp_num;
	}
}

static void join_qp(uint32_t qp_num)
{
	struct registration registration;

	errno = -rcv_reg(domain, qp_num, NO_CHANNEL, 0, &registration);
	if (errno)
		err(1, "REG");
}

static void break_qp(uint32_t qp_num)
{
	struct ib_uverbs_qp_attr init = attr_to_init(&node);

	errno = -rcv_to_state(domain, qp_num, IBV_QPS_RESET);
	if (!errno)
		errno = -rcv_modify(domain, qp_num, &init);
	if (!errno)
		errno = -rcv_to_state(domain, qp_num, IBV_QPS_ERR);
	if (errno)
		err(1, "MODIFY");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	bool with_channel = false;
	uint64_t events, label;
	uint32_t flags = 0;
	uid_t user = 0;
	int option;

	if (!strcmp(what, "caps") && argc == 3)
		return caps(argv[2]);
	if (!strcmp(what, "driver") && argc == 3)
		return driver(argv[2]);
	if (!strcmp(what, "channel") && argc == 3)
		return channel(argv[2]);
	argc--;
	argv++;
	while ((option = getopt(argc, argv, "deu:m:l:")) != -1)
		if (option == 'd') {
			flags = XRC_RCV_ALLOC_LIFETIME_DOMAIN;
		} else if (option == 'e') {
			with_channel = true;
		} else if (option == 'u') {
			user = strtoul(optarg, NULL, 10);
		} else if (option == 'm') {
			events = strtoull(optarg, NULL, 0);
			choice.events = &events;
		} else if (option == 'l') {
			label = strtoull(optarg, NULL, 0);
			choice.label = &label;
		}
	if (optind == argc)
		errx(2, "usage: rcvctl caps|driver|channel|hold|join|error …");
	node_open(&node, "right");
	domain = domain_of(node_open_domain(&node, argv[optind]));
	if (user && setresuid(user, user, user))
		err(1, "user %u", user);
	if (!strcmp(what, "hold") && optind + 2 == argc)
		return hold(strtoul(argv[optind + 1], NULL, 10), flags, with_channel);
	if (!strcmp(what, "alloc"))
		return alloc();
	if (!strcmp(what, "join")) {
		visit_qps(join_qp);
		return stay();
	}
	if (!strcmp(what, "error")) {
		unsigned long times = optind + 1 < argc ? strtoul(argv[optind + 1], NULL, 10) : 1;

		/* The event comes a moment after the error; RESET would forget it. */
		while (times--) {
			visit_qps(break_qp);
			usleep(2000);
		}
		return 0;
	}
	errx(2, "%s is not known", what);
}
