#!/usr/bin/env bash
# Installs, uses, upgrades and purges a package in a clean Debian root.
#   test-deb.sh PACKAGE ROOT.tar
# ROOT.tar is made by debootstrap if it is not there. MIRROR names another mirror of Debian.
set -euo pipefail
package=$(realpath "$1") saved=$2
here=$(cd "$(dirname "$0")/.." && pwd)
mirror=${MIRROR:-http://deb.debian.org/debian}

[ "$(id -u)" = 0 ] || { echo "test-deb: a Debian root takes root: run it with sudo"; exit 1; }
if [ ! -f "$saved" ]; then
  command -v debootstrap > /dev/null || apt-get install -y -qq --no-install-recommends debootstrap
  made=$(mktemp -d)
  debootstrap --variant=minbase --include=adduser bookworm "$made" "$mirror" > "$saved.log"
  tar -C "$made" -cf "$saved.partial" . && mv "$saved.partial" "$saved"
  rm -rf "$made"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir "$root" && tar -C "$root" -xf "$saved"
chmod 755 "$root"
# The same files with a later version, as an upgrade.
dpkg-deb -R "$package" "$work/later"
version=$(dpkg-deb -f "$package" Version)
sed -i "s/^Version: .*/Version: $version+later1/" "$work/later/DEBIAN/control"
dpkg-deb --root-owner-group -b "$work/later" "$root/later.deb" > /dev/null
cp "$package" "$root/flame.deb"
cp "$here/demo/demo.pcap" "$here/scripts/test-deb-inside.sh" "$root/"
cp /etc/resolv.conf "$root/etc/resolv.conf"

# Mounts and processes end with the namespaces.
unshare --mount --pid --fork --kill-child bash -euc '
  mount -t proc proc "$0/proc"
  mount --rbind /dev "$0/dev"
  mount -t tmpfs tmpfs "$0/run"
  exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    DEBIAN_FRONTEND=noninteractive bash /test-deb-inside.sh
' "$root"
