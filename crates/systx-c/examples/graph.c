/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The core of a replicated graph server: numbered requests on an undirected graph in a file, executed by several
 * threads with the answers and the file of a serial loop. Each request is a transaction that has its number: it runs
 * beside others, commits behind all lower numbers, and runs again if one of these has changed what it has read. So
 * neither requests nor graph need locks, and nothing has to be known of a request beforehand.
 *
 *     cc graph.c -lsystx -lpthread -o graph
 *     ./graph make GRAPH dense|sparse VERTICES
 *     ./graph run GRAPH THREADS < requests      0 threads: serially, without transactions
 *
 * Requests are lines: add U V, remove U V, edge U V, path U V. Prints the answers in order.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systx.h>
#include <unistd.h>

/* The graph: a matrix of bits if it is dense, else a chain of slots for each vertex, the first with its number. */
struct header {
	uint32_t sparse, vertices, slots;
};

struct slot {
	uint32_t used, next, near[14];
};

enum { BODY_AT = 4096, ROOM = 14 };

/* The open file, plain or in a transaction. */
struct graph {
	int fd, inside;
	struct header head;
};

static int get(const struct graph *g, void *to, size_t size, off_t at)
{
	ssize_t done = g->inside ? systx_pread(g->fd, to, size, at) : pread(g->fd, to, size, at);
	if (done >= 0 && done != (ssize_t)size)
		errno = EIO;
	return done == (ssize_t)size ? 0 : -1;
}

static int put(const struct graph *g, const void *from, size_t size, off_t at)
{
	ssize_t done = g->inside ? systx_pwrite(g->fd, from, size, at) : pwrite(g->fd, from, size, at);
	return done == (ssize_t)size ? 0 : -1;
}

static size_t row_bytes(const struct graph *g)
{
	return (g->head.vertices + 7) / 8;
}

static off_t row_at(const struct graph *g, uint32_t u)
{
	return BODY_AT + (off_t)(u * (size_t)row_bytes(g));
}

static off_t slot_at(uint32_t number)
{
	return BODY_AT + (off_t)(number * sizeof(struct slot));
}

/* Marks the neighbours of a vertex in a row of bits; 0, or -1. */
static int neighbours(const struct graph *g, uint32_t u, unsigned char *row)
{
	struct slot slot;
	if (!g->head.sparse)
		return get(g, row, row_bytes(g), row_at(g, u));
	memset(row, 0, row_bytes(g));
	do {
		if (get(g, &slot, sizeof slot, slot_at(u)) != 0)
			return -1;
		for (uint32_t n = 0; n < slot.used && n < ROOM; n++)
			row[slot.near[n] / 8] |= (unsigned char)(1 << slot.near[n] % 8);
		u = slot.next;
	} while (u);
	return 0;
}

static int link_half(struct graph *g, uint32_t u, uint32_t v)
{
	struct slot slot, fresh;
	for (;; u = slot.next) {
		if (get(g, &slot, sizeof slot, slot_at(u)) != 0)
			return -1;
		if (slot.used < ROOM) {
			slot.near[slot.used++] = v;
			return put(g, &slot, sizeof slot, slot_at(u));
		}
		if (slot.next)
			continue;
		/* Two requests that need a new slot conflict on the number of slots. */
		memset(&fresh, 0, sizeof fresh);
		if (get(g, &g->head, sizeof g->head, 0) != 0)
			return -1;
		slot.next = g->head.slots++;
		if (put(g, &g->head, sizeof g->head, 0) != 0 || put(g, &fresh, sizeof fresh, slot_at(slot.next)) != 0 ||
		    put(g, &slot, sizeof slot, slot_at(u)) != 0)
			return -1;
	}
}

static int unlink_half(const struct graph *g, uint32_t u, uint32_t v)
{
	struct slot slot;
	do {
		if (get(g, &slot, sizeof slot, slot_at(u)) != 0)
			return -1;
		for (uint32_t n = 0; n < slot.used && n < ROOM; n++)
			if (slot.near[n] == v) {
				slot.near[n] = slot.near[--slot.used];
				return put(g, &slot, sizeof slot, slot_at(u));
			}
		u = slot.next;
	} while (u);
	return 0;
}

static int flip_half(const struct graph *g, uint32_t u, uint32_t v)
{
	unsigned char byte;
	off_t at = row_at(g, u) + (off_t)(v / 8);
	if (get(g, &byte, 1, at) != 0)
		return -1;
	byte ^= (unsigned char)(1 << v % 8);
	return put(g, &byte, 1, at);
}

/* Adds or removes an edge; 1, 0 if there was nothing to do, or -1. */
static int set_edge(struct graph *g, uint32_t u, uint32_t v, int there, unsigned char *row)
{
	if (neighbours(g, u, row) != 0)
		return -1;
	if (u == v || (row[v / 8] >> v % 8 & 1) == there)
		return 0;
	for (int half = 0; half < 2; half++) {
		int failed = !g->head.sparse ? flip_half(g, u, v) : there ? link_half(g, u, v) : unlink_half(g, u, v);
		if (failed)
			return -1;
		uint32_t other = u;
		u = v;
		v = other;
	}
	return 1;
}

