// SPDX-License-Identifier: GPL-2.0
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd))
		err(1, "%s", path);
}

void write_number(const char *path, unsigned int number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	write_file(path, text);
}

unsigned int read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned int number;

	if (!file || fscanf(file, "%u", &number) != 1)
		err(1, "%s", path);
	fclose(file);
	return number;
}

unsigned int replace_number(const char *path, unsigned int number)
{
	unsigned int was = read_number(path);

	write_number(path, number);
	return was;
}
