/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The model behind mlx4_0, or mlx5_0: faults that a test injects, and the
 * model's counters. The protocol is in hca/README.md.
 *
 * These are tests: a model that does not answer ends the program.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* Ends the program with a skip of the whole test where the device is no model. */
void model_or_skip(const char *name);

/* Numbers the model counts, by their names in `vmlx4ctl status`. */
unsigned long model_count(const char *name);
/* The number of times that the driver gave a command since the counts were reset. */
unsigned long model_commands(const char *name);
/* The number of its QPs, in any state. */
unsigned long model_qps(void);
/* Whether a QP may use the reserved L_Key, with which a WQE names bus addresses. */
bool model_lets_use_all_memory(uint32_t qp_num);

/* The event KIND (comm_est, ...) of a QP, as often as REPEAT says and though nothing caused it. */
void model_event(const char *kind, uint32_t qp_num, unsigned int repeat);

/* Each command takes so long, and several overlap; 0: none takes any time. */
void model_latency(unsigned int microseconds);
/* The same for one command (QUERY_QP, ...). */
void model_latency_of(const char *name, unsigned int microseconds);

enum { ALL_FAIL = 0 };

/*
 * Of the commands from now on SKIP pass, then COUNT of them fail with the
 * STATUS (bad_param, ...), or ALL_FAIL.
 */
void model_fail(const char *status, unsigned int skip, unsigned int count);
/* The last command that failed for that since model_reset_counts(), "" if none did. */
const char *model_failed(void);

/* Neither failures nor latencies any more. */
void model_clear(void);
void model_reset_counts(void);

#endif
