/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A directory service that keeps each entry in a file, as OpenLDAP's back_ldif does, and moves subtrees at once. The
 * entry ou=people,dc=org is the file dc=org/ou=people.ldif, and entries below it are in the directory
 * dc=org/ou=people. So a move renames a directory and a file, and writes the name into the file. With plain calls a
 * reader meets children without a parent, and a crash makes that last.
 *
 *     cc ldif.c -lsystx -o ldif
 *     ./ldif add DIRECTORY DN                adds an entry; its attributes are lines on standard input
 *     ./ldif move DIRECTORY DN NEW-DN        gives an entry another name, with everything below it (modrdn)
 *     ./ldif search DIRECTORY DN             prints the names from there on down, each checked, as of one moment
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systx.h>
#include <unistd.h>

enum { PATH = 4096, TEXT = 1 << 16 };

struct job {
	const char *dn, *new_dn;
	char attributes[TEXT];
	char found[TEXT]; /* Names, a line each. */
	size_t length;
};

/* Writes where an entry is into `path`, with `end` behind it; 0, or -1 with EINVAL. */
static int place(const char *dn, const char *end, char path[PATH])
{
	size_t length = 0, last = strlen(dn);
	if (last + strlen(end) >= PATH)
		return errno = EINVAL, -1;
	/* The last name of a DN is the topmost directory. */
	while (last > 0) {
		size_t first = last;
		while (first > 0 && dn[first - 1] != ',')
			first--;
		const char *rdn = dn + first;
		size_t size = last - first;
		/* back_ldif escapes such names; here they are refused. */
		if (!memchr(rdn, '=', size) || *rdn == '.' || memchr(rdn, '/', size) || memchr(rdn, '\n', size))
			return errno = EINVAL, -1;
		if (length)
			path[length++] = '/';
		memcpy(path + length, rdn, size);
		length += size;
		last = first ? first - 1 : 0;
	}
	strcpy(path + length, end);
	return length ? 0 : (errno = EINVAL, -1);
}

/* The first name of a DN. */
static int rdn_size(const char *dn)
{
	return (int)strcspn(dn, ",");
}

static const char *parent_of(const char *dn)
{
	const char *comma = strchr(dn, ',');
	return comma ? comma + 1 : NULL;
}

/* The first lines of an entry, which say its name twice. */
static size_t name_lines(const char *dn, char *text, size_t room)
{
	int size = rdn_size(dn), type = (int)strcspn(dn, "=");
	return (size_t)snprintf(text, room, "dn: %.*s\n%.*s: %.*s\n", size, dn, type, dn, size - type - 1, dn + type + 1);
}

/* Reads a file as a string; its size, or -1. */
static ssize_t read_text(const char *path, char *text, size_t room)
{
	int fd = systx_open(path, O_RDONLY);
	ssize_t size = fd < 0 ? -1 : systx_read(fd, text, room - 1);
	if (size >= 0)
		text[size] = '\0';
	if (fd >= 0)
		systx_close(fd);
	return size;
}

