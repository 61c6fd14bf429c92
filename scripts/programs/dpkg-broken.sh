# A good package and one whose maintainer script fails in the middle: dpkg fails, and nothing of either stays.
needs="dpkg dpkg-deb"
expect=1
. "$PROGRAMS/lib/packages"
prepare() { package good 1 && package broken 1 'echo half >"$DPKG_ROOT/usr/share/broken/half"; exit 3' && empty_root; }
work() { in_root dpkg -i good_1.deb broken_1.deb; }
