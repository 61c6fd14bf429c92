# shellcheck shell=bash
# Sourced by scripts/vm.sh and scripts/vm/power.sh: scratch directory, programs, kernel, initramfs, machine.
export PATH="$PATH:/usr/sbin:/sbin"

# Modules that the start needs; the rest is loaded as in any Debian, from /lib/modules.
boot_modules="virtio_pci virtio_blk 9pnet_virtio 9p overlay ext4"
mirror=${VM_MIRROR:-http://deb.debian.org/debian}

# Ends without a failure. Usage: skip WHY
skip() {
    echo "skipped: vm: $*"
    exit 0
}

# Looks for what is needed, and makes $scratch, which goes at the end with what runs then.
prepare() {
    [ "$(uname -m)" = x86_64 ] || skip "only x86-64 is known here"
    command -v apt-get >/dev/null || skip "no apt-get, by which the kernel comes"
    bash scripts/deps.sh
    if ! command -v qemu-system-x86_64 >/dev/null; then
        [ "$(id -u)" = 0 ] || { echo "vm: no QEMU. On Debian: sudo apt-get install qemu-system-x86"; exit 1; }
        echo "vm: installing qemu-system-x86"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends qemu-system-x86 >/dev/null
    fi
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/systx-vm.XXXXXX")
    mkdir "$scratch/bin"
    qemu='' disks=()
    trap end EXIT
    trap 'exit 130' INT TERM
}

end() {
    # By the numbers of our own children.
    [ -z "$qemu" ] || kill -KILL "$qemu" 2>/dev/null || true
    [ ${#disks[@]} = 0 ] || kill -KILL "${disks[@]}" 2>/dev/null || true
    [ -n "${KEEP-}" ] && echo "kept: $scratch" || rm -rf --one-file-system "$scratch"
}

# systx and the test programs in $programs (NAME or NAME=FILTER), optimized: emulation is slow enough. Writes $scratch/list.
build_programs() {
    local wanted=() word name path
    for word in "${programs[@]}"; do wanted+=(--test "${word%%=*}"); done
    "${CARGO:-cargo}" test --release --locked -p systx-cli --no-run "${wanted[@]}" 2>&1 | tee "$scratch/build" |
        grep -E '^(warning|error)|Compiling systx' || true
    for word in "${programs[@]}"; do
        name=${word%%=*}
        path=$(sed -n "s,^ *Executable tests/$name\(/main\)\?[.]rs (\(.*\))\$,\2,p" "$scratch/build")
        [ -n "$path" ] || { echo "vm: no test program $name:"; tail -n 20 "$scratch/build"; exit 1; }
        cp "$path" "$scratch/bin/$name"
        echo "$name ${word#"$name"}" >>"$scratch/list"
    done
    get_systx
}

# Copies (of VM_SYSTX, if that is given), so that nobody's next build changes what runs; in the guest it stands where the test programs look for it.
get_systx() {
    realpath -m "${CARGO_TARGET_DIR:-target}/release/systx" >"$scratch/systx"
    cp "${VM_SYSTX:-$(cat "$scratch/systx")}" "$scratch/bin/systx"
}

# apt-get for the suite in VM_SUITE alone, with lists of its own; without, as the machine is set up.
apt_get() {
    local options=() own=$scratch/apt.${VM_SUITE-}
    if [ -n "${VM_SUITE-}" ]; then
        mkdir -p "$own/lists/partial" "$own/cache/archives/partial"
        echo "deb $mirror $VM_SUITE main" >"$own/sources"
        options=(-o "Dir::Etc::SourceList=$own/sources" -o Dir::Etc::SourceParts=/dev/null
            -o "Dir::State::Lists=$own/lists" -o "Dir::Cache=$own/cache" -o Acquire::Languages=none
            -o APT::Sandbox::User=root)
    fi
    local tool=$1
    shift
    "$tool" "${options[@]}" "$@"
}

# Downloads the kernel of VM_SUITE, or of this machine's suite, and busybox, and unpacks them below $scratch. Sets $version, $modules,
# $vmlinuz, $busybox.
get_kernel() {
    local package=${VM_PACKAGE:-linux-image-amd64} deb to=$scratch/kernel/${VM_SUITE:-here}
    mkdir -p "$scratch/debs" "$to"
    [ -z "${VM_SUITE-}" ] || apt_get apt-get -qq -o APT::Update::Error-Mode=any update || skip "$mirror does not answer"
    case $package in
        */*.deb) deb=$(realpath "$package") ;;
        *)
            # The package for everybody only names the newest one.
            package=$(apt_get apt-cache depends "$package" | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p;1!d' | head -n 1)
            package=${package:-${VM_PACKAGE-}}
            (cd "$scratch/debs" && apt_get apt-get -qq download "$package") 2>&1 | grep -v '^W: Download is performed unsandboxed' || true
            deb=$(find "$scratch/debs" -name 'linux-image-*.deb')
            ;;
    esac
    [ -f "$deb" ] || { echo "vm: no kernel package; apt-get update?"; exit 1; }
    if [ ! -e "$scratch/busybox" ]; then
        (cd "$scratch/debs" && apt_get apt-get -qq download busybox-static) 2>&1 | grep -v '^W: Download is performed unsandboxed' || true
        dpkg-deb -x "$scratch"/debs/busybox-static*.deb "$scratch/busybox"
        busybox=$(find "$scratch/busybox" -type f -path '*/bin/busybox')
    fi
    # Of the modules only what file systems, disks and their libraries are: four thousand others take time.
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$to" --wildcards --exclude='*/drivers/gpu/*' \
        '*/boot/vmlinuz-*' '*/lib/modules/*/modules.*' '*/lib/modules/*/kernel/fs/*' '*/lib/modules/*/kernel/lib/*' \
        '*/lib/modules/*/kernel/crypto/*' '*/lib/modules/*/kernel/arch/*' '*/lib/modules/*/kernel/net/9p/*' \
        '*/lib/modules/*/kernel/drivers/block/*' '*/lib/modules/*/kernel/drivers/virtio/*'
    rm -rf "$scratch/debs"
    vmlinuz=$(find "$to" -name 'vmlinuz-*')
    version=${vmlinuz##*/vmlinuz-}
    modules=$(find "$to" -type d -path '*/modules/*' -name "$version")
    find "$modules" -name '*.ko.xz' -exec xz -d {} +
    "$busybox" depmod -b "${modules%/lib/modules/*}" "$version"
}

# A start in memory, of the script $1 (scripts/vm/init, which mounts the guest's root and gives over to scripts/vm/inside.sh) with the
# programs $3..., as the file $2.
make_initramfs() {
    local init=${1:-scripts/vm/init} to=${2:-$scratch/initramfs.img} root=$scratch/initramfs module file
    shift $(($# < 2 ? $# : 2))
    rm -rf "$root"
    mkdir -p "$root/bin" "$root/lib/modules/$version"
    cp "$busybox" "$@" "$root/bin/"
    for module in $boot_modules; do
        for file in $(sed -n "s,:,,; /\/$module[.]ko /p; /\/$module[.]ko\$/p" "$modules/modules.dep"); do
            install -D "$modules/$file" "$root/lib/modules/$version/$file"
        done
    done
    "$busybox" depmod -b "$root" "$version"
    sed "s,@SCRATCH@,$scratch,; s,@MODULES@,$boot_modules," "$init" >"$root/init"
    chmod 755 "$root/init"
    (cd "$root" && find . | "$busybox" cpio -o -H newc 2>/dev/null) >"$to"
}

# Hardware that speaks for an ordinary guest under KVM. /dev/kvm alone says little: in some virtual machines it is
# there for guests of another kind, and an ordinary kernel stands still in it.
accelerator() {
    if [ -n "${VM_ACCEL-}" ]; then
        echo "$VM_ACCEL"
    elif [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then
        echo kvm
    else
        echo tcg
    fi
}

# QEMU's words for the machine, without its disks: sets the array $machine. With words for the kernel in $1 it has a root of its own:
# $2 is its initramfs, $3 its MiB; without, this machine's.
set_machine() {
    case $(accelerator) in
        kvm) machine=(-accel kvm -cpu host) ;;
        *) machine=(-accel "tcg,thread=multi" -cpu max) ;;
    esac
    # no_timer_check: where everything is emulated on a busy machine, the kernel would now and then take its timer for broken.
    # One processor for a small guest: QEMU's emulation now and then breaks a kernel that changes its own code on two.
    machine+=(-smp $(($# == 0 ? 2 : 1)) -m "${VM_MEMORY:-${3:-2560}}" -nodefaults -no-user-config -display none -no-reboot -serial stdio
        -kernel "$vmlinuz" -initrd "${2:-$scratch/initramfs.img}" -append "console=ttyS0 panic=-1 loglevel=4 no_timer_check ${1-}")
    [ $# != 0 ] || machine+=(-fsdev "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"
        -device "virtio-9p-pci,fsdev=root,mount_tag=root")
}

# Runs the machine of set_machine with these disks until it goes off, says that it is ready for the cut, or $limit seconds are over, and
# cuts its power. What it said is in $scratch/console, its lines for the host are shown; $took: seconds. Usage: run_to_the_cut NAME DRIVE...
run_to_the_cut() {
    local name=$1 before=$SECONDS
    shift
    : >"$scratch/console"
    qemu-system-x86_64 "${machine[@]}" "$@" >"$scratch/console" 2>&1 </dev/null &
    qemu=$!
    while kill -0 "$qemu" 2>/dev/null && [ $((SECONDS - before)) -lt "$limit" ]; do
        ! grep -q '^vm| ready for the cut' "$scratch/console" || break
        sleep 0.1
    done
    took=$((SECONDS - before))
    # By the number of our own child: the power cut, or its time was over.
    kill -KILL "$qemu" 2>/dev/null || true
    wait "$qemu" 2>/dev/null || true
    qemu=
    echo "vm: $name: $took s"
    sed -n 's/\r$//; s/^vm| /  /p' "$scratch/console"
}

# The machine has not done what it should. Usage: has_failed NAME
has_failed() {
    echo "vm: $1 FAILED; the console's end:"
    tail -n 40 "$scratch/console"
    exit 1
}
