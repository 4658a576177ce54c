// SPDX-License-Identifier: GPL-2.0
/*
 * usage: broken await ADDRESS PORT			receive, until the connection is shut down
 *	  broken break ADDRESS PORT PEER PEER-PORT…	connect to receivers, and break it
 *
 * Receivers of one node share the receiving end of a connection. The sender writes
 * to memory that the first receiver does not have, which breaks it; each of them
 * has to get the event FI_SHUTDOWN. They send nothing themselves.
 *
 *	  broken await ADDRESS PORT late
 *	  broken late ADDRESS PORT			accept a connection too late
 *	  broken break-late ADDRESS PORT PEER PEER-PORT PEER-PORT
 *
 * The second receiver creates the file "requested" when it has the sender's request
 * to share the connection of the first, and accepts it when there is the file
 * "broken". It may not wait for messages. With "late", the first one closes its
 * endpoint after that.
 *
 *	  broken receive ADDRESS PORT N			receive a message of each of N connections
 *	  broken send ADDRESS PORT PEER PEER-PORT…	send one to each of the receivers
 *
 * The sender connects to a receiver when there is a file with the name of its
 * port. A connection to a node whose other processes have closed theirs may fail
 * once, and not again.
 *
 *	  broken lose ADDRESS PORT			receive a message, and lose the device
 *
 * The endpoint is closed when there is the file "removed", before its events are
 * read.
 */

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_eq *eq;
static struct fid_cq *tx_cq, *rx_cq;
static struct fid_ep *srx;
static struct fid_pep *pep;

static void check(ssize_t ret, const char *what)
{
	if (ret < 0)
		errx(1, "%s: %s", what, fi_strerror(-ret));
}

enum { ERROR = UINT32_MAX };

/* An event that has not come after this is believed never to come, as in wait.sh. */
enum { PATIENCE_MS = 240000 };

/* An error has the fid of the entry. */
static uint32_t next_event(struct fi_eq_cm_entry *entry)
{
	struct fi_eq_err_entry error = {};
	uint32_t event;
	ssize_t ret = fi_eq_sread(eq, &event, entry, sizeof(*entry), PATIENCE_MS, 0);

	if (ret == -FI_EAVAIL) {
		fi_eq_readerr(eq, &error, 0);
		printf("error: %s\n", fi_strerror(error.err));
		entry->fid = error.fid;
		return ERROR;
	}
	if (ret == -FI_EAGAIN)
		errx(1, "no event");
	check(ret, "fi_eq_sread");
	return event;
}

static void await(uint32_t wanted, struct fi_eq_cm_entry *entry)
{
	uint32_t event = next_event(entry);

	if (event != wanted)
		errx(1, "event %d in place of %u", event, wanted);
}

static void await_file(const char *path)
{
	while (access(path, F_OK))
		usleep(20000);
}

/* The same, without an event until then: the EQ makes progress when it is read. */
static void await_quiet_file(const char *path)
{
	struct fi_eq_cm_entry entry;
	uint32_t event;

	while (access(path, F_OK))
		if (fi_eq_sread(eq, &event, &entry, sizeof(entry), 20, 0) != -FI_EAGAIN)
			errx(1, "an event before the file %s", path);
}

static void create_file(const char *path)
{
	FILE *file = fopen(path, "w");

	if (!file || fclose(file))
		err(1, "%s", path);
}

/* The file of a receiver that knows that it is connected. */
static const char *connected_file(const char *port)
{
	static char path[32];

	snprintf(path, sizeof(path), "connected.%s", port);
	return path;
}

static struct fi_info *get_info(const char *node, const char *port, uint64_t flags)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	hints->ep_attr->type = FI_EP_MSG;
	hints->ep_attr->protocol = FI_PROTO_RDMA_CM_IB_XRC;
	hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	hints->caps = FI_MSG | FI_RMA;
	hints->addr_format = FI_SOCKADDR_IN;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup("verbs");
	check(fi_getinfo(FI_VERSION(2, 0), node, port, flags, hints, &info),
	      "fi_getinfo");
	return info;
}

