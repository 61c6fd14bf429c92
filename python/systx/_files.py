# SPDX-License-Identifier: MIT OR Apache-2.0
"""Open files of a transaction, in the layers of module io."""

from __future__ import annotations

import ctypes
import io
import os
import weakref
from typing import IO, Any, Optional

from ._calls import AT_FDCWD, StrPath, call, encoded


class RawFile(io.RawIOBase):
    """An open file of a transaction, without a buffer.

    It has no fileno(): its number is of use to libsystx only.
    """

    def __init__(self, path: StrPath, flags: int, perm: int = 0o666, dir_fd: Optional[int] = None) -> None:
        super().__init__()
        self._fd = -1
        self._lost = False
        self._access = flags & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
        self.name = path
        start = AT_FDCWD if dir_fd is None else dir_fd
        self._fd = call("systx_openat", start, encoded(path), flags, perm, path=path)

    def forget(self) -> None:
        """The transaction has ended, and the number with it: nothing is written any more."""
        self._lost = True

    def _number(self) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._fd

    def readable(self) -> bool:
        self._number()
        return self._access in (os.O_RDONLY, os.O_RDWR)

    def writable(self) -> bool:
        self._number()
        return self._access in (os.O_WRONLY, os.O_RDWR)

    def seekable(self) -> bool:
        self._number()
        return True

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as view:
            room = (ctypes.c_char * len(view)).from_buffer(view)
            try:
                return call("systx_read", self._number(), ctypes.addressof(room), len(view))
            finally:
                del room

    def write(self, data: Any) -> int:
        number = self._number()
        raw = bytes(data)
        if self._lost:
            return len(raw)
        return call("systx_write", number, raw, len(raw))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return call("systx_lseek", self._number(), offset, whence)

    def tell(self) -> int:
        return self.seek(0, os.SEEK_CUR)

    def truncate(self, size: Optional[int] = None) -> int:
        size = self.tell() if size is None else size
        call("systx_ftruncate", self._number(), size)
        return size

    def close(self) -> None:
        if not self.closed:
            number, self._fd = self._fd, -1
            super().close()
            if number >= 0 and not self._lost:
                call("systx_close", number)


def flags_of(mode: str) -> int:
    """The flags of open(2) for a mode of open()."""
    kinds = [letter for letter in mode if letter in "rwxa"]
    if len(kinds) != 1 or len(set(mode)) != len(mode) or set(mode) - set("rwxabt+") or {"b", "t"} <= set(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    access = os.O_RDONLY if kinds == ["r"] else os.O_WRONLY
    more = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}
    return (os.O_RDWR if "+" in mode else access) | more[kinds[0]]


class OpenFiles:
    """The files that a transaction has open."""

    def __init__(self) -> None:
        self._all: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._raw: "weakref.WeakSet[RawFile]" = weakref.WeakSet()

    def open(
        self,
        path: StrPath,
        mode: str,
        buffering: int,
        encoding: Optional[str],
        errors: Optional[str],
        newline: Optional[str],
        perm: int,
        dir_fd: Optional[int],
    ) -> IO[Any]:
        binary = "b" in mode
        if binary and (encoding is not None or errors is not None or newline is not None):
            raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
        if buffering == 0 and not binary:
            raise ValueError("can't have unbuffered text I/O")
        flags = flags_of(mode)
        raw = RawFile(path, flags, perm, dir_fd)
        self._raw.add(raw)
        if buffering == 0:
            self._all.add(raw)
            return raw  # type: ignore[return-value]
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        layers: dict[int, Any] = {
            os.O_RDONLY: io.BufferedReader,
            os.O_WRONLY: io.BufferedWriter,
            os.O_RDWR: io.BufferedRandom,
        }
        file: Any = layers[flags & (os.O_WRONLY | os.O_RDWR)](raw, size)
        if not binary:
            file = io.TextIOWrapper(file, encoding, errors, newline, line_buffering=buffering == 1)
            file.mode = mode
        self._all.add(file)
        return file  # type: ignore[no-any-return]

    def flush(self) -> None:
        """Hands over what is still in buffers."""
        for file in list(self._all):
            if not file.closed and file.writable():
                file.flush()

    def forget(self) -> None:
        """Closes all of them; the transaction has ended."""
        for raw in list(self._raw):
            raw.forget()
        for file in list(self._all):
            file.close()
