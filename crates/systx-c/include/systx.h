/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * System transactions for stock Linux: file calls that take effect all or not at all.
 *
 *     do {
 *         if (sys_xbegin(SYSTX_AGAIN, NULL) != 0) return -1;
 *         int fd = systx_open("/srv/accounts/a", O_RDWR);
 *         ... systx_read, systx_pwrite, systx_rename ...
 *     } while (sys_xend() != 0 && errno == ECANCELED && can_retry());
 *
 * Manual: systx(3). A call that begins with systx_ and has the name of a call of POSIX takes its arguments and gives
 * its results and error numbers. It needs no other descriptor than those of systx_open and its relatives; a directory
 * may also be a plain descriptor. Only for 64-bit Linux.
 */
#ifndef SYSTX_H
#define SYSTX_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; systx_version() is that of the library. */
#define SYSTX_VERSION_MAJOR 0
#define SYSTX_VERSION_MINOR 1
#define SYSTX_VERSION_PATCH 0
#define SYSTX_VERSION (((uint32_t)SYSTX_VERSION_MAJOR << 16) | (SYSTX_VERSION_MINOR << 8) | SYSTX_VERSION_PATCH)

/* Flags of sys_xbegin and systx_atomically. */
#define SYSTX_AGAIN 1u /* After a conflict the thread begins again, with the age of the try that lost. */

#define SYSTX_PART 2u /* In a transaction: what follows up to the end can be undone alone. */
#define SYSTX_ORDERED 4u /* It commits by its number, systx_options.sequence. */
#define SYSTX_RESET 8u /* And the count goes on from this number. */
#define SYSTX_NONBLOCK 16u /* It never waits for another transaction: EAGAIN instead, and it ends. */

/* systx_options.durability */
#define SYSTX_DURABLE 0u     /* On stable storage when sys_xend returns. */
#define SYSTX_NOT_DURABLE 1u /* All or nothing as long as the machine stays up. */

/* systx_options.unsupported: the answer to a call that can neither be held back nor undone. */
#define SYSTX_UNSUPPORTED_ABORT 0u /* EOPNOTSUPP; the transaction can't commit any more. */
#define SYSTX_UNSUPPORTED_DENY 1u  /* EPERM; the transaction goes on. */
#define SYSTX_UNSUPPORTED_ALLOW 2u /* It is made outside at once, and stays after an abort. */

/* systx_options.isolation: how long what was only read must stay as it was. */
#define SYSTX_SERIALIZABLE 0u   /* To the commit. */
#define SYSTX_READ_COMMITTED 1u /* While it is open. */

/* systx_options.policy: the winner of a conflict. */
#define SYSTX_OLDEST 0u          /* One that has lost often enough. */
#define SYSTX_FIRST_COMMITTER 1u /* None waits for another. */
#define SYSTX_PRIORITY 2u        /* The same of the lower nice value, then of the older. */

/* systx_options.stall_ms: it never waits. */
#define SYSTX_NO_STALL 0xffffffffu

/* A function that systx_atomically runs returns it to wait until something that it has read changes. */
#define SYSTX_RETRY (-0x7fffffff - 1)

struct systx_options {
	size_t size;          /* sizeof (struct systx_options) */
	uint32_t durability;
	uint32_t unsupported;
	const char *label;    /* What others read about it; NULL: the name of the program. */
	uint32_t retries;     /* systx_atomically: most further tries; 0: 100. */
	uint32_t policy;
	uint64_t sequence;    /* SYSTX_ORDERED: the number. */
	uint32_t stall_ms;    /* SYSTX_ORDERED: longest wait for those before it; 0: a minute. Else before a further try. */
	uint32_t isolation;
};

/* systx_outcome.code */
#define SYSTX_RUNNING 0u   /* It has not ended. */
#define SYSTX_COMMITTED 1u
#define SYSTX_DISPLACED 2u /* Committed; others took the place of some objects first. Theirs are there, ours are kept. */
#define SYSTX_PENDING 3u   /* Committed; not all is public yet. It goes on by itself at the next use of systx. */
#define SYSTX_ABORTED 4u   /* By the program. Nothing was changed; neither in the next three. */
#define SYSTX_CONFLICT 5u  /* What it had read or written was changed by others. */
#define SYSTX_FAILED 6u    /* A system call of the commit has failed. */
#define SYSTX_REFUSED 7u   /* It can't commit, for the reason in the message. */
#define SYSTX_ORDER 9u     /* Its number keeps it from committing. Nothing was changed. */
#define SYSTX_WOULD_WAIT 10u /* SYSTX_NONBLOCK: it would have waited. Nothing was changed. */
#define SYSTX_IN_DOUBT 8u  /* The log could not be synced: whether it has committed shows after `systx recover`. */

struct systx_outcome {
	size_t size;         /* sizeof (struct systx_outcome), set by the caller. */
	uint32_t code;
	int32_t error;       /* SYSTX_FAILED: the error number. */
	uint32_t can_retry;  /* 1: beginning again can help. */
	uint32_t allowed;    /* Calls that were made outside (SYSTX_UNSUPPORTED_ALLOW). */
	uint64_t steps;      /* Changes that were made public. */
	uint64_t displaced;  /* Number of objects of SYSTX_DISPLACED. */
	const char *path;    /* The object that it is about, or NULL. */
	const char *message; /* A sentence. Both: until the thread's next sys_x call. */
};

/* Stands for a paused transaction, once. */
struct systx_token {
	unsigned char bytes[16];
};

