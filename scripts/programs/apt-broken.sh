# As apt, but a package's maintainer script fails in the middle of an upgrade: apt-get fails, and nothing of all that stays.
. "$PROGRAMS/apt.sh"
expect=100
prepare() {
    package one 1 && package two 1 && empty_root
    mkdir repo new && mv ./*_1.deb repo
    package one 2 && package two 2 'echo half >"$DPKG_ROOT/usr/share/two/half"; exit 3' && mv ./*_2.deb new && rm -rf build
    lists
}
work() {
    apt update && apt install one two
    [ "$(cat root/etc/one.conf)" = "one 1" ] || exit 1
    mv new/* repo && index && apt update
    local status=0
    apt upgrade || status=$?
    [ "$(cat root/etc/one.conf)$(cat root/usr/share/two/half)" = "one 2half" ] || exit 1
    exit "$status"
}
