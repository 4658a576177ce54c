/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parts that our plugins for QEMU share: their one option, and a table of the blocks of
 * instructions that a guest runs.
 */
#ifndef PLUGIN_H
#define PLUGIN_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "qemu_plugin.h"

/* Returns the value of the only option, NAME=VALUE; or prints the usage, and returns NULL. */
static inline const char *plugin_option(int argc, char **argv, const char *name, const char *usage)
{
	const size_t length = strlen(name);

	/* QEMU frees its copy. */
	if (argc == 1 && !strncmp(argv[0], name, length) && argv[0][length] == '=')
		return strdup(argv[0] + length + 1);
	qemu_plugin_outs(usage);
	return NULL;
}

/* The first member of a plugin's struct for a block, which ends with the block's bytes. */
struct block {
	struct block *next;
	uint64_t address;
	size_t length;
	const uint8_t *bytes;
};

enum { BUCKETS = 1 << 16 };
static struct block *buckets[BUCKETS];

/*
 * Finds the struct of a block, or makes one of that size, of zeroes. QEMU translates code again
 * when its cache is full, and other code may be at the address then.
 */
static inline void *find_block(uint64_t address, const uint8_t *bytes, size_t length, size_t size)
{
	struct block **bucket = &buckets[address % BUCKETS], *block;

	for (block = *bucket; block; block = block->next)
		if (block->address == address && block->length == length && !memcmp(block->bytes, bytes, length))
			return block;
	block = calloc(1, size + length);
	if (!block)
		abort();
	block->next = *bucket;
	block->address = address;
	block->length = length;
	block->bytes = memcpy((uint8_t *)block + size, bytes, length);
	*bucket = block;
	return block;
}

/* The block after another, or the first one after NULL. */
static inline void *next_block(const void *after)
{
	const struct block *block = after;
	size_t i = block ? block->address % BUCKETS + 1 : 0;

	if (block && block->next)
		return block->next;
	while (i < BUCKETS && !buckets[i])
		i++;
	return i < BUCKETS ? buckets[i] : NULL;
}

#endif
