# make install of subversion (TxOS §6.5: 1.70 times the plain time). Building it first takes minutes.
needs="apt-get cc make apr-1-config apu-1-config"
rows="svn-install"
target_svn_install="1.25"
. "$PROGRAMS/lib/fetch"
prepare() {
    unpacked subversion source && cd source
    ./configure --quiet --prefix=/usr/local --with-lz4=internal --with-utf8proc=internal --without-serf --without-berkeley-db --without-swig --without-apxs --disable-nls CFLAGS=-O0
    make -s -j2
}
work_svn_install() { make -s -C source install DESTDIR="$T/installed"; }
