# Packages made on the spot, in a root of their own: install, upgrade with a changed conffile, diversion, remove, purge.
needs="dpkg dpkg-deb"
dated='[.]log$'
. "$PROGRAMS/lib/packages"
prepare() {
    package one 1 && package one 2 && package two 1 && empty_root
}
work() {
    in_root dpkg -i one_1.deb two_1.deb
    echo edited >>root/etc/one.conf
    in_root dpkg -i --force-confold one_2.deb
    dpkg-divert --admindir="$T/root/var/lib/dpkg" --instdir="$T/root" --add --rename --divert /usr/share/one/kept /usr/share/one/f1
    in_root dpkg -r two && in_root dpkg -P two && in_root dpkg -V one || true
    in_root dpkg -l
}
check() { in_root dpkg --audit && [ -e root/usr/share/one/kept ] && [ "$(cat root/var/lib/one/configured)" = "configure 1" ]; }
