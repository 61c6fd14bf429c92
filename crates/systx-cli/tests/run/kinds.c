/* Calls that reach files without read(2) and write(2): native AIO, io_uring, file handles. By raw system calls, so that it
 * needs no library. One word says which, the last is a name; status 0 if everything came to what it should, 2 if the kernel
 * has no such calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 65536, AT = 4096 };

static char *page(long bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Ends the program unless a call came to what it should; a result below zero is an error number. */
static void must(const char *what, long result, long wanted)
{
	if (result == wanted)
		return;
	printf("%s: %ld, not %ld: %s\n", what, result, wanted, result < 0 ? strerror(-result) : "");
	exit(1);
}

static long told(long result)
{
	return result < 0 ? -errno : result;
}

static long aio(aio_context_t context, int op, int fd, void *bytes)
{
	struct iocb request = { .aio_lio_opcode = op, .aio_fildes = fd, .aio_buf = (uintptr_t)bytes, .aio_nbytes = BYTES, .aio_offset = AT };
	struct iocb *requests[] = { &request };
	struct io_event event;
	must("io_submit", told(syscall(SYS_io_submit, context, 1L, requests)), 1);
	must("io_getevents", told(syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL)), 1);
	return event.res;
}

static void by_aio(const char *name, int flags)
{
	aio_context_t context = 0;
	char *bytes = page(BYTES), *back = page(BYTES);
	int fd = open(name, O_RDWR | O_CREAT | flags, 0644);
	must("open", fd < 0 ? -errno : 0, 0);
	must("io_setup", told(syscall(SYS_io_setup, 8L, &context)), 0);
	memset(bytes, 'a', BYTES);
	must("pwrite", aio(context, IOCB_CMD_PWRITE, fd, bytes), BYTES);
	must("pread", aio(context, IOCB_CMD_PREAD, fd, back), BYTES);
	must("memcmp", memcmp(bytes, back, BYTES), 0);
}

struct ring {
	int fd;
	char *sq, *cq;
	struct io_uring_sqe *sqes;
	struct io_uring_params params;
};

static uint32_t *word(char *ring, uint32_t at)
{
	return (uint32_t *)(ring + at);
}

static struct ring ring_of_8(void)
{
	struct ring ring = { 0 };
	struct io_uring_params *p = &ring.params;
	const int both = PROT_READ | PROT_WRITE;
	ring.fd = syscall(SYS_io_uring_setup, 8, p);
	if (ring.fd < 0 && (errno == ENOSYS || errno == EPERM))
		exit(2);
	must("io_uring_setup", ring.fd < 0 ? -errno : 0, 0);
	ring.sq = mmap(NULL, p->sq_off.array + p->sq_entries * 4, both, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	ring.cq = mmap(NULL, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe), both, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
	ring.sqes = mmap(NULL, p->sq_entries * sizeof(struct io_uring_sqe), both, MAP_SHARED, ring.fd, IORING_OFF_SQES);
	must("mmap", ring.sq == MAP_FAILED || ring.cq == MAP_FAILED || ring.sqes == MAP_FAILED, 0);
	return ring;
}

static long uring(struct ring *ring, struct io_uring_sqe request)
{
	uint32_t *tail = word(ring->sq, ring->params.sq_off.tail), *head = word(ring->cq, ring->params.cq_off.head);
	uint32_t at = *tail & *word(ring->sq, ring->params.sq_off.ring_mask);
	uint32_t answer = *head & *word(ring->cq, ring->params.cq_off.ring_mask);
	ring->sqes[at] = request;
	word(ring->sq, ring->params.sq_off.array)[at] = at;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	must("io_uring_enter", told(syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0)), 1);
	long result = ((struct io_uring_cqe *)(ring->cq + ring->params.cq_off.cqes))[answer].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return result;
}

/* Opens, writes, reads, syncs and renames to `renamed`, all in the ring. */
static void by_uring(const char *name)
{
	struct ring ring = ring_of_8();
	char *bytes = page(BYTES), *back = page(BYTES);
	struct io_uring_sqe request = { .opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (uintptr_t)name, .len = 0644, .open_flags = O_RDWR | O_CREAT };
	int fd = uring(&ring, request);
	must("openat", fd < 0 ? fd : 0, 0);
	memset(bytes, 'u', BYTES);
	request = (struct io_uring_sqe){ .opcode = IORING_OP_WRITE, .fd = fd, .addr = (uintptr_t)bytes, .len = BYTES, .off = AT };
	must("write", uring(&ring, request), BYTES);
	request = (struct io_uring_sqe){ .opcode = IORING_OP_READ, .fd = fd, .addr = (uintptr_t)back, .len = BYTES, .off = AT };
	must("read", uring(&ring, request), BYTES);
	must("memcmp", memcmp(bytes, back, BYTES), 0);
	request = (struct io_uring_sqe){ .opcode = IORING_OP_FSYNC, .fd = fd };
	must("fsync", uring(&ring, request), 0);
	request = (struct io_uring_sqe){ .opcode = IORING_OP_RENAMEAT, .fd = AT_FDCWD, .addr = (uintptr_t)name, .len = (uint32_t)AT_FDCWD, .off = (uintptr_t)"renamed" };
	must("renameat", uring(&ring, request), 0);
}

/* Lets the kernel forget all that nobody uses, where that can be asked for. */
static void forget(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
	if (fd >= 0 && write(fd, "2", 1) == 1)
		close(fd);
}

/* Opens a file by its handle when it has another name, shows what is in it, and appends. */
static void by_handle(const char *name)
{
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} at = { .handle.handle_bytes = MAX_HANDLE_SZ };
	char bytes[100];
	int mount, top = open(".", O_RDONLY | O_DIRECTORY);
	must("name_to_handle_at", told(name_to_handle_at(AT_FDCWD, name, &at.handle, &mount, 0)), 0);
	must("rename", told(rename(name, "renamed")), 0);
	forget();
	int fd = open_by_handle_at(top, &at.handle, O_RDWR | O_APPEND);
	must("open_by_handle_at", fd < 0 ? -errno : 0, 0);
	long n = told(read(fd, bytes, sizeof bytes));
	printf("%.*s", n > 0 ? (int)n : 0, bytes);
	must("write", told(write(fd, "more\n", 5)), 5);
}

int main(int argc, char **argv)
{
	const char *what = argc == 3 ? argv[1] : "", *name = argv[argc - 1];
	if (!strcmp(what, "aio"))
		by_aio(name, 0);
	else if (!strcmp(what, "aio-direct"))
		by_aio(name, O_DIRECT);
	else if (!strcmp(what, "uring"))
		by_uring(name);
	else if (!strcmp(what, "handle"))
		by_handle(name);
	else
		must("a word", 0, 1);
	return 0;
}
