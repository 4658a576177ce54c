/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Marks for the plugin irqs_off.c: mov $0x5ec0de01, %eax, with a module's text in %rdi and %rsi.
 */
#ifndef IRQS_OFF_H
#define IRQS_OFF_H

#define IRQS_OFF_MARKER { 0xb8, 0x01, 0xde, 0xc0, 0x5e }

/* Ends a search, and begins one for sections that run text from BEGIN to END; 0, 0: begins none. */
static inline void irqs_off_search(unsigned long begin, unsigned long end)
{
	asm volatile("mov $0x5ec0de01, %%eax" : : "D"(begin), "S"(end) : "eax", "memory");
}

#endif
