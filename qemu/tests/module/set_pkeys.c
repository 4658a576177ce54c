// SPDX-License-Identifier: GPL-2.0
/*
 * set_pkeys DEVICE PORT PKEY…
 *
 * Sets the P_Key table of a port, as its subnet manager does: by a directed
 * route of no hops, whose packet the driver gives to the port's own agent.
 *
 * tags: part
 */

#include <endian.h>
#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rdma/ib_user_mad.h>

#include "ktap.h"

enum {
	DIRECTED_ROUTE = 0x81,
	METHOD_SET = 2,
	PKEY_TABLE = 0x16,
	PERMISSIVE = 0xffff,
	TABLE = 32,		/* P_Keys of a packet */
	ANSWERED = 0x8000,	/* in a status: the answer came on a directed route */
};

struct packet {
	struct ib_user_mad_hdr header;
	uint8_t base_version, mgmt_class, class_version, method;
	uint16_t status;
	uint8_t hop_pointer, hop_count;
	uint64_t transaction;
	uint16_t attribute, reserved;
	uint32_t modifier;
	uint64_t mkey;
	uint16_t dr_slid, dr_dlid;
	uint8_t reserved2[28];
	uint16_t pkeys[TABLE];
	uint8_t paths[128];
} __attribute__((packed));

static bool line_is(const char *umad, const char *name, const char *value)
{
	char path[128], line[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband_mad/%s/%s", umad, name);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return !strcmp(line, value);
}

static int open_port(const char *device, const char *port)
{
	char umad[32], path[64];
	int i, fd;

	for (i = 0; i < 64; i++) {
		snprintf(umad, sizeof(umad), "umad%d", i);
		if (!line_is(umad, "ibdev", device) || !line_is(umad, "port", port))
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%s", umad);
		fd = open(path, O_RDWR);
		if (fd < 0)
			err(1, "%s", path);
		return fd;
	}
	errx(1, "no umad of %s port %s", device, port);
}

int main(int argc, char **argv)
{
	struct ib_user_mad_reg_req agent = { .mgmt_class = DIRECTED_ROUTE, .mgmt_class_version = 1 };
	struct packet answer, packet = {
		/* To QP0, at the permissive LID. */
		.header = { .timeout_ms = PATIENCE_MS, .lid = htobe16(PERMISSIVE) },
		.base_version = 1,
		.mgmt_class = DIRECTED_ROUTE,
		.class_version = 1,
		.method = METHOD_SET,
		.transaction = htobe64(1),
		.attribute = htobe16(PKEY_TABLE),
		.dr_slid = htobe16(PERMISSIVE),
		.dr_dlid = htobe16(PERMISSIVE),
	};
	struct pollfd umad;
	int i;

	if (argc < 4 || argc > 3 + TABLE)
		errx(2, "usage: set_pkeys DEVICE PORT PKEY…");
	for (i = 3; i < argc; i++)
		packet.pkeys[i - 3] = htobe16(strtoul(argv[i], NULL, 0));
	umad.fd = open_port(argv[1], argv[2]);
	umad.events = POLLIN;
	if (ioctl(umad.fd, IB_USER_MAD_ENABLE_PKEY) || ioctl(umad.fd, IB_USER_MAD_REGISTER_AGENT, &agent))
		err(1, "agent");
	packet.header.id = agent.id;
	if (write(umad.fd, &packet, sizeof(packet)) != sizeof(packet))
		err(1, "write");
	if (poll(&umad, 1, PATIENCE_MS) != 1)
		errx(1, "no answer");
	if (read(umad.fd, &answer, sizeof(answer)) != sizeof(answer))
		err(1, "read");
	if (answer.header.status || (be16toh(answer.status) & ~ANSWERED))
		errx(1, "status %u, %#x", answer.header.status, be16toh(answer.status));
	if (memcmp(answer.pkeys, packet.pkeys, (argc - 3) * sizeof(*packet.pkeys)))
		errx(1, "the table is another");
	return 0;
}
