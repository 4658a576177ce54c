// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU that finds the longest section of a guest with interrupts
 * disabled that runs a module's text, in instructions:
 *
 *	-plugin irqs_off.so,out=FILE
 *
 * A program in the guest marks where the search begins and ends with
 * the instruction IRQS_OFF_MARKER (irqs_off.h). Each search appends a line to FILE:
 * its number, the length of the longest section, and the address where it
 * begins. For one CPU.
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "irqs_off.h"
#include "plugin.h"

EXPORT int qemu_plugin_version = 7;

enum { X86_EFLAGS_IF = 1 << 9, BLOCK_BITS = 10 };

static const char *out;
static struct qemu_plugin_register *eflags, *rdi, *rsi;
static struct byte_array *value;

/* The text of the module; end 0: no search. */
static uint64_t text, text_end;
static unsigned int searches;
static struct section {
	uint64_t begin, length;
	bool in_text;
} now, longest;

static uint64_t read_register(struct qemu_plugin_register *handle)
{
	uint64_t bits = 0;

	g_byte_array_set_size(value, 0);
	qemu_plugin_read_register(handle, value);
	memcpy(&bits, value->data, value->len < sizeof(bits) ? value->len : sizeof(bits));
	return bits;
}

static void section_ends(void)
{
	if (now.in_text && now.length > longest.length)
		longest = now;
	now.length = 0;
}

/* Instructions that disable or enable interrupts are the last of their blocks. */
static void block_runs(unsigned int cpu, void *data)
{
	const uint64_t block = (uintptr_t)data;
	/* An address of the kernel without its highest bits, and the number of instructions. */
	const uint64_t address = (block >> BLOCK_BITS) | 0xffc0000000000000ull;

	(void)cpu;
	if (!text_end)
		return;
	if (read_register(eflags) & X86_EFLAGS_IF) {
		section_ends();
		return;
	}
	if (!now.length) {
		now.begin = address;
		now.in_text = false;
	}
	now.length += block & ((1 << BLOCK_BITS) - 1);
	now.in_text |= address >= text && address < text_end;
}

static void mark(unsigned int cpu, void *data)
{
	FILE *file;

	(void)cpu;
	(void)data;
	if (text_end) {
		section_ends();
		file = fopen(out, "a");
		if (file) {
			fprintf(file, "%u %" PRIu64 " %" PRIx64 "\n", searches++, longest.length,
				longest.begin);
			fclose(file);
		}
	}
	text = read_register(rdi);
	text_end = read_register(rsi);
	longest = now = (struct section){ 0 };
}

static void block_is_translated(struct qemu_plugin_tb *tb, void *data)
{
	static const uint8_t marker[] = IRQS_OFF_MARKER;
	const size_t len = qemu_plugin_tb_n_insns(tb);
	uint8_t bytes[sizeof(marker)];
	size_t i;

	(void)data;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, QEMU_PLUGIN_CB_R_REGS,
					     (void *)(uintptr_t)(qemu_plugin_tb_vaddr(tb) << BLOCK_BITS | len));
	for (i = 0; i < len; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (qemu_plugin_insn_data(insn, bytes, sizeof(bytes)) == sizeof(marker) &&
		    !memcmp(bytes, marker, sizeof(marker)))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, QEMU_PLUGIN_CB_R_REGS, NULL);
	}
}

static void cpu_exists(unsigned int cpu, void *data)
{
	const struct array *registers = qemu_plugin_get_registers();
	const struct qemu_plugin_reg_descriptor *all = (void *)registers->data;
	unsigned int i;

	(void)cpu;
	(void)data;
	value = g_byte_array_new();
	for (i = 0; i < registers->len; i++) {
		if (!strcmp(all[i].name, "eflags"))
			eflags = all[i].handle;
		if (!strcmp(all[i].name, "rdi"))
			rdi = all[i].handle;
		if (!strcmp(all[i].name, "rsi"))
			rsi = all[i].handle;
	}
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info_t *info, int argc,
			       char **argv)
{
	(void)info;
	out = plugin_option(argc, argv, "out", "irqs_off: usage: -plugin irqs_off.so,out=FILE\n");
	if (!out)
		return -1;
	qemu_plugin_register_vcpu_init_cb(id, cpu_exists, NULL);
	qemu_plugin_register_vcpu_tb_trans_cb(id, block_is_translated, NULL);
	return 0;
}
