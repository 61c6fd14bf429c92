# shellcheck shell=bash
# In the guest: runs the programs of $VM_SCRATCH/list. Sourced by inside.sh; wants $systx, counts in $failed.
(cd "$TMPDIR" && "$systx" doctor) 2>&1 | sed 's/^/vm|   /'
while read -r name filter; do
    filter=${filter#=}
    say "$name $filter"
    begin=$SECONDS
    log=$TMPDIR/$name.log
    # In a session of its own, without our console; into a file, since who is left behind would keep a pipe open.
    timeout --kill-after=10 2400 setsid -w "$VM_SCRATCH/bin/$name" ${filter:+"$filter"} >"$log" 2>&1 </dev/null &
    running=$!
    tail -n +1 -s 0.5 -f --pid="$running" "$log" | sed -u -n 's/^/vm|   /; / [.][.][.] \(ok\|FAILED\)$/p; /skipped/p; / × /p' &
    wait "$running"
    status=$?
    wait
    if [ "$status" = 0 ]; then
        say "$name: ok, $((SECONDS - begin)) s"
    else
        failed=$((failed + 1))
        say "$name: FAILED, status $status, $((SECONDS - begin)) s"
        tail -n 40 "$log" | cut -c1-400 | sed 's/^/vm|     /'
    fi
done <"$VM_SCRATCH/list"