/* Edges on a shortest path, found breadth first; -1: none; -2: a failure. `room` has rows for two bits of a vertex. */
static int distance(const struct graph *g, uint32_t from, uint32_t to, unsigned char *row, uint32_t *front)
{
	unsigned char *seen = row + row_bytes(g);
	uint32_t first = 0, last = 1;
	memset(seen, 0, row_bytes(g));
	seen[from / 8] |= (unsigned char)(1 << from % 8);
	front[0] = from;
	if (from == to)
		return 0;
	for (int far = 1; first < last; far++)
		for (uint32_t end = last; first < end; first++) {
			if (neighbours(g, front[first], row) != 0)
				return -2;
			if (row[to / 8] >> to % 8 & 1)
				return far;
			for (uint32_t v = 0; v < g->head.vertices; v++)
				if ((row[v / 8] & ~seen[v / 8]) >> v % 8 & 1) {
					seen[v / 8] |= (unsigned char)(1 << v % 8);
					front[last++] = v;
				}
		}
	return -1;
}

/* Executes a request: 0, and the answer, or -1. */
static int execute(struct graph *g, const char *line, char answer[32])
{
	char verb[8];
	uint32_t u, v;
	int result = -2;
	strcpy(answer, "refused");
	if (sscanf(line, "%7s %u %u", verb, &u, &v) != 3 || u >= g->head.vertices || v >= g->head.vertices)
		return 0;
	unsigned char *row = (unsigned char *)malloc(2 * row_bytes(g));
	uint32_t *front = (uint32_t *)malloc(g->head.vertices * sizeof *front);
	if (row && front) {
		if (strcmp(verb, "path") == 0) {
			result = distance(g, u, v, row, front);
			snprintf(answer, 32, result < 0 ? "none" : "%d", result);
		} else if (strcmp(verb, "edge") == 0) {
			result = neighbours(g, u, row) == 0 ? row[v / 8] >> v % 8 & 1 : -2;
			strcpy(answer, result == 1 ? "yes" : "no");
		} else if (strcmp(verb, "add") == 0 || strcmp(verb, "remove") == 0) {
			result = set_edge(g, u, v, *verb == 'a', row);
			result = result < 0 ? -2 : result;
			strcpy(answer, result == 1 ? "yes" : "no");
		} else {
			result = 0;
		}
	}
	free(row);
	free(front);
	return result == -2 ? -1 : 0;
}

/* The requests, and what has become of each. */
enum state { WAITING, TAKEN, DONE };

struct request {
	char *line;
	char answer[32];
	enum state state;
};

struct core {
	const char *path;
	struct header head;
	struct request *all;
	size_t count, begun; /* All before `begun` are taken or done. */
	unsigned long tries;
	int failed;
	pthread_mutex_t lock;
};

/* The request with the lowest number that no thread has; NULL: none is left. */
static struct request *take(struct core *core)
{
	struct request *request = NULL;
	pthread_mutex_lock(&core->lock);
	while (core->begun < core->count && core->all[core->begun].state != WAITING)
		core->begun++;
	if (!core->failed && core->begun < core->count) {
		request = &core->all[core->begun++];
		request->state = TAKEN;
		core->tries++;
	}
	pthread_mutex_unlock(&core->lock);
	return request;
}

static void give_back(struct core *core, struct request *request, enum state state)
{
	size_t number = (size_t)(request - core->all);
	pthread_mutex_lock(&core->lock);
	request->state = state;
	if (state == WAITING && number < core->begun)
		core->begun = number;
	pthread_mutex_unlock(&core->lock);
}

/* One try of a request as a transaction: DONE, or WAITING if it is to be taken again; errno: 0, or what has failed. */
static enum state in_turn(struct core *core, struct request *request)
{
	struct systx_options options;
	struct systx_outcome end;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.durability = SYSTX_NOT_DURABLE;
	options.sequence = (uint64_t)(request - core->all) + 1;
	memset(&end, 0, sizeof end);
	end.size = sizeof end;
	errno = 0;
	if (sys_xbegin(SYSTX_ORDERED | SYSTX_AGAIN, &options) != 0) {
		/* The transaction of a thread that was just canceled may still have the number. */
		errno = errno == EEXIST ? 0 : errno;
		return WAITING;
	}
	struct graph g = { systx_open(core->path, O_RDWR), 1, core->head };
	int failed = g.fd < 0 || execute(&g, request->line, request->answer) != 0;
	/* A thread may be canceled: its transaction is aborted, and another one takes the number. */
	pthread_testcancel();
	if (failed && errno != ECANCELED) {
		int error = errno;
		sys_xabort();
		errno = error;
		return WAITING;
	}
	if ((failed ? sys_xabort() : sys_xend()) == 0 && !failed)
		return DONE;
	int error = errno;
	sys_xoutcome(&end);
	/* A conflict, or a lower number that was given up: that one is taken first, then. */
	errno = end.can_retry || end.code == SYSTX_ORDER ? 0 : error;
	return WAITING;
}

