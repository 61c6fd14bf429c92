# The C program of the demo: cc, make, install, clean.
needs="cc make"
prepare() { cp -r "$PROGRAMS/../../demo/hello-systx" source && find source -exec touch -d @1600000000 {} +; }
work() {
    cd source
    ./configure --quiet --prefix="$T/usr"
    make -j2 && make install && make
    "$T/usr/bin/hello"
}
check() { [ "$(usr/bin/hello)" = "Hello, world!" ] && make -q -C source; }
