/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Parts, actions, waiting, order, descriptors of the program's own. Argument: a directory. */
#include "check.h"
#include <pthread.h>

static void parts(void)
{
	struct stat found;
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("outer", "1") == 0);
	int fd = systx_open("outer", O_RDWR);
	CHECK(fd >= 0 && systx_lseek(fd, 1, SEEK_SET) == 1);
	CHECK(sys_xbegin(SYSTX_PART, NULL) == 0 && put_inside("undone", "2") == 0);
	int lost = systx_open("undone", O_RDONLY);
	CHECK(lost >= 0 && systx_write(fd, "more", 4) == 4);
	CHECK(sys_xbegin(SYSTX_PART, NULL) == 0 && put_inside("inner", "3") == 0 && sys_xend() == 0);
	CHECK(sys_xabort() == 0);
	FAILS(systx_fstat(lost, &found), EBADF);
	FAILS(systx_stat("undone", &found), ENOENT);
	FAILS(systx_stat("inner", &found), ENOENT);
	CHECK(systx_lseek(fd, 0, SEEK_CUR) == 1 && systx_fstat(fd, &found) == 0 && found.st_size == 1);
	CHECK(sys_xbegin(SYSTX_PART, NULL) == 0 && put_inside("kept", "4") == 0 && sys_xend() == 0);
	CHECK(sys_xend() == 0);
	CHECK(says("outer", "1") && says("kept", "4") && access("undone", F_OK) == -1);
	/* An inner begin that is no part dooms the whole. */
	CHECK(sys_xbegin(0, NULL) == 0 && sys_xbegin(SYSTX_PART, NULL) == 0 && sys_xbegin(0, NULL) == 0);
	CHECK(sys_xabort() == 0);
	FAILS(sys_xend(), ECANCELED);
	FAILS(sys_xend(), ECANCELED);
}

static char said[16];

static void say(void *with)
{
	strcat(said, (const char *)with);
}

static void begins(void *with)
{
	strcat(said, (const char *)with);
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("by an action", "x") == 0 && sys_xend() == 0);
}

static void actions(void)
{
	char a[] = "a", b[] = "b", c[] = "c";
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("acts", "1") == 0);
	CHECK(systx_on_commit(say, a) == 0 && systx_on_abort(say, b) == 0 && systx_on_commit(begins, c) == 0);
	CHECK(said[0] == 0 && sys_xend() == 0 && strcmp(said, "ac") == 0 && says("by an action", "x"));
	said[0] = 0;
	CHECK(sys_xbegin(0, NULL) == 0 && systx_on_abort(say, a) == 0 && systx_on_abort(say, b) == 0);
	CHECK(sys_xbegin(SYSTX_PART, NULL) == 0 && systx_on_abort(say, c) == 0 && sys_xabort() == 0);
	CHECK(strcmp(said, "c") == 0 && sys_xabort() == 0 && strcmp(said, "cba") == 0);
	said[0] = 0;
	put("acts", "2");
	CHECK(sys_xbegin(0, NULL) == 0 && systx_on_abort(say, a) == 0 && systx_on_commit(say, b) == 0);
	struct stat found;
	CHECK(systx_stat("acts", &found) == 0);
	put("acts", "33");
	FAILS(sys_xend(), ECANCELED);
	CHECK(strcmp(said, "a") == 0);
}

static int waits_for_work(void *with)
{
	char text[16];
	int *times = (int *)with, fd = systx_open("work", O_RDONLY);
	(*times)++;
	if (fd < 0)
		return errno == ENOENT ? SYSTX_RETRY : -1;
	ssize_t length = systx_read(fd, text, sizeof text);
	if (length == 0)
		return SYSTX_RETRY;
	return length > 0 && systx_unlink("work") == 0 ? 0 : -1;
}

static void *works(void *with)
{
	CHECK(systx_atomically(0, NULL, waits_for_work, with) == 0);
	return NULL;
}

static void waiting(void)
{
	pthread_t thread;
	int times = 0;
	CHECK(pthread_create(&thread, NULL, works, &times) == 0);
	/* The other one waits, or is about to. */
	put("work", "something");
	CHECK(pthread_join(thread, NULL) == 0 && times > 0 && access("work", F_OK) == -1);
	/* By hand: what was read has changed already. */
	struct stat found;
	CHECK(sys_xbegin(SYSTX_AGAIN, NULL) == 0 && systx_stat("acts", &found) == 0 && put_inside("forgotten", "") == 0);
	CHECK(sys_xbegin(0, NULL) == 0);
	FAILS(sys_xretry(), EINVAL);
	CHECK(sys_xend() == 0);
	put("acts", "something else");
	CHECK(sys_xretry() == 0);
	FAILS(sys_xend(), EINVAL);
	CHECK(access("forgotten", F_OK) == -1);
}

static struct systx_options ordered(uint64_t number)
{
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.durability = SYSTX_NOT_DURABLE;
	options.sequence = number;
	return options;
}

enum { NUMBERS = 12 };

static int append(void *with)
{
	char line[16];
	int fd = systx_open("sequence", O_WRONLY | O_APPEND | O_CREAT, 0644);
	int length = snprintf(line, sizeof line, "%d\n", *(int *)with);
	return fd >= 0 && systx_write(fd, line, (size_t)length) == length ? 0 : -1;
}

static void *in_turn(void *with)
{
	struct systx_options options = ordered((uint64_t)*(int *)with);
	options.retries = 10000;
	CHECK(systx_atomically(SYSTX_ORDERED, &options, append, with) == 0);
	return NULL;
}

