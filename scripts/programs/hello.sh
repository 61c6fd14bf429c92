# The source of hello as Debian has it: configure, make -j2, make install, make uninstall.
package=hello
. "$PROGRAMS/lib/autotools"
check() { [ "$(usr/bin/hello)" = "Hello, world!" ]; }
