# The small-file and large-file benchmarks of LFS (Rosenblum and Ousterhout 1991, §5.1) with the sizes of TxOS: 10,000 files of
# 100 bytes made, read, removed; a file of 100 MB written and read in blocks of 8 KiB, in order and at random.
needs=python3
rows="lfs-create lfs-read lfs-delete lfs-write lfs-write-random lfs-read-large lfs-read-random lfs-write-4k"
target_lfs_create=1.7
target_lfs_write_4k=1.2
small() {
    python3 - "$1" <<'PY'
import os, sys
data = b"x" * 100
for n in range(10000):
    name = f"f{n}"
    if sys.argv[1] == "create":
        fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644); os.write(fd, data); os.close(fd)
    elif sys.argv[1] == "read":
        fd = os.open(name, os.O_RDONLY); assert os.read(fd, 100) == data; os.close(fd)
    else:
        os.unlink(name)
PY
}
large() { # write or read, in order or random, bytes of a block
    python3 - "$@" <<'PY'
import os, random, sys
what, order, block = sys.argv[1], sys.argv[2], int(sys.argv[3])
blocks = list(range(100 * 1024 * 1024 // block))
if order == "random": random.Random(1).shuffle(blocks)
fd = os.open("large", os.O_CREAT | (os.O_WRONLY if what == "write" else os.O_RDONLY), 0o644)
data = b"y" * block
for n in blocks:
    if what == "write": os.pwrite(fd, data, n * block)
    else: assert len(os.pread(fd, block, n * block)) == block
PY
}
work_lfs_create() { small create; }
ready_lfs_read() { small create; }
work_lfs_read() { small read; }
ready_lfs_delete() { small create; }
work_lfs_delete() { small delete; }
work_lfs_write() { large write order 8192; }
ready_lfs_write_random() { large write order 8192; }
work_lfs_write_random() { large write random 8192; }
ready_lfs_read_large() { large write order 8192; }
work_lfs_read_large() { large read order 8192; }
ready_lfs_read_random() { large write order 8192; }
work_lfs_read_random() { large read random 8192; }
work_lfs_write_4k() { large write order 4096; }
