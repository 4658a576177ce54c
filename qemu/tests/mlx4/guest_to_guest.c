// SPDX-License-Identifier: GPL-2.0
/*
 * usage: guest_to_guest receivers|sender MESSAGES DIRECTORY
 *
 * The reason the module exists, with a network between: the receiving processes
 * are in one guest, the sender is in another, and they find each other in a
 * directory that both guests see (qemu/guest/nodes.sh). One process creates the
 * receive QP and is killed; two continue to receive from the one connection,
 * each on its SRQ.
 *
 * tags: part
 */

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "member.h"

#define DOMAIN_FILE "/tmp/guest_to_guest"

enum { DEPTH = 8, SIZE = 4096 };

static uint32_t messages;

/* The data of the other guest that the sender needs. */
struct receivers {
	struct path path;
	uint32_t qp_num;
	uint32_t srq_num[2];
};

/* A reader sees all of it or nothing. */
static void publish(const char *name, const void *data, size_t size)
{
	FILE *file = fopen("new", "we");

	if (!file || fwrite(data, size, 1, file) != 1 || fclose(file) || rename("new", name))
		err(1, "%s", name);
}

/* However long the other guest takes, unless it has given up. */
static void await(const char *name, const char *ended, void *data, size_t size)
{
	bool is_last = false;
	FILE *file;

	while (!(file = fopen(name, "re"))) {
		if (is_last)
			errx(1, "the other guest ended without the file %s", name);
		is_last = !access(ended, F_OK);
		usleep(50000);
	}
	if (fread(data, size, 1, file) != 1)
		errx(1, "%s is too short", name);
	fclose(file);
}

static int receive(void)
{
	struct member_info *ma = member_info_new(DOMAIN_FILE, 0, 0), *mm[2];
	struct remote *remote = remote_new(SIZE);
	struct traffic *traffic = share(sizeof(*traffic));
	struct actor a, members[2];
	struct delivery *delivery[2];
	struct receivers self;
	bool right = true;
	unsigned int i;

	await("sender", "ended.sender", &remote->path, sizeof(remote->path));
	ma->sender = &remote->path;
	actor_start(&a);
	if (!(DO(a, member_join, ma) && DO(a, member_alloc_connected, ma)))
		return 1;
	*traffic = (struct traffic) { .srqs = 2, .count = messages, .size = SIZE };
	self = (struct receivers) { .path = ma->path, .qp_num = ma->qp_num };
	for (i = 0; i < 2; i++) {
		mm[i] = member_info_new(DOMAIN_FILE, DEPTH, SIZE);
		mm[i]->qp_num = ma->qp_num;
		delivery[i] = share(sizeof(*delivery[i]));
		*delivery[i] = (struct delivery) { traffic, i, ma->qp_num };
		actor_start(&members[i]);
		if (!(DO(members[i], member_join, mm[i]) && DO(members[i], member_reg, mm[i])))
			return 1;
		self.srq_num[i] = mm[i]->srq_num;
		actor_begin(&members[i], member_receive, delivery[i]);
	}
	actor_kill(&a);
	publish("receivers", &self, sizeof(self));
	for (i = 0; i < 2; i++) {
		right &= succeeded("a receiver", actor_wait(&members[i]));
		right &= DO(members[i], member_idle, NULL);
	}
	/* The sender has its last answers when it says so. */
	await("done", "ended.sender", &i, sizeof(i));
	for (i = 0; i < 2; i++)
		actor_exit(&members[i]);
	return !right;
}

static int send_all(void)
{
	struct remote *remote = remote_new(SIZE);
	struct traffic traffic = { .srqs = 2, .count = messages, .size = SIZE };
	struct member_info far = {};
	struct receivers receivers;
	int result;

	if (sender_start(remote))
		errx(1, "the sender is not ready");
	publish("sender", &remote->path, sizeof(remote->path));
	await("receivers", "ended.receivers", &receivers, sizeof(receivers));
	if (receivers.path.lid == remote->path.lid)
		errx(1, "both guests have LID %u", remote->path.lid);
	far.path = receivers.path;
	memcpy(traffic.srq_num, receivers.srq_num, sizeof(receivers.srq_num));
	remote_aim(remote, &far, receivers.qp_num);
	sender_connect(NULL);
	result = sender_send(&traffic);
	printf("%u messages from LID %u to LID %u: %s\n", traffic.completed, remote->path.lid,
	       receivers.path.lid, ibv_wc_status_str(traffic.status));
	publish("done", &result, sizeof(result));
	return result || traffic.completed != messages;
}

int main(int argc, char **argv)
{
	if (argc == 4)
		messages = atoi(argv[2]);
	if (!messages || chdir(argv[3]))
		errx(2, "usage: guest_to_guest receivers|sender MESSAGES DIRECTORY");
	return strcmp(argv[1], "sender") ? receive() : send_all();
}
