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
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

enum { SIZE = 64, MAX_RECEIVERS = 16, NO_SRQ = 0xffffff };

static char name[64];
static uint8_t port = 1, gid_index;

static struct ibv_context *open_device(void)
{
	struct ibv_device **device = ibv_get_device_list(NULL);
	struct ibv_context *context;

	if (!device)
		errx(1, "no RDMA devices: %s", errno == ENOSYS ? "ib_uverbs is not loaded" : strerror(errno));
	while (*device && strcmp(ibv_get_device_name(*device), name))
		device++;
	if (!*device)
		errx(1, "%s: no such RDMA device", name);
	context = ibv_open_device(*device);
	if (!context)
		err(1, "%s", name);
	return context;
}

static struct ibv_qp *create_qp(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
		.send_cq = channel ? ibv_create_cq(context, 1, NULL, channel, 0) : NULL,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
	};
	struct ibv_qp *qp = init.send_cq ? ibv_create_qp_ex(context, &init) : NULL;

	if (!qp)
		err(1, "QP");
	return qp;
}

static void modify(struct ibv_qp *qp, enum ibv_qp_state state, struct ibv_qp_attr *attr, int mask)
{
	attr->qp_state = state;
	errno = ibv_modify_qp(qp, attr, mask | IBV_QP_STATE);
	if (errno)
		err(1, "modifying the QP to state %d", state);
}

/* Takes the QP from RESET to RTS, connected to receive QP @qp_num. */
static void connect_qp(struct ibv_qp *qp, uint16_t lid, const union ibv_gid *gid, uint32_t qp_num)
{
	struct ibv_qp_attr attr = {
		.port_num = port,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp_num,
		.min_rnr_timer = 12,
		.timeout = 14,		/* 67 ms */
		.retry_cnt = 7,
		.rnr_retry = 7,		/* without an end */
		.ah_attr = { .port_num = port, .dlid = lid, .is_global = !lid, /* RoCE: no LIDs */
			     .grh = { .dgid = *gid, .sgid_index = gid_index, .hop_limit = 64 } },
	};

	modify(qp, IBV_QPS_INIT, &attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(qp, IBV_QPS_RTR, &attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(qp, IBV_QPS_RTS, &attr, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* Connects to a TCP port, or returns NULL. */
static FILE *dial(const char *host, const char *tcp_port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *next;
	int fd;

	if (getaddrinfo(host, tcp_port, &hints, &next))
		errx(1, "%s: no such host", host);
	for (; next; next = next->ai_next) {
		fd = socket(next->ai_family, SOCK_STREAM, 0);
		if (fd >= 0 && !connect(fd, next->ai_addr, next->ai_addrlen))
			return fdopen(fd, "r");
		close(fd);
	}
	return NULL;
}

/* A receiving process; @stream and @srq_num are of the process that had the port last. */
struct receiver {
	const char *tcp_port;
	FILE *stream;
	uint32_t srq_num;
};

/* Asks a receiver for its SRQ, and the first one for a receive QP. */
static int ask(struct receiver *receiver, const char *host, struct ibv_qp *qp, uint32_t *receive_qp)
{
	char text[INET6_ADDRSTRLEN];
	struct ibv_port_attr local;
	uint32_t qp_num;
	union ibv_gid gid;
	uint16_t lid;

	if (receiver->stream)
		fclose(receiver->stream);
	receiver->stream = dial(host, receiver->tcp_port);
	if (!receiver->stream)
		return 0;
	if (ibv_query_port(qp->context, port, &local) ||
	    ibv_query_gid(qp->context, port, gid_index, &gid))
		err(1, "port %u of %s", port, name);
	dprintf(fileno(receiver->stream), "%u %s %u %u\n", local.lid,
		inet_ntop(AF_INET6, &gid, text, sizeof(text)), qp->qp_num, *receive_qp);
	if (fscanf(receiver->stream, "%hu %45s %u %u", &lid, text, &qp_num, &receiver->srq_num) != 4 ||
	    inet_pton(AF_INET6, text, &gid) != 1)
		return 0;
	if (!*receive_qp)
		connect_qp(qp, lid, &gid, qp_num);
	*receive_qp = qp_num;
	printf("%s: QP %u, SRQ %u\n", receiver->tcp_port, qp_num, receiver->srq_num);
	return 1;
}

/* Returns whether the process that was asked has ended, and its SRQ as well: TCP says so. */
static int has_ended(const struct receiver *receiver)
{
	char unused;

	return !receiver->stream || recv(fileno(receiver->stream), &unused, 1, MSG_DONTWAIT) >= 0 ||
	       errno != EAGAIN;
}

/* Sends @length bytes of @mr to an SRQ, and returns the status of the request. */
static enum ibv_wc_status send_to(uint32_t srq_num, struct ibv_qp *qp, struct ibv_mr *mr,
				  uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey };
	struct ibv_send_wr *bad, request = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.qp_type = { .xrc = { .remote_srqn = srq_num } },
	};
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *unused;

	errno = ibv_req_notify_cq(qp->send_cq, 0);
	if (!errno)
		errno = ibv_post_send(qp, &request, &bad);
	if (errno || ibv_get_cq_event(qp->send_cq->channel, &cq, &unused))
		err(1, "SEND");
	ibv_ack_cq_events(cq, 1);
	if (ibv_poll_cq(cq, 1, &wc) != 1)
		errx(1, "no completion");
	return wc.status;
}

int main(int argc, char **argv)
{
	struct receiver receivers[MAX_RECEIVERS], *receiver, *end = receivers;
	struct ibv_context *context;
	enum ibv_wc_status status;
	uint32_t receive_qp = 0;
	char message[SIZE];
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	if (argc < 4 || argc > 3 + MAX_RECEIVERS ||
	    sscanf(argv[1], "%63[^/]/%hhu/%hhu", name, &port, &gid_index) < 1)
		errx(2, "usage: sender DEVICE[/PORT[/GID_INDEX]] HOST TCP_PORT...");
	for (; end < receivers + argc - 3; end++)
		*end = (struct receiver){ .tcp_port = argv[3 + (end - receivers)] };
	context = open_device();
	pd = ibv_alloc_pd(context);
	mr = pd ? ibv_reg_mr(pd, message, sizeof(message), 0) : NULL;
	if (!mr)
		err(1, "PD and memory");
	qp = create_qp(context, pd);
	signal(SIGPIPE, SIG_IGN);
	setlinebuf(stdout);
	while (fgets(message, sizeof(message), stdin)) {
		message[strcspn(message, "\n")] = 0;
		for (receiver = receivers; receiver < end; receiver++) {
			if (has_ended(receiver) && !ask(receiver, argv[2], qp, &receive_qp)) {
				printf("%s: no receiver\n", receiver->tcp_port);
				continue;
			}
			status = send_to(strcmp(message, "break") ? receiver->srq_num : NO_SRQ,
					 qp, mr, strlen(message));
			printf("%s: %s: %s\n", receiver->tcp_port, message, ibv_wc_status_str(status));
			if (status)
				return 1;	/* the QP is in ERR, and ends with this process */
		}
	}
	return 0;
}
