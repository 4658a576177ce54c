// SPDX-License-Identifier: GPL-2.0
/*
 * The sender that the examples wait for: prints the entry of its GID, its GID
 * and its QP's number, reads the number of a receive QP, and then pairs of an
 * SRQ's number and a word to send to it; "0 break" breaks the connection.
 *
 * usage: sender DEVICE
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ofed_node.h"

int main(int argc, char **argv)
{
	struct ibv_xrc_domain *domain;
	struct connection c = { 0 };
	char gid[INET6_ADDRSTRLEN], word[32];
	struct node node;
	uint32_t srq;
	int status;

	if (argc != 2)
		errx(2, "usage: sender DEVICE");
	node_open(&node, argv[1]);
	domain = ibv_open_xrc_domain(node.context, -1, O_CREAT);
	c.qp = domain ? node_sender(&node, domain) : NULL;
	if (!c.qp)
		err(1, "QP");
	setlinebuf(stdout);
	inet_ntop(AF_INET6, &node.gid, gid, sizeof(gid));
	printf("%u %s %u\n", node.gid_index, gid, c.qp->qp_num);

	if (scanf("%u", &c.peer) != 1)
		errx(1, "no receive QP");
	if (to_init(&node, &c) || to_rtr(&node, &c) || to_rts(&node, &c))
		errx(1, "not connected");
	while (scanf("%u %31s", &srq, word) == 2) {
		memset(node.buffer, 0, sizeof(node.buffer));
		strcpy(node.buffer, word);
		status = strcmp(word, "break") ? send_to(&node, c.qp, srq) :
						 write_wildly(&node, c.qp, srq);
		printf("%s: %s\n", word, ibv_wc_status_str(status));
	}
	return 0;
}
