# SPDX-License-Identifier: MIT OR Apache-2.0
"""The functions of libsystx, and the structures of systx.h."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_ubyte, c_uint16
from ctypes import c_uint32, c_uint64, c_void_p
from typing import Any, Optional, Union

StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_REMOVEDIR = 0x200
AT_EACCESS = 0x200
AT_EMPTY_PATH = 0x1000
STATX_BASIC_STATS = 0x7FF


class LibraryMissing(ImportError):
    """libsystx.so.0 is not installed, or SYSTX_LIBRARY names none."""


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("durability", c_uint32),
        ("unsupported", c_uint32),
        ("label", c_char_p),
        ("retries", c_uint32),
        ("policy", c_uint32),
        ("sequence", c_uint64),
        ("stall_ms", c_uint32),
        ("isolation", c_uint32),
    ]


class OutcomeStruct(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("code", c_uint32),
        ("error", c_int32),
        ("can_retry", c_uint32),
        ("allowed", c_uint32),
        ("steps", c_uint64),
        ("displaced", c_uint64),
        ("path", c_char_p),
        ("message", c_char_p),
    ]


class Token(ctypes.Structure):
    """struct systx_token."""

    _fields_ = [("bytes", c_ubyte * 16)]


# An action of systx_on_commit and its likes.
ACTION = ctypes.CFUNCTYPE(None, c_void_p)


class _Timestamp(ctypes.Structure):
    _fields_ = [("sec", c_int64), ("nsec", c_uint32), ("reserved", c_int32)]


class Statx(ctypes.Structure):
    """struct statx, which is the same on all architectures."""

    _fields_ = [
        ("mask", c_uint32),
        ("blksize", c_uint32),
        ("attributes", c_uint64),
        ("nlink", c_uint32),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("mode", c_uint16),
        ("_pad", c_uint16),
        ("ino", c_uint64),
        ("size", c_uint64),
        ("blocks", c_uint64),
        ("attributes_mask", c_uint64),
        ("atime", _Timestamp),
        ("btime", _Timestamp),
        ("ctime", _Timestamp),
        ("mtime", _Timestamp),
        ("rdev_major", c_uint32),
        ("rdev_minor", c_uint32),
        ("dev_major", c_uint32),
        ("dev_minor", c_uint32),
        ("_spare", c_uint64 * 14),
    ]


class Dirent(ctypes.Structure):
    """struct dirent of 64-bit Linux."""

    _fields_ = [
        ("ino", c_uint64),
        ("off", c_int64),
        ("reclen", c_uint16),
        ("type", c_ubyte),
        ("name", c_char * 256),
    ]


class Timespec(ctypes.Structure):
    _fields_ = [("sec", c_int64), ("nsec", c_int64)]


_PATH, _FD, _MODE, _OFF = c_char_p, c_int, c_uint32, c_int64
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "sys_xbegin": (c_int, [c_uint32, POINTER(Options)]),
    "sys_xend": (c_int, []),
    "sys_xabort": (c_int, []),
    "sys_xretry": (c_int, []),
    "sys_xcheck": (c_int, []),
    "sys_xoutcome": (c_int, [POINTER(OutcomeStruct)]),
    "sys_xpause": (c_int, [POINTER(Token)]),
    "sys_xresume": (c_int, [POINTER(Token)]),
    "systx_on_commit": (c_int, [ACTION, c_void_p]),
    "systx_on_commit_named": (c_int, [c_char_p, ACTION, c_void_p]),
    "systx_on_abort": (c_int, [ACTION, c_void_p]),
    "systx_version": (c_uint32, []),
    "systx_openat": (c_int, [_FD, _PATH, c_int, _MODE]),
    "systx_close": (c_int, [_FD]),
    "systx_read": (c_ssize_t, [_FD, c_void_p, c_size_t]),
    "systx_write": (c_ssize_t, [_FD, c_void_p, c_size_t]),
    "systx_lseek": (_OFF, [_FD, _OFF, c_int]),
    "systx_ftruncate": (c_int, [_FD, _OFF]),
    "systx_truncate": (c_int, [_PATH, _OFF]),
    "systx_mkdirat": (c_int, [_FD, _PATH, _MODE]),
    "systx_unlinkat": (c_int, [_FD, _PATH, c_int]),
    "systx_renameat": (c_int, [_FD, _PATH, _FD, _PATH]),
    "systx_linkat": (c_int, [_FD, _PATH, _FD, _PATH, c_int]),
    "systx_symlinkat": (c_int, [_PATH, _FD, _PATH]),
    "systx_readlinkat": (c_ssize_t, [_FD, _PATH, c_void_p, c_size_t]),
    "systx_statx": (c_int, [_FD, _PATH, c_int, c_uint32, POINTER(Statx)]),
    "systx_faccessat": (c_int, [_FD, _PATH, c_int, c_int]),
    "systx_fchmodat": (c_int, [_FD, _PATH, _MODE, c_int]),
    "systx_fchownat": (c_int, [_FD, _PATH, c_uint32, c_uint32, c_int]),
    "systx_utimensat": (c_int, [_FD, _PATH, POINTER(Timespec), c_int]),
    "systx_opendir": (c_void_p, [_PATH]),
    "systx_readdir": (POINTER(Dirent), [c_void_p]),
    "systx_closedir": (c_int, [c_void_p]),
    "systx_getxattr": (c_ssize_t, [_PATH, _PATH, c_void_p, c_size_t]),
    "systx_listxattr": (c_ssize_t, [_PATH, c_void_p, c_size_t]),
    "systx_setxattr": (c_int, [_PATH, _PATH, c_char_p, c_size_t, c_int]),
    "systx_removexattr": (c_int, [_PATH, _PATH]),
}

_library: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """The library, loaded once."""
    global _library
    if _library is None:
        name = os.environ.get("SYSTX_LIBRARY", "libsystx.so.0")
        try:
            loaded = ctypes.CDLL(name, use_errno=True)
        except OSError as error:
            raise LibraryMissing(f"{error}. `make install` of systx installs it") from error
        for function, (result, arguments) in _SIGNATURES.items():
            found = getattr(loaded, function)
            found.restype, found.argtypes = result, arguments
        _library = loaded
    return _library


def version() -> tuple[int, int, int]:
    """Version of the library."""
    number = library().systx_version()
    return number >> 16, number >> 8 & 0xFF, number & 0xFF


def call(function: str, *arguments: Any, path: Optional[StrPath] = None, path2: Optional[StrPath] = None) -> int:
    """Makes a call that gives -1 with errno where it fails.

    Raises OSError, of the class that fits the number.
    """
    ctypes.set_errno(0)
    result = getattr(library(), function)(*arguments)
    if result == -1:
        raise failure(path, path2)
    return int(result)


def failure(path: Optional[StrPath] = None, path2: Optional[StrPath] = None) -> OSError:
    """The error of the call just made."""
    number = ctypes.get_errno()
    text = os.strerror(number)
    if path is None:
        return OSError(number, text)
    if path2 is None:
        return OSError(number, text, os.fspath(path))
    return OSError(number, text, os.fspath(path), None, os.fspath(path2))


def encoded(path: StrPath) -> bytes:
    """A path for C. Raises ValueError for a NUL byte, as the functions of os do."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError("embedded null byte")
    return raw
