/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The modelled adapter behind mlx4_0, or mlx5_0: faults that a test injects, and
 * the adapter's counters. The protocol is in hca/README.md.
 *
 * These are tests: an adapter that does not answer ends the program.
 */
#ifndef ADAPTER_H
#define ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

/* Ends the program with a skip of the whole test where the adapter is not modelled. */
void adapter_or_skip(const char *name);

/* Numbers that the adapter counts, by their names in `vmlxctl status`. */
unsigned long adapter_count(const char *name);
/* The number of times that the driver gave a command since the counts were reset. */
unsigned long adapter_commands(const char *name);
/* The number of its QPs, in any state. */
unsigned long adapter_qps(void);
/* Whether a QP may use the reserved L_Key, with which a WQE names bus addresses. */
bool adapter_lets_use_all_memory(uint32_t qp_num);

/* The event KIND (comm_est, ...) of a QP, as often as REPEAT says and though nothing caused it. */
void adapter_event(const char *kind, uint32_t qp_num, unsigned int repeat);

/* Each command takes so long, and several overlap; 0: none takes any time. */
void adapter_latency(unsigned int microseconds);
/* The same for one command (QUERY_QP, ...). */
void adapter_latency_of(const char *name, unsigned int microseconds);

enum { ALL_FAIL = 0 };

/*
 * Of the commands from now on SKIP pass, then COUNT of them fail with the
 * STATUS (bad_param, ...), or ALL_FAIL.
 */
void adapter_fail(const char *status, unsigned int skip, unsigned int count);
/* The last command that failed for that since adapter_reset_counts(), "" if none did. */
const char *adapter_failed(void);

/* Neither failures nor latencies any more. */
void adapter_clear(void);
void adapter_reset_counts(void);

#endif
