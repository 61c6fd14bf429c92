"""fscrypt.py MOUNT [DIR]: adds a key to a file system, and gives it to an empty directory.

Source: FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_SET_ENCRYPTION_POLICY in Documentation/filesystems/fscrypt.rst.
"""
import fcntl
import os
import struct
import sys

ADD_KEY, SET_POLICY = 0xC0506617, 0x800C6613
BY_IDENTIFIER, AES_256_XTS, AES_256_CTS, PAD_32 = 2, 1, 4, 3

raw = bytes([7] * 64)
# Kind of the key, 36 bytes for its identifier, size, 36 bytes of others; the key.
key = bytearray(struct.pack("=II32xI36x", BY_IDENTIFIER, 0, len(raw)) + raw)
try:
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), ADD_KEY, key)
    if len(sys.argv) > 2:
        policy = struct.pack("=BBBB4x16s", 2, AES_256_XTS, AES_256_CTS, PAD_32, bytes(key[8:24]))
        fcntl.ioctl(os.open(sys.argv[2], os.O_RDONLY), SET_POLICY, policy)
except OSError as error:
    sys.exit(str(error))
