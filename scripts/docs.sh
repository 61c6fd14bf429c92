#!/usr/bin/env bash
# Checks the documents: how many words they have, how wide their lines are, whether their sentences are plain, and whether
# the source files that they name exist.
# Usage: scripts/docs.sh
#
# Words are those that have a letter and stand outside of code blocks, in docs/*.md and README.md; the two pages that
# programs write (bench-results.md, workloads.md) do not count. Lines and sentences are checked in SECURITY.md and
# CONTRIBUTING.md, too. Some turns of phrase are allowed now and then: each has a bound on its share, per 1,000 words.
set -euo pipefail
cd "$(dirname "$0")/.."

words_max=25000
columns_max=120
# Sentences that begin with a headless clause ("Who has waited", "What comes out").
headless_max=0.4
# somebody, whoever, nobody and their like.
vague_max=0.2
# he and his, which programs are not, and "told", which they are not.
person_max=0.1

# Prints what is wrong with the files, and `words N`, `headless N`, `vague N`, `person N`. Needs no locale: the width of a
# line is its bytes without those that continue a UTF-8 character.
measure() {
    LC_ALL=C awk -v columns_max="$columns_max" '
        function count(text, pattern,    n) {
            n = gsub(pattern, " ", text)
            return n
        }
        function close_paragraph(    text, n, i, part) {
            text = " " tolower(paragraph) " "
            gsub(/`[^`]*`/, "code", text)
            gsub(/[^a-z]+/, "  ", text)
            n = count(text, " (somebody|someone|whoever|whomever|nobody|anybody|everybody) ")
            vague += n
            if (n) print at ": somebody, whoever, nobody …: " substr(paragraph, 1, 60) >"/dev/stderr"
            n = count(text, " (he|his|him|himself|told) ")
            person += n
            if (n) print at ": he, his, told: " substr(paragraph, 1, 60) >"/dev/stderr"
            # Sentences begin where a paragraph, an item, a cell or bold text does, and after a full stop.
            text = paragraph
            gsub(/[.!:;] +|[|] |[*][*]|^ *[-*] |^ *[0-9]+[.] /, "&\n", text)
            n = split(text, part, "\n")
            for (i = 1; i <= n; i++) {
                sub(/^[ *|]+/, "", part[i])
                if (part[i] ~ /^(Who|Whose|Whom|Whether|What|Whatever|Whoever)[ ,]/ && part[i] !~ /[?]/) {
                    headless++
                    print at ": begins with a headless clause: " substr(part[i], 1, 60) >"/dev/stderr"
                }
            }
            paragraph = ""
        }
        FNR == 1 { close_paragraph(); code = 0; written = FILENAME ~ /(bench-results|workloads)[.]md$/ }
        { at = FILENAME ":" FNR }
        /^```/ { close_paragraph(); code = !code; next }
        code { next }
        {
            line = $0
            gsub(/[\200-\277]/, "", line)
            if (length(line) > columns_max) {
                print at ": " length(line) " columns"
            }
        }
        /^    / && paragraph == "" { next }
        /^#/ || /^$/ { close_paragraph() }
        /^[-*|] / || /^[0-9]+[.] / { close_paragraph() }
        { for (i = 1; i <= NF; i++) if ($i ~ /[A-Za-z]/) { all++; if (!written && FILENAME !~ /(SECURITY|CONTRIBUTING)/) words++ } }
        !/^#/ { paragraph = paragraph (paragraph == "" ? "" : " ") $0 }
        END {
            close_paragraph()
            print "words", words + 0
            print "all", all + 0
            print "headless", headless + 0
            print "vague", vague + 0
            print "person", person + 0
        }' "$@"
}

# Judges what `measure` has printed. Fails if anything is above its bound.
judge() {
    awk -v words_max="$words_max" -v headless_max="$headless_max" -v vague_max="$vague_max" -v person_max="$person_max" '
        function bound(what, share, most) {
            if (share > most) {
                printf "docs: %s: %.1f of 1,000 words, at most %s\n", what, share, most
                bad = 1
            }
        }
        / columns$/ { print "docs: " $0; bad = 1; next }
        { value[$1] = $2 }
        END {
            all = value["all"] / 1000
            if (all == 0) { print "docs: nothing was measured"; exit 1 }
            if (value["words"] > words_max) { print "docs: " value["words"] " words, at most " words_max; bad = 1 }
            bound("sentences that begin with a headless clause", value["headless"] / all, headless_max)
            bound("somebody, whoever, nobody", value["vague"] / all, vague_max)
            bound("he, his, told", value["person"] / all, person_max)
            exit bad
        }'
}

# A check that cannot fail says nothing: each fault, planted alone, has to be found.
planted=$(mktemp)
trap 'rm -f "$planted"' EXIT
for fault in \
    "$(printf 'word %.0s' {1..30})" \
    "Who has waited for so long reads the record." \
    "A process ends. **What comes out** is compared." \
    "This is done by whoever comes first." \
    "The program says what he has done."; do
    printf '%s\n' "A sentence that nothing is wrong with." >"$planted"
    measure "$planted" 2>/dev/null | judge >/dev/null || { echo "docs: a plain sentence is refused" >&2; exit 1; }
    printf '%s\n' "$fault" >>"$planted"
    if measure "$planted" 2>/dev/null | judge >/dev/null; then
        echo "docs: this is not noticed: $fault" >&2
        exit 1
    fi
done
printf '%s\n' "A sentence that nothing is wrong with." >"$planted"
if measure "$planted" | words_max=5 judge >/dev/null; then
    echo "docs: too many words are not noticed" >&2
    exit 1
fi

# Prints each source file that is named in the files and does not exist.
missing() {
    sources=$(find crates -name '*.rs' -not -path '*/target/*')
    grep -oE '`[A-Za-z0-9_./-]+/[A-Za-z0-9_-]+\.rs`' "$@" | tr -d '`' | while IFS=: read -r document file; do
        case $sources in
        *"/$file"$'\n'* | *"/$file" | *"$file"$'\n'*) ;;
        *) echo "docs: $document names $file, which does not exist" ;;
        esac
    done
}
pages=(docs/*.md README.md SECURITY.md CONTRIBUTING.md)
echo 'See `commit/no_such_file.rs`.' >"$planted"
[ -n "$(missing "$planted" /dev/null)" ] || { echo "docs: a source file that does not exist is not noticed" >&2; exit 1; }
gone=$(missing "${pages[@]}")
[ -z "$gone" ] || { echo "$gone"; exit 1; }

found=$(mktemp)
trap 'rm -f "$planted" "$found"' EXIT
: >"$planted"
if measure "${pages[@]}" 2>"$found" | tee -a "$planted" | judge; then
    awk '$1 == "words" { print "docs: " $2 " words" }' "$planted"
else
    cat "$found"
    exit 1
fi
