/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A serial loop that several threads execute, with the output that one would have written. For each file in turn it
 * appends a line to REPORT: the words of the file, and the sum so far, which it reads from the line before. So each
 * turn depends on the one before, and the loop can't simply be divided. Here each turn is a transaction with the
 * turn's number. The numbers decide the order of the commits, and a turn that has read what an earlier one changes is
 * repeated. A program that was killed has written whole lines, of the first files; started again, it goes on behind
 * them.
 *
 *     cc parallel.c -lsystx -lpthread -o parallel
 *     ./parallel THREADS REPORT FILE...
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systx.h>

static const char *report;
static char **files;
static int count, next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The words of an open file; -1: an error. */
static long words_in(int fd)
{
	char bytes[4096];
	ssize_t size;
	long words = 0;
	int in_word = 0;
	while ((size = systx_read(fd, bytes, sizeof bytes)) > 0)
		for (ssize_t n = 0; n < size; n++) {
			int is_space = bytes[n] == ' ' || bytes[n] == '\n' || bytes[n] == '\t';
			words += !is_space && !in_word;
			in_word = !is_space;
		}
	return size < 0 ? -1 : words;
}

/* The number at the end of a file, and the number of its lines; 0, or -1. */
static int last_line(int fd, long *sum, int *lines)
{
	char byte;
	ssize_t size;
	*sum = *lines = 0;
	/* A byte at a time: no report is that long. */
	while ((size = systx_read(fd, &byte, 1)) == 1) {
		if (byte >= '0' && byte <= '9')
			*sum = 10 * *sum + (byte - '0');
		else if (byte == '\n')
			++*lines;
		else
			*sum = 0;
	}
	return (int)size;
}

/* One turn of the loop. */
static int turn(void *with)
{
	const char *file = (const char *)with;
	char line[5000];
	long words, sum;
	int lines, fd = systx_open(file, O_RDONLY);
	if (fd < 0 || (words = words_in(fd)) < 0)
		return -1;
	int out = systx_open(report, O_RDWR | O_APPEND | O_CREAT, 0644);
	if (out < 0 || last_line(out, &sum, &lines) != 0)
		return -1;
	int size = snprintf(line, sizeof line, "%s: %ld words, sum %ld\n", file, words, sum + words);
	return systx_write(out, line, (size_t)size) == size ? 0 : -1;
}

/* A thread takes the next turn. */
static void *turns(void *with)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		int n = next++;
		pthread_mutex_unlock(&lock);
		if (n >= count)
			return NULL;
		struct systx_options options;
		memset(&options, 0, sizeof options);
		options.size = sizeof options;
		options.durability = SYSTX_NOT_DURABLE;
		options.label = "parallel";
		options.retries = 1000000;
		options.sequence = (uint64_t)n + 1;
		if (systx_atomically(SYSTX_ORDERED, &options, turn, files[n]) != 0) {
			perror(files[n]);
			return with;
		}
	}
}

/* Before the first turn: those that are done. */
static int begin(void *with)
{
	long sum;
	int fd = systx_open(report, O_RDONLY | O_CREAT, 0644);
	return fd < 0 ? -1 : last_line(fd, &sum, (int *)with);
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int wanted = argc > 2 ? atoi(argv[1]) : 0, done = 0, failed = 0;
	if (wanted < 1 || wanted > 64) {
		fprintf(stderr, "usage: parallel THREADS REPORT FILE...\n");
		return 2;
	}
	report = argv[2];
	/* The numbers begin anew, whatever this process group has counted before. Number 0 is this transaction's. */
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	if (systx_atomically(SYSTX_ORDERED | SYSTX_RESET, &options, begin, &done) != 0) {
		perror(report);
		return 1;
	}
	files = argv + 3 + done;
	count = argc - 3 - done;
	for (int n = 0; n < wanted; n++)
		if (pthread_create(&threads[n], NULL, turns, &failed) != 0)
			return 1;
	for (int n = 0; n < wanted; n++) {
		void *ended;
		pthread_join(threads[n], &ended);
		failed |= ended != NULL;
	}
	return failed;
}
