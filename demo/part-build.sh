# Part 1: a C package is built and installed inside a transaction.
title "1. Build and install $(cat "$scratch/source/what") inside a transaction, and commit"
cp -a "$scratch/source/hello" "$fs/source"
say 'systx run --only FS -- sh -c "./configure && make && make install"   (prefix: the scratch file system)'
background build.log '
    cd "$FS/source"
    ./configure --quiet --prefix="$FS/usr"
    make
    make install
    test "$("$FS/usr/bin/hello")" = "Hello, world!"
    set -- installed; '"$TELL; $WAIT"
heard installed
say "Inside it is installed, and it runs. Outside, before the commit:"
check "nobody else sees a file of it" test ! -e "$fs/usr" -a ! -e "$fs/source/config.status"
echo go >&6
heard end:0
wait
say "The command ended with status 0, so systx committed. Now:"
equal "$("$fs/usr/bin/hello")" "Hello, world!" "the installed program runs for everybody"
say "$(find "$fs/usr" "$fs/source" -newer "$scratch/source/what" | wc -l) files and directories appeared or changed in one commit"
