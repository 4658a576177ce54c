// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU that counts how often the guest executes each block of a module's code, in
 * memory that the guest has as a PCI device:
 *
 *	-plugin coverage.so,map=FILE
 *	-object memory-backend-file,id=map,share=on,size=128K,mem-path=FILE
 *	-device ivshmem-plain,memdev=map
 *
 * The guest writes the bounds of the code to the memory's first two words. The counts begin a page
 * later.
 */

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin.h"

EXPORT int qemu_plugin_version = 7;

/* Modules of x86-64 are here. */
static const uint64_t MODULES = 0xffffffffa0000000ull, MODULES_END = 0xffffffffff000000ull;

enum { HEADER = 4096, COUNTS = 1 << 16, SIZE = 1 << 17 };

static struct map {
	uint64_t begin, end;
	uint8_t padding[HEADER - 16];
	uint8_t counts[COUNTS];
} *map;

/* Blocks of other modules count nothing. CPUs may lose a count to each other; none turns to 0. */
static void block_runs(unsigned int cpu, void *data)
{
	const uint64_t begin = __atomic_load_n(&map->begin, __ATOMIC_RELAXED);
	const uint64_t end = __atomic_load_n(&map->end, __ATOMIC_RELAXED);
	const uint64_t address = (uintptr_t)data;
	uint8_t *count;

	(void)cpu;
	if (address < begin || address >= end)
		return;
	count = &map->counts[((address - begin) * 0x9e3779b97f4a7c15ull) >> 48];
	if (*count < UINT8_MAX)
		(*count)++;
}

static void block_is_translated(struct qemu_plugin_tb *tb, void *data)
{
	const uint64_t address = qemu_plugin_tb_vaddr(tb);

	(void)data;
	if (address >= MODULES && address < MODULES_END)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, QEMU_PLUGIN_CB_NO_REGS,
						     (void *)(uintptr_t)address);
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info_t *info, int argc,
			       char **argv)
{
	static const char usage[] = "coverage: usage: -plugin coverage.so,map=FILE of 128 KiB\n";
	const char *file = plugin_option(argc, argv, "map", usage);
	void *memory = MAP_FAILED;
	int fd;

	(void)info;
	if (!file)
		return -1;
	fd = open(file, O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	if (memory == MAP_FAILED) {
		qemu_plugin_outs(usage);
		return -1;
	}
	map = memory;
	qemu_plugin_register_vcpu_tb_trans_cb(id, block_is_translated, NULL);
	return 0;
}