/* Each side listens: its peers connect back to this port. */
static void listen_at(const char *address, const char *port)
{
	struct fi_info *info = get_info(address, port, FI_SOURCE);
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr cq_attr = { .size = 64, .format = FI_CQ_FORMAT_MSG };

	check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	check(fi_eq_open(fabric, &eq_attr, &eq, NULL), "fi_eq_open");
	check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	check(fi_cq_open(domain, &cq_attr, &tx_cq, NULL), "fi_cq_open");
	check(fi_cq_open(domain, &cq_attr, &rx_cq, NULL), "fi_cq_open");
	info->rx_attr->size = 16;
	check(fi_srx_context(domain, info->rx_attr, &srx, NULL), "fi_srx_context");
	check(fi_passive_ep(fabric, info, &pep, NULL), "fi_passive_ep");
	check(fi_pep_bind(pep, &eq->fid, 0), "fi_pep_bind");
	check(fi_listen(pep), "fi_listen");
}

static void close_all(void)
{
	struct fid *objects[] = {
		&srx->fid, &pep->fid, &tx_cq->fid, &rx_cq->fid, &domain->fid,
		&eq->fid, &fabric->fid,
	};

	for (size_t i = 0; i < sizeof(objects) / sizeof(*objects); i++)
		check(fi_close(objects[i]), "fi_close");
}

static struct fid_ep *open_endpoint(struct fi_info *info)
{
	struct fid_ep *ep;

	info->tx_attr->size = 16;
	info->rx_attr->size = 16;
	check(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	check(fi_ep_bind(ep, &eq->fid, 0), "fi_ep_bind");
	check(fi_ep_bind(ep, &tx_cq->fid, FI_TRANSMIT), "fi_ep_bind");
	check(fi_ep_bind(ep, &rx_cq->fid, FI_RECV), "fi_ep_bind");
	check(fi_ep_bind(ep, &srx->fid, 0), "fi_ep_bind");
	check(fi_enable(ep), "fi_enable");
	return ep;
}

static void receive(const char *port, bool late)
{
	struct fi_eq_cm_entry entry;
	struct fid_ep *ep;

	await(FI_CONNREQ, &entry);
	ep = open_endpoint(entry.info);
	check(fi_accept(ep, NULL, 0), "fi_accept");
	await(FI_CONNECTED, &entry);
	create_file(connected_file(port));
	puts("connected");
	await(FI_SHUTDOWN, &entry);
	if (entry.fid != &ep->fid)
		errx(1, "another endpoint was shut down");
	if (late)
		await_file("refused");
	check(fi_close(&ep->fid), "fi_close");
	puts("shut down");
}

static void accept_late(void)
{
	struct fi_eq_cm_entry entry;
	struct fid_ep *ep;
	int ret;

	await(FI_CONNREQ, &entry);
	create_file("requested");
	await_file("broken");
	ep = open_endpoint(entry.info);
	ret = fi_accept(ep, NULL, 0);
	if (ret != -FI_ECONNABORTED)
		errx(1, "a broken connection was accepted: %d", ret);
	fi_freeinfo(entry.info);
	check(fi_close(&ep->fid), "fi_close");
	create_file("refused");
}

static void break_connection(struct fid_ep *ep)
{
	static char data[64];
	struct fi_cq_err_entry error = {};
	struct fi_cq_msg_entry entry;
	struct fid_mr *mr;
	ssize_t ret;

	check(fi_mr_reg(domain, data, sizeof(data), FI_WRITE, 0, 0, 0, &mr, NULL),
	      "fi_mr_reg");
	check(fi_write(ep, data, sizeof(data), fi_mr_desc(mr), 0, 0x10000,
		       0xdead, NULL), "fi_write");
	do {
		ret = fi_cq_read(tx_cq, &entry, 1);
	} while (ret == -FI_EAGAIN);
	if (ret != -FI_EAVAIL)
		errx(1, "a write to memory that is not registered has succeeded");
	fi_cq_readerr(tx_cq, &error, 0);
	check(fi_close(&mr->fid), "fi_close");
}

static char message[64];

static struct fid_mr *register_message(uint64_t access)
{
	struct fid_mr *mr;

