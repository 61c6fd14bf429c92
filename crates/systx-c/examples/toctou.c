/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A privileged program that writes into a file of a user's directory, but only into a file that is the user's. The user
 * may put another file, or a link to one, in its place at any instant: between the check and the open, too. In a
 * transaction both see the same, or it does not commit, and nothing was written.
 *
 *     cc toctou.c -lsystx -o toctou
 *     ./toctou FILE UID TEXT TIMES
 *
 * Prints how often it has written.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systx.h>

struct note {
	const char *path;
	uid_t owner;
	const char *text;
};

enum { REFUSED = 1 };

static int append(void *with)
{
	const struct note *note = (const struct note *)with;
	struct stat found;
	if (systx_lstat(note->path, &found) != 0)
		return -1;
	if (!S_ISREG(found.st_mode) || found.st_uid != note->owner || found.st_nlink != 1)
		return REFUSED;
	/* It would follow a link, and does not have to be afraid of one. */
	int fd = systx_open(note->path, O_WRONLY | O_APPEND);
	if (fd < 0)
		return -1;
	size_t length = strlen(note->text);
	return systx_write(fd, note->text, length) == (ssize_t)length ? 0 : -1;
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: toctou FILE UID TEXT TIMES\n");
		return 2;
	}
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.durability = SYSTX_NOT_DURABLE;
	struct note note = { argv[1], (uid_t)atoi(argv[2]), argv[3] };
	long written = 0;
	for (long n = atol(argv[4]); n > 0; n--) {
		errno = 0;
		switch (systx_atomically(0, &options, append, &note)) {
		case 0:
			written++;
			break;
		case REFUSED:
			break;
		default:
			/* The attacker was faster, a hundred times, or nothing has the name. */
			if (errno != ECANCELED && errno != ENOENT) {
				perror(note.path);
				return 1;
			}
		}
	}
	printf("%ld\n", written);
	return 0;
}
