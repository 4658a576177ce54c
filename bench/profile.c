// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU that counts how often a guest executes each block of instructions, in each of
 * several sections that a program in the guest marks with PROFILE() (profile.h):
 *
 *	-plugin profile.so,out=FILE
 *
 * At its end QEMU writes FILE: a line for each block, with its address, its number of instructions,
 * how many of these are atomic, and how often it ran in each section from 1 on. For one CPU.
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "plugin.h"
#include "profile.h"

EXPORT int qemu_plugin_version = 7;

enum { LONGEST = 15 };

struct counted {
	struct block block;
	size_t len, atomics;
	uint64_t counts[PROFILE_SECTIONS];
};

static const char *out;
static unsigned int section;

static void block_runs(unsigned int cpu, void *data)
{
	struct counted *block = data;

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
	uint8_t bytes[8192], *insn_bytes = bytes;
	size_t i, size, atomics = 0;
	struct counted *block;

	(void)data;
	for (i = 0; i < len && insn_bytes <= bytes + sizeof(bytes) - LONGEST; i++, insn_bytes += size) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		size = qemu_plugin_insn_data(insn, insn_bytes, LONGEST);
		atomics += is_atomic(insn_bytes, size);
		if (size != sizeof(marker) || insn_bytes[0] != marker[0] ||
		    memcmp(insn_bytes + 2, marker + 2, sizeof(marker) - 2) ||
		    (uint8_t)(insn_bytes[1] - PROFILE_SECTION) >= PROFILE_SECTIONS)
			continue;
		qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)(insn_bytes[1] - PROFILE_SECTION));
	}
	block = find_block(qemu_plugin_tb_vaddr(tb), bytes, insn_bytes - bytes, sizeof(*block));
	block->len = len;
	block->atomics = atomics;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, QEMU_PLUGIN_CB_NO_REGS, block);
}

static void guest_ends(uint64_t id, void *data)
{
	FILE *file = fopen(out, "w");
	const struct counted *block = NULL;
	size_t i;
	bool ran;

	(void)id;
	(void)data;
	if (!file) {
		qemu_plugin_outs("profile: the file cannot be written\n");
		return;
	}
	while ((block = next_block(block))) {
		for (ran = false, i = 1; i < PROFILE_SECTIONS; i++)
			ran |= block->counts[i];
		if (!ran)
			continue;
		fprintf(file, "%" PRIx64 " %zu %zu", block->block.address, block->len, block->atomics);
		for (i = 1; i < PROFILE_SECTIONS; i++)
			fprintf(file, " %" PRIu64, block->counts[i]);
		fputc('\n', file);
	}
	fclose(file);
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info_t *info, int argc,
			       char **argv)
{
	(void)info;
	out = plugin_option(argc, argv, "out", "profile: usage: -plugin profile.so,out=FILE\n");
	if (!out)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, block_is_translated, NULL);
	qemu_plugin_register_atexit_cb(id, guest_ends, NULL);
	return 0;
}
