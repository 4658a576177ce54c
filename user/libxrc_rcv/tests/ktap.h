/* SPDX-License-Identifier: GPL-2.0 */
/*
 * KTAP from a C program, the counterpart of ktap.sh: a plan, results with
 * their description, diagnostics, totals. The state is the program's; one thread
 * reports all results.
 */
#ifndef KTAP_H
#define KTAP_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/*
 * A state that has not come after this is believed never to come. A busy host takes any time for
 * anything, so it is no bound of what is tested: only failures take so long.
 */
enum { PATIENCE_MS = 240000 };

static unsigned int ktap_planned, ktap_number, ktap_failed;

static inline void ktap_start(const char *name, unsigned int count)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	ktap_planned = count;
	printf("KTAP version 1\n# %s\n1..%u\n", name, count);
}

__attribute__((format(printf, 1, 2)))
static inline void ktap_note(const char *format, ...)
{
	va_list args;

	printf("# ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

static inline bool ktap_result(bool passed, const char *description)
{
	if (!passed)
		ktap_failed++;
	printf("%s %u %s\n", passed ? "ok" : "not ok", ++ktap_number, description);
	return passed;
}

/* Whether CONDITION holds; says where it does not. */
#define ktap_holds(condition)						\
	((condition) ||							\
	 ktap_wrong("%s:%d: %s (errno %s)", __func__, __LINE__,		\
		    #condition, strerror(errno)))

/* False, with a diagnostic that says why. */
#define ktap_wrong(...) ({ ktap_note(__VA_ARGS__); false; })

/*
 * Does what END says, unless CONDITION holds: HOLDS() ends a test, CHECK() what another process
 * does for a test, by a return (actor.h) or with the process (user/ofed/tests/clients.c).
 */
#define ktap_check(condition, end)					\
	do {								\
		if (!ktap_holds(condition))				\
			end;						\
	} while (0)

/* Ends a test that returns bool, unless CONDITION holds. */
#define HOLDS(condition) ktap_check(condition, return false)

/* The exit status of the program. */
static inline int ktap_end(void)
{
	if (ktap_number != ktap_planned)
		ktap_note("planned %u results, ran %u", ktap_planned, ktap_number);
	printf("# Totals: pass:%u fail:%u skip:0\n",
	       ktap_number - ktap_failed, ktap_failed);
	return ktap_failed || ktap_number != ktap_planned;
}

#endif