static void order(void)
{
	pthread_t threads[NUMBERS];
	int numbers[NUMBERS];
	char all[NUMBERS * 4] = "";
	for (int n = NUMBERS - 1; n >= 0; n--) {
		numbers[n] = n;
		CHECK(pthread_create(&threads[n], NULL, in_turn, &numbers[n]) == 0);
	}
	for (int n = 0; n < NUMBERS; n++) {
		CHECK(pthread_join(threads[n], NULL) == 0);
		snprintf(all + strlen(all), sizeof all - strlen(all), "%d\n", n);
	}
	CHECK(says("sequence", all));
	struct systx_options used = ordered(3), later = ordered(100);
	FAILS(sys_xbegin(SYSTX_ORDERED, &used), EEXIST);
	later.stall_ms = SYSTX_NO_STALL;
	CHECK(sys_xbegin(SYSTX_ORDERED, &later) == 0);
	FAILS(sys_xbegin(SYSTX_ORDERED, &later), EINVAL);
	FAILS(sys_xend(), ECANCELED);
	CHECK(outcome().code == SYSTX_ORDER && outcome().can_retry == 0);
	CHECK(sys_xbegin(SYSTX_ORDERED | SYSTX_RESET, &later) == 0 && sys_xend() == 0);
}

static void conflict_with_number(struct systx_options *options, int flags)
{
	struct stat found;
	CHECK(sys_xbegin(SYSTX_ORDERED | SYSTX_AGAIN | flags, options) == 0 && systx_stat("acts", &found) == 0);
	CHECK(put_inside("in order", "0") == 0);
	put("acts", found.st_size == 1 ? "22" : "1");
	FAILS(sys_xend(), ECANCELED);
	CHECK(outcome().can_retry);
}

/* After a conflict a thread keeps its number, for that number alone. */
static void numbers_are_not_mixed_up(void)
{
	struct systx_options first = ordered(200), second = ordered(201), third = ordered(202);
	conflict_with_number(&first, SYSTX_RESET);
	CHECK(sys_xbegin(SYSTX_ORDERED | SYSTX_AGAIN, &second) == 0 && put_inside("in order", "2") == 0);
	FAILS(sys_xend(), ECANCELED);
	CHECK(outcome().code == SYSTX_ORDER && access("in order", F_OK) == -1);
	CHECK(sys_xbegin(SYSTX_ORDERED | SYSTX_AGAIN, &first) == 0 && put_inside("in order", "1") == 0);
	CHECK(sys_xend() == 0 && says("in order", "1"));
	conflict_with_number(&second, 0);
	/* One without a number, and without the flag. */
	CHECK(sys_xbegin(SYSTX_AGAIN, NULL) == 0 && put_inside("in order", "x") == 0 && sys_xend() == 0);
	conflict_with_number(&second, 0);
	CHECK(sys_xbegin(SYSTX_ORDERED, &second) == 0 && put_inside("in order", "2") == 0 && sys_xend() == 0);
	CHECK(sys_xbegin(SYSTX_ORDERED | SYSTX_AGAIN, &third) == 0 && put_inside("in order", "3") == 0);
	CHECK(sys_xend() == 0 && says("in order", "3"));
}

static void adopted(void)
{
	char text[8];
	put("own", "abcdef");
	CHECK(mkdir("own dir", 0755) == 0);
	int file = open("own", O_RDWR), dir = open("own dir", O_RDONLY | O_DIRECTORY), reads = open("own", O_RDONLY);
	CHECK(file >= 0 && dir >= 0 && reads >= 0 && lseek(file, 2, SEEK_SET) == 2);
	CHECK(sys_xbegin(0, NULL) == 0);
	int inside = systx_adopt(file), place = systx_adopt(dir);
	CHECK(inside >= 0 && place >= 0 && inside != file);
	CHECK(systx_read(inside, text, 2) == 2 && memcmp(text, "cd", 2) == 0 && systx_write(inside, "E", 1) == 1);
	FAILS(systx_write(systx_adopt(reads), "x", 1), EBADF);
	CHECK(systx_close(systx_openat(place, "made", O_WRONLY | O_CREAT, 0600)) == 0);
	CHECK(lseek(file, 0, SEEK_CUR) == 2 && says("own", "abcdef"));
	CHECK(sys_xend() == 0);
	CHECK(lseek(file, 0, SEEK_CUR) == 5 && says("own", "abcdEf") && access("own dir/made", F_OK) == 0);
	CHECK(sys_xbegin(0, NULL) == 0);
	inside = systx_adopt(file);
	CHECK(systx_lseek(inside, 1, SEEK_SET) == 1 && sys_xabort() == 0 && lseek(file, 0, SEEK_CUR) == 5);
}

static struct systx_token left;

static void *pauses(void *with)
{
	(void)with;
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("deserted", "x") == 0 && sys_xpause(&left) == 0);
	return NULL;
}

/* The last one who has taken part has ended. */
static void deserted(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, pauses, NULL) == 0 && pthread_join(thread, NULL) == 0);
	FAILS(sys_xresume(&left), EPERM);
	CHECK(access("deserted", F_OK) == -1);
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("deserted", "y") == 0 && sys_xend() == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && chdir(argv[1]) == 0);
	/* Numbers are those of a process group. */
	CHECK(setpgid(0, 0) == 0 || getpgrp() == getpid());
	parts();
	actions();
	waiting();
	order();
	numbers_are_not_mixed_up();
	adopted();
	deserted();
	return 0;
}