static int write_text(const char *path, int flags, const char *text)
{
	int fd = systx_open(path, O_WRONLY | flags, 0644);
	return fd >= 0 && systx_write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* The directory for what is below the parent of a DN; 0, or -1. */
static int make_room(const char *dn)
{
	char path[PATH];
	struct stat found;
	const char *parent = parent_of(dn);
	if (!parent)
		return 0;
	/* A parent that is removed meanwhile is a conflict. */
	if (place(parent, ".ldif", path) != 0 || systx_stat(path, &found) != 0 || place(parent, "", path) != 0)
		return -1;
	return systx_mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : -1;
}

static int add(void *with)
{
	const struct job *job = (const struct job *)with;
	static char text[2 * TEXT];
	char path[PATH];
	if (place(job->dn, ".ldif", path) != 0 || make_room(job->dn) != 0)
		return -1;
	size_t size = name_lines(job->dn, text, sizeof text);
	strcpy(text + size, job->attributes);
	return write_text(path, O_CREAT | O_EXCL, text);
}

static int move(void *with)
{
	const struct job *job = (const struct job *)with;
	static char text[TEXT], edited[2 * TEXT];
	char from[PATH], to[PATH];
	struct stat found;
	if (place(job->dn, ".ldif", from) != 0 || place(job->new_dn, ".ldif", to) != 0 || make_room(job->new_dn) != 0)
		return -1;
	if (systx_lstat(to, &found) == 0)
		return errno = EEXIST, -1;
	if (read_text(from, text, sizeof text) < 0)
		return -1;
	size_t old_size = name_lines(job->dn, edited, sizeof edited);
	if (strncmp(text, edited, old_size) != 0)
		return errno = EBADMSG, -1;
	size_t new_size = name_lines(job->new_dn, edited, sizeof edited);
	strcpy(edited + new_size, text + old_size);
	if (write_text(from, O_TRUNC, edited) != 0 || systx_rename(from, to) != 0)
		return -1;
	if (place(job->dn, "", from) != 0 || place(job->new_dn, "", to) != 0)
		return -1;
	/* A leaf has no directory. */
	return systx_rename(from, to) == 0 || errno == ENOENT ? 0 : -1;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a directory, in order; their number, or -1. Free each, and the list. */
static int list(const char *path, char ***names)
{
	int count = 0;
	struct dirent *entry;
	SYSTX_DIR *dir = systx_opendir(path);
	*names = NULL;
	/* A leaf has no directory. */
	if (!dir)
		return errno == ENOENT ? 0 : -1;
	while ((entry = systx_readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		*names = (char **)realloc(*names, ((size_t)count + 1) * sizeof **names);
		(*names)[count++] = strdup(entry->d_name);
	}
	systx_closedir(dir);
	if (count)
		qsort(*names, (size_t)count, sizeof **names, by_name);
	return count;
}

/* Notes an entry and those below it; 0, or -1: EBADMSG if one is not what its place says. */
static int visit(struct job *job, const char *dn)
{
	char path[PATH], text[512], said[512];
	char **names;
	int failed = 0, children = 0;
	if (place(dn, ".ldif", path) != 0 || read_text(path, text, sizeof text) < 0)
		return -1;
	size_t size = name_lines(dn, said, sizeof said);
	if (size >= sizeof said || strncmp(text, said, size) != 0 || job->length + strlen(dn) + 2 > TEXT)
		return errno = EBADMSG, -1;
	job->length += (size_t)sprintf(job->found + job->length, "%s\n", dn);
	if (place(dn, "", path) != 0)
		return -1;
	int count = list(path, &names);
	for (int n = 0; n < count; n++) {
		char *end = strstr(names[n], ".ldif"), child[PATH];
		/* Each directory is that of an entry, which comes before or after it in the list. */
		children += end ? 0 : 1;
		for (int other = 0; !end && other < count; other++)
			children -= strncmp(names[other], names[n], strlen(names[n])) == 0 &&
				    strcmp(names[other] + strlen(names[n]), ".ldif") == 0;
		if (end && !failed) {
			snprintf(child, sizeof child, "%.*s,%s", (int)(end - names[n]), names[n], dn);
			failed = visit(job, child);
		}
	}
	for (int n = 0; n < count; n++)
		free(names[n]);
	free(names);
	if (count >= 0 && children)
		errno = EBADMSG;
	return count < 0 || failed || children ? -1 : 0;
}

static int search(void *with)
{
	struct job *job = (struct job *)with;
	job->length = 0;
	return visit(job, job->dn);
}

int main(int argc, char **argv)
{
	static struct job job;
	struct systx_options options;
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.label = "ldif";
	options.retries = 100000;
	const char *verb = argc > 1 ? argv[1] : "";
	int (*work)(void *) = strcmp(verb, "add") == 0 ? add : strcmp(verb, "move") == 0 ? move : search;
	if (argc != (work == move ? 5 : 4)) {
		fprintf(stderr, "usage: ldif add DIRECTORY DN | move DIRECTORY DN NEW-DN | search DIRECTORY DN\n");
		return 2;
	}
	job.dn = argv[3];
	job.new_dn = argv[4];
	if (work == add)
		job.attributes[fread(job.attributes, 1, TEXT - 1, stdin)] = '\0';
	if (chdir(argv[2]) != 0 || systx_atomically(0, &options, work, &job) != 0) {
		perror(argv[3]);
		return 1;
	}
	if (work == search)
		fwrite(job.found, 1, job.length, stdout);
	return 0;
}
