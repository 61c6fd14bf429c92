# A source tree of 10,000 files of 0 to 40 KB in 600 directories: unpacked, copied, walked once, walked again, removed; and 5,000 files as
# dpkg writes them: each under another name, synced, renamed.
needs="python3 tar cp find rm"
rows="tar-x cp-r find-first inside-find-again rm-r dpkg-like"
target_tar_x=2.0
target_find_first=4
target_inside_find_again=1.1
target_rm_r=1.5
target_dpkg_like=0.3
prepare() {
    python3 - <<'PY'
import os, random
random.seed(1)
dirs = ["tree"]
os.mkdir("tree")
for n in range(600):
    dirs.append(os.path.join(random.choice(dirs[-30:]), f"d{n}"))
    os.mkdir(dirs[-1])
for n in range(10000):
    size = min(40000, int(random.lognormvariate(7, 1.5)))
    with open(os.path.join(random.choice(dirs), f"f{n}.c"), "wb") as f: f.write(bytes([65 + n % 26]) * size)
PY
    tar -cf tree.tar tree && rm -r tree
}
work_tar_x() { tar -xf tree.tar; }
ready_cp_r() { work_tar_x; }
work_cp_r() { cp -r tree copy; }
ready_find_first() { work_tar_x; }
work_find_first() { find tree -size +100M; }
ready_inside_find_again() { work_tar_x; }
work_inside_find_again() {
    find tree -size +100M
    local from=$EPOCHREALTIME n
    for n in 1 2 3; do find tree -size +100M; done
    echo $((${EPOCHREALTIME/[.,]/} - ${from/[.,]/})) >&3
}
ready_rm_r() { work_tar_x; }
work_rm_r() { rm -r tree; }
work_dpkg_like() {
    python3 - <<'PY'
import os, random
random.seed(2)
os.mkdir("usr")
for n in range(5000):
    if n % 50 == 0: os.mkdir(f"usr/d{n // 50}")
    name = f"usr/d{n // 50}/f{n}"
    fd = os.open(name + ".dpkg-new", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    os.write(fd, bytes([65 + n % 26]) * min(40000, int(random.lognormvariate(7, 1.5))))
    os.fsync(fd)
    os.close(fd)
    os.rename(name + ".dpkg-new", name)
PY
}
