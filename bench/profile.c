// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU that counts how often a guest executes each block of instructions, in each of several
 * sections that a program in the guest marks with PROFILE() (profile.h):
 *
 *	-plugin profile.so,out=FILE
 *
 * At its end QEMU writes FILE: a line for each block, with its address, its number of instructions, how many of
 * these are atomic, and how often it ran in each section from 1 on. For one CPU.
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile.h"
#include "qemu_plugin.h"

EXPORT int qemu_plugin_version = 7;

enum { BUCKETS = 1 << 16, LONGEST = 15 };

struct block {
	struct block *next;
	uint64_t address;
	size_t len, atomics;
	uint64_t counts[PROFILE_SECTIONS];
};

static char out[4096];
static struct block *buckets[BUCKETS];
static unsigned int section;

static struct block *find_block(uint64_t address, size_t len, size_t atomics)
{
	struct block **bucket = &buckets[address % BUCKETS], *block;

	for (block = *bucket; block; block = block->next)
		if (block->address == address && block->len == len && block->atomics == atomics)
			return block;
	block = calloc(1, sizeof(*block));
	if (!block)
		abort();
	block->next = *bucket;
	block->address = address;
	block->len = len;
	block->atomics = atomics;
	*bucket = block;
	return block;
}

static void block_runs(unsigned int cpu, void *data)
{
	struct block *block = data;

	(void)cpu;
	block->counts[section]++;
}

static void mark(unsigned int cpu, void *data)
{
	(void)cpu;
	section = (uintptr_t)data;
}

/* Those with a lock prefix, and exchanges with memory. */
static bool is_atomic(const uint8_t *bytes, size_t len)
{
	static const uint8_t prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0xf2, 0xf3 };
	size_t i = 0;

	while (i < len && memchr(prefixes, bytes[i], sizeof(prefixes)))
		i++;
	if (i < len && bytes[i] == 0xf0)
		return true;
	if (i < len && bytes[i] >> 4 == 4)
		i++;
	return i + 1 < len && (bytes[i] & 0xfe) == 0x86 && bytes[i + 1] >> 6 != 3;
}

static void block_is_translated(struct qemu_plugin_tb *tb, void *data)
{
	static const uint8_t marker[] = PROFILE_MARKER;
	const size_t len = qemu_plugin_tb_n_insns(tb);
	size_t i, size, atomics = 0;
	uint8_t bytes[LONGEST];

	(void)data;
	for (i = 0; i < len; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		size = qemu_plugin_insn_data(insn, bytes, sizeof(bytes));
		atomics += is_atomic(bytes, size);
		if (size != sizeof(marker) || bytes[0] != marker[0] ||
		    memcmp(bytes + 2, marker + 2, sizeof(marker) - 2) ||
		    (uint8_t)(bytes[1] - PROFILE_SECTION) >= PROFILE_SECTIONS)
			continue;
		qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)(bytes[1] - PROFILE_SECTION));
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, QEMU_PLUGIN_CB_NO_REGS,
					     find_block(qemu_plugin_tb_vaddr(tb), len, atomics));
}

static void guest_ends(uint64_t id, void *data)
{
	FILE *file = fopen(out, "w");
	const struct block *block;
	size_t i, j;
	bool ran;

	(void)id;
	(void)data;
	if (!file) {
		qemu_plugin_outs("profile: the file cannot be written\n");
		return;
	}
	for (i = 0; i < BUCKETS; i++) {
		for (block = buckets[i]; block; block = block->next) {
			for (ran = false, j = 1; j < PROFILE_SECTIONS; j++)
				ran |= block->counts[j];
			if (!ran)
				continue;
			fprintf(file, "%" PRIx64 " %zu %zu", block->address, block->len, block->atomics);
			for (j = 1; j < PROFILE_SECTIONS; j++)
				fprintf(file, " %" PRIu64, block->counts[j]);
			fputc('\n', file);
		}
	}
	fclose(file);
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info_t *info, int argc,
			       char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4) || strlen(argv[0]) - 4 >= sizeof(out)) {
		qemu_plugin_outs("profile: usage: -plugin profile.so,out=FILE\n");
		return -1;
	}
	strcpy(out, argv[0] + 4);
	qemu_plugin_register_vcpu_tb_trans_cb(id, block_is_translated, NULL);
	qemu_plugin_register_atexit_cb(id, guest_ends, NULL);
	return 0;
}
