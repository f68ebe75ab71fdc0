# Sourced by record.sh and live.sh: client and server namespaces, the link between them in a third, the
# servers. Leaves $client, $server, $link (namespaces), $tmp, and get(), which fetches a URL.
. "$(dirname "$0")/namespaces.sh"
make_namespaces client server link
for n in $client $server $link; do
  # Interfaces of the link pass frames; they have no business of their own.
  within "$n" sysctl -qw net.ipv6.conf.default.accept_dad=0
done
within $link sysctl -qw net.ipv6.conf.default.disable_ipv6=1
pair() { # pair NAMESPACE INTERFACE LINK_INTERFACE ADDRESS...
  ip link add "$2" netns "$1" type veth peer name "$3" netns "$link"
  # Checksums and segments are to be as on a wire.
  within "$1" ethtool -K "$2" tx off tso off gso off gro off >/dev/null
  for a in "${@:4}"; do within "$1" ip addr add "$a" dev "$2"; done
  within "$1" ip link set "$2" up
  within "$link" ip link set "$3" up
}
pair "$client" eth0 c0 10.9.0.1/24 fd00:9::1/64
pair "$server" eth0 s0 10.9.0.2/24 fd00:9::2/64
pair "$client" vlan c1 10.9.42.1/24
pair "$server" vlan s1 10.9.42.2/24
within $link ip link add mirror type veth peer name nowhere
within $link ip link set mirror up
within $link ip link set nowhere up
within $link python3 "$(dirname "$0")/link.py" c0 s0 c1 s1 mirror &

mkdir "$tmp/www"
echo '<html><body>FLAME</body></html>' >"$tmp/www/index.html"
head -c 400000 /dev/zero >"$tmp/www/bulk"
for port in 80 8081; do
  (cd "$tmp/www" && within $server python3 -m http.server --bind :: $port >/dev/null 2>&1 &)
done
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=demo -keyout "$tmp/k" -out "$tmp/c" 2>/dev/null
(cd "$tmp" && within $server openssl s_server -accept 443 -key k -cert c -www -quiet >/dev/null 2>&1 &)
within $server dnsmasq --no-daemon --no-resolv --no-hosts --pid-file="$tmp/pid" --user=root \
  --address=/demo.test/10.9.0.2 --address=/demo.test/fd00:9::2 --local=/test/ >/dev/null 2>&1 &
sleep 1.5
get() { within $client curl -gsk -m 20 -o /dev/null "$@" || true; }
