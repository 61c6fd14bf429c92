/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Check-out and check-in of sets of files, after QuickSilver's check (SOSP 1991, section 3). ARCHIVE has a directory
 * for each file: the versions 1, 2 and so on, and "out", which says in which directory it is edited. A problem with
 * any file, such as one that was not checked out, leaves archive and working copies as they were, without a line of
 * code that puts back what was done for the files before it.
 *
 *     cc check.c -lsystx -o check
 *     ./check new ARCHIVE WORK FILE...    makes files of the directory WORK the first versions
 *     ./check out ARCHIVE WORK FILE...    copies the last versions to WORK, to be edited there and nowhere else
 *     ./check in ARCHIVE WORK FILE...     stores what became of them as new versions
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systx.h>

enum { PATH = 4096, WRITABLE = 0644, READ_ONLY = 0444 };

struct job {
	const char *verb, *archive, *work;
	char **files;
	const char *about; /* The file that a problem is about, and the problem. */
	const char *problem;
};

static int copy(const char *from, const char *to)
{
	char bytes[1 << 16];
	ssize_t size;
	int source = systx_open(from, O_RDONLY), target = systx_open(to, O_WRONLY | O_CREAT | O_EXCL, WRITABLE);
	if (source < 0 || target < 0)
		return -1;
	while ((size = systx_read(source, bytes, sizeof bytes)) > 0)
		if (systx_write(target, bytes, (size_t)size) != size)
			return -1;
	systx_close(source);
	systx_close(target);
	return (int)size;
}

/* The number of the last version; -1: an error. */
static long last(const char *versions)
{
	long most = 0;
	struct dirent *entry;
	SYSTX_DIR *dir = systx_opendir(versions);
	if (!dir)
		return -1;
	while ((entry = systx_readdir(dir)) != NULL) {
		long number = strtol(entry->d_name, NULL, 10);
		most = number > most ? number : most;
	}
	systx_closedir(dir);
	return most;
}

static int refuse(struct job *job, const char *problem)
{
	job->problem = problem;
	return errno = EBUSY, -1;
}

static int one(struct job *job, const char *file)
{
	char versions[PATH], working[PATH], out[PATH + 8], version[PATH + 24], place[PATH] = "";
	snprintf(versions, sizeof versions, "%s/%s", job->archive, file);
	snprintf(working, sizeof working, "%s/%s", job->work, file);
	snprintf(out, sizeof out, "%s/out", versions);
	if (strcmp(job->verb, "new") == 0) {
		snprintf(version, sizeof version, "%s/1", versions);
		if (systx_mkdir(versions, 0755) != 0 || copy(working, version) != 0)
			return -1;
		return systx_chmod(working, READ_ONLY);
	}
	/* The directory in which it is edited. */
	int fd = systx_open(out, O_RDONLY);
	if (fd >= 0 ? systx_read(fd, place, sizeof place - 1) < 0 : errno != ENOENT)
		return -1;
	long number = last(versions);
	if (number < 0)
		return -1;
	if (strcmp(job->verb, "out") == 0) {
		if (fd >= 0)
			return refuse(job, "is checked out already");
		fd = systx_open(out, O_WRONLY | O_CREAT | O_EXCL, WRITABLE);
		if (fd < 0 || systx_write(fd, job->work, strlen(job->work)) < 0)
			return -1;
		snprintf(version, sizeof version, "%s/%ld", versions, number);
		if (systx_unlink(working) != 0 && errno != ENOENT)
			return -1;
		return copy(version, working);
	}
	if (strcmp(place, job->work) != 0)
		return refuse(job, "is not checked out here");
	snprintf(version, sizeof version, "%s/%ld", versions, number + 1);
	if (copy(working, version) != 0 || systx_unlink(out) != 0)
		return -1;
	return systx_chmod(working, READ_ONLY);
}

static int check(void *with)
{
	struct job *job = (struct job *)with;
	job->problem = NULL;
	for (char **file = job->files; *file; file++) {
		job->about = *file;
		if (one(job, *file) != 0)
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.label = "check";
	options.retries = 100000;
	if (argc < 4 || (strcmp(argv[1], "new") != 0 && strcmp(argv[1], "out") != 0 && strcmp(argv[1], "in") != 0)) {
		fprintf(stderr, "usage: check new|out|in ARCHIVE WORK FILE...\n");
		return 2;
	}
	struct job job = { argv[1], argv[2], argv[3], argv + 4, "check", NULL };
	if (systx_atomically(0, &options, check, &job) == 0)
		return 0;
	if (job.problem)
		fprintf(stderr, "%s: %s\n", job.about, job.problem);
	else
		perror(job.about);
	return 1;
}
