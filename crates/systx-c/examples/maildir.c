/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A maildir with an index: one line for each message, its name. Deliveries, and a reader that marks messages as seen,
 * run at once; index and directories agree always, without a lock.
 *
 *     cc maildir.c -lsystx -o maildir
 *     ./maildir make DIRECTORY
 *     ./maildir deliver DIRECTORY < message
 *     ./maildir see DIRECTORY          marks all new messages
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
#include <unistd.h>

/* The message to deliver. */
static char message[1 << 16];
static size_t length;

/* Appends a line to the index; it is read by others while it grows, so that it is a fact of theirs. */
static int note(const char *name)
{
	int fd = systx_open("index", O_WRONLY | O_APPEND | O_CREAT, 0600);
	char line[300];
	int size = snprintf(line, sizeof line, "%s\n", name);
	return fd >= 0 && systx_write(fd, line, (size_t)size) == size ? 0 : -1;
}

static int deliver(void *with)
{
	char name[] = "new/XXXXXX";
	(void)with;
	/* No need of tmp/: nobody sees the file before the end. */
	int fd = systx_mkstemp(name);
	if (fd < 0 || systx_write(fd, message, length) != (ssize_t)length)
		return -1;
	return note(name + strlen("new/"));
}

static int see(void *with)
{
	SYSTX_DIR *unseen = systx_opendir("new");
	struct dirent *entry;
	int *seen = (int *)with, failed = 0;
	if (!unseen)
		return -1;
	*seen = 0;
	while (!failed && (entry = systx_readdir(unseen)) != NULL) {
		char from[300], to[300];
		if (entry->d_name[0] == '.')
			continue;
		snprintf(from, sizeof from, "new/%s", entry->d_name);
		snprintf(to, sizeof to, "cur/%s:2,S", entry->d_name);
		failed = systx_rename(from, to);
		(*seen)++;
	}
	/* A listing is freed by hand. */
	systx_closedir(unseen);
	return failed;
}

static int make(void *with)
{
	(void)with;
	return systx_mkdir("new", 0700) || systx_mkdir("cur", 0700) || systx_mkdir("tmp", 0700);
}

int main(int argc, char **argv)
{
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.label = "maildir";
	options.retries = 100000;
	if (argc != 3 || chdir(argv[2]) != 0) {
		fprintf(stderr, "usage: maildir make|deliver|see DIRECTORY\n");
		return 2;
	}
	int seen = 0;
	int (*work)(void *) = strcmp(argv[1], "make") == 0 ? make : strcmp(argv[1], "see") == 0 ? see : deliver;
	if (work == deliver)
		length = fread(message, 1, sizeof message, stdin);
	if (systx_atomically(0, &options, work, &seen) != 0) {
		perror("maildir");
		return 1;
	}
	if (work == see)
		printf("%d\n", seen);
	return 0;
}
