# A database with each journal mode, the WAL's shared mapping included; a backup; a rollback.
needs=python3
prepare() { "$PYTHON" -c 'import sqlite3'; }
work() {
    for mode in delete truncate persist wal memory; do
        "$PYTHON" - "$mode" <<'end'
import sqlite3, sys
mode = sys.argv[1]
db = sqlite3.connect(mode + '.db')
assert db.execute('pragma journal_mode=' + mode).fetchone()[0] == mode
db.execute('create table t (k integer primary key, v text)')
for n in range(20):
    with db:
        db.executemany('insert into t (v) values (?)', [('%d' % (n * i),) for i in range(100)])
other = sqlite3.connect(mode + '.db')
assert other.execute('select count(*) from t').fetchone()[0] == 2000
try:
    with db:
        db.execute('update t set v = 0')
        raise KeyError
except KeyError:
    pass
with other:
    other.execute('create index i on t (v)')
    other.execute('delete from t where k % 3 = 0')
assert db.execute('pragma integrity_check').fetchone()[0] == 'ok'
copy = sqlite3.connect(mode + '.copy')
db.backup(copy)
copy.close()
if mode == 'wal': db.execute('pragma wal_checkpoint(truncate)')
print(mode, db.execute('select count(*), sum(length(v)) from t').fetchone())
end
    done
}
check() {
    for db in *.db *.copy; do
        "$PYTHON" -c 'import sqlite3, sys; sys.exit(sqlite3.connect(sys.argv[1]).execute("pragma integrity_check").fetchone()[0] != "ok")' "$db"
    done
}
