// SPDX-License-Identifier: GPL-2.0
/*
 * usage: broken ADDRESS PORT			receive, until the connection is shut down
 *	  broken ADDRESS PORT PEER PEER-PORT…	connect to receivers, and break the connection
 *
 * Receivers of one node share the receiving end of a connection. The sender writes
 * to memory that the first receiver does not have, which breaks it; each of them
 * has to get the event FI_SHUTDOWN. They send nothing themselves.
 */

#include <arpa/inet.h>
#include <err.h>
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

static void await(uint32_t wanted, struct fi_eq_cm_entry *entry)
{
	struct fi_eq_err_entry error = {};
	uint32_t event;
	ssize_t ret = fi_eq_sread(eq, &event, entry, sizeof(*entry), 30000, 0);

	if (ret == -FI_EAVAIL) {
		fi_eq_readerr(eq, &error, 0);
		errx(1, "event: %s", fi_strerror(error.err));
	}
	if (ret == -FI_EAGAIN)
		errx(1, "no event");
	check(ret, "fi_eq_sread");
	if (event != wanted)
		errx(1, "event %u in place of %u", event, wanted);

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

static void receive(void)
{
	struct fi_eq_cm_entry entry;
	struct fid_ep *ep;

	await(FI_CONNREQ, &entry);
	ep = open_endpoint(entry.info);
	check(fi_accept(ep, NULL, 0), "fi_accept");
	await(FI_CONNECTED, &entry);
	puts("connected");
	await(FI_SHUTDOWN, &entry);
	if (entry.fid != &ep->fid)
		errx(1, "another endpoint was shut down");
	check(fi_close(&ep->fid), "fi_close");
	puts("shut down");
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

int main(int argc, char **argv)
{
	struct fi_eq_cm_entry entry;
	struct fid_ep *eps[8];
	struct fi_info *info;
	int i;

	if (argc < 3 || argc > 4 + 8)
		return 2;
	setlinebuf(stdout);
	listen_at(argv[1], argv[2]);
	if (argc == 3) {
		receive();
		close_all();
		return 0;
	}

	for (i = 4; i < argc; i++) {
		info = get_info(argv[3], argv[i], 0);
		eps[i - 4] = open_endpoint(info);
		check(fi_connect(eps[i - 4], info->dest_addr, NULL, 0),
		      "fi_connect");
		await(FI_CONNECTED, &entry);
	}
	/* The receivers have been connected, too. */
	sleep(1);
	break_connection(eps[0]);
	await(FI_SHUTDOWN, &entry);
	if (entry.fid != &eps[0]->fid)
		errx(1, "another endpoint was shut down");
	while (i-- > 4)
		check(fi_close(&eps[i - 4]->fid), "fi_close");
	close_all();
	puts("broken");
	return 0;
}
