/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a process of the demo talks with its director: orders come in, a line
 * each; what happens goes out, a JSON object a line, with its time. The
 * director gives an order only when the one before was answered.
 */
#ifndef TALK_H
#define TALK_H

#include <stdbool.h>
#include <stddef.h>

#include "node.h"

/* Tells that WHAT happened; FORMAT adds members, each with a comma before it. */
__attribute__((format(printf, 2, 3)))
void tell(const char *what, const char *format, ...);

/* The next order, without its end of line; false when there will be none. */
bool hear(char *order, size_t size);

/* "GID QPN PSN", as told by the peer. */
struct path hear_path(const char *words);

/* The same, to be told: the members gid, qpn and psn. */
void tell_ready(const struct node *node, uint32_t qp_num, uint32_t psn, uint32_t srq_num);

/* The text of a message as JSON may have it. */
void make_plain(char *text, size_t size);

#endif
