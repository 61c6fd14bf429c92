# Part 4: kill -9 of everything in mid-commit, at random instants, until both outcomes were seen.
files=5000
rounds_max=40
title "4. kill -9 in mid-commit: $files files, a renamed and a deleted directory, a new one; at random instants"

mkdir "$fs/data"
(cd "$fs/data" && for ((i = 0; i < files; i++)); do echo 0 >"f$i"; done && mkdir at.0 && touch at.0/{a,b,c} && mkdir of.0)

# The transaction takes the tree from generation G to G+1.
step='
    cd "$FS/data"; next=$((G + 1))
    for f in f*; do echo "$next" >"$f"; done
    mv "at.$G" "at.$next"; rmdir "of.$G"; mkdir "of.$next"
    set -- ending; '"$TELL"

# The generation that the whole tree is in, or what it is a mixture of.
generation() {
    (cd "$fs/data" && { cat f*; ls -d at.* of.* | cut -d. -f2; } | sort -n | uniq -c |
        awk -v all=$((files + 2)) '{ text = text (NR > 1 ? " and " : "") $1 " of generation " $2; last = $2 }
            END { print NR == 1 && $1 == all ? last : text }')
}

# One round. Everything of it runs in a pid namespace, so that one SIGKILL ends all of it at once: systx, its helper
# process that would have finished the work, and the command. Sets `took` (µs from the command's end to systx's end).
round() { # generation, µs from the command's end to the kill; empty: don't kill
    local start run init status=0
    G=$1 unshare --pid --fork bash -c 'systx run --only "$FS" -- bash -ec "$1"; exit $?' - "$step" \
        >"$scratch/kill.log" 2>&1 </dev/null &
    run=$!
    heard ending
    start=${EPOCHREALTIME/./}
    if [ -n "$2" ]; then
        init=$(cat "/proc/$run/task/$run/children" 2>/dev/null || true)
        sleep "$(printf '%d.%06d' $(($2 / 1000000)) $(($2 % 1000000)))"
        # Gone already: this kill came too late, and the round counts for nothing but "all new".
        [ -z "$init" ] || kill -KILL $init 2>/dev/null || true
    fi
    wait "$run" || status=$?
    took=$((${EPOCHREALTIME/./} - start))
    [ -n "$2" ] || [ "$status" = 0 ] || fail "a commit that nobody disturbed ended with status $status"
}

round 0 ""
equal "$(generation)" 1 "undisturbed: the whole tree went from generation 0 to generation"
say "that commit took $((took / 1000)) ms from the end of the command; now we kill within that time"
whole=$took now=1 old=0 new=0 mixed=0
for ((n = 1; n <= rounds_max; n++)); do
    # Two of three towards the end, where publication is more likely to be under way.
    after=$((whole * (n % 3 ? 700 + RANDOM % 300 : RANDOM % 1000) / 1000))
    round "$now" "$after"
    found=$(generation)
    systx recover >"$scratch/recover.log" 2>&1 || fail "systx recover ended with status $?"
    recovered=$(generation)
    case $recovered in
        "$now") old=$((old + 1)) word="all old" ;;
        "$((now + 1))") new=$((new + 1)) word="all new" ;;
        *) fail "after recovery: $recovered" ;;
    esac
    [ "$found" = "$recovered" ] || { mixed=$((mixed + 1)); word="$word (found: $found)"; }
    say "$(printf 'round %2d, killed after %4d ms: after recovery %s' "$n" $((after / 1000)) "$word")"
    now=$recovered
    # Until both outcomes were seen and, if 20 rounds suffice for that, a kill in the middle of publication.
    [ "$n" -lt 6 ] || [ "$old" = 0 ] || [ "$new" = 0 ] || { [ "$mixed" = 0 ] && [ "$n" -lt 20 ]; } || break
done
check "both outcomes were seen: $old × all old, $new × all new, no mixture after recovery" test "$old" -gt 0 -a "$new" -gt 0
say "in $mixed of $n rounds the kill had left a half-published tree, and recovery finished it"

# Killed alone, systx is followed by its helper, which finishes the work at once: nobody calls `systx recover`.
for ((n = 1; n <= 3; n++)); do
    G=$now systx run --only "$fs" -- bash -ec "$step" >"$scratch/kill.log" 2>&1 </dev/null &
    run=$!
    heard ending
    sleep "$(printf '0.%06d' $((whole * (800 + RANDOM % 200) / 1000 % 1000000)))"
    kill -KILL "$run" 2>/dev/null || true
    { wait "$run" || true; } 2>/dev/null
    for ((tries = 0; tries < 200; tries++)); do
        found=$(generation)
        [[ $found == *' '* ]] || break
        sleep 0.05
    done
    [ "$found" = "$now" ] || [ "$found" = $((now + 1)) ] || fail "10 s after systx alone was killed: $found"
    now=$found
done
ok "systx alone killed, $((n - 1)) times: its helper left no mixture, without recovery by anybody else"
