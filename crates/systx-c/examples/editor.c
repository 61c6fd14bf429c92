/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Replaces a text in a file, in place and without a backup, and prints how often. A careful editor writes a new file
 * and renames it over the old one, which gives the file another identity: owner, mode, attributes and hard links have
 * to be copied, and some can't be. Here the file stays the one that it is, and holds the old text or the new one,
 * wherever the editor is killed.
 *
 *     cc editor.c -lsystx -o editor
 *     ./editor FILE OLD NEW
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systx.h>

struct edit {
	const char *file, *from, *to;
	unsigned long replaced; /* The result. */
};

/* Replaces `from` by `to` in a text of `length` bytes; the new text, and its length, or NULL without memory. */
static char *replaced(struct edit *it, const char *text, size_t *length)
{
	size_t from = strlen(it->from), to = strlen(it->to);
	const char *found, *end = text + *length;
	it->replaced = 0;
	for (found = text; (found = (const char *)memmem(found, (size_t)(end - found), it->from, from)); found += from)
		it->replaced++;
	char *all = (char *)malloc(*length + it->replaced * to + 1), *next = all;
	if (!all)
		return NULL;
	while ((found = (const char *)memmem(text, (size_t)(end - text), it->from, from))) {
		next = (char *)mempcpy(next, text, (size_t)(found - text));
		next = (char *)mempcpy(next, it->to, to);
		text = found + from;
	}
	next = (char *)mempcpy(next, text, (size_t)(end - text));
	*length = (size_t)(next - all);
	return all;
}

/* Reads or writes everything, from the beginning; 0, or -1. */
static int whole(int fd, char *bytes, size_t length, int writes)
{
	size_t done = 0;
	while (done < length) {
		ssize_t now = writes ? systx_pwrite(fd, bytes + done, length - done, (off_t)done)
				     : systx_pread(fd, bytes + done, length - done, (off_t)done);
		if (now <= 0)
			return -1;
		done += (size_t)now;
	}
	return 0;
}

static int edit(void *with)
{
	struct edit *it = (struct edit *)with;
	int fd = systx_open(it->file, O_RDWR), failed = -1;
	struct stat found;
	if (fd < 0 || systx_fstat(fd, &found) != 0)
		return -1;
	size_t length = (size_t)found.st_size;
	char *old = (char *)malloc(length + 1), *edited = NULL;
	if (old && whole(fd, old, length, 0) == 0)
		edited = replaced(it, old, &length);
	if (edited && systx_ftruncate(fd, (off_t)length) == 0)
		failed = whole(fd, edited, length, 1);
	free(old);
	free(edited);
	return failed;
}

int main(int argc, char **argv)
{
	if (argc != 4 || !*argv[2]) {
		fprintf(stderr, "usage: editor FILE OLD NEW\n");
		return 2;
	}
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.label = "editor";
	struct edit it = { argv[1], argv[2], argv[3], 0 };
	if (systx_atomically(0, &options, edit, &it) != 0) {
		perror(it.file);
		return 1;
	}
	printf("%lu replaced\n", it.replaced);
	return 0;
}
