#!/usr/bin/env bash
# Counts turns of phrase in the comments of the Rust sources that a stranger has to read twice, and fails above a share. The shares are
# those of well-kept crates (redb, jj, rustix): 0 to 2 % of doc comments. Usage: scripts/comments.sh [list]
#
# With `list`, each comment that counts is printed with its file and line.
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files 'crates/*/src/*.rs' | grep -vE '/tests' | xargs awk -v list="${1-}" '
    function judge(text, kind,    what) {
        if (kind != "//") {
            docs++
            if (text ~ /^(What|Who|Whose|Whether|Its|As|So many|The same)( |,|\.|;|:)/) { openings++; what = "opening" }
        }
        if (tolower(text) ~ /(^|[^a-z])(somebody|whoever|nobody|anybody)([^a-z]|$)/) { nobodies++; what = what " nobody" }
        if (text ~ /(^|[^A-Za-z])([Hh]e|[Hh]is|[Hh]im)([^A-Za-z]|$)/) { hes++; what = what " he" }
        if (text ~ /(is|are|was|were) told( |\.|,|;|:)/) { tolds++; what = what " told" }
        all++
        if (what != "" && list != "") printf "%s:%d:%s: %s\n", file, first, what, substr(text, 1, 100)
    }
    function flush() { if (kind != "") judge(text, kind); kind = text = "" }
    FNR == 1 { flush() }
    { lines++ }
    length($0) > 120 { wide++; if (list != "") printf "%s:%d: over 120 columns\n", FILENAME, FNR }
    match($0, /^ *\/\/[\/!]?/) {
        mark = substr($0, RSTART, RLENGTH); gsub(/ /, "", mark)
        if (mark != kind) flush()
        if (kind == "") { kind = mark; file = FILENAME; first = FNR }
        line = substr($0, RSTART + RLENGTH); sub(/^ /, "", line)
        text = text (text == "" ? "" : " ") line
        next
    }
    { flush() }
    function limit(name, count, of, percent) {
        share = of ? 100 * count / of : 0
        bad = share > percent
        printf "comments: %s: %d of %d, %.1f %% (at most %s %%)%s\n", name, count, of, share, percent, bad ? ": TOO MANY" : ""
        failed = failed || bad
    }
    END {
        flush()
        limit("openings What, Who, Whose, Whether, Its, As, So many, The same", openings, docs, 2)
        limit("somebody, whoever, nobody, anybody", nobodies, all, 1)
        limit("he, his, him", hes, all, 0.2)
        limit("is told", tolds, all, 0.5)
        limit("lines over 120 columns, which messages and tables have", wide, lines, 1)
        exit failed
    }'
