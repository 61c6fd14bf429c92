# SPDX-License-Identifier: MIT OR Apache-2.0
"""Transactions, and their calls by path."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import errno
import functools
import os
import stat as modes
import threading
from types import TracebackType
from typing import IO, Any, Callable, Iterator, NoReturn, Optional, TypeVar, Union

from . import _calls
from ._calls import AT_FDCWD, StrPath, call, encoded
from ._files import OpenFiles

T = TypeVar("T")

_AGAIN, _PART, _ORDERED, _RESET, _NONBLOCK = 1, 2, 4, 8, 16
# SYSTX_NO_STALL, and the longest stall below it, in milliseconds.
_NO_STALL, _LONGEST_MS = 0xFFFFFFFF, 0xFFFFFFFE
_CODES = (
    ("running", "committed", "displaced", "pending", "aborted", "conflict", "failed", "refused", "in doubt", "order")
    + ("would wait",)
)
# Words of the options, each at the place of its number in systx.h.
_UNSUPPORTED = ("abort", "deny", "allow")
_POLICY = ("oldest", "first-committer", "priority")
_ISOLATION = ("serializable", "committed")
# Most bytes of a path, and of an attribute.
_TARGET_BYTES, _XATTR_BYTES = 4096, 65536


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The report on a transaction; `code` is a word of SYSTX_RUNNING and its likes in systx(3). `allowed` counts the
    calls that were made outside (unsupported="allow")."""

    code: str
    message: str
    path: Optional[str]
    error: int
    can_retry: bool
    steps: int
    displaced: int
    allowed: int = 0


class TransactionError(OSError):
    """A transaction has not committed, or can't; nothing was changed, unless it is in doubt."""

    outcome: Outcome


class Conflict(TransactionError):
    """Others have changed what the transaction had read or written; trying again can help."""


class OutOfOrder(TransactionError):
    """The number of an ordered transaction keeps it from beginning or committing; nothing was changed."""


class WouldWait(TransactionError):
    """It would have waited for another transaction, and was begun with blocking=False; nothing was changed."""


def outcome() -> Outcome:
    """The report on the thread's transaction, or else on its last. OSError if there was none."""
    found = _calls.OutcomeStruct(size=ctypes.sizeof(_calls.OutcomeStruct))
    call("sys_xoutcome", ctypes.byref(found))
    code = _CODES[found.code] if found.code < len(_CODES) else str(found.code)
    path = None if found.path is None else os.fsdecode(found.path)
    message = os.fsdecode(found.message or b"")
    can_retry = found.can_retry == 1
    return Outcome(code, message, path, found.error, can_retry, found.steps, found.displaced, found.allowed)


def _lost(number: int) -> TransactionError:
    said = outcome()
    by_code: dict[str, type[TransactionError]] = {"would wait": WouldWait, "order": OutOfOrder}
    kind = by_code.get(said.code, Conflict if said.can_retry else TransactionError)
    error = kind(number, said.message)
    error.outcome = said
    return error


class _Whole:
    """What belongs to a transaction and not to one block of it."""

    def __init__(self) -> None:
        # C calls them: they live as long as it may do so.
        self.actions: list[Any] = []
        self.raised: list[BaseException] = []


class _Thread(threading.local):
    """The transaction that the thread is in."""

    whole: Optional[_Whole] = None


_thread = _Thread()


class _Wait(BaseException):
    """Leaves the block of a transaction that waits."""


