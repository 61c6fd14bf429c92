"""Types the lines of a file into a bash at a pseudo-terminal, and prints what it shows as an asciicast (version 2).

record.py LINES ROOT. The bash lives in ROOT, in /srv/shop. Times are made up, so that the film is the same on a slow machine: it waits for the prompt after
each line, not for a clock. A line `# text` is typed as it is; bash takes it for a comment."""

import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios

COLUMNS, ROWS = 96, 28
PROMPT = b"\x1b[1;32m$\x1b[0m "
PATIENCE_SECONDS = 60
KEY, LOOK, READ = 0.04, 0.3, 1.2  # seconds of the film: a key, until output comes, and to read it

lines, root = open(sys.argv[1]).read().splitlines(), sys.argv[2]
child, terminal = pty.fork()
if child == 0:
    os.chroot(root)
    os.chdir("/srv/shop")
    known = {"PATH": os.environ["PATH"], "HOME": "/srv", "LC_ALL": "C.UTF-8", "TERM": "xterm", "HISTFILE": ""}
    prompt = r"\[\e[1;32m\]$\[\e[0m\] "
    os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], {**known, "PS1": prompt})

time = 0.0


def shown(text):
    if text:
        print(json.dumps([round(time, 2), "o", text]))


def until_prompt():
    """What comes until bash asks again, without that prompt."""
    said = b""
    while not said.endswith(PROMPT):
        if not select.select([terminal], [], [], PATIENCE_SECONDS)[0]:
            sys.exit(f"record: no prompt after: {said.decode()!r}")
        said += os.read(terminal, 65536)
    return said[: -len(PROMPT)].decode()


fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
title = "systx: system transactions for stock Linux"
print(json.dumps({"version": 2, "width": COLUMNS, "height": ROWS, "title": title, "env": {"TERM": "xterm", "SHELL": "/bin/bash"}}))
until_prompt()
for line in lines:
    shown(PROMPT.decode())
    time += LOOK
    for key in line:
        time += KEY
        shown(key)
    os.write(terminal, line.encode() + b"\n")
    echoed = until_prompt()
    assert echoed.startswith(line + "\r\n"), (line, echoed)
    time += LOOK
    shown(echoed[len(line):])
    time += READ if "systx" in line else LOOK
shown(PROMPT.decode())
os.write(terminal, b"exit\n")
os.waitpid(child, 0)
