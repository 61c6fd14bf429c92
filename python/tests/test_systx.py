# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run by `cargo test -p systx-c --test c python`: SYSTX_LIBRARY is the library, SYSTX_TEST_DIR a directory."""

import errno
import os
import subprocess
import sys
import threading
import unittest

import systx

TOP = os.environ["SYSTX_TEST_DIR"]


class Place(unittest.TestCase):
    def setUp(self):
        self.dir = os.path.join(TOP, self.id())
        os.mkdir(self.dir)
        os.chdir(self.dir)

    def put(self, name, text):
        with open(name, "w") as file:
            file.write(text)

    def said(self, name):
        with open(name) as file:
            return file.read()


class Transactions(Place):
    def test_commits_all_or_nothing(self):
        self.put("old", "old\n")
        with systx.transaction() as tx:
            self.assertEqual(tx.read_text("old"), "old\n")
            tx.write_text("old", "new\n")
            with tx.open("made", "x") as file:
                file.write("inside\n")
            self.assertEqual(self.said("old"), "old\n")
            self.assertFalse(os.path.exists("made"))
        self.assertEqual((self.said("old"), self.said("made")), ("new\n", "inside\n"))
        self.assertEqual(tx.outcome.code, "committed")
        with self.assertRaises(KeyError):
            with systx.transaction() as tx:
                file = tx.open("old", "w")
                file.write("lost")
                raise KeyError
        self.assertTrue(file.closed)
        self.assertEqual(self.said("old"), "new\n")
        self.assertEqual(tx.outcome.code, "aborted")

    def test_files_left_open_are_handed_over(self):
        with systx.transaction() as tx:
            file = tx.open("made", "w")
            file.write("in the buffer")
        self.assertTrue(file.closed)
        self.assertEqual(self.said("made"), "in the buffer")

    def test_a_conflict_is_an_exception(self):
        self.put("read", "1")
        with self.assertRaises(systx.Conflict) as caught:
            with systx.transaction() as tx:
                tx.write_text("written", tx.read_text("read"))
                self.put("read", "22")
        self.assertEqual(caught.exception.errno, errno.ECANCELED)
        self.assertTrue(caught.exception.outcome.can_retry)
        self.assertTrue(caught.exception.outcome.path.endswith("read"))
        self.assertFalse(os.path.exists("written"))
        # Also if a call meets it.
        with self.assertRaises(systx.Conflict):
            with systx.transaction() as tx:
                tx.read_text("read")
                self.put("read", "333")
                with self.assertRaises(systx.Conflict):
                    tx.check()
                tx.read_text("read")

    def test_retries(self):
        self.put("read", "1")
        tries = []

        @systx.retry(label="twice")
        def copy(tx, to, *, more):
            text = tx.read_text("read")
            tries.append(text)
            if len(tries) == 1:
                self.put("read", "22")
            tx.write_text(to, text + more)
            return len(text)

        self.assertEqual(copy("written", more="!"), 2)
        self.assertEqual((tries, self.said("written")), (["1", "22"], "22!"))
        self.assertEqual(copy.__name__, "copy")

        @systx.retry(times=2)
        def never(tx):
            tx.read_text("read")
            self.put("read", self.said("read") + "x")

        with self.assertRaises(systx.Conflict):
            never()
        self.assertEqual(self.said("read"), "22xxx")

    def test_appends_do_not_conflict(self):
        def other():
            with systx.transaction() as tx:
                tx.open("log", "ab", buffering=0).write(b"other\n")

        def beside():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()

        self.put("log", "first\n")
        with systx.transaction() as tx:
            file = tx.open("log", "a")
            file.write("1\n")
            file.flush()
            beside()
            file.write("2\n")
        self.assertEqual(self.said("log"), "first\nother\n1\n2\n")
        # Where it is says where the file ended.
        with self.assertRaises(systx.Conflict):
            with systx.transaction() as tx:
                file = tx.open("log", "ab", buffering=0)
                file.write(b"3\n")
                self.assertEqual(file.tell(), 18)
                beside()
        self.assertEqual(self.said("log"), "first\nother\n1\n2\nother\n")

    def test_threads_lose_no_update(self):
        self.put("sum", "0")

        @systx.retry(times=10000, durable=False)
        def add(tx):
            tx.write_text("sum", str(int(tx.read_text("sum")) + 1))

        threads = [threading.Thread(target=lambda: [add() for _ in range(10)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.said("sum"), "40")

    def test_a_nested_one_joins(self):
        with systx.transaction() as tx:
            tx.write_text("outer", "1")
            with systx.transaction() as inner:
                inner.write_text("inner", "2")
            self.assertFalse(os.path.exists("inner"))
        self.assertEqual(self.said("inner"), "2")
        with self.assertRaises(systx.TransactionError):
            with systx.transaction() as tx:
                tx.write_text("outer", "lost")
                with self.assertRaises(KeyError):
                    with systx.transaction():
                        raise KeyError
        self.assertEqual(self.said("outer"), "1")

    def test_a_part_is_undone_alone(self):
        with systx.transaction() as tx:
            tx.write_text("outer", "1")
            with self.assertRaises(KeyError):
                with tx.part() as part:
                    file = part.open("undone", "w")
                    file.write("2")
                    raise KeyError
            self.assertFalse(tx.exists("undone"))
            with tx.part() as part:
                part.write_text("kept", "3")
        self.assertEqual(sorted(os.listdir()), ["kept", "outer"])

    def test_waits_for_a_change(self):
        calls = []

        @systx.retry()
        def take(tx):
            calls.append(1)
            if not tx.exists("work"):
                tx.write_text("forgotten", "")
                tx.retry()
            tx.unlink("work")
            return "taken"

        said = []
        thread = threading.Thread(target=lambda: said.append(take()))
        thread.start()
        self.put("work", "x")
        thread.join()
        self.assertEqual(said, ["taken"])
        self.assertEqual(os.listdir(), [])

    def test_numbers_order_the_commits(self):
        self.put("log", "")
        with systx.transaction(sequence=0, reset=True):
            pass

        def note(tx, number):
            tx.write_text("log", tx.read_text("log") + f"{number} ")

        def turns(numbers):
            for number in numbers:
                systx.atomically(lambda tx: note(tx, number), times=10**6, durable=False, sequence=number)

        threads = [threading.Thread(target=turns, args=(range(first, 25, 4),)) for first in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.said("log"), "".join(f"{number} " for number in range(1, 25)))
        # A number that is over, and one whose turn does not come.
        with self.assertRaises(systx.OutOfOrder) as used:
            with systx.transaction(sequence=3):
                self.fail("it has not begun")
        self.assertEqual((used.exception.errno, used.exception.outcome.code), (errno.EEXIST, "order"))
        with self.assertRaises(systx.OutOfOrder) as late:
            with systx.transaction(sequence=27, stall=0) as tx:
                tx.write_text("log", "lost")
        self.assertEqual((late.exception.errno, late.exception.outcome.code), (errno.ECANCELED, "order"))
        self.assertFalse(self.said("log").startswith("lost"))
        for wrong in ({"reset": True}, {"sequence": -1}, {"sequence": 1 << 64}):
            with self.assertRaises(ValueError):
                systx.transaction(**wrong)

    def test_options_are_those_of_the_library(self):
        self.put("n", "0")

        def add(tx):
            tx.write_text("n", str(int(tx.read_text("n")) + 1))

        def elsewhere(**options):
            """One more, by another thread; its error."""
            errors = []

            def run():
                try:
                    systx.atomically(add, durable=False, times=0, **options)
                except OSError as error:
                    errors.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            return errors[0] if errors else None

        for options in ({"policy": "oldest", "stall": 1}, {"policy": "first-committer"}, {"policy": "priority"}):
            self.assertIsNone(elsewhere(**options))
        # What has lost has priority on its next try, and this one may not wait.
        with self.assertRaises(systx.Conflict):
            with systx.transaction(again=True, durable=False) as tx:
                add(tx)
                self.assertIsNone(elsewhere())
        with systx.transaction(again=True, durable=False) as tx:
            add(tx)
            error = elsewhere(blocking=False)
            self.assertIsInstance(error, systx.WouldWait)
            self.assertEqual((error.errno, error.outcome.code), (errno.EAGAIN, "would wait"))
        self.assertEqual(self.said("n"), "5")
        # What is only read may change; what is written may not have.
        for isolation, lost in (("committed", False), ("serializable", True)):
            try:
                with systx.transaction(isolation=isolation) as tx:
                    tx.read_text("n")
                    self.put("n", self.said("n") + "0")
                    tx.write_text(isolation, "")
            except systx.Conflict:
                self.assertTrue(lost)
            else:
                self.assertFalse(lost)
            self.assertEqual(os.path.exists(isolation), not lost)
        # A call that can't be undone.
        os.mkfifo("fifo")
        there = os.open("fifo", os.O_RDWR | os.O_NONBLOCK)
        with systx.transaction(unsupported="allow") as tx:
            with tx.open("fifo", "wb", 0) as fifo:
                fifo.write(b"x")
            self.assertEqual(os.read(there, 1), b"x")
            tx.write_text("made", "")
        self.assertEqual((tx.outcome.code, tx.outcome.allowed, os.path.exists("made")), ("committed", 1, True))
        with systx.transaction(unsupported="deny") as tx:
            with self.assertRaises(PermissionError):
                tx.open("fifo", "wb", 0)
        with self.assertRaises(systx.TransactionError):
            with systx.transaction() as tx:
                with self.assertRaises(OSError):
                    tx.open("fifo", "wb", 0)
        self.assertEqual(tx.outcome.code, "refused")
        os.close(there)
        for option in ("unsupported", "policy", "isolation"):
            with self.assertRaises(ValueError):
                systx.transaction(**{option: "maybe"})

    def test_actions_run_at_the_end(self):
        ran = []
        with systx.transaction() as tx:
            tx.write_text("made", "1")
            tx.on_commit(lambda: ran.append(self.said("made")))
            tx.on_commit(ran.append, "second", name="the second one")
            tx.on_abort(ran.append, "never")
            with systx.transaction() as inner:
                inner.on_commit(ran.append, "third")
            self.assertEqual(ran, [])
        self.assertEqual(ran, ["1", "second", "third"])
        ran.clear()
        with self.assertRaises(KeyError):
            with systx.transaction() as tx:
                tx.on_commit(ran.append, "never")
                tx.on_abort(ran.append, "first")
                tx.on_abort(ran.append, "second")
                with self.assertRaises(IndexError):
                    with tx.part() as part:
                        part.on_abort(ran.append, "part")
                        part.on_commit(ran.append, "never")
                        raise IndexError
                self.assertEqual(ran, ["part"])
                raise KeyError
        self.assertEqual(ran, ["part", "second", "first"])
        ran.clear()
        # One may begin a transaction; an exception of one leaves the block, and the others run.
        with self.assertRaises(ZeroDivisionError):
            with systx.transaction() as tx:
                tx.write_text("made", "2")
                tx.on_commit(lambda: 1 // 0)
                tx.on_commit(lambda: systx.atomically(lambda other: other.write_text("later", other.read_text("made"))))
        self.assertEqual((self.said("made"), self.said("later"), tx.outcome.code), ("2", "2", "committed"))
        # Each try has its own.
        tries = []

        @systx.retry()
        def twice(tx):
            tries.append(tx.read_text("made"))
            tx.on_abort(ran.append, len(tries))
            tx.on_commit(ran.append, "committed")
            if len(tries) == 1:
                self.put("made", "33")
            tx.write_text("written", "")

        twice()
        self.assertEqual(ran, [1, "committed"])

    def test_a_paused_one_goes_on(self):
        ran = []
        with systx.transaction() as tx:
            tx.write_text("inside", "1")
            file = tx.open("open", "w")
            with tx.paused():
                self.assertFalse(os.path.exists("inside"))
                with self.assertRaises(OSError) as busy:
                    file.write("x" * 100_000)
                self.assertEqual(busy.exception.errno, errno.EBUSY)
                with systx.transaction() as other:
                    other.write_text("outside", "2")
                    other.on_commit(ran.append, "other")
            self.assertEqual((tx.read_text("inside"), self.said("outside"), ran), ("1", "2", ["other"]))
            tx.on_commit(ran.append, "this")
        self.assertEqual((self.said("inside"), ran), ("1", ["other", "this"]))
        with systx.transaction() as tx:
            tx.write_text("inside", "3")
            paused = tx.pause()
        self.assertEqual(self.said("inside"), "1")
        refused = []

        def elsewhere():
            try:
                systx.resume(paused)
            except OSError as error:
                refused.append(error.errno)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        self.assertEqual(refused, [errno.EPERM])
        with systx.resume(paused) as tx:
            tx.write_text("more", "4")
            with systx.transaction() as inner:
                with self.assertRaises(ValueError):
                    inner.pause()
        self.assertEqual((self.said("inside"), self.said("more"), tx.outcome.code), ("3", "4", "committed"))
        with self.assertRaises(OSError):
            systx.resume(paused)
        # An exception outside aborts, too.
        with self.assertRaises(KeyError):
            with systx.transaction() as tx:
                tx.write_text("inside", "lost")
                with tx.paused():
                    raise KeyError
        self.assertEqual(self.said("inside"), "3")

    def test_one_that_is_paused_at_the_end_of_the_program_is_aborted(self):
        script = (
            "import systx\n"
            "with systx.transaction() as tx:\n"
            "    tx.write_text('made', '')\n"
            "    tx.on_abort(print, 'aborted')\n"
            "    paused = tx.pause()\n"
        )
        ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
        self.assertEqual(ended.stdout, b"aborted\n")
        self.assertEqual(os.listdir(), [])

    def test_what_is_wrong_is_said(self):
        with self.assertRaises(OSError) as caught:
            systx.Transaction.stat(systx.transaction(), "x")
        self.assertEqual(caught.exception.errno, errno.EINVAL)
        with systx.transaction() as tx:
            for mode in ("", "rw", "rr", "bt", "b", "q", "rbt"):
                with self.assertRaises(ValueError):
                    tx.open("x", mode)
            with self.assertRaises(FileNotFoundError) as missing:
                tx.open("missing")
            self.assertEqual(missing.exception.filename, "missing")
            with self.assertRaises(ValueError):
                tx.open("a\0b")
            with self.assertRaises(ValueError):
                tx.open("x", "rb", encoding="utf-8")
            with self.assertRaises(ValueError):
                tx.open("x", "w", 0)
        self.assertEqual(systx.version(), (0, 1, 0))


class Calls(Place):
    def test_the_calls_of_os(self):
        self.put("file", "0123456789")
        with systx.transaction() as tx:
            tx.makedirs("a/b/c")
            tx.makedirs("a/b/c", exist_ok=True)
            with self.assertRaises(FileExistsError):
                tx.makedirs("a/b/c")
            tx.rename("file", "a/file")
            tx.link("a/file", "second")
            tx.symlink("a/file", "link")
            self.assertEqual(tx.readlink("link"), "a/file")
            self.assertEqual(sorted(tx.listdir()), ["a", "link", "second"])
            self.assertEqual(dict(tx.entries("a")), {"b": 4, "file": 8})
            tx.rmdir("a/b/c")
            tx.truncate("second", 4)
            tx.chmod("second", 0o604)
            tx.utime("second", ns=(1_000_000_005, 2_000_000_007))
            found = tx.stat("link")
            self.assertEqual((found.st_size, found.st_mode, found.st_nlink), (4, 0o100604, 2))
            self.assertEqual((found.st_mtime_ns, found.st_mtime), (2_000_000_007, 2.000000007))
            self.assertEqual(found.st_dev, os.stat("file").st_dev)
            self.assertEqual(tx.lstat("link").st_size, 6)
            self.assertTrue(tx.access("link", os.R_OK) and not tx.access("missing", os.F_OK))
            self.assertTrue(tx.is_dir("a") and not tx.is_dir("second") and not tx.exists("x"))
            tx.setxattr("second", "user.note", b"n")
            self.assertEqual(tx.getxattr("second", "user.note"), b"n")
            self.assertIn("user.note", tx.listxattr("second"))
            with self.assertRaises(IsADirectoryError):
                tx.unlink("a")
            with self.assertRaises(IsADirectoryError):
                tx.open("a", "w")
        self.assertEqual(sorted(os.listdir()), ["a", "link", "second"])
        self.assertEqual((self.said("second"), os.getxattr("second", "user.note")), ("0123", b"n"))
        self.assertEqual(os.stat("link").st_mtime_ns, 2_000_000_007)

    def test_files_are_as_those_of_open(self):
        self.put("file", "one\ntwo\nthree\n")
        with systx.transaction() as tx:
            with tx.open("file") as file:
                self.assertEqual([line.strip() for line in file], ["one", "two", "three"])
            with tx.open("file", "r+b") as file:
                self.assertEqual(file.readline(), b"one\n")
                file.seek(0)
                file.write(b"ONE")
                file.seek(-6, os.SEEK_END)
                self.assertEqual((file.read(), file.tell()), (b"three\n", 14))
                file.truncate(8)
            with tx.open("file", "a", encoding="latin-1") as file:
                file.write("f\u00fcnf\n")
            with tx.open("raw", "wb", 0) as file:
                self.assertEqual(file.write(b"abc"), 3)
                with self.assertRaises(OSError):
                    file.fileno()
                with self.assertRaises(OSError):
                    file.read(1)
            self.assertEqual(tx.read_bytes("file"), b"ONE\ntwo\nf\xfcnf\n")
        with open("file", "rb") as file:
            self.assertEqual(file.read(), b"ONE\ntwo\nf\xfcnf\n")


if __name__ == "__main__":
    unittest.main()
