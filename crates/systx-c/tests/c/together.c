/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Transactions beside outsiders, threads, forks, and each other. Argument: a directory. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 25 };

static void an_outsider(void)
{
	put("read", "1");
	CHECK(sys_xbegin(SYSTX_AGAIN, NULL) == 0);
	int fd = systx_open("read", O_RDONLY);
	char byte;
	CHECK(fd >= 0 && systx_read(fd, &byte, 1) == 1);
	CHECK(put_inside("written", "on what was read") == 0);
	CHECK(sys_xcheck() == 0);
	put("read", "2");
	FAILS(sys_xend(), ECANCELED);
	struct systx_outcome end = outcome();
	CHECK(end.code == SYSTX_CONFLICT && end.can_retry == 1 && end.steps == 0);
	CHECK(end.path != NULL && strstr(end.path, "/read") != NULL && strstr(end.message, "read") != NULL);
	CHECK(access("written", F_OK) == -1);
	/* Once more. */
	CHECK(sys_xbegin(SYSTX_AGAIN, NULL) == 0);
	CHECK(put_inside("written", "once more") == 0 && sys_xend() == 0 && says("written", "once more"));

	/* A conflict that a check finds ends each later call. */
	CHECK(sys_xbegin(0, NULL) == 0);
	fd = systx_open("read", O_RDONLY);
	CHECK(fd >= 0 && systx_read(fd, &byte, 1) == 1);
	put("read", "33");
	FAILS(sys_xcheck(), ECANCELED);
	FAILS(systx_open("written", O_RDONLY), ECANCELED);
	FAILS(systx_read(fd, &byte, 1), ECANCELED);
	CHECK(outcome().code == SYSTX_CONFLICT);
	FAILS(sys_xbegin(0, NULL), ECANCELED);
	CHECK(sys_xabort() == 0 && outcome().code == SYSTX_CONFLICT);
}

static int append_inside(const char *file, const char *text)
{
	int fd = systx_open(file, O_WRONLY | O_APPEND);
	return fd >= 0 && systx_write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? fd : -1;
}

/* Two that append, the second within the first; `asks`: the first one asks where it is. */
static int appends(int asks)
{
	put("log", "first,");
	CHECK(sys_xbegin(0, NULL) == 0);
	int fd = append_inside("log", "outer,");
	CHECK(fd >= 0);
	if (asks)
		CHECK(systx_lseek(fd, 0, SEEK_CUR) == 12);
	CHECK(systx_push() == 0 && sys_xbegin(0, NULL) == 0);
	CHECK(append_inside("log", "inner,") >= 0 && sys_xend() == 0 && systx_pop() == 0);
	return sys_xend();
}

static void append_both(void)
{
	CHECK(appends(0) == 0 && says("log", "first,inner,outer,"));
	FAILS(appends(1), ECANCELED);
	CHECK(says("log", "first,inner,"));
}

static void nested(void)
{
	/* Inner ends join. */
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("outer", "1") == 0);
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("inner", "2") == 0 && sys_xend() == 0);
	CHECK(access("inner", F_OK) == -1);
	CHECK(sys_xend() == 0 && says("inner", "2") && says("outer", "1"));
	/* An inner abort is one of the whole. */
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("outer", "lost") == 0);
	CHECK(sys_xbegin(0, NULL) == 0 && sys_xabort() == 0);
	FAILS(systx_open("outer", O_RDONLY), ECANCELED);
	CHECK(outcome().code == SYSTX_ABORTED);
	FAILS(sys_xbegin(0, NULL), ECANCELED);
	FAILS(sys_xend(), ECANCELED);
	CHECK(outcome().code == SYSTX_ABORTED && says("outer", "1"));
	/* One below another, and independent of it. */
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("outer", "lost") == 0 && systx_push() == 0);
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("inner", "kept") == 0);
	FAILS(systx_pop(), EBUSY);
	CHECK(sys_xend() == 0 && systx_pop() == 0);
	FAILS(systx_pop(), EBUSY);
	CHECK(sys_xabort() == 0);
	FAILS(systx_pop(), EINVAL);
	CHECK(says("inner", "kept") && says("outer", "1"));
}

/* A directory's descriptor of the program's own, and two of two transactions. */
static void directories(void)
{
	CHECK(mkdir("dir", 0755) == 0);
	int plain = open("dir", O_RDONLY | O_DIRECTORY);
	CHECK(plain >= 0);
	CHECK(sys_xbegin(0, NULL) == 0);
	int fd = systx_openat(plain, "file", O_WRONLY | O_CREAT, 0644);
	CHECK(fd >= 0 && systx_write(fd, "x", 1) == 1);
	int first = systx_open("dir", O_RDONLY);
	CHECK(first >= 0 && systx_push() == 0 && sys_xbegin(0, NULL) == 0);
	int second = systx_open("dir", O_RDONLY);
	CHECK(second >= 0);
	/* Each call is of its descriptor's transaction. */
	struct stat found;
	CHECK(systx_fstatat(first, "file", &found, 0) == 0);
	FAILS(systx_fstatat(second, "file", &found, 0), ENOENT);
	FAILS(systx_renameat(first, "file", second, "file2"), EINVAL);
	FAILS(systx_linkat(first, "file", second, "file2", 0), EINVAL);
	CHECK(sys_xend() == 0 && systx_pop() == 0);
	FAILS(systx_fstatat(second, "file", &found, 0), EBADF);
	CHECK(sys_xend() == 0 && says("dir/file", "x") && close(plain) == 0);
}

