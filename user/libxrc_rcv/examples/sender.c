// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The sending end of a connection to a receive QP, see Documentation/tutorial.rst. It
 * uses nothing but libibverbs: a sender cannot tell a receive QP from other QPs.
 *
 * usage: sender DEVICE[/PORT[/GID_INDEX]] HOST TCP_PORT…
 *
 * Sends each line of the standard input to the SRQs of all receivers: processes of one
 * domain on HOST, each with a TCP_PORT, by one connection. The line "break" is sent to
 * an SRQ that does not exist, which breaks it.
 */
#define _DEFAULT_SOURCE
#include <signal.h>

#include "exchange.h"

enum { SIZE = 64, MAX_RECEIVERS = 16, NO_SRQ = 0xffffff };

static struct port port;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char message[SIZE];

static void create_qp(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = ibv_alloc_pd(port.context),
		.send_cq = ibv_create_cq(port.context, 1, NULL, NULL, 0),
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
	};

	mr = init.pd ? ibv_reg_mr(init.pd, message, SIZE, 0) : NULL;
	qp = mr && init.send_cq ? ibv_create_qp_ex(port.context, &init) : NULL;
	if (!qp)
		err(1, "QP");
}

static void modify(enum ibv_qp_state state, struct ibv_qp_attr *attr, int mask)
{
	attr->qp_state = state;
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		err(1, "modifying the QP to state %d", state);
}

/* Takes the QP from RESET to RTS, connected to receive QP @qp_num. */
static void connect_qp(const struct ibv_ah_attr *path, uint32_t qp_num)
{
	struct ibv_qp_attr attr = {
		.port_num = port.num,
		.ah_attr = *path,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp_num,
		.min_rnr_timer = 12,
		.timeout = 14,		/* 67 ms */
		.retry_cnt = 7,
		.rnr_retry = 7,		/* without an end */
	};

	modify(IBV_QPS_INIT, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(IBV_QPS_RTR, &attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(IBV_QPS_RTS, &attr, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* The process that had a TCP port last. */
struct receiver {
	FILE *stream;
	uint32_t srq_num;
};

/* Asks a receiver for its SRQ, and the first one for a receive QP. */
static int ask(struct receiver *receiver, const char *host, const char *tcp_port)
{
	static uint32_t receive_qp;
	struct ibv_ah_attr path;
	uint32_t qp_num;

	if (receiver->stream)
		fclose(receiver->stream);
	receiver->stream = dial(host, tcp_port);
	if (!receiver->stream)
		return 0;
	write_address(receiver->stream, &port, qp->qp_num, receive_qp);
	if (!read_address(receiver->stream, &port, &path, &qp_num, &receiver->srq_num))
		return 0;
	if (!receive_qp)
		connect_qp(&path, qp_num);
	receive_qp = qp_num;
	printf("%s: QP %u, SRQ %u\n", tcp_port, qp_num, receiver->srq_num);
	return 1;
}

/* Returns whether the process that was asked has ended, and its SRQ as well: TCP says so. */
static int has_ended(const struct receiver *receiver)
{
	char unused;

	return !receiver->stream || recv(fileno(receiver->stream), &unused, 1, MSG_DONTWAIT) >= 0 ||
	       errno != EAGAIN;
}

/* Sends the message to an SRQ, and returns the status of the request. */
static enum ibv_wc_status send_to(uint32_t srq_num)
{
	uint32_t length = strlen(message);
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey };
	struct ibv_send_wr *bad, request = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.qp_type = { .xrc = { .remote_srqn = srq_num } },
	};
	struct ibv_wc wc;
	int count;

	errno = ibv_post_send(qp, &request, &bad);
	if (errno)
		err(1, "SEND");
	while (!(count = ibv_poll_cq(qp->send_cq, 1, &wc)))
		;
	return count == 1 ? wc.status : IBV_WC_GENERAL_ERR;
}

int main(int argc, char **argv)
{
	struct receiver receivers[3 + MAX_RECEIVERS] = { { 0 } };	/* as in argv */
	enum ibv_wc_status status;
	int i;

	if (argc < 4 || argc > 3 + MAX_RECEIVERS)
		errx(2, "usage: sender DEVICE[/PORT[/GID_INDEX]] HOST TCP_PORT...");
	port = open_port(argv[1]);
	create_qp();
	signal(SIGPIPE, SIG_IGN);
	setlinebuf(stdout);
	while (fgets(message, SIZE, stdin)) {
		message[strcspn(message, "\n")] = 0;
		for (i = 3; i < argc; i++) {
			if (has_ended(&receivers[i]) && !ask(&receivers[i], argv[2], argv[i])) {
				printf("%s: no receiver\n", argv[i]);
				continue;
			}
			status = send_to(strcmp(message, "break") ? receivers[i].srq_num : NO_SRQ);
			printf("%s: %s: %s\n", argv[i], message, ibv_wc_status_str(status));
			if (status)
				return 1;	/* the QP is in ERR, and ends with this process */
		}
	}
	return 0;
}
