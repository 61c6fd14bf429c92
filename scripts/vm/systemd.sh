#!/usr/bin/env bash
# The hooks of `systx install-hooks` under a real systemd: a minimal Debian 13 on an ext4, with an XFS and an ext4 that is mounted later,
# in five boots, in each of which root and a user log in. 1 commits, and loses power; 2 has everything recovered before logins, units read
# again, what is displaced told once, the later file system recovered when it is mounted, and shuts down; 3 has nothing redone or told, and
# loses power; 4 is beside a frozen file system; in 5 systx never ends. What is done in each is scripts/vm/boots. Usage: scripts/vm/systemd.sh
# VM_ROOT=DIR: the Debian, if it is there, else it is made and kept there (mmdebstrap, two minutes, needs root). VM_ACCEL, VM_SYSTX, KEEP
# as in scripts/vm/lives.sh. VM_SECONDS: the limit for one boot (900).
set -euo pipefail
cd "$(dirname "$0")/../.."
limit=${VM_SECONDS:-900}
# shellcheck source=scripts/vm/kernel.sh
. scripts/vm/kernel.sh
prepare
[ "$(id -u)" = 0 ] || skip "only root can make a Debian of its own"
[ -n "${VM_SYSTX-}" ] || bash scripts/build.sh
get_systx
boot_modules="virtio_pci virtio_blk crc32c_generic ext4 xfs fuse"
export VM_SUITE=trixie
get_kernel
make_initramfs scripts/vm/root

debian=${VM_ROOT:-$scratch/debian}
if [ ! -e "$debian/usr/bin/systemctl" ]; then
    command -v mmdebstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap >/dev/null || true
    command -v mmdebstrap >/dev/null || skip "no mmdebstrap, and apt-get can't install it"
    echo "vm: making a Debian 13"
    rm -rf --one-file-system "$debian.part"
    # In a mount namespace of its own: what it mounts ends with it.
    TMPDIR=$scratch unshare -m --propagation private mmdebstrap --quiet --mode=root --variant=minbase \
        --include=systemd,systemd-sysv,udev,dbus,login,libpam-systemd,mount,util-linux,kmod,fuse3,e2fsprogs,xfsprogs \
        --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        trixie "$debian.part" "$mirror"
    mv "$debian.part" "$debian"
fi
root=$scratch/root
cp -a "$debian" "$root"
install -m 755 "$scratch/bin/systx" "$root/usr/bin/systx"
install -m 755 scripts/vm/boots "$root/usr/bin/vm-boots"
cat >"$root/usr/bin/vm-hangs" <<'END'
#!/bin/sh
echo "$*" >"/tmp/hangs.$(id -un)"
trap : TERM
while :; do sleep 1000; done
END
chmod 755 "$root/usr/bin/vm-hangs"
mkdir -p "$root/data" "$root/later"
printf 'LABEL=root / ext4 defaults,commit=3600 0 0\nLABEL=data /data xfs defaults 0 0\nLABEL=later /later ext4 noauto,commit=3600 0 0\n' >"$root/etc/fstab"
echo guest >"$root/etc/hostname"
chroot "$root" useradd -m -s /bin/bash user
unit() {
    cat >"$root/etc/systemd/system/$1"
    mkdir -p "$root/etc/systemd/system/$2.wants"
    ln -s "../$1" "$root/etc/systemd/system/$2.wants/$1"
}
unit vm-boots.service multi-user.target <<'END'
[Unit]
After=multi-user.target systemd-user-sessions.service
[Service]
Type=simple
Environment=HOME=/root
ExecStart=/usr/bin/vm-boots
END
unit vm-probe.service multi-user.target <<'END'
[Unit]
Description=old
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
END
# Before the recovery, after a power cut: somebody takes a name; what is not synced is to be lost; and a file system freezes.
unit vm-early.service sysinit.target <<'END'
[Unit]
DefaultDependencies=no
After=local-fs.target
Before=systx-recover.service sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo 0 >/proc/sys/vm/dirty_writeback_centisecs; echo 720000 >/proc/sys/fs/xfs/xfssyncd_centisecs'
ExecStart=/bin/sh -c '! grep -q vm.boot=2 /proc/cmdline || echo outsider >/data/tree/taken'
ExecStart=/bin/sh -c '! grep -q vm.boot=4 /proc/cmdline || { mount /later && fsfreeze -f /data; }'
ExecStart=/bin/sh -c '! grep -q vm.boot=5 /proc/cmdline || mount --bind /usr/bin/vm-hangs /usr/bin/systx'
END
# Root and a user log in at terminals, without a password. Each prompt leaves a file in /tmp, which is new in each boot.
for who in root:1 user:2; do
    mkdir -p "$root/etc/systemd/system/getty@tty${who#*:}.service.d"
    printf '[Service]\nExecStart=\nExecStart=-/sbin/agetty --autologin %s --noclear %%I linux\n' "${who%:*}" \
        >"$root/etc/systemd/system/getty@tty${who#*:}.service.d/login.conf"
    ln -s /lib/systemd/system/getty@.service "$root/etc/systemd/system/multi-user.target.wants/getty@tty${who#*:}.service"
done
for home in root home/user; do
    cat >"$root/$home/.bash_profile" <<'END'
PROMPT_COMMAND='echo "$(tty) $(cut -d" " -f1 /proc/uptime)" >/tmp/prompt.$(id -un)'
END
done
for unit in serial-getty@ttyS0.service systemd-journal-flush.service fstrim.timer apt-daily.timer apt-daily-upgrade.timer; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
unshare -m --propagation private sh -c 'mount -t proc proc "$0/proc" && chroot "$0" systx install-hooks' "$root"
truncate -s 1200M "$scratch/root.img"
truncate -s 320M "$scratch/data.img" "$scratch/later.img"
mkfs.ext4 -q -L root -d "$root" "$scratch/root.img"
mkfs.xfs -q -L data "$scratch/data.img"
mkfs.ext4 -q -L later "$scratch/later.img"
rm -rf --one-file-system "$root"

start=$SECONDS
for boot in 1 2 3 4 5; do
    set_machine "vm.boot=$boot systemd.show_status=0" "$scratch/initramfs.img" 1024
    drives=()
    for disk in root data later; do drives+=(-drive "file=$scratch/$disk.img,format=raw,if=virtio,cache=writeback"); done
    run_to_the_cut "boot $boot" "${drives[@]}"
    if [ "$took" -ge "$limit" ] || grep -q '^vm| FAILED' "$scratch/console" || ! grep -q '^vm| \(ready for the cut\|verdict 0\)' "$scratch/console"; then
        has_failed "boot $boot"
    fi
done
echo "vm: five boots in $((SECONDS - start)) s: all passed"
