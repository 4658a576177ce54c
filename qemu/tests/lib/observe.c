// SPDX-License-Identifier: GPL-2.0

#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ktap.h"
#include "method.h"
#include "node.h"
#include "observe.h"

/*
 * The whole output of rdma(8) in right, which may have devices of its own; to be freed. Without a
 * shell and nsenter(1), each of which takes as long to start on the debug kernel.
 */
static char *output_of(char *const arguments[])
{
	int output[2], status;
	char *text = NULL;
	size_t size = 0;
	FILE *pipe;
	pid_t pid;

	if (pipe2(output, O_CLOEXEC))
		err(1, "pipe");
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		if (nodes_are_namespaces()) {
			int right = open("/run/netns/right", O_RDONLY | O_CLOEXEC);

			if (right < 0 || setns(right, CLONE_NEWNET))
				_exit(126);
		}
		if (dup2(output[1], STDOUT_FILENO) >= 0)
			execvp(arguments[0], arguments);
		_exit(127);
	}
	close(output[1]);
	pipe = fdopen(output[0], "r");
	if (!pipe || getdelim(&text, &size, '\0', pipe) < 0 || waitpid(pid, &status, 0) != pid ||
	    status)
		errx(1, "%s %s %s failed", arguments[0], arguments[2], arguments[3]);
	fclose(pipe);
	return text;
}

bool qp_is_shown(uint32_t qp_num)
{
	char *const show[] = { "rdma", "-j", "resource", "show", "qp", NULL };
	char *text = output_of(show), *object;
	char device[64], number[32];
	bool shown = false;

	snprintf(device, sizeof(device), "\"ifname\":\"%s\"", node_device("right"));
	snprintf(number, sizeof(number), "\"lqpn\":%u,", qp_num);
	for (object = strtok(text, "}"); object && !shown; object = strtok(NULL, "}"))
		shown = strstr(object, device) && strstr(object, number);
	free(text);
	return shown;
}

static unsigned int count_of(const char *text, const char *name)
{
	char wanted[32];
	const char *found;

	snprintf(wanted, sizeof(wanted), "\"%s\":", name);
	found = strstr(text, wanted);
	return found ? strtoul(found + strlen(wanted), NULL, 10) : 0;
}

/* The module's directory in debugfs. It is found before a namespace has another /sys. */
static int listed(void)
{
	static int directory = -1;

	if (directory < 0)
		directory = open("/sys/kernel/debug/ib_xrc_rcv", O_PATH | O_CLOEXEC);
	if (directory < 0)
		err(1, "debugfs");
	return directory;
}

static FILE *open_listed(const char *index, const char *what)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", index, what);
	fd = openat(listed(), path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? NULL : fdopen(fd, "r");
}

/* That of right's device, whose name no other has here. While the device is away there is none. */
static FILE *open_listed_right(const char *what)
{
	DIR *devices = fdopendir(openat(listed(), ".", O_RDONLY | O_CLOEXEC));
	struct dirent *entry;
	FILE *file = NULL;

	if (!devices)
		err(1, "debugfs");
	while (!file && (entry = readdir(devices))) {
		FILE *device = open_listed(entry->d_name, "device");
		char name[64] = "";

		if (!device)
			continue;
		if (fscanf(device, "index=%*u name=%63s", name) == 1 && !strcmp(name, node_device("right")))
			file = open_listed(entry->d_name, what);
		fclose(device);
	}
	closedir(devices);
	return file;
}

/* Changes the line. */
static bool has_word(char *line, const char *word)
{
	char *state, *found;

	for (found = strtok_r(line, "\n ", &state); found; found = strtok_r(NULL, "\n ", &state))
		if (!strcmp(found, word))
			return true;
	return false;
}

