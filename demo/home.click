// A home router between the interfaces LAN and WAN, neither of which the kernel handles: address translation
// for TCP, UDP, ping and ICMP errors, a rate limit on both links, an intrusion detector on a copy of all
// packets, and a marker of congestion in the path of what is downloaded. The two are untrusted modules.
//
//   flame click demo/home.click LAN=eth1 WAN=eth0 GATEWAY=192.0.2.1 WAN_IP=192.0.2.7/24
//
// docs/click-router.md explains it, and demo/home.sh runs it.

define($LAN lan0, $LAN_IP 192.168.7.1/24, $WAN wan0, $WAN_IP 203.0.113.2/24, $GATEWAY 203.0.113.1,
       $UP 1000kBps, $DOWN 2500kBps, $ECN_RATE 20000000, $RULES demo/home.rules);

AddressInfo(lan $LAN_IP, wan $WAN_IP, gateway $GATEWAY);

// An interface with its ARP. Input: IP packets, with the annotation of the next hop. Output: IP packets.
elementclass Link { $dev, $ip, $own, $rate |
  from :: FromDevice($dev, SNIFFER false)
    -> HostEtherFilter($dev:eth)
    -> kinds :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
  arp :: ARPQuerier($ip, $dev:eth);
  queue :: Queue(400) -> BandwidthShaper($rate) -> to :: ToDevice($dev);
  kinds [0] -> ARPResponder($own $dev:eth) -> queue;
  kinds [1] -> [1] arp;
  kinds [2] -> Strip(14) -> CheckIPHeader -> output;
  kinds [3] -> Discard;
  input -> arp -> queue;
}

lan :: Link($LAN, $LAN_IP, lan, $DOWN);
wan :: Link($WAN, $WAN_IP, wan, $UP);

// The detector sees both directions with the addresses of the house.
watch :: Module(ids, rules @$RULES, EXPOSE all, ENCAP IP) -> Discard;

// The flows of the house, which appear as one address.
flows :: IPRewriter(pattern wan 1024-65535# - - 0 1, drop);
pings :: ICMPPingRewriter(pattern wan 1024-65535# - - 0 1, drop);

// Who may send what. An entry of `flows` is found by addresses and ports alone, whichever side a packet comes
// from, so that neither side may use addresses of the other one, nor those that no host has.
own :: IPFilter(allow src net lan:ipnet and not src host lan);
entry :: IPFilter(
  drop src net lan:ipnet or src host wan or src net 0.0.0.0/8 or src net 127.0.0.0/8 or src net 224.0.0.0/3,
  allow dst host wan);

// Out of the house.
lan -> own -> from_house :: IPClassifier(dst host lan, -);
from_house [0] -> IPClassifier(icmp type echo) -> ICMPPingResponder -> lan;
from_house [1] -> seen_out :: Tee -> ttl_out :: DecIPTTL
  -> out_kinds :: IPClassifier(tcp or udp, icmp type echo, -);
seen_out [1] -> watch;
ttl_out [1] -> ICMPError(lan, timeexceeded) -> lan;
out_kinds [0] -> flows;
out_kinds [1] -> pings;
out_kinds [2] -> Discard;
out :: SetIPAddress(gateway) -> fit_out :: IPFragmenter(1500) -> wan;
fit_out [1] -> ICMPError(lan, unreachable, needfrag, PMTU 1500) -> errors :: ICMPRewriter(flows pings);
flows [0] -> out;
pings [0] -> out;

// Into the house: answers only.
wan -> entry -> ttl_in :: DecIPTTL -> in_kinds :: IPClassifier(tcp or udp, icmp type echo-reply, icmp, -);
ttl_in [1] -> Discard;
in_kinds [0] -> [1] flows;
in_kinds [1] -> [1] pings;
in_kinds [2] -> CheckICMPHeader -> errors;
in_kinds [3] -> Discard;
in :: Null -> seen_in :: Tee -> mark :: Module(ecn, rate $ECN_RATE, threshold 15000, ENCAP IP) -> lan;
seen_in [1] -> watch;
flows [1] -> in;
pings [1] -> in;
errors -> in;
