# Editors without a terminal, with swap, backup and undo files: vim -es, ex.
needs="vim ex"
dated='[.]un~$|viminfo$'
prepare() { for i in {1..30}; do seq 1 "$((i * 40))" >"f$i"; done; chmod 640 f3; ln f4 hard; ln -s f5 soft; }
work() {
    vim -Nu NONE -es -c 'set backup undofile writebackup backupcopy=no' -c '%s/^1/one/' -c wq f1
    vim -Nu NONE -es -c 'set backupcopy=yes' -c 'argdo %s/2$/two/e | update' -c q f2 f3 hard soft
    vim -Nu NONE -es -c 'normal Gdd' -c 'sav new' -c 'wq!' f6
    printf '1,3d\nw\nq\n' | ex -s f7
    printf '1\na\nmore\n.\nw! f9\nq!\n' | ex -s f8
}
