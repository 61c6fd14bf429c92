# The source of subversion as Debian has it, built before: make install, twice over itself, and what it installs.
needs="apt-get cc make apr-1-config apu-1-config"
. "$PROGRAMS/lib/fetch"
prepare() {
    unpacked subversion source && cd source
    ./configure --quiet --prefix="$T/usr" --without-serf --without-berkeley-db --without-swig --without-apxs --disable-nls CFLAGS=-O0
    make -s -j2
}
work() { make -s -C source install && make -s -C source install DESTDIR="$T/staged"; }
check() { usr/bin/svnadmin create repository && usr/bin/svn info "file://$T/repository"; }
