# The source of lua as Debian has it: make -j2, make install.
needs="apt-get cc make"
. "$PROGRAMS/lib/fetch"
prepare() {
    unpacked lua5.4 source
    # Made by Debian's rules.
    echo "#define DEB_HOST_MULTIARCH \"$(cc -print-multiarch)\"" >source/src/lua5.4-deb-multiarch.h
}
work() {
    cd source
    make -s -j2 -C src linux LUA_T=lua LUAC_T=luac RANLIB=ranlib MYCFLAGS=-I.
    make -s install INSTALL_TOP="$T/usr"
    make -s -C src clean
}
check() { [ "$(usr/bin/lua -e 'print(6 * 7)')" = 42 ]; }
