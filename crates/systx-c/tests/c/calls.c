/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One play of calls, compiled twice: plainly with -DPLAIN, and in a transaction that commits. Both write the same
 * lines. Arguments: a directory, and a user to become, or 0.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "systx.h"

#ifdef PLAIN
#define X(name) name
#define LISTING DIR
#else
#define X(name) systx_##name
#define LISTING SYSTX_DIR
#endif

/* A call and its answer. */
#define T(call)                                                        \
	do {                                                           \
		errno = 0;                                             \
		long said_ = (long)(call);                             \
		printf("%d: %s = %ld, %d\n", __LINE__, #call, said_, errno); \
	} while (0)

/* A call that gives a descriptor: its number is no matter. */
#define F(fd, call)                                                               \
	do {                                                                      \
		errno = 0;                                                        \
		(fd) = (call);                                                    \
		printf("%d: %s = %d, %d\n", __LINE__, #call, (fd) >= 0 ? 0 : -1, errno); \
	} while (0)

static char buf[300000], other[300000];

/* What was read. */
#define R(call)                                                                                       \
	do {                                                                                          \
		memset(buf, '#', sizeof buf);                                                         \
		errno = 0;                                                                            \
		long said_ = (long)(call);                                                            \
		int error_ = errno;                                                                   \
		unsigned sum_ = 0;                                                                    \
		for (long at_ = 0; at_ < said_; at_++)                                                \
			sum_ = sum_ * 31 + (unsigned char)buf[at_];                                   \
		printf("%d: %s = %ld, %d, %u, %c\n", __LINE__, #call, said_, error_, sum_, buf[said_ > 0 ? said_ : 0]); \
	} while (0)

/* The attributes that both have. */
static void tell(int line, const char *what, long said, const struct stat *found)
{
	int error = errno;
	printf("%d: %s = %ld, %d", line, what, said, error);
	if (said == 0) {
		int is_dir = S_ISDIR(found->st_mode);
		printf(": %o %ld %ld:%ld %lld", found->st_mode, is_dir ? 0L : (long)found->st_nlink, (long)found->st_uid,
		       (long)found->st_gid, is_dir ? 0LL : (long long)found->st_size);
		if (found->st_mtime == 1000)
			printf(" %ld", found->st_mtim.tv_nsec);
	}
	printf("\n");
}

#define S(call)                                   \
	do {                                      \
		struct stat out;                  \
		memset(&out, 0, sizeof out);      \
		errno = 0;                        \
		long said_ = (call);              \
		tell(__LINE__, #call, said_, &out); \
	} while (0)

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A listing, in order. */
static void list(const char *path)
{
	char *names[500];
	size_t count = 0;
	memset(names, 0, sizeof names);
	errno = 0;
	LISTING *dir = X(opendir)(path);
	printf("%s: %d, %d\n", path, dir != NULL, errno);
	if (!dir)
		return;
	for (int pass = 0; pass < 2; pass++) {
		struct dirent *entry;
		count = 0;
		errno = 0;
		while ((entry = X(readdir)(dir)) != NULL) {
			char name[300];
			struct stat found;
			int dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
			int same = X(fstatat)(X(dirfd)(dir), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
				   (found.st_ino == entry->d_ino || dots);
			snprintf(name, sizeof name, "%s %d %d", entry->d_name, entry->d_type, same);
			/* The area of the transactions is no name of theirs. */
			if (strncmp(name, ".systx", 6) != 0) {
				free(names[count]);
				names[count++] = strdup(name);
			}
		}
		printf("%zu names, %d\n", count, errno);
		X(rewinddir)(dir);
	}
	qsort(names, count, sizeof *names, by_name);
	for (size_t n = 0; n < count; n++)
		printf("    %s\n", names[n]);
	for (size_t n = 0; n < sizeof names / sizeof *names; n++)
		free(names[n]);
	T(X(closedir)(dir));
}

static void files(void)
{
	int fd, dup_fd, missing = 900;
	F(fd, X(open)("missing", O_RDONLY));
	F(fd, X(open)("", O_RDONLY));
	F(fd, X(open)("file/", O_RDONLY));
	F(fd, X(open)("file/below", O_RDONLY));
	F(fd, X(open)("file", O_RDONLY | O_DIRECTORY));
	F(fd, X(open)("new/", O_WRONLY | O_CREAT, 0644));
	F(fd, X(open)("dir", O_WRONLY));
	F(fd, X(open)("dir", O_RDWR | O_DIRECTORY));
	F(fd, X(open)("dir", O_RDONLY | O_CREAT, 0644));
	F(fd, X(open)("link", O_RDONLY | O_NOFOLLOW));
	F(fd, X(open)("link", O_RDONLY | O_NOFOLLOW | O_DIRECTORY));
	F(fd, X(open)("loop", O_RDONLY));
	F(fd, X(open)("dangling", O_RDONLY));
	F(fd, X(open)("dangling", O_WRONLY | O_CREAT | O_EXCL, 0644));
	F(fd, X(open)("file", O_WRONLY | O_CREAT | O_EXCL, 0644));
	memset(other, 'n', 300);
	other[300] = 0;
	F(fd, X(open)(other, O_RDONLY));
	memset(other, 'n', 5000);
	other[5000] = 0;
	F(fd, X(open)(other, O_RDONLY));

	F(fd, X(open)("file", O_RDONLY));
	R(X(read)(fd, buf, 0));
	R(X(read)(fd, buf, 4));
	R(X(read)(fd, buf, sizeof buf));
	R(X(read)(fd, buf, sizeof buf));
	R(X(pread)(fd, buf, 5, 2));
	R(X(pread)(fd, buf, 5, 1000));
	R(X(pread)(fd, buf, 5, -1));
	T(X(write)(fd, "x", 1));
	T(X(pwrite)(fd, "x", 1, 0));
	T(X(ftruncate)(fd, 3));
	T(X(lseek)(fd, 0, SEEK_CUR));
	T(X(lseek)(fd, -2, SEEK_END));
	T(X(lseek)(fd, 3, SEEK_CUR));
	T(X(lseek)(fd, -1, SEEK_SET));
	T(X(lseek)(fd, -1000, SEEK_CUR));
	T(X(lseek)(fd, 0, 77));
	T(X(lseek)(fd, 2, SEEK_SET));
	F(dup_fd, X(dup)(fd));
	R(X(read)(dup_fd, buf, 3));
	R(X(read)(fd, buf, 3));
	T(X(close)(dup_fd));
	T(X(fsync)(fd));
	T(X(fdatasync)(fd));
	T(X(close)(fd));
	T(X(read)(missing, buf, 1));
	T(X(write)(missing, buf, 1));
	T(X(lseek)(missing, 0, SEEK_SET));
	T(X(close)(missing));
	T(X(fsync)(missing));
	T(X(dup)(missing));
	T(X(ftruncate)(missing, 0));

	F(fd, X(open)("new", O_WRONLY | O_CREAT | O_EXCL, 0640));
	T(X(write)(fd, "hello, world", 12));
	R(X(read)(fd, buf, 1));
	T(X(lseek)(fd, 0, SEEK_CUR));
	T(X(pwrite)(fd, "HELLO", 5, 0));
	T(X(pwrite)(fd, "H", 1, -1));
	T(X(write)(fd, "", 0));
	T(X(lseek)(fd, 100000, SEEK_SET));
	T(X(write)(fd, "far", 3));
	T(X(ftruncate)(fd, 200000));
	T(X(ftruncate)(fd, -1));
	T(X(fallocate)(fd, 0, 0, 0));
	T(X(fallocate)(fd, 0, -1, 5));
	T(X(close)(fd));
	F(fd, X(open)("new", O_RDONLY));
	R(X(read)(fd, buf, sizeof buf));
	T(X(fallocate)(fd, 0, 0, 5));
	T(X(close)(fd));

	F(fd, X(open)("log", O_WRONLY | O_APPEND));
	T(X(write)(fd, "more\n", 5));
	T(X(lseek)(fd, 0, SEEK_CUR));
	T(X(lseek)(fd, 0, SEEK_SET));
	T(X(write)(fd, "and more\n", 9));
	T(X(pwrite)(fd, "at the end, too\n", 16, 0));
	T(X(close)(fd));
	F(fd, X(open)("cut", O_WRONLY | O_TRUNC | O_APPEND));
	T(X(write)(fd, "anew", 4));
	T(X(close)(fd));
	F(fd, X(open)("emptied", O_RDONLY | O_TRUNC));
	R(X(read)(fd, buf, 10));
	T(X(close)(fd));
	F(fd, X(open)("readonly", O_RDONLY | O_CREAT, 0600));
	T(X(write)(fd, "x", 1));
	T(X(close)(fd));
	F(fd, X(creat)("created", 0604));
	T(X(close)(fd));
	F(fd, X(openat)(missing, "file", O_RDONLY));
	F(fd, X(open)("dir", O_RDONLY));
	R(X(read)(fd, buf, 10));
	R(X(pread)(fd, buf, 10, 0));
	T(X(write)(fd, "x", 1));
	T(X(ftruncate)(fd, 0));
	T(X(fsync)(fd));
	F(dup_fd, X(openat)(fd, "inner", O_WRONLY | O_CREAT, 0666));
	T(X(close)(dup_fd));
	T(X(close)(fd));
	F(fd, X(open)("file", O_RDONLY));
	F(dup_fd, X(openat)(fd, "inner", O_RDONLY));
	T(X(close)(fd));
	T(X(truncate)("cut", 2));
	T(X(truncate)("cut", -2));
	T(X(truncate)("dir", 2));
	T(X(truncate)("missing", 2));
	T(X(truncate)("link", 3));
}

static void vectors(void)
{
	int fd;
	volatile int less = -1, many = 1025;
	char one[3], two[1], three[6];
	struct iovec in[3] = { { one, 3 }, { two, 1 }, { three, 6 } }, out[3] = { { buf, 4 }, { buf, 0 }, { buf + 10, 7 } };
	F(fd, X(open)("vector", O_RDWR | O_CREAT, 0644));
	strcpy(buf, "abcdefghijklmnopqrstuvwxyz");
	T(X(writev)(fd, out, 3));
	T(X(pwritev)(fd, out, 1, 20));
	T(X(writev)(fd, out, 0));
	T(X(writev)(fd, out, less));
	T(X(writev)(fd, out, many));
	T(X(lseek)(fd, 1, SEEK_SET));
	T(X(readv)(fd, in, 3));
	printf("%.3s %.1s %.6s\n", one, two, three);
	T(X(readv)(fd, in, 3));
	T(X(readv)(fd, in, 3));
	T(X(preadv)(fd, in, 2, 7));
	T(X(preadv)(fd, in, 2, -7));
	printf("%.3s %.1s %.6s\n", one, two, three);
	T(X(close)(fd));
	T(X(readv)(fd, in, 3));
}

static void names(void)
{
	int dir, fd;
	F(dir, X(open)("dir", O_RDONLY | O_DIRECTORY));
	F(fd, X(open)("file", O_RDONLY));
	T(X(mkdir)("made", 0751));
	T(X(mkdir)("made", 0751));
	T(X(mkdir)("missing/below", 0751));
	T(X(mkdir)("file/below", 0751));
	T(X(mkdir)("", 0751));
	T(X(mkdir)("slashes//", 0777));
	T(X(mkdirat)(dir, "inside", 0700));
	T(X(mkdirat)(fd, "inside", 0700));
	T(X(mkdirat)(900, "inside", 0700));
	T(X(rmdir)("made"));
	T(X(rmdir)("full"));
	T(X(rmdir)("file"));
	T(X(rmdir)("missing"));
	T(X(rmdir)("dir/."));
	T(X(rmdir)("dir/.."));
	T(X(unlink)("missing"));
	T(X(unlink)("dir"));
	T(X(unlink)("file/"));
	T(X(unlink)("gone"));
	T(X(unlink)("gone"));
	T(X(unlinkat)(dir, "inside", 0));
	T(X(unlinkat)(dir, "inside", AT_REMOVEDIR));
	T(X(unlinkat)(dir, "x", 0x4000));
	T(X(rename)("missing", "x"));
	T(X(rename)("moved", "dir/moved"));
	T(X(rename)("dir/moved", "dir"));
	T(X(rename)("dir", "file"));
	T(X(rename)("dir", "full"));
	T(X(rename)("dir", "dir/below"));
	T(X(rename)("dir/moved", "file2/"));
	T(X(rename)("tree", "dir/tree"));
	T(X(renameat)(dir, "moved", AT_FDCWD, "moved back"));
	T(X(renameat)(dir, "missing", AT_FDCWD, "x"));
	T(X(renameat)(fd, "moved", AT_FDCWD, "x"));
	T(X(renameat2)(AT_FDCWD, "moved back", dir, "inner", RENAME_NOREPLACE));
	T(X(renameat2)(AT_FDCWD, "moved back", dir, "fresh", RENAME_NOREPLACE));
	T(X(renameat2)(AT_FDCWD, "full", AT_FDCWD, "swap", RENAME_EXCHANGE));
	T(X(renameat2)(AT_FDCWD, "full", AT_FDCWD, "missing", RENAME_EXCHANGE));
	T(X(renameat2)(AT_FDCWD, "full", AT_FDCWD, "swap", RENAME_EXCHANGE | RENAME_NOREPLACE));
	T(X(renameat2)(AT_FDCWD, "full", AT_FDCWD, "swap", 64));
	T(X(renameat2)(AT_FDCWD, "dir", AT_FDCWD, "dir/tree", RENAME_EXCHANGE));
	T(X(renameat2)(AT_FDCWD, "dir/tree", AT_FDCWD, "dir", RENAME_EXCHANGE));
	T(X(renameat2)(AT_FDCWD, "file", AT_FDCWD, "dir/fresh/", RENAME_EXCHANGE));
	T(X(renameat2)(AT_FDCWD, "dir/.", AT_FDCWD, "x", RENAME_NOREPLACE));
	T(X(renameat2)(AT_FDCWD, "file", AT_FDCWD, "dir/..", RENAME_NOREPLACE));
	T(X(renameat2)(AT_FDCWD, "file", AT_FDCWD, "file", 0));
	T(X(link)("file", "second"));
	T(X(link)("file", "second"));
	T(X(link)("dir", "third"));
	T(X(link)("missing", "third"));
	T(X(link)("link", "link2"));
	T(X(linkat)(AT_FDCWD, "link", dir, "followed", AT_SYMLINK_FOLLOW));
	T(X(linkat)(AT_FDCWD, "link", dir, "kept", 0));
	T(X(linkat)(AT_FDCWD, "link", dir, "x", 0x4000));
	T(X(symlink)("../target", "sym"));
	T(X(symlink)("", "sym2"));
	T(X(symlink)("x", "sym"));
	T(X(symlinkat)("file", dir, "sym"));
	R(X(readlink)("sym", buf, sizeof buf));
	R(X(readlink)("sym", buf, 4));
	R(X(readlink)("file", buf, 4));
	R(X(readlink)("missing", buf, 4));
	R(X(readlink)("sym", buf, 0));
	R(X(readlinkat)(dir, "sym", buf, 100));
	R(X(readlinkat)(fd, "sym", buf, 100));
	T(X(close)(dir));
	T(X(close)(fd));
	list(".");
	list("dir");
	list("dir/tree");
	list("full");
	list("file");
	list("missing");
	T(X(closedir)(X(opendir)("dir")));
	int listed;
	F(listed, X(open)("dir", O_RDONLY));
	LISTING *stream = X(fdopendir)(listed);
	T(stream != NULL && X(dirfd)(stream) == listed);
	T(X(closedir)(stream));
	T(X(close)(listed));
}

static void attributes(void)
{
	int dir, fd;
	struct timespec at[2] = { { 2000, 5 }, { 1000, 123456789 } }, omit[2] = { { 0, UTIME_OMIT }, { 0, UTIME_OMIT } },
			one[2] = { { 0, UTIME_OMIT }, { 1000, 7 } }, wrong[2] = { { 0, 1000000000 }, { 0, 0 } };
	F(dir, X(open)("dir", O_RDONLY | O_DIRECTORY));
	F(fd, X(open)("file", O_RDWR));
	S(X(stat)("file", &out));
	S(X(stat)("link", &out));
	S(X(lstat)("link", &out));
	S(X(stat)("dangling", &out));
	S(X(stat)("", &out));
	S(X(stat)("dir/", &out));
	S(X(fstat)(fd, &out));
	S(X(fstat)(dir, &out));
	S(X(fstat)(900, &out));
	S(X(fstatat)(dir, "inner", &out, 0));
	S(X(fstatat)(dir, "sym", &out, AT_SYMLINK_NOFOLLOW));
	S(X(fstatat)(dir, "", &out, 0));
	S(X(fstatat)(dir, "", &out, AT_EMPTY_PATH));
	S(X(fstatat)(fd, "", &out, AT_EMPTY_PATH));
	S(X(fstatat)(fd, "x", &out, 0));
	S(X(fstatat)(fd, "x", &out, 0x40000));
	S(X(fstatat)(900, "x", &out, 0));
	struct statx full;
	memset(&full, 0, sizeof full);
	T(X(statx)(AT_FDCWD, "link", AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &full));
	printf("%o %u %llu %u\n", full.stx_mode, full.stx_nlink, (unsigned long long)full.stx_size,
	       full.stx_mask & STATX_BASIC_STATS);
	T(X(statx)(AT_FDCWD, "link", 0x40000, STATX_BASIC_STATS, &full));
	T(X(statx)(AT_FDCWD, "link", 0, 0x80000000u, &full));
	T(X(statx)(AT_FDCWD, "missing", 0, 0, &full));
	for (int mode = 0; mode < 9; mode++) {
		T(X(access)("file", mode));
		T(X(access)("program", mode));
		T(X(access)("secret", mode));
		T(X(faccessat)(dir, "inner", mode, AT_EACCESS));
	}
	T(X(access)("missing", F_OK));
	T(X(faccessat)(dir, "", F_OK, 0));
	T(X(faccessat)(dir, "inner", F_OK, 0x40000));
	T(X(chmod)("file", 0604));
	T(X(chmod)("missing", 0604));
	T(X(chmod)("theirs", 0604));
	T(X(fchmod)(fd, 04755));
	S(X(stat)("file", &out));
	T(X(pwrite)(fd, "?", 1, 0));
	S(X(stat)("file", &out));
	T(X(fchmod)(dir, 0711));
	T(X(fchmod)(900, 0711));
	T(X(fchmodat)(dir, "inner", 0620, 0));
	T(X(fchmodat)(dir, "inner", 0621, AT_SYMLINK_NOFOLLOW));
	T(X(fchmodat)(dir, "sym", 0620, AT_SYMLINK_NOFOLLOW));
	T(X(fchmodat)(dir, "inner", 0620, 0x40000));
	T(X(chown)("file", (uid_t)-1, (gid_t)-1));
	T(X(chown)("file", 12, 34));
	T(X(chown)("missing", 12, 34));
	T(X(lchown)("link", 56, (gid_t)-1));
	T(X(fchown)(fd, (uid_t)-1, 78));
	T(X(fchown)(dir, 9, 9));
	T(X(fchownat)(dir, "inner", 12, 34, AT_SYMLINK_NOFOLLOW));
	T(X(fchownat)(dir, "inner", 12, 34, 0x40000));
	T(X(fchownat)(dir, "", geteuid(), getegid(), AT_EMPTY_PATH));
	S(X(stat)("file", &out));
	S(X(lstat)("link", &out));
	T(X(utimensat)(AT_FDCWD, "timed", at, 0));
	S(X(stat)("timed", &out));
	T(X(utimensat)(AT_FDCWD, "timed", one, 0));
	S(X(stat)("timed", &out));
	T(X(utimensat)(AT_FDCWD, "timed", wrong, 0));
	T(X(utimensat)(AT_FDCWD, "theirs", at, 0));
	T(X(utimensat)(AT_FDCWD, "theirs", NULL, 0));
	T(X(utimensat)(AT_FDCWD, "theirs", omit, 0));
	T(X(utimensat)(AT_FDCWD, "missing", NULL, 0));
	T(X(utimensat)(AT_FDCWD, "timed", NULL, 0x40000));
	T(X(utimensat)(AT_FDCWD, "link", at, AT_SYMLINK_NOFOLLOW));
	T(X(utimensat)(dir, "inner", one, 0));
	T(X(futimens)(fd, one));
	T(X(futimens)(dir, at));
	T(X(futimens)(900, one));
	S(X(fstat)(fd, &out));
	S(X(lstat)("link", &out));
	T(X(close)(dir));
	T(X(close)(fd));
}

/* Names of attributes that the program has set, in order. */
static void tell_names(long length)
{
	char *names[100];
	size_t count = 0;
	for (long at = 0; at < length; at += (long)strlen(buf + at) + 1)
		if (strncmp(buf + at, "user.", 5) == 0)
			names[count++] = buf + at;
	qsort(names, count, sizeof *names, by_name);
	for (size_t n = 0; n < count; n++)
		printf("    %s\n", names[n]);
}

static void xattrs(void)
{
	int fd, dir;
	F(fd, X(open)("file2", O_RDWR));
	F(dir, X(open)("dir", O_RDONLY));
	T(X(setxattr)("file2", "user.one", "1", 1, 0));
	T(X(setxattr)("file2", "user.one", "11", 2, XATTR_CREATE));
	T(X(setxattr)("file2", "user.two", "22", 2, XATTR_REPLACE));
	T(X(setxattr)("file2", "user.one", "111", 3, XATTR_REPLACE));
	T(X(setxattr)("file2", "user.one", "111", 3, 64));
	T(X(setxattr)("file2", "", "1", 1, 0));
	T(X(setxattr)("file2", "nonsense", "1", 1, 0));
	T(X(setxattr)("missing", "user.one", "1", 1, 0));
	T(X(setxattr)("theirs", "user.one", "1", 1, 0));
	T(X(setxattr)("file2", "user.long", other, 100000, 0));
	T(X(setxattr)("file2", "trusted.one", "1", 1, 0));
	T(X(setxattr)("file2", "user.empty", "", 0, 0));
	T(X(lsetxattr)("link", "user.one", "1", 1, 0));
	T(X(fsetxattr)(fd, "user.three", "3", 1, 0));
	T(X(fsetxattr)(dir, "user.dir", "d", 1, 0));
	T(X(fsetxattr)(900, "user.dir", "d", 1, 0));
	R(X(getxattr)("file2", "user.one", buf, 100));
	R(X(getxattr)("file2", "user.one", buf, 2));
	T(X(getxattr)("file2", "user.one", buf, 0));
	R(X(getxattr)("file2", "user.missing", buf, 100));
	R(X(getxattr)("file2", "user.empty", buf, 100));
	R(X(getxattr)("file2", "nonsense", buf, 100));
	R(X(getxattr)("file2", "trusted.one", buf, 100));
	R(X(getxattr)("missing", "user.one", buf, 100));
	R(X(lgetxattr)("link", "user.one", buf, 100));
	R(X(fgetxattr)(fd, "user.three", buf, 100));
	R(X(fgetxattr)(dir, "user.dir", buf, 100));
	R(X(fgetxattr)(900, "user.dir", buf, 100));
	memset(buf, 0, sizeof buf);
	tell_names(X(listxattr)("file2", buf, sizeof buf));
	tell_names(X(flistxattr)(dir, buf, sizeof buf));
	tell_names(X(llistxattr)("link", buf, sizeof buf));
	T(X(listxattr)("file2", buf, 1));
	T(X(listxattr)("missing", buf, 1));
	T(X(flistxattr)(900, buf, 1));
	T(X(removexattr)("file2", "user.one"));
	T(X(removexattr)("file2", "user.one"));
	T(X(lremovexattr)("link", "user.one"));
	T(X(fremovexattr)(fd, "user.three"));
	T(X(fremovexattr)(900, "user.three"));
	T(X(close)(fd));
	T(X(close)(dir));
}

static void temporary(void)
{
	char file[] = "tmp-XXXXXX", dir[] = "tmpdir-XXXXXX", wrong[] = "tmp-XXXXX";
	struct stat found;
	int fd;
	F(fd, X(mkstemp)(file));
	T(X(write)(fd, "x", 1));
	T(X(close)(fd));
	T(strncmp(file, "tmp-", 4) == 0 && strcmp(file, "tmp-XXXXXX") != 0);
	T(X(stat)(file, &found) == 0 && (found.st_mode & 07777) == 0600);
	T(X(unlink)(file));
	strcpy(file, "tmp-XXXXXX");
	F(fd, X(mkostemp)(file, O_APPEND | O_CLOEXEC));
	T(X(close)(fd));
	T(X(unlink)(file));
	F(fd, X(mkstemp)(wrong));
	T(X(mkdtemp)(dir) == dir);
	T(X(stat)(dir, &found) == 0 && (found.st_mode & 07777) == 0700);
	T(X(rmdir)(dir));
	T(X(mkdtemp)(wrong) == NULL);
}

/* A user who has no rights to what is another's. */
static void denied(void)
{
	int fd;
	F(fd, X(open)("secret", O_RDONLY));
	F(fd, X(open)("theirs", O_RDONLY));
	F(fd, X(open)("theirs", O_WRONLY));
	F(fd, X(open)("closed/x", O_RDONLY));
	F(fd, X(open)("closed/x", O_WRONLY | O_CREAT, 0600));
	T(X(mkdir)("closed/x", 0700));
	T(X(unlink)("closed/x"));
	T(X(rename)("file", "closed/x"));
	T(X(truncate)("theirs", 0));
	list("closed");
}

int main(int argc, char **argv)
{
	if (argc != 3 || chdir(argv[1]) != 0)
		return 2;
	uid_t uid = (uid_t)atoi(argv[2]);
	if (uid != 0 && (setgroups(0, NULL) != 0 || setgid(uid) != 0 || setuid(uid) != 0))
		return 2;
	umask(027);
#ifndef PLAIN
	if (sys_xbegin(0, NULL) != 0) {
		perror("sys_xbegin");
		return 1;
	}
#endif
	files();
	vectors();
	names();
	attributes();
	xattrs();
	temporary();
	denied();
#ifndef PLAIN
	if (sys_xend() != 0) {
		struct systx_outcome found = { .size = sizeof found };
		sys_xoutcome(&found);
		fprintf(stderr, "sys_xend: %s\n", found.message);
		return 1;
	}
	systx_finish();
#endif
	return 0;
}
