/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The things that sender.c and receiver.c need as any program of RDMA does: a port of a
 * device, and its address and numbers for the peer, a line each by TCP.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

struct port {
	struct ibv_context *context;
	uint8_t num, gid_index;
};

/* Opens DEVICE[/PORT[/GID_INDEX]]. */
static inline struct port open_port(const char *argument)
{
	struct ibv_device **device = ibv_get_device_list(NULL);
	struct port port = { .num = 1 };
	char name[64] = "";

	if (sscanf(argument, "%63[^/]/%hhu/%hhu", name, &port.num, &port.gid_index) < 1)
		errx(1, "'%s' names no RDMA device", argument);
	if (!device)
		errx(1, "no RDMA devices: %s", errno == ENOSYS ? "ib_uverbs is not loaded" : strerror(errno));
	while (*device && strcmp(ibv_get_device_name(*device), name))
		device++;
	if (!*device)
		errx(1, "%s: no such RDMA device", name);
	port.context = ibv_open_device(*device);
	if (!port.context)
		err(1, "%s", name);
	return port;
}

/* Writes the line "LID GID", and two numbers. */
static inline void write_address(FILE *peer, const struct port *port, uint32_t first,
				 uint32_t second)
{
	char text[INET6_ADDRSTRLEN];
	struct ibv_port_attr attr;
	union ibv_gid gid;

	if (ibv_query_port(port->context, port->num, &attr) ||
	    ibv_query_gid(port->context, port->num, port->gid_index, &gid))
		err(1, "port %u", port->num);
	dprintf(fileno(peer), "%u %s %u %u\n", attr.lid, inet_ntop(AF_INET6, &gid, text, sizeof(text)),
		first, second);
}

/* Reads such a line, as the path from @port to the peer. Returns whether it is one. */
static inline int read_address(FILE *peer, const struct port *port, struct ibv_ah_attr *path,
			       uint32_t *first, uint32_t *second)
{
	char text[INET6_ADDRSTRLEN];

	*path = (struct ibv_ah_attr){
		.port_num = port->num,
		.grh = { .sgid_index = port->gid_index, .hop_limit = 64 },
	};
	if (fscanf(peer, "%hu %45s %u %u", &path->dlid, text, first, second) != 4)
		return 0;
	path->is_global = !path->dlid;	/* RoCE has no LIDs */
	return inet_pton(AF_INET6, text, &path->grh.dgid) == 1;
}

/* Connects to a TCP port, or returns NULL. */
static inline FILE *dial(const char *host, const char *tcp_port)
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

static inline int listen_at(uint16_t tcp_port)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(tcp_port) };
	int fd = socket(AF_INET6, SOCK_STREAM, 0), on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 8))
		err(1, "TCP port %u", tcp_port);
	return fd;
}
