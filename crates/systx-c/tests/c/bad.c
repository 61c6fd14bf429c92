/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Bad input: each error number, and nothing is changed or locked by it. Argument: a directory on a small tmpfs. */
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static char buf[64];
static struct stat found;
static struct statx full;
static struct systx_token token;
static struct iovec one = { buf, 1 };
/* From variables: compilers know some of these calls. */
static void *null = NULL;
#define NIL ((char *)null)

/* Each call with a path says this. */
static void each_by_path(const char *path, const char *new_path, int error)
{
	FAILS(systx_open(path, O_RDONLY), error);
	FAILS(systx_openat(AT_FDCWD, path, O_RDONLY), error);
	FAILS(systx_creat(new_path, 0600), error);
	FAILS(systx_truncate(path, 1), error);
	FAILS(systx_mkdir(new_path, 0700), error);
	FAILS(systx_mkdirat(AT_FDCWD, new_path, 0700), error);
	FAILS(systx_rmdir(path), error);
	FAILS(systx_unlink(path), error);
	FAILS(systx_unlinkat(AT_FDCWD, path, 0), error);
	FAILS(systx_rename(path, "y"), error);
	FAILS(systx_renameat(AT_FDCWD, path, AT_FDCWD, "y"), error);
	FAILS(systx_renameat2(AT_FDCWD, path, AT_FDCWD, "y", 0), error);
	FAILS(systx_link(path, "y"), error);
	FAILS(systx_linkat(AT_FDCWD, path, AT_FDCWD, "y", 0), error);
	FAILS(systx_symlink("y", new_path), error);
	FAILS(systx_symlinkat("y", AT_FDCWD, new_path), error);
	FAILS(systx_readlink(path, buf, sizeof buf), error);
	FAILS(systx_readlinkat(AT_FDCWD, path, buf, sizeof buf), error);
	FAILS(systx_opendir(path), error);
	FAILS(systx_stat(path, &found), error);
	FAILS(systx_lstat(path, &found), error);
	FAILS(systx_fstatat(AT_FDCWD, path, &found, 0), error);
	FAILS(systx_statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &full), error);
	FAILS(systx_access(path, F_OK), error);
	FAILS(systx_faccessat(AT_FDCWD, path, F_OK, 0), error);
	FAILS(systx_chmod(path, 0600), error);
	FAILS(systx_fchmodat(AT_FDCWD, path, 0600, 0), error);
	FAILS(systx_chown(path, 0, 0), error);
	FAILS(systx_lchown(path, 0, 0), error);
	FAILS(systx_fchownat(AT_FDCWD, path, 0, 0, 0), error);
	FAILS(systx_utimensat(AT_FDCWD, path, NULL, 0), error);
	FAILS(systx_getxattr(path, "user.x", buf, sizeof buf), error);
	FAILS(systx_lgetxattr(path, "user.x", buf, sizeof buf), error);
	FAILS(systx_listxattr(path, buf, sizeof buf), error);
	FAILS(systx_llistxattr(path, buf, sizeof buf), error);
	FAILS(systx_setxattr(path, "user.x", "", 0, 0), error);
	FAILS(systx_lsetxattr(path, "user.x", "", 0, 0), error);
	FAILS(systx_removexattr(path, "user.x"), error);
	FAILS(systx_lremovexattr(path, "user.x"), error);
}

/* Each call with a descriptor says this. */
static void each_by_number(int fd, int error)
{
	FAILS(systx_close(fd), error);
	FAILS(systx_dup(fd), error);
	FAILS(systx_read(fd, buf, 1), error);
	FAILS(systx_pread(fd, buf, 1, 0), error);
	FAILS(systx_readv(fd, &one, 1), error);
	FAILS(systx_preadv(fd, &one, 1, 0), error);
	FAILS(systx_write(fd, buf, 1), error);
	FAILS(systx_pwrite(fd, buf, 1, 0), error);
	FAILS(systx_writev(fd, &one, 1), error);
	FAILS(systx_pwritev(fd, &one, 1, 0), error);
	FAILS(systx_lseek(fd, 0, SEEK_SET), error);
	FAILS(systx_ftruncate(fd, 0), error);
	FAILS(systx_fallocate(fd, 0, 0, 1), error);
	FAILS(systx_fsync(fd), error);
	FAILS(systx_fdatasync(fd), error);
	FAILS(systx_fdopendir(fd), error);
	FAILS(systx_fstat(fd, &found), error);
	FAILS(systx_fchmod(fd, 0600), error);
	FAILS(systx_fchown(fd, 0, 0), error);
	FAILS(systx_futimens(fd, NULL), error);
	FAILS(systx_fgetxattr(fd, "user.x", buf, 1), error);
	FAILS(systx_flistxattr(fd, buf, 1), error);
	FAILS(systx_fsetxattr(fd, "user.x", "", 0, 0), error);
	FAILS(systx_fremovexattr(fd, "user.x"), error);
}