struct account {
	int by;
	int times;
};

/* Adds to a number in a file. */
static int add(void *with)
{
	struct account *account = with;
	char text[32] = { 0 };
	account->times++;
	int fd = systx_open("sum", O_RDWR);
	if (fd < 0 || systx_read(fd, text, sizeof text - 1) < 0)
		return -1;
	int length = snprintf(text, sizeof text, "%d", atoi(text) + account->by);
	if (systx_ftruncate(fd, 0) != 0 || systx_pwrite(fd, text, (size_t)length, 0) != length)
		return -1;
	return 0;
}

static struct systx_options loosely(void)
{
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.durability = SYSTX_NOT_DURABLE;
	options.retries = 100000;
	return options;
}

static void *adds(void *with)
{
	struct systx_options options = loosely();
	(void)with;
	for (int n = 0; n < ROUNDS; n++) {
		struct account account = { 1, 0 };
		CHECK(systx_atomically(0, &options, add, &account) == 0);
		CHECK(account.times > 0);
	}
	return NULL;
}

static int fails(void *with)
{
	(void)with;
	CHECK(put_inside("sum", "wrong") == 0);
	return 42;
}

static int ends_too_early(void *with)
{
	(void)with;
	CHECK(sys_xabort() == 0);
	return 0;
}

static void threads(void)
{
	pthread_t all[THREADS];
	char sum[16];
	put("sum", "0");
	for (int n = 0; n < THREADS; n++)
		CHECK(pthread_create(&all[n], NULL, adds, NULL) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		/* A process that threads were forked from. */
		adds(NULL);
		_exit(0);
	}
	for (int n = 0; n < THREADS; n++)
		CHECK(pthread_join(all[n], NULL) == 0);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	snprintf(sum, sizeof sum, "%d", (THREADS + 1) * ROUNDS);
	CHECK(says("sum", sum));
	CHECK(systx_atomically(0, NULL, fails, NULL) == 42 && says("sum", sum));
	FAILS(systx_atomically(0, NULL, ends_too_early, NULL), EINVAL);
	FAILS(sys_xend(), EINVAL);
}

static void *leaves(void *with)
{
	(void)with;
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("left", "behind") == 0);
	CHECK(systx_push() == 0);
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("left", "behind") == 0);
	return NULL;
}

static void *uses(void *with)
{
	int fd = *(int *)with;
	char text[3];
	/* A descriptor is of its transaction, whichever thread uses it. */
	CHECK(systx_pread(fd, text, 3, 0) == 3 && systx_pwrite(fd, "XY", 2, 0) == 2);
	FAILS(systx_open("shared", O_RDONLY), EINVAL);
	return NULL;
}

static void ends_of_threads(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, leaves, NULL) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(access("left", F_OK) == -1);
	put("shared", "abc");
	CHECK(sys_xbegin(0, NULL) == 0);
	int fd = systx_open("shared", O_RDWR);
	CHECK(fd >= 0 && pthread_create(&thread, NULL, uses, &fd) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(sys_xend() == 0 && says("shared", "XYc"));
}

static void forks(void)
{
	put("shared", "abc");
	CHECK(sys_xbegin(0, NULL) == 0);
	int fd = systx_open("shared", O_RDWR);
	CHECK(fd >= 0 && systx_pwrite(fd, "A", 1, 0) == 1);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char byte;
		FAILS(sys_xend(), EINVAL);
		FAILS(sys_xabort(), EINVAL);
		FAILS(systx_read(fd, &byte, 1), EBADF);
		FAILS(systx_close(fd), EBADF);
		FAILS(systx_open("shared", O_RDONLY), EINVAL);
		CHECK(sys_xbegin(0, NULL) == 0 && put_inside("child", "c") == 0);
		FAILS(systx_read(fd, &byte, 1), EBADF);
		CHECK(sys_xend() == 0);
		/* With the ends of threads, which end nothing of the parent's. */
		exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(says("child", "c") && says("shared", "abc"));
	CHECK(systx_pwrite(fd, "B", 1, 1) == 1);
	CHECK(sys_xend() == 0 && says("shared", "ABc"));
}

static void *waits_to_be_cancelled(void *with)
{
	(void)with;
	CHECK(sys_xbegin(0, NULL) == 0);
	for (;;) {
		CHECK(put_inside("cancelled", "x") == 0);
		pthread_testcancel();
	}
}

