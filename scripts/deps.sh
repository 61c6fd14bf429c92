#!/usr/bin/env bash
# Installs the Debian packages that tests and demo use, if a command of theirs is missing. Quiet when there is nothing
# to do. Never fails for a missing package: a test that needs it prints that it was skipped, and why.
set -eu

# command:package
wanted="cc:gcc g++:g++ clang:clang mandoc:mandoc nm:binutils cc:libc6-dev make:make tar:tar bsdtar:libarchive-tools cpio:cpio rsync:rsync mke2fs:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs setfattr:attr setfacl:acl setquota:quota
unshare:util-linux losetup:mount strace:strace setcap:libcap2-bin xz:xz-utils script:bsdutils python3:python3 pgrep:procps"

export PATH="$PATH:/usr/sbin:/sbin"
missing=""
for pair in $wanted; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "deps: not installed:$missing. What needs them is skipped. On Debian: sudo apt-get install$missing"
    exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
echo "deps: installing$missing"
install() {
    # shellcheck disable=SC2086  # a list of words
    apt-get install -y -qq --no-install-recommends $missing >"$log" 2>&1
}
if ! install; then
    apt-get update -qq >"$log" 2>&1 || true
    install || { echo "deps: apt-get failed; what needs$missing is skipped:"; tail -n 5 "$log"; }
fi