static void never(void *with)
{
	CHECK(with == (void *)buf && 0);
}

static void in_no_transaction(void)
{
	char name[] = "tmp-XXXXXX";
	struct systx_outcome report;
	memset(&report, 0, sizeof report);
	report.size = sizeof report;
	FAILS(sys_xoutcome(&report), EINVAL);
	FAILS(sys_xend(), EINVAL);
	FAILS(sys_xabort(), EINVAL);
	FAILS(sys_xcheck(), EINVAL);
	FAILS(sys_xpause(&token), EINVAL);
	FAILS(sys_xresume(&token), EPERM);
	FAILS(sys_xretry(), EINVAL);
	FAILS(systx_on_commit(never, NULL), EINVAL);
	FAILS(systx_on_abort(never, NULL), EINVAL);
	FAILS(systx_adopt(0), EINVAL);
	FAILS(systx_push(), EINVAL);
	FAILS(systx_pop(), EINVAL);
	each_by_path("old", "x", EINVAL);
	each_by_number(0, EBADF);
	each_by_number(-1, EBADF);
	FAILS(systx_mkstemp(name), EINVAL);
	FAILS(systx_mkdtemp(name), EINVAL);
	CHECK(systx_finish() == 0);
}

static void options(void)
{
	struct {
		struct systx_options ours;
		uint64_t later;
	} larger;
	struct systx_options wrong;
	memset(&larger, 0, sizeof larger);
	memset(&wrong, 0, sizeof wrong);
	FAILS(sys_xbegin(32, NULL), EINVAL);
	FAILS(sys_xbegin(SYSTX_ORDERED, NULL), EINVAL);
	FAILS(sys_xbegin(SYSTX_RESET, NULL), EINVAL);
	FAILS(sys_xbegin(0x80000000u, NULL), EINVAL);
	FAILS(sys_xbegin(0, &wrong), EINVAL);
	wrong.size = sizeof wrong - 8;
	FAILS(sys_xbegin(0, &wrong), EINVAL);
	wrong.size = SIZE_MAX;
	FAILS(sys_xbegin(0, &wrong), E2BIG);
	wrong.size = sizeof wrong;
	wrong.durability = 2;
	FAILS(sys_xbegin(0, &wrong), EINVAL);
	wrong.durability = SYSTX_NOT_DURABLE;
	wrong.unsupported = 3;
	FAILS(sys_xbegin(0, &wrong), EINVAL);
	wrong.unsupported = SYSTX_UNSUPPORTED_DENY;
	wrong.unsupported = 0;
	wrong.policy = 3;
	FAILS(sys_xbegin(0, &wrong), EINVAL);
	wrong.policy = SYSTX_FIRST_COMMITTER;
	FAILS(sys_xbegin(SYSTX_RESET, &wrong), EINVAL);
	wrong.isolation = 2;
	FAILS(sys_xbegin(0, &wrong), EINVAL);
	FAILS(systx_atomically(0, &wrong, NULL, NULL), EFAULT);
	wrong.isolation = 0;
	wrong.label = "a test";
	CHECK(sys_xbegin(SYSTX_AGAIN, &wrong) == 0);
	wrong.durability = 2;
	FAILS(sys_xbegin(0, &wrong), EINVAL);
	CHECK(sys_xend() == 0);
	larger.ours.size = sizeof larger;
	larger.later = 1;
	FAILS(sys_xbegin(0, &larger.ours), E2BIG);
	larger.later = 0;
	CHECK(sys_xbegin(0, &larger.ours) == 0 && sys_xend() == 0);
	FAILS(sys_xend(), EINVAL);
}

