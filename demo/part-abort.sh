# Part 2: a transaction that fails leaves no trace.
title "2. A transaction that does much, and then fails"
before=$(fingerprint)
say 'systx run --only FS -- sh -c "make uninstall; rm -rf source; mv …; chmod …; exit 3"'
status=0
systx run --only "$fs" -- bash -ec '
    cd "$FS"
    make -s -C source uninstall >/dev/null
    rm -rf source
    mkdir -p etc/new/deep
    for i in {1..500}; do echo "$i" >"etc/new/deep/$i"; done
    mv usr/share usr/moved
    chmod -R go-rwx usr
    setfattr -n user.note -v changed usr/moved
    echo "  inside: $(find . -type f | wc -l) files, usr holds: $(ls usr | xargs)"
    exit 3
' 2>"$scratch/abort.log" || status=$?
sed 's/^/  /' "$scratch/abort.log"
equal "$status" 3 "systx passes on the command's own status"
equal "$(fingerprint)" "$before" "names, contents, modes, owners, times, inode numbers and attributes are as before"
