// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU that writes which code of kernel modules a guest has executed:
 *
 *	-plugin executed.so,out=DIRECTORY
 *
 * At its end QEMU writes a file there: a line for each block of instructions, with its address and
 * its bytes, by which the report finds out what module was there. Where the block ends in a
 * conditional jump, T says that it was taken, and N that it was not.
 */

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

EXPORT int qemu_plugin_version = 7;

/* The addresses of modules on x86-64. */
static const uint64_t MODULES = 0xffffffffa0000000ull, MODULES_END = 0xffffffffff000000ull;

enum { CPUS = 64 };

struct code {
	struct block block;
	uint64_t jumps_to;		/* 0: it does not end in a conditional jump */
	bool is_executed, is_taken, is_not_taken;
};

static const char *directory;
static struct code *previous[CPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The address that the last instruction of a block jumps to on a condition, or 0. */
static uint64_t conditional_jump(uint64_t end, const uint8_t *last, size_t length)
{
	int8_t near;
	int32_t far;

	if (length == 2 && (last[0] & 0xf0) == 0x70) {
		memcpy(&near, last + 1, sizeof(near));
		return end + near;
	}
	if (length == 6 && last[0] == 0x0f && (last[1] & 0xf0) == 0x80) {
		memcpy(&far, last + 2, sizeof(far));
		return end + far;
	}
	return 0;
}

static void block_runs(unsigned int cpu, void *data)
{
	struct code *code = data, *last = previous[cpu % CPUS];

	code->is_executed = true;
	/* What interrupts the two is no module, or returns to here before the next. */
	if (last && last->jumps_to) {
		last->is_taken |= code->block.address == last->jumps_to;
		last->is_not_taken |= code->block.address == last->block.address + last->block.length;
	}
	previous[cpu % CPUS] = code;
}

static void block_is_translated(struct qemu_plugin_tb *tb, void *data)
{
	const uint64_t address = qemu_plugin_tb_vaddr(tb);
	uint8_t bytes[8192];
	size_t i, last = 0, length = 0;
	struct code *code;

	(void)data;
	if (address < MODULES || address >= MODULES_END)
		return;
	for (i = 0; i < qemu_plugin_tb_n_insns(tb) && length < sizeof(bytes) - 16; i++) {
		last = qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i), bytes + length, 16);
		length += last;
	}
	pthread_mutex_lock(&lock);
	code = find_block(address, bytes, length, sizeof(*code));
	code->jumps_to = conditional_jump(address + length, bytes + length - last, last);
	pthread_mutex_unlock(&lock);
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, QEMU_PLUGIN_CB_NO_REGS, code);
}

static void guest_ends(uint64_t id, void *data)
{
	const struct code *code = NULL;
	char name[4096];
	size_t i;
	FILE *file;
	int fd;

	(void)id;
	(void)data;
	snprintf(name, sizeof(name), "%s/XXXXXX", directory);
	fd = mkstemp(name);
	file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!file) {
		qemu_plugin_outs("executed: the file cannot be written\n");
		return;
	}
	while ((code = next_block(code))) {
		if (!code->is_executed)
			continue;
		fprintf(file, "%" PRIx64 " ", code->block.address);
		for (i = 0; i < code->block.length; i++)
			fprintf(file, "%02x", code->block.bytes[i]);
		fprintf(file, " %s%s\n", code->is_taken ? "T" : "", code->is_not_taken ? "N" : "");
	}
	fclose(file);
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info_t *info, int argc,
			       char **argv)
{
	(void)info;
	directory = plugin_option(argc, argv, "out", "executed: usage: -plugin executed.so,out=DIRECTORY\n");
	if (!directory)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, block_is_translated, NULL);
	qemu_plugin_register_atexit_cb(id, guest_ends, NULL);
	return 0;
}
