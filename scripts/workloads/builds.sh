# Builds of what Debian has in source: the Andrew benchmark's five phases (Howard et al. 1988) over lua, make -j2 of nano and lua.
needs="apt-get cc make"
rows="andrew nano-make lua-make"
target_nano_make=1.05
target_lua_make=1.05
. "$PROGRAMS/lib/fetch"
prepare() {
    mkdir n l && cd l && unpacked lua5.4 source
    echo "#define DEB_HOST_MULTIARCH \"$(cc -print-multiarch)\"" >source/src/lua5.4-deb-multiarch.h
    cd ../n && unpacked nano source && cd source && ./configure --quiet --disable-nls
}
lua() { make -s -j2 -C "$1" linux LUA_T=lua LUAC_T=luac RANLIB=ranlib MYCFLAGS=-I.; }
work_nano_make() { make -s -j2 -C n/source; }
work_lua_make() { lua l/source/src; }
work_andrew() {
    (cd l/source && find . -type d -exec mkdir -p "$T/andrew/{}" \;)
    (cd l/source && find . -type f -exec cp {} "$T/andrew/{}" \;)
    ls -lR andrew >/dev/null && du -s andrew >/dev/null
    find andrew -type f -exec grep -c xoxoxoxo {} \; >/dev/null || true
    find andrew -type f -exec wc {} \; >/dev/null
    lua andrew/src
}