	check(fi_mr_reg(domain, message, sizeof(message), access, 0, 0, 0, &mr, NULL),
	      "fi_mr_reg");
	return mr;
}

static void await_completion(struct fid_cq *cq)
{
	struct fi_cq_msg_entry entry;
	ssize_t ret;

	do {
		ret = fi_cq_read(cq, &entry, 1);
	} while (ret == -FI_EAGAIN);
	check(ret, "fi_cq_read");
}

/* The endpoint, or NULL if the connection could not be accepted. */
static struct fid_ep *try_accept(struct fi_info *info)
{
	struct fid_ep *ep = open_endpoint(info);
	int ret = fi_accept(ep, NULL, 0);

	if (!ret)
		return ep;
	printf("fi_accept: %s\n", fi_strerror(-ret));
	/* As RXM does, though the request went to the endpoint. */
	check(fi_close(&ep->fid), "fi_close");
	ret = fi_reject(pep, info->handle, NULL, 0);
	if (ret != -FI_EBUSY)
		errx(1, "a request was rejected with its endpoint, and again: %d", ret);
	return NULL;
}

static void receive_messages(int n)
{
	struct fid_mr *mr = register_message(FI_RECV);
	struct fi_eq_cm_entry entry;
	struct fid_ep *eps[8] = {};
	uint32_t event;
	int i = 0;

	check(fi_recv(srx, message, sizeof(message), fi_mr_desc(mr), 0, NULL), "fi_recv");
	while (i < n) {
		event = next_event(&entry);
		if (event == FI_CONNREQ && !eps[i]) {
			eps[i] = try_accept(entry.info);
			fi_freeinfo(entry.info);
			continue;
		}
		if (!eps[i] || entry.fid != &eps[i]->fid)
			errx(1, "event %d that is not the endpoint's", event);
		if (event == ERROR) {
			check(fi_close(&eps[i]->fid), "fi_close");
			eps[i] = NULL;
			continue;
		}
		if (event != FI_CONNECTED)
			errx(1, "event %d in place of FI_CONNECTED", event);
		await_completion(rx_cq);
		if (strcmp(message, "message"))
			errx(1, "another message");
		printf("received %d\n", ++i);
		memset(message, 0, sizeof(message));
		if (i < n)
			check(fi_recv(srx, message, sizeof(message), fi_mr_desc(mr), 0, NULL),
			      "fi_recv");
	}
	while (i--)
		check(fi_close(&eps[i]->fid), "fi_close");
	check(fi_close(&mr->fid), "fi_close");
}

static struct fid_ep *try_connect(const char *peer, const char *port)
{
	struct fi_info *info = get_info(peer, port, 0);
	struct fid_ep *ep = open_endpoint(info);
	struct fi_eq_cm_entry entry;
	uint32_t event;

