#!/usr/bin/env bash
# `make demo`: four transactions on real input, each with checks. Ends with a status other than 0 if something is not
# as said. Needs root. Everything happens on a scratch ext4 in an image file, mounted in a mount namespace of its own:
# the rest of the machine is only read. (What it needs is installed by apt-get and cargo first.)
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

stop() { echo "demo: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || stop "needs root (a private mount namespace and a loop device): sudo make demo"
command -v "${CARGO:-cargo}" >/dev/null 2>&1 || stop "cargo not found: install Rust 1.85 or later first"

bash scripts/deps.sh
[ -c /dev/fuse ] || modprobe fuse 2>/dev/null || true
[ -c /dev/fuse ] || stop "no /dev/fuse: load the kernel module fuse, or give the container this device"
bash scripts/build.sh

scratch=$(mktemp -d "${TMPDIR:-/tmp}/systx-demo.XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM
mkdir "$scratch/bin" "$scratch/fs" "$scratch/source" "$scratch/control"
cp "${CARGO_TARGET_DIR:-target}/release/systx" "$scratch/bin/"
bash demo/source.sh "$scratch/source"
truncate -s 1G "$scratch/disk.img"
mke2fs -q -F -t ext4 "$scratch/disk.img"

SYSTX_DEMO=$scratch unshare --mount --propagation private bash demo/parts.sh
