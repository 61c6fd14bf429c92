/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Checks of the test programs. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "systx.h"

/* Ends the program unless it is true. */
#define CHECK(that)                                                                                          \
	do {                                                                                                 \
		if (!(that)) {                                                                               \
			fprintf(stderr, "%s:%d: not so: %s (errno %d, %s)\n", __FILE__, __LINE__, #that, errno, \
				strerror(errno));                                                            \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

/* The call fails with this error number. */
#define FAILS(call, number)                                                                                   \
	do {                                                                                                  \
		errno = 0;                                                                                    \
		long said_ = (long)(call);                                                                    \
		if ((said_ != -1 && said_ != 0) || errno != (number)) {                                       \
			fprintf(stderr, "%s:%d: %s: said %ld, errno %d (%s), not %s\n", __FILE__, __LINE__, #call, \
				said_, errno, strerror(errno), #number);                                      \
			exit(1);                                                                              \
		}                                                                                             \
	} while (0)

/* Writes a whole file, plainly. */
static inline void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(close(fd) == 0);
}

/* A file says this, plainly. */
static inline int says(const char *path, const char *text)
{
	char found[4096];
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	ssize_t got = read(fd, found, sizeof found);
	CHECK(close(fd) == 0);
	return got == (ssize_t)strlen(text) && memcmp(found, text, (size_t)got) == 0;
}

/* Writes a whole file in the thread's transaction; 0 or -1. */
static inline int put_inside(const char *path, const char *text)
{
	int fd = systx_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0)
		return -1;
	ssize_t put = systx_write(fd, text, strlen(text));
	int closed = systx_close(fd);
	return put == (ssize_t)strlen(text) && closed == 0 ? 0 : -1;
}

static inline struct systx_outcome outcome(void)
{
	struct systx_outcome found;
	memset(&found, 0, sizeof found);
	found.size = sizeof found;
	CHECK(sys_xoutcome(&found) == 0);
	return found;
}

#endif
