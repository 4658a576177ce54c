// SPDX-License-Identifier: GPL-2.0

#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter.h"
#include "observe.h"

#define PORT_NAME "org.ib_xrc_rcv.vmlx"
#define PORTS "/sys/class/virtio-ports"

/* The last answer. */
static char answer[1 << 16];

void adapter_or_skip(const char *name)
{
	if (device_is_modelled())
		return;
	printf("KTAP version 1\n1..0 # SKIP %s needs the modelled adapter\n", name);
	exit(4);
}

static bool is_named(const char *port)
{
	char path[300], name[64] = {};
	FILE *file;

	snprintf(path, sizeof(path), PORTS "/%s/name", port);
	file = fopen(path, "re");
	if (!file)
		return false;
	(void)!fgets(name, sizeof(name), file);
	fclose(file);
	name[strcspn(name, "\n")] = '\0';
	return !strcmp(name, PORT_NAME);
}

/* The port takes one client at a time, so it is held no longer than for a question. */
static int open_port(void)
{
	DIR *ports = opendir(PORTS);
	struct dirent *port;
	char path[300];
	int fd = -1;

	if (!ports)
		err(1, PORTS);
	while (fd < 0 && (port = readdir(ports))) {
		if (!is_named(port->d_name))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", port->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			err(1, "%s", path);
	}
	closedir(ports);
	if (fd < 0)
		errx(1, "no port " PORT_NAME);
	return fd;
}

/* Puts the fields of a request to the adapter; its answer is in answer. */
__attribute__((format(printf, 1, 2)))
static void ask(const char *format, ...)
{
	char request[256], *end = NULL;
	int fd = open_port(), size;
	size_t length = 0;
	va_list fields;
	ssize_t got;

	va_start(fields, format);
	size = vsnprintf(request, sizeof(request), format, fields);
	va_end(fields);
	if (size >= (int)sizeof(request) || write(fd, request, size) != size)
		err(1, "asking the adapter");
	while (!end) {
		got = read(fd, answer + length, sizeof(answer) - 1 - length);
		if (got <= 0)
			err(1, "the adapter's answer");
		length += got;
		answer[length] = '\0';
		end = strchr(answer, '\n');
	}
	*end = '\0';
	close(fd);
	if (strncmp(answer, "{\"result\":", 10))
		errx(1, "the adapter answers %s to %s", answer, request);
}

/* Returns the text after "NAME": in the answer. */
static const char *find(const char *name)
{
	char wanted[64];
	char *found;

	snprintf(wanted, sizeof(wanted), "\"%s\":", name);
	found = strstr(answer, wanted);
	return found ? found + strlen(wanted) : NULL;
}

unsigned long adapter_count(const char *name)
{
	const char *found;

	ask("{\"op\":\"status\"}\n");
	found = find(name);
	return found ? strtoul(found, NULL, 10) : 0;
}

unsigned long adapter_commands(const char *name)
{
	unsigned long commands = 0;
	const char *counts;

	ask("{\"op\":\"status\"}\n");
	/* {"status": how often, …} */
	for (counts = find(name); counts && *counts && *counts != '}'; counts++)
		if (*counts == ':')
			commands += strtoul(counts + 1, NULL, 10);
	return commands;
}

unsigned long adapter_qps(void)
{
	const char *objects;

	ask("{\"op\":\"status\"}\n");
	objects = find("objects");
	objects = objects ? strstr(objects, "\"qps\":") : NULL;
	if (!objects)
		errx(1, "the adapter says nothing of its QPs: %s", answer);
	return strtoul(objects + strlen("\"qps\":"), NULL, 10);
}

bool adapter_lets_use_all_memory(uint32_t qp_num)
{
	char wanted[32];
	const char *qp;

	ask("{\"op\":\"qps\"}\n");
	snprintf(wanted, sizeof(wanted), "\"qpn\":%u,", qp_num);
	qp = strstr(answer, wanted);
	if (!qp)
		errx(1, "the adapter has no QP %#x: %s", qp_num, answer);
	qp = strstr(qp, "\"reserved_key\":");
	if (!qp)
		errx(1, "the adapter says nothing of reserved keys: %s", answer);
	return !strncmp(qp + strlen("\"reserved_key\":"), "true", 4);
}

void adapter_event(const char *kind, uint32_t qp_num, unsigned int repeat)
{
	ask("{\"op\":\"event\",\"kind\":\"%s\",\"number\":%u,\"repeat\":%u}\n", kind, qp_num,
	    repeat);
}

void adapter_latency(unsigned int microseconds)
{
	ask("{\"op\":\"latency\",\"micros\":%u}\n", microseconds);
}

void adapter_latency_of(const char *name, unsigned int microseconds)
{
	ask("{\"op\":\"latency\",\"opcode\":\"%s\",\"micros\":%u}\n", name, microseconds);
}

void adapter_fail(const char *status, unsigned int skip, unsigned int count)
{
	char limit[32] = "";

	if (count != ALL_FAIL)
		snprintf(limit, sizeof(limit), ",\"count\":%u", count);
	ask("{\"op\":\"fail_command\",\"status\":\"%s\",\"skip\":%u%s}\n", status, skip, limit);
}

const char *adapter_failed(void)
{
	static char name[64];
	const char *found;

	ask("{\"op\":\"status\"}\n");
	found = find("last_injected_failure");
	snprintf(name, sizeof(name), "%.*s", found ? (int)strcspn(found + 1, "\"") : 0,
		 found ? found + 1 : "");
	return name;
}

void adapter_clear(void)
{
	ask("{\"op\":\"clear\"}\n");
}

void adapter_reset_counts(void)
{
	ask("{\"op\":\"reset_counters\"}\n");
}