class Transaction:
    """A transaction of the calling thread; made by `transaction`.

    The methods are those of module os, and `open`. They raise OSError with the numbers of the plain calls, and
    Conflict as soon as the transaction is known to be lost.
    """

    def __init__(self, options: _calls.Options, flags: int) -> None:
        self._options, self._flags = options, flags
        self._files = OpenFiles()
        self._outcome: Optional[Outcome] = None
        # Set in the outermost block.
        self._whole: Optional[_Whole] = None
        self._paused: Optional["Paused"] = None
        self._is_resumed = False

    def __enter__(self) -> "Transaction":
        if self._is_resumed:
            self._is_resumed = False
            return self
        try:
            call("sys_xbegin", self._flags, ctypes.byref(self._options))
        except FileExistsError:
            raise self._out_of_order() from None
        if _thread.whole is None:
            self._whole = _thread.whole = _Whole()
        return self

    def _out_of_order(self) -> OutOfOrder:
        message = f"the number {self._options.sequence} was used, or another transaction has it"
        error = OutOfOrder(errno.EEXIST, message)
        error.outcome = Outcome("order", message, None, errno.EEXIST, False, 0, 0)
        return error

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        lost: Optional[TransactionError] = None
        if self._paused is not None:
            # It goes on where it is resumed.
            return
        try:
            if kind is None:
                try:
                    self._files.flush()
                except BaseException:
                    self.abort()
                    raise
                lost = self._end("sys_xend")
            elif kind is _Wait and not self._flags & _PART:
                self._end("sys_xretry")
            else:
                self.abort()
        finally:
            self._files.forget()
            if self._whole is not None:
                _thread.whole = None
        if self._whole is not None and self._whole.raised:
            raise self._whole.raised[0] from error
        if lost is not None:
            raise lost
        # A call that met the conflict said ECANCELED only; one that would have waited, EAGAIN.
        if isinstance(error, OSError) and not isinstance(error, TransactionError) and self._has_ended_by(error):
            raise _lost(error.errno or errno.ECANCELED) from error

    def _has_ended_by(self, error: OSError) -> bool:
        if error.errno == errno.EAGAIN:
            return self._outcome is not None and self._outcome.code == "would wait"
        return error.errno == errno.ECANCELED

    def _end(self, function: str) -> Optional[TransactionError]:
        try:
            call(function)
        except OSError as error:
            if error.errno in (errno.ECANCELED, errno.EIO, errno.EAGAIN):
                return _lost(error.errno)
            raise
        finally:
            try:
                self._outcome = outcome()
            except OSError:
                pass
        return None

    def abort(self) -> None:
        """Forgets everything that was done. In the block, raise an exception instead."""
        self._end("sys_xabort")

    def retry(self) -> NoReturn:
        """In a function that `systx.retry` decorates: forgets what was done, sleeps until something that was read
        changes, by any program, and calls the function again."""
        raise _Wait

    def on_commit(self, action: Callable[..., object], *arguments: Any, name: Optional[str] = None) -> None:
        """Has `action` called once the transaction has committed, behind those given before; in the thread that ends
        it, when everything is public. An exception of it leaves the block, with the transaction committed.

        One with a `name` is noted until it has run: `systx log` tells of those that a crash has left undone."""
        if name is None:
            self._act("systx_on_commit", action, arguments)
        else:
            self._act("systx_on_commit_named", action, arguments, encoded(name))

    def on_abort(self, action: Callable[..., object], *arguments: Any) -> None:
        """Has `action` called once the transaction has ended without a commit, before those given before. With
        `systx.retry` each try has its own."""
        self._act("systx_on_abort", action, arguments)

    def _act(self, function: str, action: Callable[..., object], arguments: tuple[Any, ...], *first: bytes) -> None:
        whole = _thread.whole

        def run(_: Any) -> None:
            try:
                action(*arguments)
            except BaseException as error:
                # It can't go through C.
                if whole is not None:
                    whole.raised.append(error)

        called = _calls.ACTION(run)
        call(function, *first, called, None)
        if whole is not None:
            whole.actions.append(called)

    def pause(self) -> "Paused":
        """Stops it until `systx.resume`; the block ends without ending it. Meanwhile its files answer EBUSY, and the
        thread is in no transaction. Only of the outermost block."""
        if self._whole is None:
            raise ValueError("only the outermost transaction can be paused")
        token = _calls.Token()
        try:
            call("sys_xpause", ctypes.byref(token))
        except OSError as error:
            if error.errno == errno.ECANCELED:
                raise _lost(error.errno) from None
            raise
        _thread.whole = None
        self._paused = Paused(token, self)
        _paused.add(self._paused)
        return self._paused

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """In the block of this `with` the thread is outside of the transaction."""
        paused = self.pause()
        try:
            yield
        finally:
            resume(paused)
            self._is_resumed = False

    def part(self) -> "Transaction":
        """Begins, with the block of `with`, a part of the transaction that an exception undoes alone."""
        return Transaction(self._options, _PART)

    @property
    def outcome(self) -> Optional[Outcome]:
        """The report, once the block has been left."""
        return self._outcome

    def check(self) -> None:
        """Compares now what was read with what is there; raises Conflict."""
        try:
            call("sys_xcheck")
        except OSError as error:
            if error.errno == errno.ECANCELED:
                raise _lost(error.errno) from None
            raise

    def open(
        self,
        path: StrPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        perm: int = 0o666,
        dir_fd: Optional[int] = None,
    ) -> IO[Any]:
        """As the built-in open(). `perm`: permissions of a new file. The end of the block closes the file."""
        return self._files.open(path, mode, buffering, encoding, errors, newline, perm, dir_fd)

    def read_bytes(self, path: StrPath) -> bytes:
        """All bytes of a file."""
        with self.open(path, "rb") as file:
            return file.read()  # type: ignore[no-any-return]

    def write_bytes(self, path: StrPath, data: bytes) -> None:
        """Makes these all bytes of a file."""
        with self.open(path, "wb") as file:
            file.write(data)

    def read_text(self, path: StrPath, encoding: Optional[str] = None) -> str:
        """All text of a file."""
        with self.open(path, encoding=encoding) as file:
            return file.read()  # type: ignore[no-any-return]

    def write_text(self, path: StrPath, text: str, encoding: Optional[str] = None) -> None:
        """Makes this all text of a file."""
        with self.open(path, "w", encoding=encoding) as file:
            file.write(text)

    def stat(self, path: StrPath, *, dir_fd: Optional[int] = None, follow_symlinks: bool = True) -> os.stat_result:
        """As os.stat()."""
        found = _calls.Statx()
        flags = 0 if follow_symlinks else _calls.AT_SYMLINK_NOFOLLOW
        mask = _calls.STATX_BASIC_STATS
        call("systx_statx", _start(dir_fd), encoded(path), flags, mask, ctypes.byref(found), path=path)
        times = [found.atime, found.mtime, found.ctime]
        device = os.makedev(found.dev_major, found.dev_minor)
        basic = (found.mode, found.ino, device, found.nlink, found.uid, found.gid, found.size)
        more: dict[str, Union[int, float]] = {
            "st_blksize": found.blksize,
            "st_blocks": found.blocks,
            "st_rdev": os.makedev(found.rdev_major, found.rdev_minor),
        }
        for name, time in zip(("atime", "mtime", "ctime"), times):
            more[f"st_{name}_ns"] = time.sec * 10**9 + time.nsec
            more[f"st_{name}"] = time.sec + time.nsec / 10**9
        return os.stat_result(basic + tuple(time.sec for time in times), more)

    def lstat(self, path: StrPath, *, dir_fd: Optional[int] = None) -> os.stat_result:
        """As os.lstat()."""
        return self.stat(path, dir_fd=dir_fd, follow_symlinks=False)

    def exists(self, path: StrPath) -> bool:
        """As os.path.exists(). That nothing has the name is compared at the end, too."""
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: StrPath) -> bool:
        """As os.path.isdir()."""
        return self.exists(path) and modes.S_ISDIR(self.stat(path).st_mode)

    def access(self, path: StrPath, mode: int, *, effective_ids: bool = False) -> bool:
        """As os.access(); other errors than a lack of rights are raised."""
        flags = _calls.AT_EACCESS if effective_ids else 0
        try:
            call("systx_faccessat", AT_FDCWD, encoded(path), mode, flags, path=path)
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            return False
        return True

    def entries(self, path: StrPath = ".") -> Iterator[tuple[str, int]]:
        """Names in a directory and their types (DT_REG is 8, DT_DIR 4, DT_LNK 10), without . and .. ."""
        library = _calls.library()
        ctypes.set_errno(0)
        listing = library.systx_opendir(encoded(path))
        if not listing:
            raise _calls.failure(path)
        found = []
        try:
            while True:
                ctypes.set_errno(0)
                entry = library.systx_readdir(listing)
                if not entry:
                    if ctypes.get_errno() != 0:
                        raise _calls.failure(path)
                    break
                if entry.contents.name not in (b".", b".."):
                    found.append((os.fsdecode(entry.contents.name), int(entry.contents.type)))
        finally:
            library.systx_closedir(listing)
        return iter(found)

    def listdir(self, path: StrPath = ".") -> list[str]:
        """As os.listdir(), with names as str."""
        return [name for name, _ in self.entries(path)]

    def mkdir(self, path: StrPath, mode: int = 0o777, *, dir_fd: Optional[int] = None) -> None:
        """As os.mkdir()."""
        call("systx_mkdirat", _start(dir_fd), encoded(path), mode, path=path)

    def makedirs(self, path: StrPath, mode: int = 0o777, exist_ok: bool = False) -> None:
        """As os.makedirs()."""
        above = os.path.dirname(os.fspath(path).rstrip(_slash(path)))
        if above and not self.exists(above):
            self.makedirs(above, exist_ok=True)
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            if not exist_ok or not self.is_dir(path):
                raise

    def rmdir(self, path: StrPath, *, dir_fd: Optional[int] = None) -> None:
        """As os.rmdir()."""
        call("systx_unlinkat", _start(dir_fd), encoded(path), _calls.AT_REMOVEDIR, path=path)

    def unlink(self, path: StrPath, *, dir_fd: Optional[int] = None) -> None:
        """As os.unlink()."""
        call("systx_unlinkat", _start(dir_fd), encoded(path), 0, path=path)

    remove = unlink

    def rename(
        self, src: StrPath, dst: StrPath, *, src_dir_fd: Optional[int] = None, dst_dir_fd: Optional[int] = None
    ) -> None:
        """As os.rename()."""
        start = (_start(src_dir_fd), encoded(src), _start(dst_dir_fd), encoded(dst))
        call("systx_renameat", *start, path=src, path2=dst)

    replace = rename

    def link(self, src: StrPath, dst: StrPath) -> None:
        """As os.link() without following a symbolic link."""
        call("systx_linkat", AT_FDCWD, encoded(src), AT_FDCWD, encoded(dst), 0, path=src, path2=dst)

    def symlink(self, src: StrPath, dst: StrPath, *, dir_fd: Optional[int] = None) -> None:
        """As os.symlink()."""
        call("systx_symlinkat", encoded(src), _start(dir_fd), encoded(dst), path=src, path2=dst)

    def readlink(self, path: StrPath, *, dir_fd: Optional[int] = None) -> str:
        """As os.readlink(), as str."""
        room = ctypes.create_string_buffer(_TARGET_BYTES)
        length = call("systx_readlinkat", _start(dir_fd), encoded(path), room, _TARGET_BYTES, path=path)
        return os.fsdecode(room.raw[:length])

    def truncate(self, path: StrPath, length: int) -> None:
        """As os.truncate()."""
        call("systx_truncate", encoded(path), length, path=path)

    def chmod(self, path: StrPath, mode: int, *, dir_fd: Optional[int] = None) -> None:
        """As os.chmod()."""
        call("systx_fchmodat", _start(dir_fd), encoded(path), mode, 0, path=path)

    def chown(self, path: StrPath, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """As os.chown(); -1 leaves one as it is."""
        flags = 0 if follow_symlinks else _calls.AT_SYMLINK_NOFOLLOW
        call("systx_fchownat", AT_FDCWD, encoded(path), uid & 0xFFFFFFFF, gid & 0xFFFFFFFF, flags, path=path)

    def utime(self, path: StrPath, *, ns: Optional[tuple[int, int]] = None, follow_symlinks: bool = True) -> None:
        """As os.utime() with times in nanoseconds, or none for the present."""
        flags = 0 if follow_symlinks else _calls.AT_SYMLINK_NOFOLLOW
        times = None
        if ns is not None:
            times = (_calls.Timespec * 2)(*(_calls.Timespec(*divmod(time, 10**9)) for time in ns))
        call("systx_utimensat", AT_FDCWD, encoded(path), times, flags, path=path)

    def getxattr(self, path: StrPath, attribute: StrPath) -> bytes:
        """As os.getxattr()."""
        room = ctypes.create_string_buffer(_XATTR_BYTES)
        length = call("systx_getxattr", encoded(path), encoded(attribute), room, _XATTR_BYTES, path=path)
        return room.raw[:length]

    def listxattr(self, path: StrPath) -> list[str]:
        """As os.listxattr()."""
        room = ctypes.create_string_buffer(_XATTR_BYTES)
        length = call("systx_listxattr", encoded(path), room, _XATTR_BYTES, path=path)
        return [os.fsdecode(name) for name in room.raw[:length].split(b"\0") if name]

    def setxattr(self, path: StrPath, attribute: StrPath, value: bytes, flags: int = 0) -> None:
        """As os.setxattr()."""
        call("systx_setxattr", encoded(path), encoded(attribute), bytes(value), len(value), flags, path=path)

    def removexattr(self, path: StrPath, attribute: StrPath) -> None:
        """As os.removexattr()."""
        call("systx_removexattr", encoded(path), encoded(attribute), path=path)


class Paused:
    """Stands for a paused transaction, once."""

    def __init__(self, token: _calls.Token, transaction: Transaction) -> None:
        self._token, self._transaction = token, transaction


# Those that nothing has resumed.
_paused: set[Paused] = set()


def resume(paused: Paused) -> Transaction:
    """Goes on with a paused transaction, in a thread that has taken part in it; the block of `with` ends it.

        paused = tx.pause()
        ...
        with systx.resume(paused) as tx: ...
    """
    call("sys_xresume", ctypes.byref(paused._token))
    _paused.discard(paused)
    transaction = paused._transaction
    transaction._paused, transaction._is_resumed = None, True
    _thread.whole = transaction._whole
    return transaction


@atexit.register
def _abort_paused() -> None:
    """Actions of an abort can't be called any more when the interpreter is gone."""
    for paused in list(_paused):
        with contextlib.suppress(OSError):
            with resume(paused):
                raise OSError


def _start(dir_fd: Optional[int]) -> int:
    return AT_FDCWD if dir_fd is None else dir_fd


def _slash(path: StrPath) -> Any:
    return b"/" if isinstance(os.fspath(path), bytes) else "/"


def _number(option: str, word: str, words: tuple[str, ...]) -> int:
    if word not in words:
        raise ValueError(f"{option} is one of {', '.join(words)}")
    return words.index(word)


def transaction(
    *,
    durable: bool = True,
    unsupported: str = "abort",
    label: Optional[str] = None,
    again: bool = False,
    sequence: Optional[int] = None,
    reset: bool = False,
    stall: Optional[float] = None,
    policy: str = "oldest",
    isolation: str = "serializable",
    blocking: bool = True,
) -> Transaction:
    """Begins a transaction with the block of `with`; in one it joins.

    `durable`: on stable storage at the end of the block. `unsupported`: "abort", "deny" or "allow", the answer to a
    call that can neither be held back nor undone. `label`: words by which others know it. `again`: the block is
    repeated after a Conflict, and has the age of the first try. `sequence`: the number of an ordered transaction; those
    of a process group commit by number, from 0 on. `reset`: the count goes on from this number. `stall`: the longest
    that its commit waits for lower numbers, in seconds (a minute by default); of one without a number, that a further
    try waits for the winner. `policy`: the winner of a conflict, "oldest", "first-committer" or "priority". `isolation`:
    "serializable", or "committed" if what is only read need not stay as it was. `blocking`: False has it end with
    WouldWait where it would wait for another one.
    """
    if sequence is None and reset:
        raise ValueError("reset is for a transaction with a sequence number")
    if sequence is not None and not 0 <= sequence < 1 << 64:
        raise ValueError("a sequence number has 64 bits")
    options = _calls.Options(
        size=ctypes.sizeof(_calls.Options),
        durability=0 if durable else 1,
        unsupported=_number("unsupported", unsupported, _UNSUPPORTED),
        label=None if label is None else encoded(label),
        policy=_number("policy", policy, _POLICY),
        sequence=sequence or 0,
        stall_ms=0 if stall is None else min(round(stall * 1000), _LONGEST_MS) or _NO_STALL,
        isolation=_number("isolation", isolation, _ISOLATION),
    )
    flags = (_AGAIN if again else 0) | (0 if blocking else _NONBLOCK)
    return Transaction(options, flags | (0 if sequence is None else _ORDERED | (_RESET if reset else 0)))


def atomically(work: Callable[[Transaction], T], *, times: int = 100, **options: Any) -> T:
    """Calls `work` with a transaction and commits it; after a Conflict again, up to so many times. Other options are
    those of `transaction`. An ordered one keeps its number."""
    left = times
    while True:
        try:
            with transaction(again=True, **options) as tx:
                result = work(tx)
            return result
        except Conflict:
            if left <= 0:
                raise
            left -= 1
        except _Wait:
            pass


def retry(
    times: int = 100, *, label: Optional[str] = None, **options: Any
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Makes a function a transaction that is tried again after a Conflict; it gets the transaction first. Other options
    are those of `transaction`.

        @systx.retry()
        def transfer(tx, amount): ...

        transfer(5)
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def wrapped(*arguments: Any, **named: Any) -> T:
            return atomically(
                lambda tx: function(tx, *arguments, **named),
                times=times,
                label=label or function.__name__,
                **options,
            )

        return wrapped

    return decorate
