/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Marks for the plugin profile.c: mov $0x5ec0de80 + section, %eax.
 */
#ifndef PROFILE_H
#define PROFILE_H

/* Of the bytes of the instruction, the second is PROFILE_SECTION + section. */
#define PROFILE_MARKER { 0xb8, 0x80, 0xde, 0xc0, 0x5e }
enum { PROFILE_SECTION = 0x80, PROFILE_SECTIONS = 16 };

/* From here on, what is executed belongs to SECTION, a constant; 0: to none. */
#define PROFILE(section) \
	asm volatile("mov %0, %%eax" : : "i"(0x5ec0de80 + (section)) : "eax", "memory")

#endif
