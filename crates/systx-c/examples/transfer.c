/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Moves amounts between accounts, each a number in a file. Any number of these processes may run at once and be killed
 * at any instant: no amount is lost or made.
 *
 *     cc transfer.c -lsystx -o transfer
 *     ./transfer DIRECTORY ACCOUNTS TIMES SEED
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

struct transfer {
	int directory; /* A descriptor of the program's own. */
	int from, to;
	long amount;
};

/* Adds to the number in a file; 0, or -1. */
static int add(int directory, int account, long amount)
{
	char name[16], text[32];
	snprintf(name, sizeof name, "%d", account);
	int fd = systx_openat(directory, name, O_RDWR);
	if (fd < 0)
		return -1;
	ssize_t length = systx_read(fd, text, sizeof text - 1);
	if (length < 0)
		return -1;
	text[length] = '\0';
	int now = snprintf(text, sizeof text, "%ld\n", strtol(text, NULL, 10) + amount);
	/* Descriptors are closed at the end of the transaction. */
	return systx_ftruncate(fd, 0) == 0 && systx_pwrite(fd, text, (size_t)now, 0) == now ? 0 : -1;
}

static int transfer(void *with)
{
	const struct transfer *it = (const struct transfer *)with;
	if (add(it->directory, it->from, -it->amount) != 0)
		return -1;
	return add(it->directory, it->to, it->amount);
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: transfer DIRECTORY ACCOUNTS TIMES SEED\n");
		return 2;
	}
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.label = "transfer";
	options.retries = 100000;
	struct transfer it = { open(argv[1], O_RDONLY | O_DIRECTORY), 0, 0, 0 };
	if (it.directory < 0) {
		perror(argv[1]);
		return 1;
	}
	int accounts = atoi(argv[2]);
	long times = atol(argv[3]);
	srandom((unsigned)atoi(argv[4]));
	for (long n = 0; n < times; n++) {
		it.from = (int)(random() % accounts);
		it.to = (int)(random() % accounts);
		it.amount = random() % 100;
		errno = 0;
		if (systx_atomically(0, &options, transfer, &it) != 0) {
			perror("transfer");
			return 1;
		}
	}
	return 0;
}
