# A real repository, that of systx: clone, branches, rebase of commits as they were made, merge, bisect, gc, fsck.
needs=git
. "$PROGRAMS/lib/git"
prepare() {
    who
    # Whoever owns the clone that this lies in; what is not committed there stays there.
    git -c safe.directory='*' clone -q --bare --no-local "$PROGRAMS/../.." origin.git
    [ "$(git -C origin.git rev-list --first-parent --count HEAD)" -gt 100 ] || { echo "the clone has too little history"; return 1; }
    git -C origin.git update-ref refs/heads/trunk HEAD && git -C origin.git symbolic-ref HEAD refs/heads/trunk
}
# The n-th commit of the history, which is linear at its beginning.
nth() { git rev-list --first-parent --reverse origin/trunk | sed -n "$1p"; }
work() {
    who
    git clone -q --no-local origin.git clone && cd clone
    # Commits as they were made, each once more, on what comes from elsewhere.
    git switch -q -c side "$(nth 40)" && mkdir side && echo one >side/one && git add -A && git commit -q -m one
    git switch -q -c again "$(nth 60)" && git rebase -q side && git rebase -q --no-ff HEAD~10
    git switch -q -c topic "$(nth 60)" && echo two >none-of-theirs && git add -A && git commit -q -m two && git rebase -q trunk
    git switch -q -c squashed trunk && git reset -q --soft HEAD~5 && git commit -q -m five && git revert --no-edit HEAD
    git switch -q trunk && git merge -q --no-ff -m merge topic && git cherry-pick side
    git bisect start -q HEAD HEAD~30 && git bisect run test ! -e none-of-theirs && git bisect reset -q
    git gc -q --prune=now && git repack -q -a -d && git fsck --no-progress --strict
    git push -q origin topic squashed && git log --oneline -n 50 | cat && git diff --stat again topic | cat && git status --short --branch
}
