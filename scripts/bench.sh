#!/usr/bin/env bash
# Measures, and writes docs/bench-results.md and docs/plots/ (docs/benchmarks.md says what). Needs root and a loop device.
#   scripts/bench.sh                     everything; an hour or less
#   scripts/bench.sh small steps         some questions, printed only
#   QUICK=1 scripts/bench.sh             tiny sizes, printed only: to try the benchmark itself
#   REPEATS=9  DIR=/somewhere            repeats (default 7); where the image lies (default: the temporary directory)
# Everything is made below one scratch directory and mounted in a mount namespace of its own.
set -eu
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

[ "$(id -u)" = 0 ] || { echo "bench: needs root, for a file system of its own"; exit 1; }
for tool in mkfs.ext4 unshare findmnt tar; do
    command -v "$tool" >/dev/null || { echo "bench: $tool is missing: make deps"; exit 1; }
done

programs=$(realpath -m "${CARGO_TARGET_DIR:-target}/release")
case " $* " in
"  " | *" log "*)
    bash scripts/build.sh -p systx-cli --features without-log
    cp -f "$programs/systx" "$programs/systx-without-log"
    ;;
esac
bash scripts/build.sh -p systx-cli -p systx-bench
case " $* " in
"  " | *" graph "*) "${CARGO:-cargo}" build --release --locked -p systx --example graph ;;
esac

scratch=$(mktemp -d "${DIR:-${TMPDIR:-/tmp}}/systx-bench.XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT
# PostgreSQL is not root.
chmod 711 "$scratch"

commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
quick=${QUICK:+--quick}
if [ $# = 0 ] && [ -z "$quick" ]; then
    results=$PWD/docs/bench-results.md
    plots=$PWD/docs/plots
    print=
else
    results=$scratch/results.md
    plots=$scratch/plots
    print=1
fi

# A journal, as almost everybody has it; every other option is mkfs's own.
truncate -s 8G "$scratch/image.img"
mkfs.ext4 -q -N 1000000 "$scratch/image.img"
mkdir "$scratch/mnt"
echo "bench: measuring below $scratch; load now: $(cut -d' ' -f1-3 /proc/loadavg)"
export scratch programs results plots commit
unshare --mount --propagation private bash -eu -c '
    mount -o loop "$scratch/image.img" "$scratch/mnt"
    mkdir "$scratch/mnt/work"
    status=0
    "$programs/systx-bench" --dir "$scratch/mnt/work" --systx "$programs/systx" --out "$results" --plots "$plots" \
        --commit "$commit" --graph "$programs/examples/graph" "$@" || status=$?
    umount -R -l "$scratch/mnt" 2>/dev/null || true
    exit $status' bash $quick ${REPEATS:+--repeats "$REPEATS"} --questions "$*" || failed=1
[ -z "$print" ] || cat "$results"
exit "${failed:-0}"
