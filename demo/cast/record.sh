#!/usr/bin/env bash
# Records docs/systx.cast, a film of a terminal (asciicast v2: `asciinema play docs/systx.cast`): plays cast/lines in a bash
# at a pseudo-terminal, on a scratch ext4 in a mount namespace of its own. Needs root and python3.
#   demo/cast/record.sh [FILE]     SYSTX=PROGRAM takes that instead of building one
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C.UTF-8
[ "$(id -u)" = 0 ] || { echo "record: needs root, for a file system of its own" >&2; exit 1; }
if [ -z "${SYSTX-}" ]; then
    bash scripts/build.sh
    SYSTX=${CARGO_TARGET_DIR:-target}/release/systx
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/systx-cast.XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT TERM
mkdir "$scratch/fs"
truncate -s 256M "$scratch/disk.img"
mke2fs -q -F -t ext4 "$scratch/disk.img"
export scratch SYSTX
# Its `/` is that file system, with the machine's programs read-only: `systx run` without --only reaches nothing else.
# shellcheck disable=SC2016
unshare --mount --propagation private bash -euc '
    root=$scratch/fs
    mount -o loop "$scratch/disk.img" "$root"
    rmdir "$root/lost+found"
    mkdir -p "$root"/{usr,proc,dev,sys,etc,tmp,opt,srv/shop}
    mount --bind /usr "$root/usr" && mount -o remount,bind,ro "$root/usr"
    for name in bin sbin lib lib32 lib64; do
        [ ! -L "/$name" ] || cp -a "/$name" "$root"
    done
    for name in proc dev sys; do mount --rbind "/$name" "$root/$name"; done
    cp /etc/passwd /etc/group /etc/ld.so.cache "$root/etc/"
    cp -aL /etc/alternatives "$root/etc/" 2>/dev/null || true
    cp "$SYSTX" "$root/opt/systx"
    PATH=/opt:/usr/bin python3 demo/cast/record.py demo/cast/lines "$root" >"$scratch/cast"
    umount --recursive --lazy "$root"'
cp "$scratch/cast" "${1:-docs/systx.cast}"
