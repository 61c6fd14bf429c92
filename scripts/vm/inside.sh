#!/bin/bash
# In the guest, as its first process: mounts what a Debian has mounted, does what $VM_SCRATCH/role.sh says, switches off.
# Lines for the host begin with `vm| `; the last one is `vm: verdict N`, N the number of failures.
# Not -e: whatever happens, a verdict is told and the machine goes off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/run/systx LANG=C
say() { echo "vm| $*"; }
failed=0
off() {
    echo "vm: verdict $failed"
    sync
    echo o >/proc/sysrq-trigger
    # The kernel ends everything meanwhile, this process too.
    sleep infinity
}
trap off EXIT

version=$(uname -r)
mkdir -p /lib/modules /dev/pts /dev/shm
ln -s "$(find "$VM_SCRATCH/kernel" -type d -path '*/modules/*' -name "$version")" "/lib/modules/$version"
# The kernel calls it by this name for modules that it wants.
ln -sf /run/busybox/busybox /run/busybox/modprobe
echo /run/busybox/modprobe >/proc/sys/kernel/modprobe
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
mount /dev/vda "$TMPDIR"
for module in fuse loop xfs btrfs quota_v2; do /run/busybox/modprobe "$module" || say "no module $module"; done
ip link set lo up 2>/dev/null
ulimit -n 1024
systx=$(cat "$VM_SCRATCH/systx")
mkdir -p "${systx%/*}"
cp "$VM_SCRATCH/bin/systx" "$systx"

say "$(uname -srv), $(nproc) CPUs, up $(cut -d' ' -f1 /proc/uptime) s"
# shellcheck source=/dev/null
. "$VM_SCRATCH/role.sh"
# A fault of the kernel's own is none of ours, but the reader should know.
dmesg | grep -aE 'BUG:|WARNING:|Oops|Call Trace|blocked for more' | sed 's/^/vm|   kernel: /'
exit