static void null_pointers(void)
{
	CHECK(sys_xbegin(0, NULL) == 0);
	int fd = systx_open("old", O_RDWR);
	CHECK(fd >= 0);
	each_by_path(NIL, NIL, EFAULT);
	FAILS(systx_read(fd, NIL, 1), EFAULT);
	FAILS(systx_pread(fd, NIL, 1, 0), EFAULT);
	FAILS(systx_write(fd, NIL, 1), EFAULT);
	FAILS(systx_pwrite(fd, NIL, 1, 0), EFAULT);
	FAILS(systx_readv(fd, (struct iovec *)null, 1), EFAULT);
	FAILS(systx_writev(fd, (struct iovec *)null, 1), EFAULT);
	one.iov_base = NULL;
	FAILS(systx_readv(fd, &one, 1), EFAULT);
	FAILS(systx_pwritev(fd, &one, 1, 0), EFAULT);
	one.iov_base = buf;
	one.iov_len = SIZE_MAX;
	FAILS(systx_writev(fd, &one, 1), EINVAL);
	one.iov_len = 1;
	CHECK(systx_read(fd, NIL, 0) == 0 && systx_write(fd, NIL, 0) == 0);
	FAILS(systx_rename("old", NIL), EFAULT);
	FAILS(systx_link("old", NIL), EFAULT);
	FAILS(systx_symlink(NIL, "y"), EFAULT);
	FAILS(systx_stat("old", (struct stat *)null), EFAULT);
	FAILS(systx_fstat(fd, (struct stat *)null), EFAULT);
	FAILS(systx_statx(fd, "", AT_EMPTY_PATH, 0, (struct statx *)null), EFAULT);
	FAILS(systx_getxattr("old", NIL, buf, 1), EFAULT);
	FAILS(systx_setxattr("old", NIL, buf, 1, 0), EFAULT);
	FAILS(systx_setxattr("old", "user.x", NIL, 1, 0), EFAULT);
	FAILS(systx_removexattr("old", NIL), EFAULT);
	FAILS(systx_mkstemp(NIL), EFAULT);
	FAILS(systx_mkostemp(NIL, 0), EFAULT);
	FAILS(systx_mkdtemp(NIL), EFAULT);
	FAILS(sys_xoutcome((struct systx_outcome *)null), EFAULT);
	FAILS(systx_on_commit(NULL, NULL), EFAULT);
	FAILS(systx_on_abort(NULL, NULL), EFAULT);
	FAILS(systx_adopt(-1), EBADF);
	FAILS(systx_adopt(1000), EBADF);
	FAILS(sys_xpause((struct systx_token *)null), EFAULT);
	FAILS(sys_xresume((struct systx_token *)null), EFAULT);
	/* No listing of ours: it is not looked at. */
	FAILS(systx_readdir((SYSTX_DIR *)null), EBADF);
	FAILS(systx_closedir((SYSTX_DIR *)buf), EBADF);
	FAILS(systx_dirfd((SYSTX_DIR *)(uintptr_t)1), EBADF);
	FAILS(systx_rewinddir((SYSTX_DIR *)(uintptr_t)-1), EBADF);
	struct systx_outcome small;
	memset(&small, 0, sizeof small);
	FAILS(sys_xoutcome(&small), EINVAL);
	small.size = sizeof small - 8;
	FAILS(sys_xoutcome(&small), EINVAL);
	CHECK(outcome().code == SYSTX_RUNNING);
	CHECK(sys_xend() == 0 && outcome().steps == 0);
}

static void after_the_end(void)
{
	CHECK(sys_xbegin(0, NULL) == 0);
	int fd = systx_open("old", O_RDWR), dir = systx_open(".", O_RDONLY);
	SYSTX_DIR *listing = systx_opendir(".");
	CHECK(fd >= 0 && dir >= 0 && listing != NULL);
	CHECK(sys_xabort() == 0);
	each_by_number(fd, EBADF);
	each_by_number(dir, EBADF);
	FAILS(systx_openat(dir, "old", O_RDONLY), EINVAL);
	FAILS(systx_readdir(listing), EBADF);
	CHECK(systx_closedir(listing) == 0);
	FAILS(systx_closedir(listing), EBADF);
	/* The numbers are free. */
	int plain = open("old", O_RDONLY);
	CHECK(plain >= 0 && plain <= fd);
	CHECK(close(plain) == 0);
}

