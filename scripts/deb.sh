#!/usr/bin/env bash
# Makes a Debian package of what `make install` installed below a folder.
#   deb.sh STAGE VERSION OUTPUT
# STAGE has the tree with usr/ in it. Libraries that the programs need become dependencies of the package.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."
stage=$1 version=$2 output=$3

doc=$stage/usr/share/doc/flame
install -D -m 644 -t "$doc" packaging/debian/copyright LICENSE-MIT README.md docs/*.md
install -D -m 644 -t "$doc/examples" packaging/prometheus/* packaging/grafana/*
gzip -9n < CHANGELOG.md > "$doc/changelog.gz"
gzip -9nf "$stage"/usr/share/man/man1/*
install -d -m 755 "$stage/etc/flame"
strip "$stage"/usr/bin/*

# dpkg-shlibdeps reads a source package's control file, which only has to be there.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian"
printf 'Source: flame\n\nPackage: flame\nArchitecture: amd64\n' > "$work/debian/control"
binaries=$(realpath "$stage"/usr/bin/*)
# shellcheck disable=SC2086 # one word for each program
depends=$(cd "$work" && dpkg-shlibdeps --warnings=0 -O $binaries | sed 's/^shlibs:Depends=//')

install -d -m 755 "$stage/DEBIAN"
install -m 755 -t "$stage/DEBIAN" packaging/debian/{postinst,prerm,postrm}
size=$(du -sk --exclude=DEBIAN "$stage" | cut -f 1)
sed -e "s/@VERSION@/$version/" -e "s/@SIZE@/$size/" -e "s/@DEPENDS@/$depends/" packaging/debian/control.in \
  > "$stage/DEBIAN/control"
(cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
chmod -R u+rwX,go+rX,go-w "$stage"
dpkg-deb --root-owner-group --build "$stage" "$output" > /dev/null
echo "$output: $(($(stat -c %s "$output") / 1024 / 1024)) MiB, installed $((size / 1024)) MiB"
