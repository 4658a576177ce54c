// SPDX-License-Identifier: GPL-2.0
/*
 * The handlers of kernel users sleep, as many as a workqueue of the module runs items at a time
 * and more (sleeper.ko). A process is woken for an event while they sleep.
 *
 * tags: debug stock
 */

#define _GNU_SOURCE
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "files.h"
#include "ktap.h"
#include "member.h"

#define DOMAIN_FILE "/tmp/sleeping-handlers"
#define PARAMETERS "/sys/module/sleeper/parameters/"

enum {
	HANDLERS = 20,
	AT_ONCE = 16,		/* items of a workqueue */
	WAIT_MS = 300000,	/* at most, for what comes at once */
};

static struct actor reader;

/* epoll_wait(2) does not look at a channel that was watched before the event: it is woken. */
static int is_woken(void *argument)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct registration registration;
	struct xrc_rcv_record record;
	int epoll = epoll_create1(0), channel = rcv_channel(member.domain);

	(void)argument;
	CHECK(epoll >= 0 && channel >= 0);
	CHECK(!rcv_alloc(member.domain, XRC_RCV_ALLOC_LIFETIME_DOMAIN, NULL, channel, &registration));
	CHECK(!epoll_ctl(epoll, EPOLL_CTL_ADD, channel, &event));
	CHECK(!rcv_destroy_forced(member.domain, registration.qp_num));
	CHECK(epoll_wait(epoll, &event, 1, WAIT_MS) == 1);
	CHECK(read(channel, &record, sizeof(record)) == sizeof(record));
	CHECK(is_gone(&record, &registration));
	close(epoll);
	return -close(channel);
}

static bool reaches(const char *parameter, unsigned int count)
{
	unsigned int tries;

	for (tries = 0; tries < WAIT_MS / 10 && read_number(parameter) < count; tries++)
		usleep(10000);
	return read_number(parameter) == count;
}

static void insert(void)
{
	const char *build = getenv("LAB_BUILD");
	char command[512];

	snprintf(command, sizeof(command), "insmod %s/test-modules/sleeper/sleeper.ko name=%s",
		 build ? build : "", node_device("right"));
	if (system(command))
		errx(1, "%s", command);
}

int main(void)
{
	struct member_info *info = member_info_new(DOMAIN_FILE, 0, 0);
	bool right;

	ktap_start("handlers of kernel users that sleep", 2);
	insert();
	actor_start(&reader);
	right = DO(reader, member_join, info) && reaches(PARAMETERS "begun", AT_ONCE) &&
		DO(reader, is_woken, NULL);
	ktap_result(right && !read_number(PARAMETERS "ended"),
		    "a process is woken while handlers sleep");
	write_number(PARAMETERS "go", 1);
	ktap_result(reaches(PARAMETERS "ended", HANDLERS), "the others are called after them");
	actor_exit(&reader);
	if (system("rmmod sleeper"))
		errx(1, "rmmod sleeper");
	unlink(DOMAIN_FILE);
	return ktap_end();
}