/* Numbers that the program closes plainly are its own. */
static void closed_plainly(void)
{
	CHECK(sys_xbegin(0, NULL) == 0);
	int fd = systx_open("old", O_RDONLY);
	CHECK(fd >= 0 && close(fd) == 0);
	int plain = open("other", O_RDWR | O_CREAT, 0600);
	CHECK(plain == fd);
	FAILS(systx_close(fd), EBADF);
	CHECK(write(plain, "mine", 4) == 4);
	int again = systx_open("old", O_RDONLY);
	CHECK(again >= 0 && again != plain && close(again) == 0);
	int reused = systx_open("old", O_RDONLY);
	CHECK(reused == again && systx_read(reused, buf, 3) == 3);
	CHECK(sys_xabort() == 0);
	CHECK(write(plain, "mine", 4) == 4 && close(plain) == 0 && unlink("other") == 0);
}

static int fd_of_both, steps[2];

static void *resume(void *with)
{
	struct systx_token *given = (struct systx_token *)with;
	char go;
	/* It takes part. */
	CHECK(systx_pread(fd_of_both, buf, 1, 0) == 1);
	CHECK(write(steps[1], "!", 1) == 1);
	while (read(steps[0], &go, 1) != 1 || go != '?')
		CHECK(write(steps[1], &go, 1) == 1);
	FAILS(systx_open("old", O_RDONLY), EINVAL);
	FAILS(systx_pread(fd_of_both, buf, 1, 0), EBUSY);
	CHECK(sys_xresume(given) == 0);
	CHECK(systx_pread(fd_of_both, buf, 1, 0) == 1);
	FAILS(sys_xresume(given), EBUSY);
	CHECK(put_inside("made", "by two threads") == 0);
	CHECK(sys_xend() == 0);
	return NULL;
}

static void *a_stranger(void *with)
{
	FAILS(sys_xresume((struct systx_token *)with), EPERM);
	return NULL;
}

static void tokens(void)
{
	struct systx_token forged;
	pthread_t thread, stranger;
	memset(&forged, 7, sizeof forged);
	FAILS(sys_xresume(&forged), EPERM);
	CHECK(sys_xbegin(0, NULL) == 0);
	FAILS(sys_xresume(&forged), EBUSY);
	CHECK(put_inside("other", "1") == 0);
	fd_of_both = systx_open("old", O_RDONLY);
	CHECK(fd_of_both >= 0 && pipe(steps) == 0);
	CHECK(pthread_create(&thread, NULL, resume, &token) == 0);
	char go = ' ';
	while (go != '!') {
		CHECK(read(steps[0], &go, 1) == 1);
	}
	CHECK(sys_xpause(&token) == 0);
	FAILS(sys_xend(), EINVAL);
	FAILS(systx_open("old", O_RDONLY), EINVAL);
	/* A foreign process has no use for it. */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		FAILS(sys_xresume(&token), EPERM);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	forged = token;
	forged.bytes[15] ^= 1;
	FAILS(sys_xresume(&forged), EPERM);
	/* Meanwhile another one. */
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("between", "2") == 0 && sys_xend() == 0);
	CHECK(says("between", "2") && access("other", F_OK) == -1);
	CHECK(pthread_create(&stranger, NULL, a_stranger, &token) == 0 && pthread_join(stranger, NULL) == 0);
	CHECK(write(steps[1], "?", 1) == 1 && pthread_join(thread, NULL) == 0);
	CHECK(close(steps[0]) == 0 && close(steps[1]) == 0);
	CHECK(says("other", "1") && says("made", "by two threads"));
	FAILS(sys_xresume(&token), EPERM);
	CHECK(unlink("other") == 0 && unlink("made") == 0 && unlink("between") == 0);
}

