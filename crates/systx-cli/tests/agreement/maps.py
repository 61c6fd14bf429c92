"""Files of every size around the limits between memory, staging and passthrough, used by shared mappings in random orders.

maps.py begin: makes what is there before. maps.py play SEED: plays on each file and prints every answer; then, behind a line,
what each file is in the end. maps.py end: the latter alone."""
import mmap
import os
import random
import sys
import zlib

SIZES = [1, 4095, 4097, 16383, 16384, 16385, 18604, 65536, 131071, 131072, 131073, 200000, 1048577]
EACH = 14


def files(seed):
    rng = random.Random(seed)
    for size in SIZES:
        for n in range(EACH if size < 1 << 20 else 4):
            yield "%d.%d" % (size, n), size, random.Random(rng.random())


def content(name, size):
    return random.Random(name).randbytes(size)


def begin():
    for name, size, _ in files(0):
        with open(name, "wb") as file:
            file.write(content(name, size))


def play(name, size, rng, n):
    def say(*words):
        print(name, *words)

    how = rng.choice(["old", "old", "old", "again", "new", "cut"])
    if how == "new":
        os.unlink(name)
    flags = {"old": 0, "again": 0, "new": os.O_CREAT | os.O_EXCL, "cut": os.O_TRUNC}[how]
    if how == "again":
        # One that was open, read and closed before it is changed.
        with open(name, "rb") as file:
            say("read before", zlib.crc32(file.read()))
    fd = os.open(name, os.O_RDWR | flags, 0o644)
    if how in ("new", "cut"):
        os.write(fd, content(name, size))
    maps = [mmap.mmap(fd, size)]
    others = []
    # The first ones are the orders in which a store is seen by nobody but the mapping, the others are random.
    first = [["fault", "store"], ["fault", "close", "store"], ["store"], ["close", "store"], ["fault", "store", "msync"]]
    acts = ["fault", "store", "msync", "close", "read", "write", "grow", "map", "open", "stat", "link", "store"]
    order = first[n] if n < len(first) else rng.choices(acts, k=rng.randrange(3, 12))
    say(how, *order)
    for act in order:
        at = rng.randrange(size)
        mapped = maps[rng.randrange(len(maps))]
        if act == "fault":
            say("fault", at, mapped[at], mapped[0], mapped[size - 1])
        elif act == "store":
            mapped[at] = rng.randrange(256)
        elif act == "msync":
            mapped.flush()
        elif act == "close" and fd is not None:
            os.close(fd)
            fd = None
        elif act == "read":
            with open(name, "rb") as file:
                say("read", zlib.crc32(file.read()))
        elif act == "write":
            other = os.open(name, os.O_WRONLY)
            os.pwrite(other, rng.randbytes(min(size - at, 5000)), at)
            os.close(other)
        elif act == "grow":
            os.truncate(name, size + rng.choice([0, 1, 5000, 20000]))
        elif act == "map":
            other = os.open(name, os.O_RDWR)
            maps.append(mmap.mmap(other, size))
            os.close(other)
        elif act == "open":
            others.append(os.open(name, os.O_RDONLY))
        elif act == "stat":
            say("size", os.stat(name).st_size)
        elif act == "link":
            os.link(name, "%s.link.%d" % (name, len(os.listdir("."))))
    # Some are unmapped and closed here, others by the end of the process.
    if rng.random() < 0.5:
        for mapped in maps:
            mapped.close()
        for other in others:
            os.close(other)
    else:
        kept.append((maps, others))
    if fd is not None and rng.random() < 0.5:
        os.close(fd)


def end():
    print("end")
    for name in sorted(os.listdir(".")):
        with open(name, "rb") as file:
            print(name, os.fstat(file.fileno()).st_size, zlib.crc32(file.read()))


kept = []
if sys.argv[1] == "begin":
    begin()
elif sys.argv[1] == "end":
    end()
else:
    for n, (name, size, rng) in enumerate(files(int(sys.argv[2]))):
        play(name, size, rng, int(name.split(".")[1]))
    end()
