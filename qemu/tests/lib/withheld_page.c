// SPDX-License-Identifier: GPL-2.0

#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "withheld_page.h"

enum {
	FILES = 256,
	FIRST_NODE = FUSE_ROOT_ID + 1,	/* of file 0 */
	FOR_EVER = 3600,
	/* The kernel sends no more reads at the same time. */
	READS = FILES,
	REQUEST = FUSE_MIN_READ_BUFFER + WITHHELD_PAGE,
};

static int device;

static struct {
	atomic_int files;
	/* The number of the request to read the page; 0: there is none. */
	_Atomic uint64_t reads[FILES];
} *all;

void withheld_mount(const char *directory)
{
	char options[64];

	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (device < 0)
		err(1, "/dev/fuse");
	all = share(sizeof(*all));
	if (mkdir(directory, 0700) && errno != EEXIST)
		err(1, "%s", directory);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (mount("withheld", directory, "fuse", 0, options))
		err(1, "mount %s", directory);
}

static int reply(uint64_t request, int error, const void *data, size_t size)
{
	struct fuse_out_header header = {
		.len = sizeof(header) + size,
		.error = error,
		.unique = request,
	};
	const struct iovec parts[] = {
		{ &header, sizeof(header) },
		{ (void *)data, size },
	};

	return writev(device, parts, 2) == (ssize_t)header.len ? 0 : -errno;
}

static struct fuse_attr attr_of(uint64_t node)
{
	return (struct fuse_attr) {
		.ino = node,
		.size = WITHHELD_PAGE,
		.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0700 : S_IFREG | 0600,
		.nlink = 1,
		.blksize = WITHHELD_PAGE,
	};
}

static int look_up(const struct fuse_in_header *in, const char *name)
{
	struct fuse_entry_out entry = {
		.nodeid = FIRST_NODE + strtoul(name, NULL, 10),
		.entry_valid = FOR_EVER,
		.attr_valid = FOR_EVER,
	};

	entry.attr = attr_of(entry.nodeid);
	return reply(in->unique, 0, &entry, sizeof(entry));
}

static int answer(const struct fuse_in_header *in, const void *data)
{
	const struct fuse_write_in *write_in = data;
	const struct fuse_init_out init = {
		.major = FUSE_KERNEL_VERSION,
		.minor = FUSE_KERNEL_MINOR_VERSION,
		/* A process that reads ahead waits for the page, where it can be killed, not for
		 * the request.
		 */
		.max_readahead = getpagesize(),
		.flags = FUSE_ASYNC_READ,
		.max_background = READS,
		.congestion_threshold = READS,
		.max_write = WITHHELD_PAGE,
		.time_gran = 1,
	};
	const struct fuse_attr_out attr = {
		.attr_valid = FOR_EVER,
		.attr = attr_of(in->nodeid),
	};
	const struct fuse_open_out opened = {};
	struct fuse_write_out written = {};

	switch (in->opcode) {
	case FUSE_INIT:
		return reply(in->unique, 0, &init, sizeof(init));
	case FUSE_LOOKUP:
		return look_up(in, data);
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		return reply(in->unique, 0, &attr, sizeof(attr));
	case FUSE_OPEN:
		return reply(in->unique, 0, &opened, sizeof(opened));
	case FUSE_READ:
		all->reads[in->nodeid - FIRST_NODE] = in->unique;
		return 0;
	case FUSE_WRITE:
		written.size = write_in->size;
		return reply(in->unique, 0, &written, sizeof(written));
	case FUSE_RELEASE:
		return reply(in->unique, 0, NULL, 0);
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return 0;
	default:
		return reply(in->unique, -ENOSYS, NULL, 0);
	}
}

int withheld_serve(void *argument)
{
	static uint8_t request[REQUEST] __attribute__((aligned(8)));
	const struct fuse_in_header *in = (const void *)request;
	int result;

	(void)argument;
	while (read(device, request, sizeof(request)) >= (ssize_t)sizeof(*in)) {
		result = answer(in, in + 1);
		/* ENOENT: the process was killed meanwhile. */
		if (result && result != -ENOENT)
			return result;
	}
	return errno == ENODEV ? 0 : -errno;
}

void withheld_unmount(const char *directory)
{
	withheld_give_rest();
	if (umount(directory) || rmdir(directory))
		err(1, "%s", directory);
	close(device);
}

int withheld_open(const char *directory, int *number)
{
	char path[256];
	int file;

	*number = all->files++;
	if (*number >= FILES)
		return -ENFILE;
	snprintf(path, sizeof(path), "%s/%d", directory, *number);
	file = open(path, O_RDWR | O_CLOEXEC);
	return file < 0 ? -errno : file;
}

void withheld_wait(int number)
{
	while (!all->reads[number])
		usleep(1000);
}

int withheld_give(int number, const void *page)
{
	return reply(atomic_exchange(&all->reads[number], 0), 0, page, WITHHELD_PAGE);
}

void withheld_give_rest(void)
{
	static const uint8_t zeros[WITHHELD_PAGE];

	for (int i = 0; i < FILES; i++)
		if (all->reads[i])
			withheld_give(i, zeros);
}
