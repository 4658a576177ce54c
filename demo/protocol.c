// SPDX-License-Identifier: GPL-2.0

#include <err.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"

void report(const char *what, const char *format, ...)
{
	char line[512];
	va_list arguments;
	int n;

	n = snprintf(line, sizeof(line), "{\"t\": %llu, \"what\": \"%s\"",
		     (unsigned long long)now_ns(), what);
	va_start(arguments, format);
	n += vsnprintf(line + n, sizeof(line) - n, format, arguments);
	va_end(arguments);
	n += snprintf(line + n, sizeof(line) - n, "}\n");
	if (write(STDOUT_FILENO, line, n) != n)
		err(1, "director");
}

bool next_order(char *order, size_t size)
{
	ssize_t n = read(STDIN_FILENO, order, size - 1);

	if (n <= 0)
		return false;
	order[n] = 0;
	order[strcspn(order, "\n")] = 0;
	return true;
}

struct path parse_path(const char *words)
{
	struct path path = { .timeout = 14 };
	char gid[33];
	unsigned int i;

	if (sscanf(words, "%32[0-9a-f] %hu %u %u", gid, &path.lid, &path.qp_num,
		   &path.recv_psn) != 4 || strlen(gid) != 32)
		errx(1, "not a path: %s", words);
	for (i = 0; i < sizeof(path.gid.raw); i++)
		if (sscanf(gid + 2 * i, "%2hhx", &path.gid.raw[i]) != 1)
			errx(1, "not a GID: %s", gid);
	return path;
}

void report_ready(const struct node *node, uint32_t qp_num, uint32_t psn, uint32_t srq_num)
{
	char gid[33];
	unsigned int i;

	for (i = 0; i < sizeof(node->gid.raw); i++)
		snprintf(gid + 2 * i, 3, "%02x", node->gid.raw[i]);
	report("ready", ", \"gid\": \"%s\", \"lid\": %u, \"qpn\": %u, \"psn\": %u, \"srq\": %u",
	     gid, node->lid, qp_num, psn, srq_num);
}

void make_plain(char *text, size_t size)
{
	size_t i;

	for (i = 0; i < size - 1 && text[i]; i++)
		if (text[i] < ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\')
			text[i] = '?';
	text[i] = 0;
}
