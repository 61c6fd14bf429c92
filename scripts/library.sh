#!/usr/bin/env bash
# Builds libsystx for C: the static library, and from it the shared one, with versions of its symbols (rustc has a
# version script of its own, and linkers take no two).
#   scripts/library.sh            optimized, into ${CARGO_TARGET_DIR:-target}/library
#   scripts/library.sh link ARCHIVE DIRECTORY    only the shared library, from this archive
#   scripts/library.sh pc PREFIX                 prints what pkg-config reads
set -eu
[ "${1-}" != link ] || set -- link "$(realpath "$2")" "$(realpath -m "$3")"
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
# Until 1.0 each minor version may be another interface.
soname=libsystx.so.${version%%.*}

# Libraries that Rust's standard library calls.
private="-lgcc_s -lpthread -ldl -lm -lc"

link() { # ARCHIVE DIRECTORY
    mkdir -p "$2"
    # Threads of ours run in it, so it stays loaded.
    # shellcheck disable=SC2086  # a list of words
    "${CC:-cc}" -shared -o "$2/libsystx.so.$version" -Wl,-soname,"$soname" \
        -Wl,--version-script=crates/systx-c/systx.map -Wl,--whole-archive "$1" -Wl,--no-whole-archive \
        -Wl,--gc-sections -Wl,-z,nodelete -Wl,-z,relro,-z,now -Wl,--no-undefined $private
    ln -sf "libsystx.so.$version" "$2/$soname"
    ln -sf "$soname" "$2/libsystx.so"
}

case ${1-} in
link)
    link "$2" "$3"
    exit
    ;;
pc)
    sed -e "s|@PREFIX@|$2|" -e "s|@VERSION@|$version|" -e "s|@PRIVATE@|$private|" crates/systx-c/systx.pc.in
    exit
    ;;
esac
"$cargo" build --profile library --locked -p systx-c
out=$target/library
cp "$out/libsystx_c.a" "$out/libsystx.a.new"
# Without names of lines and variables it is a fifth; functions keep theirs.
"${STRIP:-strip}" --strip-debug "$out/libsystx.a.new" 2>/dev/null || true
mv "$out/libsystx.a.new" "$out/libsystx.a"
link "$out/libsystx.a" "$out"
