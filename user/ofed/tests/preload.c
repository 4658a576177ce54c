// SPDX-License-Identifier: GPL-2.0
/*
 * A program that knows nothing of the OFED layer when it is built, and looks
 * OFED's functions up when it runs.
 *
 * usage: preload DEVICE [LIBRARY]
 *
 * Exits with 77 if the functions are not there. LIBRARY is passed to dlopen();
 * without it the functions are looked for in the whole program.
 */
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

struct ibv_xrc_domain;

/* As OFED's header had it. */
struct ofed_qp_init_attr {
	struct ibv_qp_init_attr base;
	struct ibv_xrc_domain *xrc_domain;
};

static struct ibv_xrc_domain *(*open_xrc_domain)(struct ibv_context *context,
						  int fd, int oflag);
static int (*close_xrc_domain)(struct ibv_xrc_domain *domain);
static int (*create_xrc_rcv_qp)(struct ofed_qp_init_attr *attr, uint32_t *qpn);
static int (*modify_xrc_rcv_qp)(struct ibv_xrc_domain *domain, uint32_t qpn,
				struct ibv_qp_attr *attr, int mask);
static int (*unreg_xrc_rcv_qp)(struct ibv_xrc_domain *domain, uint32_t qpn);

static void look_up(const char *library)
{
	void *handle = dlopen(library, RTLD_NOW);

	if (!handle)
		errx(1, "%s", dlerror());
	open_xrc_domain = dlsym(handle, "ibv_open_xrc_domain");
	close_xrc_domain = dlsym(handle, "ibv_close_xrc_domain");
	create_xrc_rcv_qp = dlsym(handle, "ibv_create_xrc_rcv_qp");
	modify_xrc_rcv_qp = dlsym(handle, "ibv_modify_xrc_rcv_qp");
	unreg_xrc_rcv_qp = dlsym(handle, "ibv_unreg_xrc_rcv_qp");
	if (!open_xrc_domain || !close_xrc_domain || !create_xrc_rcv_qp ||
	    !modify_xrc_rcv_qp || !unreg_xrc_rcv_qp)
		errx(77, "no XRC calls");
	if (!dlsym(handle, "ibv_open_device"))
		errx(1, "libibverbs is not behind it");
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ofed_qp_init_attr init_attr;
	struct ibv_async_event event;
	struct ibv_context *context;
	uint32_t qpn;
	int ret;

	if (argc < 2)
		errx(2, "usage: preload DEVICE [LIBRARY]");
	while (device && *device && strcmp(ibv_get_device_name(*device), argv[1]))
		device++;
	if (!device || !*device)
		errx(1, "no device %s", argv[1]);
	look_up(argv[2]);
	context = ibv_open_device(*device);
	if (!context)
		err(1, "%s", argv[1]);
	init_attr.xrc_domain = open_xrc_domain(context, -1, O_CREAT);
	if (!init_attr.xrc_domain)
		err(1, "domain");
	ret = create_xrc_rcv_qp(&init_attr, &qpn);
	if (ret)
		errx(1, "create: %s", strerror(ret));
	ret = modify_xrc_rcv_qp(init_attr.xrc_domain, qpn, &attr,
				IBV_QP_STATE | IBV_QP_PORT |
				IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
	if (ret)
		errx(1, "modify to INIT: %s", strerror(ret));
	attr.qp_state = IBV_QPS_ERR;
	ret = modify_xrc_rcv_qp(init_attr.xrc_domain, qpn, &attr, IBV_QP_STATE);
	if (ret)
		errx(1, "modify to ERR: %s", strerror(ret));
	/* In error, it takes no more receives, and says so. */
	alarm(240);
	if (ibv_get_async_event(context, &event))
		err(1, "no event");
	if ((unsigned int)event.event_type !=
	    (IBV_EVENT_QP_LAST_WQE_REACHED | 0x80000000) ||
	    (uint32_t)event.element.port_num != qpn)
		errx(1, "event %#x of %#x", event.event_type,
		     event.element.port_num);
	ibv_ack_async_event(&event);
	if (close_xrc_domain(init_attr.xrc_domain) != EBUSY)
		errx(1, "closed in use");
	ret = unreg_xrc_rcv_qp(init_attr.xrc_domain, qpn);
	if (ret)
		errx(1, "unreg: %s", strerror(ret));
	ret = close_xrc_domain(init_attr.xrc_domain);
	if (ret)
		errx(1, "close: %s", strerror(ret));
	return ibv_close_device(context);
}
