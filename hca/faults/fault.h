/* SPDX-License-Identifier: GPL-2.0 */
/* Which fault the modified driver of a card has: its parameter "fault". */
#ifndef CARD_FAULT_H
#define CARD_FAULT_H

#include <linux/types.h>

/* Whether the parameter "fault" of mlx4_core, or mlx5_core, has this name. */
bool card_fault(const char *name);

#endif
