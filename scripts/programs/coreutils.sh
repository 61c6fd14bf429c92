# What copies, moves, links, changes and removes, on objects of every kind.
needs="setfattr setfacl"
prepare() {
    mkdir -p from/deep/er from/locked
    for i in {1..60}; do seq "$i" 300 >"from/deep/f$i"; done
    touch -d '2001-02-03 04:05:06.123456789' from/deep/f1 from/locked
    ln from/deep/f2 from/hard && ln -s deep/f3 from/soft && ln -s nowhere from/dangling
    mkfifo from/pipe && mknod from/null c 1 3
    truncate -s 40M from/sparse && echo end >>from/sparse
    cp from/deep/f4 from/suid && chmod 6755 from/suid && chown 12:34 from/suid from/deep/f5
    setfattr -n user.note -v kept from/deep/f6 && setfattr -n trusted.t -v kept from/deep
    setfacl -m u:12:rw from/deep/f7 && setfacl -d -m g:34:rx from/deep/er
    chmod 1777 from/deep/er && chmod 0 from/locked
    shuf -i 1-5000 --random-source=/bin/sh >numbers
}
work() {
    cp -a from copy
    cp -r --preserve=links from loose 2>/dev/null
    cp -l copy/deep/f8 linked && cp -s "$PWD/from/hard" symbolic && cp --sparse=always from/sparse thin
    cp --backup=numbered from/hard linked
    mv from/deep moved && mv copy/deep/er . && mv -b from/hard copy/soft && mv -n numbers copy/suid
    ln -sfn moved link && ln -f moved/f9 moved/f10 && ln -sr moved/f11 relative
    install -D -m 4711 -o 3 -g 4 -p moved/f1 usr/bin/tool && install -d -m 2750 usr/share/some
    split -b 3k -d numbers part. && csplit -s -f cut. numbers 100 '{3}' && sort -n -o numbers numbers
    seq 1 9 | tee -a linked >/dev/null && truncate -s -7 part.00 && truncate -s 100 part.01
    dd if=/dev/zero of=part.02 bs=1 seek=500 count=300 conv=notrunc status=none && fallocate -p -o 0 -l 4096 thin
    touch -d @1234567890.5 part.03 && touch -r copy/deep/f1 part.04 && touch -h -d @77 link && touch -a part.05
    chmod -R u+w,go-r copy && chmod g+s moved && chown -R 7:8 copy && chown -h 9 relative && chgrp 10 usr
    setfattr -x user.note copy/deep/f6 && setfattr -n user.more -v "$(head -c 900 /dev/zero | tr '\0' x)" part.04
    setfacl -b moved/f7 && setfacl -m m::r moved/f8 && mkdir er/inherits && echo x >er/inherits/file
    mkfifo another && mknod block b 7 9 && mkdir -p a/b/c/d && rmdir -p a/b/c/d && rm -r loose && shred -u part.06
    cat part.0* | md5sum && du -s --apparent-size usr/bin && ls -1R && stat -c '%n %a %u %g %h %F' er/* moved/f1* copy/*
    sha256sum moved/f* >sums && sha256sum -c --quiet sums && wc -l numbers && readlink -f relative link symbolic
}
