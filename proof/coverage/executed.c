// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU that writes which code of kernel modules a guest has executed:
 *
 *	-plugin executed.so,out=DIRECTORY
 *
 * At its end QEMU writes a file there: a line for each block of instructions, with its address and its bytes, by
 * which the report finds out what module was there. Where the block ends in a conditional jump, T says that
 * it was taken, and N that it was not.
 */

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../bench/qemu_plugin.h"

EXPORT int qemu_plugin_version = 7;

/* Where x86-64 has modules. */
static const uint64_t MODULES = 0xffffffffa0000000ull, MODULES_END = 0xffffffffff000000ull;

enum {
	BUCKETS = 1 << 16,
	CPUS = 64,
};

struct block {
	struct block *next;
	uint64_t address;
	size_t length;
	uint64_t jumps_to;		/* 0: it does not end in a conditional jump */
	bool is_executed, is_taken, is_not_taken;
	uint8_t bytes[];
};

static char directory[3072];
static struct block *buckets[BUCKETS];
static struct block *previous[CPUS];
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

/* Code is translated again when QEMU's cache is full, and other code may be at its address. */
static struct block *find_block(uint64_t address, const uint8_t *bytes, size_t length)
{
	struct block **bucket = &buckets[address % BUCKETS], *block;

	for (block = *bucket; block; block = block->next)
		if (block->address == address && block->length == length &&
		    !memcmp(block->bytes, bytes, length))
			return block;
	block = calloc(1, sizeof(*block) + length);
	if (!block)
		abort();
	block->address = address;
	block->length = length;
	memcpy(block->bytes, bytes, length);
	block->next = *bucket;
	*bucket = block;
	return block;
}

static void block_runs(unsigned int cpu, void *data)
{
	struct block *block = data, *last = previous[cpu % CPUS];

	block->is_executed = true;
	/* What interrupts the two is no module, or returns to here before the next. */
	if (last && last->jumps_to) {
		last->is_taken |= block->address == last->jumps_to;
		last->is_not_taken |= block->address == last->address + last->length;
	}
	previous[cpu % CPUS] = block;
}

static void block_is_translated(struct qemu_plugin_tb *tb, void *data)
{
	const uint64_t address = qemu_plugin_tb_vaddr(tb);
	uint8_t bytes[8192];
	size_t i, last = 0, length = 0;
	struct block *block;

	(void)data;
	if (address < MODULES || address >= MODULES_END)
		return;
	for (i = 0; i < qemu_plugin_tb_n_insns(tb) && length < sizeof(bytes) - 16; i++) {
		last = qemu_plugin_insn_data(qemu_plugin_tb_get_insn(tb, i), bytes + length, 16);
		length += last;
	}
	pthread_mutex_lock(&lock);
	block = find_block(address, bytes, length);
	block->jumps_to = conditional_jump(address + length, bytes + length - last, last);
	pthread_mutex_unlock(&lock);
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, QEMU_PLUGIN_CB_NO_REGS, block);
}

static void guest_ends(uint64_t id, void *data)
{
	const struct block *block;
	char name[4096];
	size_t i, j;
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
	for (i = 0; i < BUCKETS; i++) {
		for (block = buckets[i]; block; block = block->next) {
			if (!block->is_executed)
				continue;
			fprintf(file, "%" PRIx64 " ", block->address);
			for (j = 0; j < block->length; j++)
				fprintf(file, "%02x", block->bytes[j]);
			fprintf(file, " %s%s\n", block->is_taken ? "T" : "",
				block->is_not_taken ? "N" : "");
		}
	}
	fclose(file);
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info_t *info, int argc,
			       char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4) || strlen(argv[0]) - 4 >= sizeof(directory)) {
		qemu_plugin_outs("executed: usage: -plugin executed.so,out=DIRECTORY\n");
		return -1;
	}
	strcpy(directory, argv[0] + 4);
	qemu_plugin_register_vcpu_tb_trans_cb(id, block_is_translated, NULL);
	qemu_plugin_register_atexit_cb(id, guest_ends, NULL);
	return 0;
}
