# initdb, tables filled by a server in single-user mode, a checkpoint: as an ordinary user.
needs="initdb postgres setpriv"
prepare() { mkdir db && chown 65534:65534 db && chmod 700 db && initdb --version; }
work() {
    local nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    "${nobody[@]}" initdb -D "$T/db/data" --no-locale -A trust >/dev/null
    cd db/data
    "${nobody[@]}" postgres --single -D "$T/db/data" postgres <<'end' >/dev/null
create table t as select n, repeat('x', 100) as text from generate_series(1, 5000) n
create index i on t (n)
delete from t where n % 3 = 0
vacuum full t
checkpoint
end
}
check() {
    cd db/data
    echo 'select count(*) as left from t' |
        setpriv --reuid=65534 --regid=65534 --clear-groups postgres --single -D "$T/db/data" postgres | grep -q 'left = "3334"'
}
