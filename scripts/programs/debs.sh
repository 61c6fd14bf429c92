# Packages of Debian in a root of their own: thousands of files, those that need nothing configured, removed, purged.
needs="apt-get dpkg dpkg-deb"
dated='[.]log$'
. "$PROGRAMS/lib/fetch"
. "$PROGRAMS/lib/packages"
prepare() {
    empty_root
    mkdir debs && cd debs && downloaded tzdata hello netbase vim-runtime
}
work() {
    in_root dpkg --force-depends --no-triggers --unpack debs/*.deb
    in_root dpkg --force-depends --configure hello netbase
    in_root dpkg --force-depends -r hello && in_root dpkg --force-depends -P netbase
    in_root dpkg -l
}
check() { [ ! -e root/usr/bin/hello ] && [ -e root/usr/share/zoneinfo/Europe/Berlin ]; }
