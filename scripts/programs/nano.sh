# The source of nano as Debian has it: configure, make -j2, make install, make uninstall.
package=nano
. "$PROGRAMS/lib/autotools"
check() { usr/bin/nano --version; }
