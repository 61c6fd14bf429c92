/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The example graph.c, with threads that are canceled in the middle of a transaction. Arguments: GRAPH SEED. */
#define main graph_main
#include "../../examples/graph.c"
#undef main
#include <sched.h>

enum { THREADS = 4 };

/* Requests that are done; all of them if one has failed. */
static size_t done(struct core *core)
{
	size_t done = 0;
	pthread_mutex_lock(&core->lock);
	for (size_t n = 0; n < core->count; n++)
		done += core->all[n].state == DONE || core->failed;
	pthread_mutex_unlock(&core->lock);
	return done;
}

int main(int argc, char **argv)
{
	struct core core;
	pthread_t threads[THREADS];
	unsigned long canceled = 0;
	if (argc != 3 || open_core(&core, argv[1]) != 0 || reset_numbers() != 0)
		return 1;
	srandom((unsigned)atoi(argv[2]));
	for (int n = 0; n < THREADS; n++)
		pthread_create(&threads[n], NULL, serve, &core);
	/* One thread less after every few requests, so that there is progress however slow the machine is. */
	for (size_t next = 0; next < core.count; next += 1 + (size_t)(random() % 8)) {
		void *ended;
		int n = (int)(random() % THREADS);
		while (done(&core) < next)
			sched_yield();
		pthread_cancel(threads[n]);
		pthread_join(threads[n], &ended);
		canceled += ended == PTHREAD_CANCELED;
		pthread_create(&threads[n], NULL, serve, &core);
	}
	for (int n = 0; n < THREADS; n++)
		pthread_join(threads[n], NULL);
	for (size_t n = 0; n < core.count; n++)
		printf("%zu %s\n", n + 1, core.all[n].answer);
	fprintf(stderr, "%lu canceled\n", canceled);
	return core.failed || !canceled;
}
