# git: a clone of 200 commits over 900 files and two checkouts; gc.
needs=git
rows="git-clone git-gc"
target_git_clone=2.0
named_by_chance=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.invalid GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@example.invalid GIT_CONFIG_NOSYSTEM=1
prepare() {
    git init -q -b main seed && cd seed
    for d in {1..30}; do
        mkdir "d$d"
        for f in {1..30}; do seq "$((d * f))" "$((d * f + 800))" >"d$d/f$f"; done
    done
    git add -A && git commit -q -m 0
    for n in {1..200}; do
        echo "$n" >>"d$((n % 30 + 1))/f$((n % 7 + 1))" && echo "$n" >>"d$((n % 11 + 1))/f$((n % 30 + 1))"
        git commit -q -a -m "$n"
    done
    git clone -q --bare --no-local . ../origin.git
}
work_git_clone() { git clone -q --no-local origin.git clone && git -C clone checkout -q HEAD~100 && git -C clone checkout -q main; }
work_git_gc() { git -C seed gc -q; }
