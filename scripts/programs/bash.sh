# Redirections of every kind, jobs, traps, descriptors, globs, FIFOs, locks.
shopt -s extglob
needs=flock
prepare() {
    mkdir data
    for i in {1..200}; do echo "line $i" >"data/f$i"; done
    printf 'a\nb\nc\n' >old
    echo private >secret && chmod 600 secret
}
work() {
    for f in data/f1*; do echo more >>"$f"; done
    set -o noclobber
    if (echo no >old) 2>/dev/null; then return 1; fi
    set +o noclobber
    exec {both}<>old
    read -r first <&"$both"
    echo "B$first" >&"$both"
    exec {both}>&-
    mkfifo pipe
    { for i in {1..50}; do echo "$i"; done >pipe; } &
    sum=0
    while read -r n; do sum=$((sum + n)); done <pipe
    wait
    echo "$sum" >sum
    for i in {1..8}; do
        (for j in {1..20}; do flock lock sh -c 'n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) >count'; done) &
    done
    wait
    (trap 'echo trapped >trap' EXIT; cd data; mkdir -p "odd names/ä b" && : >"odd names/ä b/'quoted' *" && touch -- -dash)
    shopt -s dotglob
    rm data/f!(1*)
    diff <(sort old) <(sort -r old) >process-substitution || true
    cat >here <<-end
	here $sum
	end
    mapfile -t lines <old
    printf '%s\n' "${lines[@]}" >lines
    (umask 077; : >masked)
    [[ secret -ef ./secret && -s sum && ! -e none && data -nt none ]]
    cat sum count lines
    echo data/* | cksum
}
check() { [ "$(cat count)" = 160 ]; }