	check(fi_connect(ep, info->dest_addr, NULL, 0), "fi_connect");
	fi_freeinfo(info);
	event = next_event(&entry);
	if (entry.fid != &ep->fid)
		errx(1, "event %d of another endpoint", event);
	if (event == FI_CONNECTED)
		return ep;
	if (event != ERROR)
		errx(1, "event %d in place of FI_CONNECTED", event);
	check(fi_close(&ep->fid), "fi_close");
	return NULL;
}

static void send_messages(const char *peer, char **ports, int n)
{
	struct fid_mr *mr = register_message(FI_SEND);
	struct fid_ep *eps[8];
	int i;

	strcpy(message, "message");
	for (i = 0; i < n; i++) {
		await_file(ports[i]);
		eps[i] = try_connect(peer, ports[i]);
		if (!eps[i])
			eps[i] = try_connect(peer, ports[i]);
		if (!eps[i])
			errx(1, "the connection to %s failed again", ports[i]);
		check(fi_send(eps[i], message, sizeof(message), fi_mr_desc(mr), 0, NULL),
		      "fi_send");
		await_completion(tx_cq);
		printf("sent %d\n", i + 1);
	}
	while (i--)
		check(fi_close(&eps[i]->fid), "fi_close");
	check(fi_close(&mr->fid), "fi_close");
}

static void lose(void)
{
	struct fid_mr *mr = register_message(FI_RECV);
	struct fi_eq_err_entry error = {};
	struct fi_eq_cm_entry entry;
	struct fid_ep *ep;
	uint32_t event;
	ssize_t ret;
	int i;

	check(fi_recv(srx, message, sizeof(message), fi_mr_desc(mr), 0, NULL), "fi_recv");
	await(FI_CONNREQ, &entry);
	ep = open_endpoint(entry.info);
	check(fi_accept(ep, NULL, 0), "fi_accept");
	await(FI_CONNECTED, &entry);
	await_completion(rx_cq);
	puts("connected");
	await_file("removed");
	check(fi_close(&ep->fid), "fi_close");
	for (i = 0; i < 20; i++) {
		ret = fi_eq_read(eq, &event, &entry, sizeof(entry), 0);
		if (ret == -FI_EAGAIN)
			break;
		if (ret != -FI_EAVAIL)
			errx(1, "fi_eq_read: %zd, event %u", ret, event);
		fi_eq_readerr(eq, &error, 0);
		if (error.err != ENODEV || error.fid == &ep->fid)
			errx(1, "error: %s", fi_strerror(error.err));
	}
	if (i == 20)
		errx(1, "events without end");
	puts("removed");
	/* libibverbs does not destroy objects of a device that is gone. */
	_exit(0);
}

static void break_connections(const char *peer, char **ports, int n)
{
	struct fi_eq_cm_entry entry;
	struct fid_ep *eps[8];
	struct fi_info *info;
	int i;

	for (i = 0; i < n; i++) {
		info = get_info(peer, ports[i], 0);
		eps[i] = open_endpoint(info);
		check(fi_connect(eps[i], info->dest_addr, NULL, 0), "fi_connect");
		await(FI_CONNECTED, &entry);
	}
	for (i = 0; i < n; i++)
		await_quiet_file(connected_file(ports[i]));
	break_connection(eps[0]);
	await(FI_SHUTDOWN, &entry);
	if (entry.fid != &eps[0]->fid)
		errx(1, "another endpoint was shut down");
	while (i--)
		check(fi_close(&eps[i]->fid), "fi_close");
	puts("broken");
}

static void break_late(const char *peer, char **ports)
{
	struct fi_eq_cm_entry entry;
	struct fid_ep *eps[2];
	struct fi_info *info;
	uint32_t event;
	int i;

	for (i = 0; i < 2; i++) {
		info = get_info(peer, ports[i], 0);
		eps[i] = open_endpoint(info);
		check(fi_connect(eps[i], info->dest_addr, NULL, 0), "fi_connect");
		if (!i)
			await(FI_CONNECTED, &entry);
	}
	await_quiet_file(connected_file(ports[0]));
	await_quiet_file("requested");
	break_connection(eps[0]);
	create_file("broken");
	for (i = 0; i < 2; i++) {
		event = next_event(&entry);
		if (event != (entry.fid == &eps[0]->fid ? FI_SHUTDOWN : ERROR))
			errx(1, "event %d", event);
	}
	while (i--)
		check(fi_close(&eps[i]->fid), "fi_close");
	puts("broken");
}

int main(int argc, char **argv)
{
	const char *what = argv[1];
	int peers = argc - 5;

	if (argc < 4 || peers > 8)
		return 2;
	setlinebuf(stdout);
	listen_at(argv[2], argv[3]);
	if (!strcmp(what, "await"))
		receive(argv[3], argc == 5);
	else if (!strcmp(what, "lose"))
		lose();
	else if (!strcmp(what, "receive") && argc == 5)
		receive_messages(atoi(argv[4]));
	else if (!strcmp(what, "break") && peers > 0)
		break_connections(argv[4], argv + 5, peers);
	else if (!strcmp(what, "late"))
		accept_late();
	else if (!strcmp(what, "break-late") && peers == 2)
		break_late(argv[4], argv + 5);
	else if (!strcmp(what, "send") && peers > 0)
		send_messages(argv[4], argv + 5, peers);
	else
		return 2;
	close_all();
	return 0;
}