struct held {
	struct core *core;
	struct request *request;
};

/* A canceled thread's request is taken by another one. */
static void drop(void *with)
{
	struct held *held = (struct held *)with;
	give_back(held->core, held->request, WAITING);
}

/* A function of its own: a cancellation comes back into it as longjmp(3) does. */
__attribute__((noinline)) static enum state in_turn_or_back(struct held *held)
{
	enum state state;
	pthread_cleanup_push(drop, held);
	state = in_turn(held->core, held->request);
	pthread_cleanup_pop(0);
	return state;
}

/* A thread that executes requests. */
static void *serve(void *with)
{
	struct held held = { (struct core *)with, NULL };
	while ((held.request = take(held.core)) != NULL) {
		enum state state = in_turn_or_back(&held);
		if (state == WAITING && errno) {
			perror("graph");
			held.core->failed = 1;
		}
		give_back(held.core, held.request, state);
	}
	return NULL;
}

/* Reads requests from standard input; 0, or -1. */
static int open_core(struct core *core, const char *path)
{
	struct graph g = { open(path, O_RDONLY), 0, { 0, 0, 0 } };
	memset(core, 0, sizeof *core);
	pthread_mutex_init(&core->lock, NULL);
	core->path = path;
	if (g.fd < 0 || get(&g, &core->head, sizeof core->head, 0) != 0)
		return -1;
	close(g.fd);
	size_t room = 0;
	char *line = NULL;
	size_t size = 0;
	while (getline(&line, &size, stdin) >= 0) {
		if (core->count == room) {
			room = 2 * room + 64;
			core->all = (struct request *)realloc(core->all, room * sizeof *core->all);
			if (!core->all)
				return -1;
		}
		struct request *request = &core->all[core->count++];
		request->line = line;
		request->state = WAITING;
		line = NULL;
		size = 0;
	}
	free(line);
	return 0;
}

static int nothing(void *with)
{
	(void)with;
	return 0;
}

/* The numbers begin anew, whatever this process group has counted before. Number 0 is this transaction's. */
static int reset_numbers(void)
{
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	return systx_atomically(SYSTX_ORDERED | SYSTX_RESET, &options, nothing, NULL);
}

static int run_in_parallel(struct core *core, int count)
{
	pthread_t threads[64];
	if (count > 64 || reset_numbers() != 0)
		return -1;
	for (int n = 0; n < count; n++)
		if (pthread_create(&threads[n], NULL, serve, core) != 0)
			return -1;
	for (int n = 0; n < count; n++)
		pthread_join(threads[n], NULL);
	return core->failed ? -1 : 0;
}

static int run_serially(struct core *core)
{
	struct graph g = { open(core->path, O_RDWR), 0, core->head };
	for (size_t n = 0; n < core->count; n++)
		if (g.fd < 0 || execute(&g, core->all[n].line, core->all[n].answer) != 0)
			return -1;
	return close(g.fd);
}

static int make(const char *path, int sparse, uint32_t vertices)
{
	struct graph g = { open(path, O_RDWR | O_CREAT | O_TRUNC, 0644), 0, { (uint32_t)sparse, vertices, vertices } };
	if (g.fd < 0 || put(&g, &g.head, sizeof g.head, 0) != 0)
		return -1;
	if (ftruncate(g.fd, sparse ? slot_at(vertices) : row_at(&g, vertices)) != 0)
		return -1;
	return close(g.fd);
}

int main(int argc, char **argv)
{
	struct core core;
	if (argc == 5 && strcmp(argv[1], "make") == 0) {
		if (make(argv[2], strcmp(argv[3], "sparse") == 0, (uint32_t)atoi(argv[4])) == 0)
			return 0;
	} else if (argc == 4 && strcmp(argv[1], "run") == 0) {
		int threads = atoi(argv[3]);
		if (open_core(&core, argv[2]) == 0 && (threads ? run_in_parallel(&core, threads) : run_serially(&core)) == 0) {
			for (size_t n = 0; n < core.count; n++) {
				printf("%zu %s\n", n + 1, core.all[n].answer);
				free(core.all[n].line);
			}
			free(core.all);
			if (threads)
				fprintf(stderr, "%zu requests, %lu tries\n", core.count, core.tries);
			return 0;
		}
	} else {
		fprintf(stderr, "usage: graph make GRAPH dense|sparse VERTICES | graph run GRAPH THREADS\n");
		return 2;
	}
	perror("graph");
	return 1;
}