static void no_descriptors(void)
{
	struct rlimit before, few;
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	CHECK(sys_xbegin(0, NULL) == 0);
	int fd = systx_open("old", O_RDONLY);
	CHECK(fd >= 0);
	few = before;
	few.rlim_cur = (rlim_t)fd + 1;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	FAILS(systx_open("made", O_WRONLY | O_CREAT, 0600), EMFILE);
	FAILS(systx_dup(fd), EMFILE);
	FAILS(systx_opendir("."), EMFILE);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	FAILS(systx_stat("made", &found), ENOENT);
	CHECK(put_inside("made", "later") == 0);
	CHECK(sys_xend() == 0 && says("made", "later") && unlink("made") == 0);
	few.rlim_cur = 3;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	if (sys_xbegin(0, NULL) == 0) {
		FAILS(systx_open("old", O_RDONLY), EMFILE);
		CHECK(sys_xabort() == 0);
	} else {
		CHECK(errno == EMFILE);
	}
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void no_space(void)
{
	static char much[1 << 20];
	CHECK(sys_xbegin(0, NULL) == 0);
	CHECK(put_inside("old", "lost") == 0);
	int fd = systx_open("large", O_WRONLY | O_CREAT, 0600), full_at = -1;
	CHECK(fd >= 0);
	for (int n = 0; n < 100 && full_at < 0; n++) {
		ssize_t put = systx_write(fd, much, sizeof much);
		if (put < 0) {
			CHECK(errno == ENOSPC);
			full_at = n;
		}
	}
	CHECK(full_at > 0);
	CHECK(sys_xabort() == 0);
	CHECK(says("old", "old") && access("large", F_OK) == -1);
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("made", "room again") == 0 && sys_xend() == 0);
	CHECK(says("made", "room again") && unlink("made") == 0);
}

static void unsupported(void)
{
	struct systx_options deny;
	CHECK(mkfifo("fifo", 0600) == 0);
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("made", "x") == 0);
	FAILS(systx_open("fifo", O_RDONLY), EOPNOTSUPP);
	FAILS(sys_xend(), ECANCELED);
	struct systx_outcome end = outcome();
	CHECK(end.code == SYSTX_REFUSED && end.can_retry == 0 && strstr(end.message, "FIFO") != NULL);
	CHECK(access("made", F_OK) == -1);
	memset(&deny, 0, sizeof deny);
	deny.size = sizeof deny;
	deny.unsupported = SYSTX_UNSUPPORTED_DENY;
	CHECK(sys_xbegin(0, &deny) == 0 && put_inside("made", "x") == 0);
	FAILS(systx_open("fifo", O_RDONLY), EPERM);
	FAILS(systx_open(".", O_TMPFILE | O_RDWR, 0600), EOPNOTSUPP);
	CHECK(sys_xend() == 0 && says("made", "x"));
	CHECK(unlink("made") == 0 && unlink("fifo") == 0);
}

static void another_user(void)
{
	CHECK(sys_xbegin(0, NULL) == 0);
	int fd = systx_open("old", O_RDONLY);
	CHECK(fd >= 0);
	CHECK(seteuid(1000) == 0);
	FAILS(systx_read(fd, buf, 1), EPERM);
	FAILS(systx_open("old", O_RDONLY), EPERM);
	CHECK(seteuid(0) == 0);
	CHECK(systx_read(fd, buf, 3) == 3);
	/* Transactions for that user are others. */
	CHECK(systx_push() == 0);
	CHECK(seteuid(1000) == 0);
	CHECK(sys_xbegin(0, NULL) == 0);
	CHECK(systx_stat("old", &found) == 0);
	FAILS(systx_open("old", O_WRONLY), EROFS);
	CHECK(sys_xend() == 0);
	CHECK(seteuid(0) == 0);
	CHECK(systx_pop() == 0);
	FAILS(systx_pop(), EBUSY);
	CHECK(sys_xend() == 0);
}

/* Two files, in a transaction. */
static void two_inside(void)
{
	CHECK(sys_xbegin(0, NULL) == 0 && put_inside("made", "whole") == 0 && put_inside("other", "whole") == 0);
}

