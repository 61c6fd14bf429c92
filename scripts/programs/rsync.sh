# rsync of a local tree: archive mode with links, attributes, ACLs and holes; a second run; in place; delete; partial.
needs="setfattr"
. "$PROGRAMS/lib/fetch"
prepare() {
    command -v rsync || {
        mkdir debs && cd debs && downloaded rsync libpopt0 libxxhash0 liblz4-1 libzstd1 libacl1
        for deb in *.deb; do dpkg-deb -x "$deb" ../borrowed; done
        cd .. && rm -rf debs && settings && rsync --version
    }
    mkdir -p from/a/b
    for i in {1..400}; do seq "$i" 500 >"from/a/f$i"; done
    ln from/a/f1 from/a/b/hard && ln -s ../f2 from/a/b/soft && mkfifo from/pipe && chown -R 5:6 from/a/b
    truncate -s 3M from/holes && echo x >>from/holes && setfattr -n user.k -v v from/a/f3 && chmod 2750 from/a
    find from -exec touch -h -d '2005-05-05 05:05:05.555555555' {} +
}
settings() { export PATH="$T/borrowed/usr/bin:$PATH" LD_LIBRARY_PATH="$T/borrowed/usr/lib/x86_64-linux-gnu:$T/borrowed/lib/x86_64-linux-gnu"; }
work() {
    settings
    rsync -aHAXS from/ to/
    rsync -aHAXS --itemize-changes from/ to/
    for i in 5 6 7; do echo more >>from/a/f$i; done
    rm from/a/f1?? && mv from/a/f20 from/a/moved
    rsync -aH --delete --backup --backup-dir="$T/kept" --itemize-changes from/ to/
    echo inplace >>from/a/f8
    rsync -a --inplace --no-whole-file --checksum from/a/ to/a/
    rsync -a --link-dest="$T/to" from/ snapshot/
    rsync -a --remove-source-files from/a/f9 elsewhere/
}
