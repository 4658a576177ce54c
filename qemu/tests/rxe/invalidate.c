// SPDX-License-Identifier: GPL-2.0
/*
 * SEND with Invalidate through the target QP of test-modules/xrc_user, by packets
 * made by hand: the key that a message carries has to be one of the protection
 * domain of the SRQ that it names.
 */

#define _GNU_SOURCE
#include <err.h>
#include <stdlib.h>
#include <string.h>

#include "ktap.h"
#include "node.h"
#include "packet.h"

#define PEER "10.0.0.1"

enum { PEER_QP = 0xbad001, MTU = 1024, QUIET_MS = 3000 };

static struct link link_;

static void parameter(const char *name, char *text, int size)
{
	char path[80];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/module/xrc_user/parameters/%s", name);
	file = fopen(path, "r");
	if (!file || !fgets(text, size, file))
		err(1, "%s", path);
	fclose(file);
	text[strcspn(text, "\n")] = '\0';
}

static uint32_t number(const char *name)
{
	char text[32];

	parameter(name, text, sizeof(text));
	return strtoul(text, NULL, 0);
}

static void send_packet(uint8_t operation, uint32_t psn, const uint32_t *key, size_t size)
{
	static const uint8_t data[MTU];
	struct packet packet;

	packet_start(&packet, PEER, XRC | operation, number("qp_number"), psn);
	packet_u32(&packet, number("srq_number"));
	if (key)
		packet_u32(&packet, *key);
	packet_payload(&packet, data, size);
	packet_seal(&packet);
	link_send(&link_, &packet, 1);
}

static bool acknowledged_within(unsigned int timeout_ms, uint32_t psn)
{
	struct answer answer;

	while (link_answer(&link_, PEER_QP, timeout_ms, &answer)) {
		if (answer.opcode == (XRC | ACKNOWLEDGE) && answer.syndrome <= 0x1f &&
		    answer.psn == psn)
			return true;
		ktap_note("answer %#x, syndrome %#x, psn %u", answer.opcode, answer.syndrome,
			  answer.psn);
	}
	return false;
}

static bool acknowledged(uint32_t psn)
{
	return acknowledged_within(PATIENCE_MS, psn);
}

/* Whether the one receive has this status, and invalidated this key. */
static bool completes(const char *status, uint32_t key)
{
	char expected[80], found[80];

	snprintf(expected, sizeof(expected), key ? "%s, %#x" : "%s, 0x0", status, key);
	parameter("completion", found, sizeof(found));
	ktap_note("%s", found);
	return !strcmp(found, expected);
}

static bool nothing_completes(void)
{
	char found[80];

	parameter("completion", found, sizeof(found));
	return !strcmp(found, "none");
}

int main(void)
{
	uint32_t own = number("own_key"), other = number("other_key");

	node_enter("left");
	link_open(&link_);
	ktap_start("SEND with Invalidate", 4);

	send_packet(SEND_ONLY_INVALIDATE, 0, &own, 33);
	ktap_result(acknowledged(0) && completes("success", own),
		    "a region of the SRQ's protection domain is invalidated");

	send_packet(SEND_FIRST, 1, NULL, MTU);
	send_packet(SEND_LAST_INVALIDATE, 2, &own, 33);
	ktap_result(acknowledged(2) && completes("success", own),
		    "a region is invalidated by the last of several packets");

	send_packet(SEND_ONLY_INVALIDATE, 3, &other, 33);
	ktap_result(acknowledged(3) && completes("remote invalid request error", 0),
		    "a region of another protection domain is not invalidated");

	send_packet(SEND_ONLY, 4, NULL, 33);
	ktap_result(!acknowledged_within(QUIET_MS, 4) && nothing_completes(),
		    "an attempt to do so breaks the target QP");
	return ktap_end();
}
