# Packages in a Debian of their own: dpkg -i of OpenSSH (TxOS §6.5), and of one with more than 10,000 files by apt-get.
needs="debootstrap apt-get dpkg-deb"
rows="dpkg-openssh apt-golang-src"
target_dpkg_openssh=0.8
target_apt_golang_src=0.6
export DEBIAN_FRONTEND=noninteractive TMPDIR=/tmp
prepare() {
    local uri suite
    read -r uri suite < <(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
        grep -v -e -security -e -updates -e -backports | sort -u | head -n 1)
    debootstrap --variant=minbase --force-check-gpg "$suite" root "$uri"
    printf '#!/bin/sh\nexit 101\n' >root/usr/sbin/policy-rc.d && chmod 755 root/usr/sbin/policy-rc.d
    # What OpenSSH depends on, and its host keys, are not what is measured.
    chroot root apt-get -qq -y --no-install-recommends install openssh-server openssh-client
    mkdir root/debs && chroot root sh -c 'cd /debs && apt-get -qq -o APT::Sandbox::User=root download openssh-server openssh-client openssh-sftp-server'
    chroot root dpkg -r openssh-server openssh-sftp-server openssh-client
    chroot root apt-get -qq -y --no-install-recommends --download-only install golang-1.19-src
}
work_dpkg_openssh() { chroot root sh -c 'dpkg -i /debs/openssh-*.deb'; }
work_apt_golang_src() { chroot root apt-get -qq -y --no-install-recommends --no-download install golang-1.19-src; }
