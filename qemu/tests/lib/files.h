/* SPDX-License-Identifier: GPL-2.0 */
/* Files of one line: parameters of modules, cgroups and debugfs. */
#ifndef FILES_H
#define FILES_H

void write_file(const char *path, const char *text);
void write_number(const char *path, unsigned int number);
unsigned int read_number(const char *path);
/* Returns the number that was in it. */
unsigned int replace_number(const char *path, unsigned int number);

#endif
