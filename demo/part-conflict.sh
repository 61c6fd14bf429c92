# Part 3: an outsider edits what a transaction has read and rewritten.
title "3. Somebody else edits the same file meanwhile, and knows nothing of transactions"
mkdir -p "$fs/etc"
printf 'greeting=Hello\ncolour=blue\n' >"$fs/etc/hello.conf"
edit='
    sed -i s/Hello/Servus/ "$FS/etc/hello.conf"
    set -- edited; '"$TELL; $WAIT"
say 'systx run --only FS -- sed -i s/Hello/Servus/ etc/hello.conf'
background conflict.log "$edit"
heard edited
say "Before it ends, a plain shell does:   echo colour=green >> etc/hello.conf"
echo colour=green >>"$fs/etc/hello.conf"
echo go >&6
heard end:75
wait
sed 's/^/  /' "$scratch/conflict.log"
ok "exit status 75: conflict, nothing was changed"
check "the message names the file" grep -q 'etc/hello\.conf' "$scratch/conflict.log"
equal "$(xargs <"$fs/etc/hello.conf")" "greeting=Hello colour=blue colour=green" "the plain shell's edit is kept"
say "The same transaction once more, undisturbed:"
background again.log "$edit"
heard edited
echo go >&6
heard end:0
wait
equal "$(xargs <"$fs/etc/hello.conf")" "greeting=Servus colour=blue colour=green" "both edits are there"