/* It has ended so: both are there, or neither. Returns the outcome, and removes them. */
static struct systx_outcome both_or_none(int said, int error)
{
	struct systx_outcome end = outcome();
	if (said == 0) {
		CHECK(end.code == SYSTX_COMMITTED && says("made", "whole") && says("other", "whole"));
		CHECK(unlink("made") == 0 && unlink("other") == 0);
	} else {
		CHECK(error == ECANCELED && end.code != SYSTX_COMMITTED && end.message != NULL);
		CHECK(access("made", F_OK) == -1 && access("other", F_OK) == -1);
	}
	return end;
}

static struct systx_outcome all_or_nothing(void)
{
	int said = sys_xend();
	return both_or_none(said, errno);
}

/* What is needed for the commit runs out behind the last call. */
static void nothing_left_at_the_end(void)
{
	struct rlimit before, few;
	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	few = before;
	few.rlim_cur = 3;
	two_inside();
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	int said = sys_xend(), error = errno;
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	struct systx_outcome end = both_or_none(said, error);
	CHECK(end.code == SYSTX_COMMITTED || (end.code == SYSTX_FAILED && end.error == EMFILE));
	two_inside();
	int filler = open("filler", O_WRONLY | O_CREAT, 0600);
	CHECK(filler >= 0);
	static char much[1 << 16];
	while (write(filler, much, sizeof much) > 0)
		;
	CHECK(errno == ENOSPC);
	end = all_or_nothing();
	CHECK(end.code == SYSTX_COMMITTED || (end.code == SYSTX_FAILED && end.error == ENOSPC));
	CHECK(close(filler) == 0 && unlink("filler") == 0);
	two_inside();
	CHECK(all_or_nothing().code == SYSTX_COMMITTED);
}

/* Runs a function in a child, which ends in the middle of whatever it does. */
static void in_a_child(void (*does)(void))
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		does();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(access("made", F_OK) == -1 && access("other", F_OK) == -1);
	two_inside();
	CHECK(all_or_nothing().code == SYSTX_COMMITTED);
}

static void becomes_a_user(void)
{
	two_inside();
	CHECK(setuid(1000) == 0);
	FAILS(systx_open("old", O_RDONLY), EPERM);
	FAILS(systx_unlink("old"), EPERM);
	FAILS(sys_xend(), ECANCELED);
	struct systx_outcome end = outcome();
	CHECK(end.code == SYSTX_REFUSED && end.can_retry == 0 && strstr(end.message, "another user") != NULL);
}

static void changes_its_root(void)
{
	CHECK(mkdir("root", 0755) == 0);
	two_inside();
	CHECK(chroot("root") == 0);
	/* Names lead where they lead now. */
	FAILS(systx_open("/old", O_RDONLY), ENOENT);
	CHECK(systx_stat("old", &found) == 0 && systx_stat("made", &found) == 0);
	all_or_nothing();
	CHECK(rmdir("root") == 0);
}

static void *begins_and_ends(void *with)
{
	(void)with;
	two_inside();
	return NULL;
}

static void loses_its_thread(void)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, begins_and_ends, NULL) == 0 && pthread_join(thread, NULL) == 0);
	FAILS(sys_xend(), EINVAL);
}

/* The area is removed by an outsider: whole or not, and another process makes it anew. */
static void area_removed(void)
{
	two_inside();
	CHECK(system("rm -r ../.systx") == 0);
	all_or_nothing();
}

int main(int argc, char **argv)
{
	CHECK(argc == 2 && chdir(argv[1]) == 0);
	put("old", "old");
	in_no_transaction();
	options();
	null_pointers();
	after_the_end();
	closed_plainly();
	tokens();
	no_descriptors();
	no_space();
	unsupported();
	another_user();
	nothing_left_at_the_end();
	in_a_child(becomes_a_user);
	in_a_child(changes_its_root);
	in_a_child(loses_its_thread);
	in_a_child(two_inside);
	area_removed();
	/* Nothing was changed, and nothing is locked: another process commits at once. */
	CHECK(says("old", "old"));
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(sys_xbegin(0, NULL) == 0 && put_inside("old", "new") == 0 && sys_xend() == 0);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(says("old", "new"));
	return 0;
}
