# Archives written and unpacked: tar with links, attributes and sparse files, gzip, xz, sed -i, find -delete.
needs="tar gzip xz setfattr"
prepare() {
    mkdir -p src/a/b src/c
    for i in {1..300}; do seq "$i" 400 >"src/a/f$i"; done
    for i in {1..40}; do ln "src/a/f$i" "src/a/b/h$i"; ln -s "../a/f$i" "src/c/s$i"; done
    truncate -s 8M src/holes && echo x >>src/holes && chmod 4755 src/a/f7 && chown -R 5:6 src/c
    setfattr -n user.k -v v src/a/f9
    find src -exec touch -h -d '1999-12-31 23:59:59.987654321' {} +
    tar --sort=name --xattrs -S -cf start.tar src
}
work() {
    tar -cf unsorted.tar src
    mkdir out && tar --xattrs -xpf start.tar -C out
    tar --sort=name --pax-option=delete=atime,delete=ctime --xattrs -S -cf again.tar -C out src
    tar --sort=name -czf z.tgz src/c && tar --sort=name -cJf x.txz src/a
    mkdir z x && tar -xzf z.tgz -C z && tar -xJf x.txz -C x --no-same-owner
    tar -xf start.tar -C out --overwrite src/a/f1 && tar -xf start.tar -C out --unlink-first src/a/b/h1
    gzip -k out/src/a/f1 && xz out/src/a/f2 && gunzip <out/src/a/f1.gz | cmp - out/src/a/f1
    sed -i 's/^1/one/' out/src/a/f3* && find out -name 'f2*' -delete && find x -type f -newer start.tar | wc -l
    tar -df start.tar -C . && find out src | sort | md5sum
}