/* An open listing. */
typedef struct systx_dir SYSTX_DIR;

/* Transactions: systx(3). */
int sys_xbegin(uint32_t flags, const struct systx_options *options);
int sys_xend(void);
int sys_xabort(void);
int sys_xcheck(void);
int sys_xoutcome(struct systx_outcome *outcome);
int sys_xpause(struct systx_token *token);
int sys_xresume(const struct systx_token *token);
int sys_xretry(void);
int systx_on_commit(void (*action)(void *), void *with);
int systx_on_commit_named(const char *name, void (*action)(void *), void *with);
int systx_on_abort(void (*action)(void *), void *with);
int systx_push(void);
int systx_pop(void);
int systx_atomically(uint32_t flags, const struct systx_options *options, int (*work)(void *), void *with);
int systx_finish(void);
uint32_t systx_version(void);

/* Files: systx_open(3). */
int systx_open(const char *path, int flags, ...);
int systx_openat(int dirfd, const char *path, int flags, ...);
int systx_creat(const char *path, mode_t mode);
int systx_adopt(int fd);
int systx_close(int fd);
int systx_dup(int fd);
int systx_mkostemp(char *path, int flags);
int systx_mkstemp(char *path);
char *systx_mkdtemp(char *path);

/* Bytes: systx_read(3). */
ssize_t systx_read(int fd, void *buf, size_t count);
ssize_t systx_pread(int fd, void *buf, size_t count, off_t offset);
ssize_t systx_readv(int fd, const struct iovec *iov, int count);
ssize_t systx_preadv(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t systx_write(int fd, const void *buf, size_t count);
ssize_t systx_pwrite(int fd, const void *buf, size_t count, off_t offset);
ssize_t systx_writev(int fd, const struct iovec *iov, int count);
ssize_t systx_pwritev(int fd, const struct iovec *iov, int count, off_t offset);
off_t systx_lseek(int fd, off_t offset, int whence);
int systx_ftruncate(int fd, off_t length);
int systx_truncate(const char *path, off_t length);
int systx_fallocate(int fd, int mode, off_t offset, off_t length);
int systx_fsync(int fd);
int systx_fdatasync(int fd);

/* Names: systx_rename(3). */
int systx_mkdir(const char *path, mode_t mode);
int systx_mkdirat(int dirfd, const char *path, mode_t mode);
int systx_rmdir(const char *path);
int systx_unlink(const char *path);
int systx_unlinkat(int dirfd, const char *path, int flags);
int systx_rename(const char *from, const char *to);
int systx_renameat(int from_dirfd, const char *from, int to_dirfd, const char *to);
int systx_renameat2(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned int flags);
int systx_link(const char *from, const char *to);
int systx_linkat(int from_dirfd, const char *from, int to_dirfd, const char *to, int flags);
int systx_symlink(const char *target, const char *path);
int systx_symlinkat(const char *target, int dirfd, const char *path);
ssize_t systx_readlink(const char *path, char *buf, size_t size);
ssize_t systx_readlinkat(int dirfd, const char *path, char *buf, size_t size);

/* Listings: systx_opendir(3). */
SYSTX_DIR *systx_opendir(const char *path);
SYSTX_DIR *systx_fdopendir(int fd);
struct dirent *systx_readdir(SYSTX_DIR *dir);
int systx_rewinddir(SYSTX_DIR *dir);
int systx_dirfd(SYSTX_DIR *dir);
int systx_closedir(SYSTX_DIR *dir);

/* Attributes: systx_stat(3). */
struct statx;
int systx_stat(const char *path, struct stat *out);
int systx_lstat(const char *path, struct stat *out);
int systx_fstat(int fd, struct stat *out);
int systx_fstatat(int dirfd, const char *path, struct stat *out, int flags);
int systx_statx(int dirfd, const char *path, int flags, unsigned int mask, struct statx *out);
int systx_access(const char *path, int mode);
int systx_faccessat(int dirfd, const char *path, int mode, int flags);
int systx_chmod(const char *path, mode_t mode);
int systx_fchmod(int fd, mode_t mode);
int systx_fchmodat(int dirfd, const char *path, mode_t mode, int flags);
int systx_chown(const char *path, uid_t uid, gid_t gid);
int systx_lchown(const char *path, uid_t uid, gid_t gid);
int systx_fchown(int fd, uid_t uid, gid_t gid);
int systx_fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags);
int systx_utimensat(int dirfd, const char *path, const struct timespec times[2], int flags);
int systx_futimens(int fd, const struct timespec times[2]);

/* Extended attributes: systx_getxattr(3). */
ssize_t systx_getxattr(const char *path, const char *name, void *value, size_t size);
ssize_t systx_lgetxattr(const char *path, const char *name, void *value, size_t size);
ssize_t systx_fgetxattr(int fd, const char *name, void *value, size_t size);
ssize_t systx_listxattr(const char *path, char *list, size_t size);
ssize_t systx_llistxattr(const char *path, char *list, size_t size);
ssize_t systx_flistxattr(int fd, char *list, size_t size);
int systx_setxattr(const char *path, const char *name, const void *value, size_t size, int flags);
int systx_lsetxattr(const char *path, const char *name, const void *value, size_t size, int flags);
int systx_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags);
int systx_removexattr(const char *path, const char *name);
int systx_lremovexattr(const char *path, const char *name);
int systx_fremovexattr(int fd, const char *name);

#ifdef __cplusplus
}
#endif

#endif
