/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Stores standard input in the first free name PREFIX.0, PREFIX.1 and so on of a directory, and prints the path. That
 * a name was missing is compared at the commit, so of two programs that find the same one free, one tries again: no
 * name has to be random, and no program finds a file that is empty or half-written.
 *
 *     cc tempfile.c -lsystx -o tempfile
 *     ./tempfile DIRECTORY PREFIX < contents
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systx.h>

struct temporary {
	const char *directory, *prefix;
	const char *contents;
	size_t length;
	char path[4096]; /* The result. */
};

/* Writes everything, however little a call takes; 0, or -1. */
static int write_all(int fd, const char *from, size_t length)
{
	while (length > 0) {
		ssize_t written = systx_write(fd, from, length);
		if (written < 0)
			return -1;
		from += written;
		length -= (size_t)written;
	}
	return 0;
}

static int store(void *with)
{
	struct temporary *it = (struct temporary *)with;
	for (unsigned n = 0;; n++) {
		snprintf(it->path, sizeof it->path, "%s/%s.%u", it->directory, it->prefix, n);
		int fd = systx_open(it->path, O_WRONLY | O_CREAT | O_EXCL, 0600);
		if (fd >= 0)
			return write_all(fd, it->contents, it->length);
		if (errno != EEXIST)
			return -1;
	}
}

/* All of a stream, in memory of malloc(3); NULL if there is too little of it. */
static char *read_all(FILE *stream, size_t *length)
{
	size_t room = 1 << 16;
	char *all = (char *)malloc(room);
	*length = 0;
	while (all) {
		*length += fread(all + *length, 1, room - *length, stream);
		if (*length < room)
			break;
		char *more = (char *)realloc(all, room *= 2);
		if (!more)
			free(all);
		all = more;
	}
	return all;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: tempfile DIRECTORY PREFIX\n");
		return 2;
	}
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.label = "tempfile";
	options.retries = 100000;
	/* What is on a tmpfs is gone after a power loss anyway. */
	options.durability = SYSTX_NOT_DURABLE;
	struct temporary it;
	it.directory = argv[1];
	it.prefix = argv[2];
	char *contents = read_all(stdin, &it.length);
	it.contents = contents;
	if (!contents || ferror(stdin) || systx_atomically(0, &options, store, &it) != 0) {
		perror("tempfile");
		free(contents);
		return 1;
	}
	puts(it.path);
	free(contents);
	return 0;
}