static void cancelled_threads(void)
{
	for (int n = 0; n < 20; n++) {
		pthread_t thread;
		void *result;
		CHECK(pthread_create(&thread, NULL, waits_to_be_cancelled, NULL) == 0);
		CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
		CHECK(access("cancelled", F_OK) == -1);
		CHECK(sys_xbegin(0, NULL) == 0 && put_inside("not cancelled", "x") == 0 && sys_xend() == 0);
	}
}

static int open_descriptors(void)
{
	int count = 0;
	DIR *dir = opendir("/proc/self/fd");
	CHECK(dir != NULL);
	while (readdir(dir))
		count++;
	CHECK(closedir(dir) == 0);
	return count;
}

/* What is left open is closed, however it ends. */
static void no_descriptor_is_left(void)
{
	struct systx_options options = loosely();
	int before = 0;
	put("shared", "abc");
	for (int n = 0; n < 300; n++) {
		if (n == 100)
			before = open_descriptors();
		CHECK(sys_xbegin(0, &options) == 0);
		int fd = systx_open("shared", O_RDWR);
		CHECK(fd >= 0 && systx_open(".", O_RDONLY) >= 0 && systx_dup(fd) >= 0 && systx_write(fd, "X", 1) == 1);
		CHECK((n % 2 ? sys_xend() : sys_xabort()) == 0);
	}
	CHECK(open_descriptors() == before);
}

static void not_called(void *with)
{
	(void)with;
	CHECK(!"an action of what was aborted");
}

/* One that never waits, beside one that has lost and has priority. */
static void never_waits(void)
{
	struct systx_options options = loosely();
	struct account account = { .by = 1 };
	put("sum", "0");
	CHECK(sys_xbegin(SYSTX_AGAIN, &options) == 0 && add(&account) == 0 && systx_push() == 0);
	CHECK(systx_atomically(0, &options, add, &account) == 0 && systx_pop() == 0);
	FAILS(sys_xend(), ECANCELED);
	CHECK(sys_xbegin(SYSTX_AGAIN, &options) == 0 && add(&account) == 0 && systx_push() == 0);
	CHECK(sys_xbegin(SYSTX_NONBLOCK, &options) == 0 && add(&account) == 0);
	FAILS(sys_xend(), EAGAIN);
	struct systx_outcome end = outcome();
	CHECK(end.code == SYSTX_WOULD_WAIT && end.can_retry == 1 && end.steps == 0);
	CHECK(systx_pop() == 0 && sys_xend() == 0 && says("sum", "2"));
	CHECK(sys_xbegin(SYSTX_NONBLOCK, NULL) == 0 && add(&account) == 0 && sys_xend() == 0 && says("sum", "3"));
	/* By nice value: here all have the same. */
	options.policy = SYSTX_PRIORITY;
	options.stall_ms = 1000;
	CHECK(systx_atomically(0, &options, add, &account) == 0 && says("sum", "4"));
}

/* Reads that claim nothing, and calls that are made outside. */
static void read_committed_and_allowed(void)
{
	struct systx_options options = loosely();
	char byte = 0;
	options.isolation = SYSTX_READ_COMMITTED;
	options.unsupported = SYSTX_UNSUPPORTED_ALLOW;
	put("read", "1");
	CHECK(mkfifo("fifo", 0600) == 0);
	int there = open("fifo", O_RDWR | O_NONBLOCK);
	CHECK(there >= 0 && sys_xbegin(0, &options) == 0);
	int fd = systx_open("read", O_RDONLY);
	CHECK(fd >= 0 && systx_read(fd, &byte, 1) == 1 && byte == '1' && systx_close(fd) == 0);
	put("read", "2");
	CHECK((fd = systx_open("read", O_RDONLY)) >= 0 && systx_read(fd, &byte, 1) == 1 && byte == '2');
	int fifo = systx_open("fifo", O_RDWR);
	CHECK(fifo >= 0 && systx_write(fifo, "x", 1) == 1 && read(there, &byte, 1) == 1 && byte == 'x');
	FAILS(systx_on_commit_named(NULL, not_called, NULL), EFAULT);
	CHECK(put_inside("written", "by it") == 0 && sys_xend() == 0);
	struct systx_outcome end = outcome();
	CHECK(end.code == SYSTX_COMMITTED && end.allowed == 1 && strstr(end.message, "fifo") != NULL);
	CHECK(close(there) == 0 && unlink("fifo") == 0);
	CHECK(sys_xbegin(0, NULL) == 0 && systx_on_commit_named("a mail", not_called, NULL) == 0 && sys_xabort() == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && chdir(argv[1]) == 0);
	CHECK(systx_version() == SYSTX_VERSION);
	an_outsider();
	append_both();
	nested();
	directories();
	threads();
	ends_of_threads();
	forks();
	cancelled_threads();
	never_waits();
	read_committed_and_allowed();
	no_descriptor_is_left();
	CHECK(systx_finish() == 0);
	return 0;
}
