"""idmap.py SOURCE POINT MAP: mounts SOURCE at POINT with mapped numbers of users and groups.

Source: mount_setattr(2), open_tree(2), move_mount(2); their numbers are the same on all architectures.
"""
import ctypes
import os
import sys

CLONE_NEWUSER, OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 0x10000000, 428, 429, 442
libc = ctypes.CDLL(None, use_errno=True)
source, point, mapping = sys.argv[1:4]


def call(number, *arguments):
    answer = libc.syscall(number, *arguments)
    if answer < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    return answer


# Somebody in a user namespace of its own, which it keeps until the end of this pipe.
entered, enter = os.pipe()
done, end = os.pipe()
child = os.fork()
if child == 0:
    os.close(end)
    libc.unshare(CLONE_NEWUSER)
    os.write(enter, b"x")
    os.read(done, 1)
    os._exit(0)
os.read(entered, 1)
for which in "uid_map", "gid_map":
    with open(f"/proc/{child}/{which}", "w") as file:
        file.write(mapping)
namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
tree = call(OPEN_TREE, -100, source.encode(), 1 | os.O_CLOEXEC)
attributes = (ctypes.c_uint64 * 4)(0x100000, 0, 0, namespace)
call(MOUNT_SETATTR, tree, b"", 0x1000, attributes, ctypes.sizeof(attributes))
call(MOVE_MOUNT, tree, b"", -100, point.encode(), 4)
os.close(end)
os.waitpid(child, 0)
