# RAB, as the TxOS paper (§6.4) names it: the Andrew benchmark scaled up and without its compiler. Directories made; 100 files of
# 1 KiB copied into each of 100 directories; all of it looked at; all of it read twice.
needs="python3 grep du"
rows="rab-mkdir rab-cp rab-du rab-grep"
prepare() {
    mkdir sources
    for n in {1..100}; do head -c 1024 /dev/zero | tr '\0' "$((n % 10))" >"sources/f$n"; done
}
work_rab_mkdir() { python3 -c 'import os; [os.mkdir(f"d{n}") for n in range(4000)]'; }
work_rab_cp() {
    python3 - <<'PY'
import os
os.mkdir("into")
for d in range(100): os.mkdir(f"into/d{d}")
for name in sorted(os.listdir("sources")):
    data = open("sources/" + name, "rb").read()
    out = [os.open(f"into/d{d}/{name}", os.O_CREAT | os.O_WRONLY, 0o644) for d in range(100)]
    for fd in out: os.write(fd, data); os.close(fd)
PY
}
ready_rab_du() { work_rab_cp; }
work_rab_du() { du into >/dev/null; }
ready_rab_grep() { work_rab_cp; }
work_rab_grep() {
    grep -r nowhere into || [ $? = 1 ]
    find into -type f -print0 | xargs -0 sum >/dev/null
}
