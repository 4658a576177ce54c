/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The protocol between a process of the demo and its director: orders on
 * standard input, a line each; reports on standard output, a JSON object a line,
 * with their time. The director gives an order after the answer to the last one.
 */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>

#include "node.h"

/* Reports WHAT; FORMAT adds members, each with a comma before it. */
__attribute__((format(printf, 2, 3)))
void report(const char *what, const char *format, ...);

/* The next order, without its end of line; false when there will be none. */
bool next_order(char *order, size_t size);

/* Parses "GID LID QPN PSN" of the peer. */
struct path parse_path(const char *words);

/* Reports the members gid, lid, qpn, psn and srq. */
void report_ready(const struct node *node, uint32_t qp_num, uint32_t psn, uint32_t srq_num);

/* The text of a message as JSON may have it. */
void make_plain(char *text, size_t size);

#endif
