#!/usr/bin/env bash
# Usage: source.sh DIR. Puts the source of a C package into DIR/hello and its description into DIR/what: GNU hello, as
# Debian has it. apt-get fetches and verifies it, with lists and caches of its own below DIR; the machine's sources are
# read, not changed. Where that fails (no network, no Debian), the program in hello-systx/ takes its place.
set -euo pipefail
dir=$1
here=$(cd "$(dirname "$0")" && pwd)

fetch() {
    # The machine's own mirror, for sources instead of binaries.
    local uri suite
    read -r uri suite < <(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
        grep -v -e -security -e -updates -e -backports | sort -u | head -n 1) || return 1
    local key=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -n "$uri" ] && [ -r "$key" ] || return 1
    mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
    printf 'deb-src [signed-by=%s] %s %s main\n' "$key" "$uri" "$suite" >"$dir/apt/sources.list"
    local options=(-qq -o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update && (cd "$dir/apt" && apt-get "${options[@]}" source --download-only hello) || return 1
    mkdir "$dir/hello" && tar -xf "$dir"/apt/hello_*.orig.tar.gz -C "$dir/hello" --strip-components=1 || return 1
    echo "GNU hello (Debian $suite)" >"$dir/what"
}

if ! command -v apt-get >/dev/null 2>&1 || ! fetch >"$dir/log" 2>&1; then
    echo "demo: no source package by apt-get; a small program of our own takes its place"
    rm -rf "$dir/hello"
    cp -r "$here/hello-systx" "$dir/hello"
    echo "hello-systx (of this repository)" >"$dir/what"
fi
rm -rf "$dir/apt"
