/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A file system (FUSE) whose files have one page each, which comes when it is given: a process that
 * maps such a file and accesses the page waits for that.
 *
 * The director mounts it and starts an actor that serves it; any actor that it starts then gives
 * pages.
 */
#ifndef WITHHELD_PAGE_H
#define WITHHELD_PAGE_H

#include "actor.h"

/* The size of a file, and of its page, or of the beginning of a larger one, which zeros follow. */
enum { WITHHELD_PAGE = 4096 };

void withheld_mount(const char *directory);
/* Returns when the file system was unmounted. */
act withheld_serve;
/* With all pages that were not given, as zeros. */
void withheld_unmount(const char *directory);

/* Opens a new file, whose number it writes. Returns the file, or a negative errno. */
int withheld_open(const char *directory, int *number);
/* Returns when the page of the file is being waited for. */
void withheld_wait(int number);
/* Returns 0, or a negative errno. */
int withheld_give(int number, const void *page);
/* The pages that are being waited for, as zeros. */
void withheld_give_rest(void);

#endif
