/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Receive QPs as the rest of the system sees them: other tools, counts, memory,
 * the kernel's log.
 */
#ifndef OBSERVE_H
#define OBSERVE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether `rdma resource show qp` shows the number on right's device. */
bool qp_is_shown(uint32_t qp_num);

/* The objects of right's device, as `rdma resource show` counts them, and as the module lists them.
 */
struct counts {
	unsigned int pd, cq, qp, cm_id, mr, ctx, srq;
	unsigned int domains, receive_qps, registrations;
};

struct counts count_objects(void);
/* The module's list alone: "domains", "qps" or "registrations". Also for an actor in right, if its
 * director counted before it was started.
 */
unsigned int count_listed(const char *what);
/* Of these, the lines that have all words of the text, which a blank is around each. */
unsigned int count_listed_with(const char *what, const char *words);
bool same_counts(const struct counts *before, const struct counts *after);
/* Waits until counts are as before; reports those that never are. */
bool counts_return_to(const struct counts *before);

/* Kibibytes that are available, after caches that can be were emptied. */
long memory_available(void);
/* Kibibytes in slabs that nothing but their owners can free. */
long slab_unreclaimable(void);
/*
 * Whether KASAN keeps freed memory back, so that only kmemleak can find leaks.
 * The lab asks it when the guest ends, and fails the run, but for --no-leak-check.
 */
bool memory_is_checked(void);
/* The difference that slabs may have in the end without a leak. */
long slab_noise(void);
/* Whether the device is a modelled ConnectX-3 or ConnectX-6, whose firmware is a program. */
bool device_is_modelled(void);
/* Whether LAB_LONG is set: do as much as there is to do, however long it takes. */
bool is_long_run(void);

/* The kernel's log from here on. */
int log_open(void);
/* How many lines since log_open(), or the last call, have the text. */
unsigned int log_count(int log, const char *text);

/* Takes right's device away, or brings it back. */
void device_remove(void);
void device_add(void);

#endif
