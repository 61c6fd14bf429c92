# A bare repository, a clone, commits, branches, merge, rebase, stash, tags, gc, worktree, fsck.
needs=git
. "$PROGRAMS/lib/git"
prepare() {
    who && git init -q -b main seed && cd seed
    for n in {1..12}; do
        mkdir -p "d$n"
        for m in {1..10}; do seq "$n" $((m * 30)) >"d$n/f$m"; done
        git add -A && git commit -q -m "$n"
    done
    git clone -q --bare . ../origin.git && cd .. && rm -rf seed
}
work() {
    who
    git clone -q --no-local origin.git clone && cd clone
    git switch -q -c topic && echo topic >t && git add t && git commit -q -m topic && echo t2 >>t && git commit -q -am t2
    git switch -q main && echo m >m && git add m && git commit -q -m m && git rm -q d1/f1 && git mv d2/f2 d3/moved && git commit -q -m mv
    git switch -q topic && git rebase -q main && git switch -q main && git merge -q --no-ff -m merge topic
    echo dirty >>m && git stash -q && git stash pop -q && git checkout -q -- m && git tag -a -m v1 v1
    git push -q origin main v1 && git checkout -q HEAD~5 && git checkout -q main && git reset -q --hard HEAD
    git worktree add -q ../tree2 topic && git gc -q && git repack -q -a -d && git fsck --no-progress --strict
    git init -q ../empty && git status --short --branch && git log --oneline --graph | cat
}
