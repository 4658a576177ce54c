/* SPDX-License-Identifier: GPL-2.0 */
/*
 * RoCE v2 packets made by hand: every field as the caller says, whether it
 * makes sense or not. The link to send them on and to see answers on is two
 * sockets in the namespace that link_open() was called in.
 */
#ifndef PACKET_H
#define PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BTH_OFFSET = 20 + 8,		/* after the IPv4 and UDP headers */
	BTH_BYTES = 12,
	ICRC_BYTES = 4,
	PACKET_MAX = 4096 + 256,

	/* The transport's base, to which operations are added, in the opcode of the BTH. */
	RC = 0x00,
	XRC = 0xa0,

	SEND_FIRST = 0x00,
	SEND_MIDDLE = 0x01,
	SEND_LAST = 0x02,
	SEND_LAST_IMM = 0x03,
	SEND_ONLY = 0x04,
	SEND_ONLY_IMM = 0x05,
	WRITE_FIRST = 0x06,
	WRITE_MIDDLE = 0x07,
	WRITE_LAST = 0x08,
	WRITE_LAST_IMM = 0x09,
	WRITE_ONLY = 0x0a,
	WRITE_ONLY_IMM = 0x0b,
	READ_REQUEST = 0x0c,
	READ_RESPONSE_FIRST = 0x0d,
	READ_RESPONSE_MIDDLE = 0x0e,
	READ_RESPONSE_LAST = 0x0f,
	READ_RESPONSE_ONLY = 0x10,
	ACKNOWLEDGE = 0x11,
	ATOMIC_ACKNOWLEDGE = 0x12,
	COMPARE_SWAP = 0x13,
	FETCH_ADD = 0x14,
	SEND_LAST_INVALIDATE = 0x16,
	SEND_ONLY_INVALIDATE = 0x17,
};

struct packet {
	uint8_t bytes[PACKET_MAX];	/* from the IPv4 header to the ICRC */
	size_t size;
};

bool is_request(uint8_t opcode);

/* IPv4, UDP and BTH; the acknowledge bit is set. */
void packet_start(struct packet *packet, const char *source, uint8_t opcode,
		  uint32_t qp_num, uint32_t psn);
void packet_u32(struct packet *packet, uint32_t value);
void packet_u64(struct packet *packet, uint64_t value);
/* SIZE bytes of payload, and the padding that the BTH then states. */
void packet_payload(struct packet *packet, const void *data, size_t size);
/* Lengths and ICRC: last of all. */
void packet_seal(struct packet *packet);

struct link {
	int raw, sniffer;
};

void link_open(struct link *link);
void link_send(struct link *link, const struct packet *packets, unsigned int count);

/* An answer off the wire to QP_NUM; false if none came in time. */
struct answer {
	uint8_t opcode;
	uint8_t syndrome;
	uint32_t psn;
	const uint8_t *body;		/* after the BTH, until the next call */
	size_t size;
};

bool link_answer(struct link *link, uint32_t qp_num, unsigned int timeout_ms,
		 struct answer *answer);
void link_flush(struct link *link);

#endif
