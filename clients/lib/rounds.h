/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rounds of a job whose ranks kill_creators() of xrc.sh kills. The files
 * gone.0, gone.1, … of the job's directory name a rank each: it waits to be
 * killed while the others continue without it. They end when a file names rank
 * -1. The first word of a message is 1 if its sender has seen the next file,
 * else 0, so all ranks read it after the same round.
 */

#include <err.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { RANKS_MAX = 64 };

static bool is_gone[RANKS_MAX];
/* The number of the next file. */
static int gone;

/* The content of a message, but for its first word. */
static inline uint32_t word(int from, int to, int round, int i)
{
	return (uint32_t)from << 24 ^ to << 16 ^ (uint32_t)round << 20 ^
	       i * 2654435761u;
}

static inline void gone_path(char path[4096], const char *directory)
{
	snprintf(path, 4096, "%s/gone.%d", directory, gone);
}

/* Returns whether there is the next file. It appears with its content. */
static inline bool gone_exists(const char *directory)
{
	char path[4096];

	gone_path(path, directory);
	return !access(path, F_OK);
}

/*
 * Reads the next file, which a rank has seen. Returns false if no other rank is
 * to be killed. The rank that it names calls progress() for ever.
 */
static inline bool gone_read(const char *directory, int rank, int ranks,
			     void (*progress)(void))
{
	char path[4096];
	FILE *file;
	int whose;

	gone_path(path, directory);
	file = fopen(path, "r");
	if (!file)
		err(1, "rank %d: %s", rank, path);
	if (fscanf(file, "%d", &whose) != 1 || whose >= ranks)
		errx(1, "rank %d: %s does not name a rank", rank, path);
	fclose(file);
	if (whose < 0)
		return false;
	is_gone[whose] = true;
	gone++;
	if (whose == rank)
		printf("rank %d: gone\n", rank);
	while (whose == rank)
		progress();
	return true;
}
