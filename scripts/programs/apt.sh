# apt-get over a root of its own and packages made on the spot: update, install, upgrade, remove.
needs="apt-get dpkg-deb"
dated='[.]log$|cache[.]bin$'
. "$PROGRAMS/lib/packages"
prepare() {
    package one 1 && package two 1 && empty_root
    mkdir repo new && mv ./*_1.deb repo && package one 2 && mv one_2.deb new && rm -rf build
    lists
}
lists() { # what apt-get reads: sources and the repository's index
    mkdir -p root/etc/apt/apt.conf.d root/var/lib/apt/lists/partial root/var/cache/apt/archives/partial
    echo "deb [trusted=yes] file:$T/repo ./" >root/etc/apt/sources.list
    index
}
index() {
    for deb in repo/*.deb; do
        dpkg-deb -f "$deb"
        printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "${deb#repo/}" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d' ' -f1)"
    done >repo/Packages
}
apt() {
    apt-get -qq -y -o "Dir=$T/root" -o "Dir::State::status=$T/root/var/lib/dpkg/status" -o APT::Sandbox::User=root \
        -o "DPkg::Options::=--root=$T/root" -o DPkg::Options::=--force-script-chrootless -o Dir::Bin::methods=/usr/lib/apt/methods \
        -o "DPkg::Options::=--log=$T/root/var/log/dpkg.log" "$@" </dev/null
}
work() {
    apt update && apt install one two
    mv new/* repo && index && apt update && apt upgrade && apt remove two
    in_root dpkg -l
}
check() { in_root dpkg --audit && [ "$(cat root/var/lib/one/configured)" = "configure 1" ]; }
