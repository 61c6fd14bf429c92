# The source of hello as Debian has it: configure, make -j2, make install, make uninstall.
needs="apt-get cc make"
. "$PROGRAMS/lib/fetch"
prepare() { unpacked hello source; }
work() {
    cd source
    ./configure --quiet --disable-nls --prefix="$T/usr"
    make -s -j2
    make -s install
    make -s install DESTDIR="$T/staged"
    make -s uninstall DESTDIR="$T/staged"
}
check() { [ "$(usr/bin/hello)" = "Hello, world!" ]; }
