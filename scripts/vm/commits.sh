# shellcheck shell=bash
# In the guest: recovers, checks what a power cut has left, and commits generation after generation. Sourced by inside.sh.
# $VM_SCRATCH/round: `cut` or `last`, and the last generation that was reported.
read -r kind reported <"$VM_SCRATCH/round"

# What one generation changes in a tree: names, contents written anew, in place, at the end, large and small, modes.
change='n=$1; shift
for tree; do
    cd "$tree" || exit 1
    mkdir new.$n
    for i in 1 2 3; do echo $n >new.$n/f$i; done
    rm -r new.$((n - 1))
    echo $n >small
    printf %08d $n | dd of=large bs=8 conv=notrunc status=none
    printf %08d $n | dd of=large bs=8 seek=200000 conv=notrunc status=none
    echo $n >>history
    mv moved.$((n - 1)) moved.$n
    chmod 6$((n % 8))0 moved.$n
    yes $n | head -c 1200000 >anew
done'

first() {
    mkdir -p "$1/tree/new.0"
    cd "$1/tree" || return
    for i in 1 2 3; do echo 0 >new.0/f$i; done
    echo 0 | tee small history >moved.0
    chmod 600 moved.0
    head -c 1600008 /dev/zero | tr '\0' 0 >large
    yes 0 | head -c 1200000 >anew
    cd /
}

# Prints the generation of a tree, if all of it is of one.
generation() (
    cd "$1/tree" || exit
    n=$(cat small)
    want=$(printf %08d "$n")
    must() { [ "$1" = "$2" ] || echo "mixed: $3 is $1, not $2"; }
    must "$(echo new.* moved.*)" "new.$n moved.$n" names
    must "$(cat new.*/* | tr '\n' ' ')" "$n $n $n " "new.$n"
    must "$(head -c 8 large) $(tail -c 8 large) $(stat -c %s large)" "$want $want 1600008" large
    must "$(sha1sum <history)" "$(seq 0 "$n" | sha1sum)" history
    must "$(stat -c %a moved.*)" "6$((n % 8))0" mode
    must "$(sha1sum <anew)" "$(yes "$n" | head -c 1200000 | sha1sum)" anew
    echo "$n"
)

a=$TMPDIR/a b=$TMPDIR/b
mkdir -p "$a" "$b"
mount /dev/vdb "$a" && mount /dev/vdc "$b" || say "FAILED: no disks"
if [ ! -e "$a/tree/small" ]; then
    first "$a"
    first "$b"
    sync
fi
recovered=$("$systx" recover 2>&1) || say "FAILED: recover: $recovered"
say "recover: $(echo "$recovered" | tr '\n' ' ')"
n=$(generation "$a") m=$(generation "$b")
if [ "$n" = "$m" ] && { [ "$n" = "$reported" ] || [ "$n" = $((reported + 1)) ]; } 2>/dev/null; then
    say "whole: generation $n, reported $reported"
else
    say "FAILED: reported $reported, ext4 $n, xfs $m"
    kind=last
fi
# Nobody else was here.
case $recovered in *displaced*) say "FAILED: displaced" ;; esac
while [ "$kind" = cut ]; do
    n=$((n + 1))
    if ! said=$("$systx" run --only "$a/tree" --only "$b/tree" -- sh -c "$change" sh $n "$a/tree" "$b/tree" 2>&1); then
        say "FAILED: generation $n: $said"
        break
    fi
    say "committed $n"
done