static bool has_words(const char *line, const char *words)
{
	char rest[128], copy[512], *word, *state;

	snprintf(rest, sizeof(rest), "%s", words);
	for (word = strtok_r(rest, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
		snprintf(copy, sizeof(copy), "%s", line);
		if (!has_word(copy, word))
			return false;
	}
	return true;
}

unsigned int count_listed_with(const char *what, const char *words)
{
	FILE *file = open_listed_right(what);
	unsigned int count = 0;
	char line[512];

	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		count += has_words(line, words);
	if (ferror(file))
		err(1, "%s", what);
	fclose(file);
	return count;
}

unsigned int count_listed(const char *what)
{
	return count_listed_with(what, "");
}

/*
 * mlx5_ib makes objects of its own when the first QP is created (a PD, a CQ and two SRQs), and when
 * the first memory is registered (a PD, a CQ and a QP). It keeps them while the device is there.
 */
static void let_driver_make_its_own(void)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	static char memory[4096];
	struct node node;
	struct ibv_qp *qp;
	struct ibv_mr *mr;

	if (driver_id() != RDMA_DRIVER_MLX5)
		return;
	node_open(&node, "right");
	attr.send_cq = attr.recv_cq = ibv_create_cq(node.context, 1, NULL, NULL, 0);
	qp = attr.send_cq ? ibv_create_qp(node.pd, &attr) : NULL;
	mr = ibv_reg_mr(node.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	if (!qp || !mr)
		err(1, "a QP and a memory region");
	if (ibv_destroy_qp(qp) || ibv_destroy_cq(attr.send_cq) || ibv_dereg_mr(mr) ||
	    ibv_dealloc_pd(node.pd) || ibv_close_device(node.context))
		errx(1, "a QP, a CQ, a memory region or a PD stays");
}

struct counts count_objects(void)
{
	char *const show[] = { "rdma", "-j", "resource", "show", (char *)node_device("right"), NULL };
	static bool counted;
	struct counts counts;
	char *text;

	if (!counted)
		let_driver_make_its_own();
	counted = true;
	text = output_of(show);
	counts = (struct counts) {
		.pd = count_of(text, "pd"),
		.cq = count_of(text, "cq"),
		.qp = count_of(text, "qp"),
		.cm_id = count_of(text, "cm_id"),
		.mr = count_of(text, "mr"),
		.ctx = count_of(text, "ctx"),
		.srq = count_of(text, "srq"),
		.domains = count_listed("domains"),
		.receive_qps = count_listed("qps"),
		.registrations = count_listed("registrations"),
	};

	free(text);
	return counts;
}

bool same_counts(const struct counts *before, const struct counts *after)
{
	return !memcmp(before, after, sizeof(*before));
}

bool counts_return_to(const struct counts *before)
{
	uint64_t end = now_ns() + PATIENCE_MS * 1000000ull;
	struct counts now;

	do {
		now = count_objects();
		if (same_counts(before, &now))
			return true;
		usleep(100000);
	} while (now_ns() < end);
	ktap_note("pd %u→%u cq %u→%u qp %u→%u mr %u→%u ctx %u→%u srq %u→%u",
		  before->pd, now.pd, before->cq, now.cq, before->qp, now.qp,
		  before->mr, now.mr, before->ctx, now.ctx, before->srq, now.srq);
	ktap_note("domains %u→%u receive QPs %u→%u registrations %u→%u",
		  before->domains, now.domains, before->receive_qps, now.receive_qps,
		  before->registrations, now.registrations);
	return false;
}

static long memory(const char *name)
{
	char line[128];
	long value = -1;
	FILE *file = fopen("/proc/meminfo", "re");

	if (!file)
		err(1, "/proc/meminfo");
	while (value < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
			value = strtol(line + strlen(name) + 1, NULL, 10);
	fclose(file);
	return value;
}

static void write_setting(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	/* Not every kernel has every setting. */
	if (fd < 0)
		return;
	if (write(fd, value, strlen(value)) < 0)
		warn("%s", path);
	close(fd);
}

/* Kibibytes of free pages that processors keep at hand: they do not count as available. */
static long memory_at_hand(void)
{
	long pages = 0, count;
	char line[128];
	FILE *file = fopen("/proc/zoneinfo", "re");

	if (!file)
		err(1, "/proc/zoneinfo");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, " count: %ld", &count) == 1)
			pages += count;
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) >> 10);
}

long memory_available(void)
{
	write_setting("/proc/sys/vm/drop_caches", "3");
	write_setting("/proc/sys/vm/compact_memory", "1");
	return memory("MemAvailable") + memory_at_hand();
}

long slab_unreclaimable(void)
{
	return memory("SUnreclaim");
}

bool memory_is_checked(void)
{
	return !access("/sys/kernel/debug/kmemleak", F_OK);
}

long slab_noise(void)
{
	return memory_is_checked() ? 64 << 10 : 2 << 10;
}

bool device_is_modelled(void)
{
	const char *device = getenv("LAB_DEVICE");

	return device && !strncmp(device, "vmlx", 4);
}

bool is_long_run(void)
{
	const char *long_run = getenv("LAB_LONG");

	return long_run && *long_run && strcmp(long_run, "0");
}

int log_open(void)
{
	int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (log < 0 || lseek(log, 0, SEEK_END) < 0)
		err(1, "/dev/kmsg");
	return log;
}

unsigned int log_count(int log, const char *text)
{
	unsigned int count = 0;
	char record[8192];
	ssize_t size;

	for (;;) {
		size = read(log, record, sizeof(record) - 1);
		if (size < 0 && errno == EPIPE)
			continue;	/* overwritten; the next one is there */
		if (size <= 0)
			return count;
		record[size] = '\0';
		if (strstr(record, text))
			count++;
	}
}

static void device(const char *what)
{
	char program[512], command[600];
	const char *tree = getenv("LAB_TREE");

	if (!tree)
		errx(1, "LAB_TREE is not set");
	snprintf(program, sizeof(program), "%s/qemu/tests/lib/replug", tree);
	snprintf(command, sizeof(command), "%s %s", program, what);
	if (system(command))
		errx(1, "%s failed", command);
}

void device_remove(void)
{
	device("remove");
}

void device_add(void)
{
	device("add");
	let_driver_make_its_own();
}
