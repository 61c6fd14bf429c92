/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A transaction does, commits and aborts. Argument: a directory. */
#include "check.h"

int main(int argc, char **argv)
{
	CHECK(argc == 2 && chdir(argv[1]) == 0);
	put("old", "old");

	errno = EDOM;
	CHECK(sys_xbegin(0, NULL) == 0 && errno == EDOM);
	CHECK(outcome().code == SYSTX_RUNNING);
	int fd = systx_open("old", O_RDWR);
	CHECK(fd > 2 && errno == EDOM);
	char buf[16];
	CHECK(systx_read(fd, buf, sizeof buf) == 3 && memcmp(buf, "old", 3) == 0);
	CHECK(systx_pwrite(fd, "new!", 4, 0) == 4);
	CHECK(systx_lseek(fd, 0, SEEK_SET) == 0 && systx_read(fd, buf, sizeof buf) == 4);
	CHECK(read(fd, buf, 1) == -1 && errno == EBADF);
	CHECK(put_inside("made", "inside") == 0);
	CHECK(says("old", "old") && access("made", F_OK) == -1);
	CHECK(sys_xabort() == 0);
	CHECK(outcome().code == SYSTX_ABORTED);
	CHECK(says("old", "old") && access("made", F_OK) == -1);
	FAILS(systx_read(fd, buf, 1), EBADF);
	FAILS(systx_open("old", O_RDONLY), EINVAL);

	CHECK(sys_xbegin(0, NULL) == 0);
	CHECK(put_inside("old", "newer") == 0 && put_inside("made", "inside") == 0);
	CHECK(says("old", "old"));
	errno = EDOM;
	CHECK(sys_xend() == 0 && errno == EDOM);
	struct systx_outcome end = outcome();
	CHECK(end.code == SYSTX_COMMITTED && end.steps > 0 && end.path == NULL && end.message != NULL);
	CHECK(says("old", "newer") && says("made", "inside"));
	FAILS(sys_xend(), EINVAL);
	FAILS(sys_xabort(), EINVAL);
	CHECK(systx_finish() == 0);
	return 0;
}
