// SPDX-License-Identifier: GPL-2.0
/*
 * Prints how many thousand times a second the host's TSC, which is an emulated
 * guest's TSC, too, counts.
 */

#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

/*
 * The TSC at a time. Between its readings the host may run something else; of
 * many pairs, the one with the least between them was not interrupted.
 */
static uint64_t tsc_at(int64_t *time_ns)
{
	uint64_t least = UINT64_MAX, tsc = 0;

	for (int i = 0; i < 1000; i++) {
		uint64_t before = __rdtsc(), after;
		struct timespec now;

		clock_gettime(CLOCK_MONOTONIC, &now);
		after = __rdtsc();
		if (after - before < least) {
			least = after - before;
			tsc = before + least / 2;
			*time_ns = now.tv_sec * 1000000000ll + now.tv_nsec;
		}
	}
	return tsc;
}

int main(void)
{
	const struct timespec tenth = { .tv_nsec = 100000000 };
	int64_t begin_ns, end_ns;
	uint64_t begin = tsc_at(&begin_ns), end;

	nanosleep(&tenth, NULL);
	end = tsc_at(&end_ns);
	printf("%.0f\n", (end - begin) * 1e6 / (end_ns - begin_ns));
	return 0;
}
