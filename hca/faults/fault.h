/* SPDX-License-Identifier: GPL-2.0 */
/* Which fault the modified mlx4_core has: its parameter "fault". */
#ifndef MLX4_FAULT_H
#define MLX4_FAULT_H

#include <linux/types.h>

/* Whether the parameter "fault" of mlx4_core has this name. */
bool mlx4_fault(const char *name);

#endif
