#!/usr/bin/env python3
"""Alerts that rules must give on the shared captures, found without any code of the module.

    FLAME_TRACES=FOLDER tests/expected.py > tests/expected.tsv
    FLAME_TRACES=FOLDER tests/expected.py --snort > tests/expected-snort.tsv
    FLAME_TRACES=FOLDER tests/expected.py --rules FILE [--only CAPTURE]

The rules are the shipped ones and those of words.rules, or those of FILE. Slow and plain: every rule is tried
on every packet, contents at every place with full backtracking, regular expressions by Python's re. What the
language means here:

- The outermost IP header counts; streams are not reassembled. A payload ends where the datagram does, or the
  capture.
- Fragments are packets with a header of IP alone, in Snort with the data behind it; the datagram that they
  complete is one more packet, at the place of the last of them. Of overlapping bytes, an earlier fragment's
  count if it begins before the new one or with it. The first fragment without more states the length.
- In Suricata, a packet without ports, as a fragment is, matches rules about any ports alone, and only TCP,
  UDP, ICMP, SCTP, ESP and IP in IP belong to connections. In Suricata, only TCP, UDP, ICMP, SCTP and ESP have one, and a rule with contents or the like, or
  `dsize:!N`, needs one.
- tcp, udp and icmp rules need the whole transport header, in Suricata also a fragment of their protocol
  fits; in Snort one matches ip rules only.
- depth counts from offset; distance and within count from the end of the content, pcre, byte_jump,
  byte_extract or byte_math before. A negated content or pcre moves nothing.
- isdataat:N asks for a byte at N from the start. Relative, Snort asks for a byte at N from there, Suricata
  only that N bytes are left.
- dsize is the payload's length by the headers. `3<>5` leaves its ends out; Snort's dsize includes them, and
  its `3-5` does. `$` of a pcre without m is the end, or before a newline that is the last byte.
- byte_jump ends in the payload, in Suricata also at its end, or fails; before its start, it is the start.
  Numbers in text are read as by strtoull. bitmask: and, then to the right.
- flags:!SA in Suricata: not both; in Snort: none of them. tos in Suricata is IPv4's.
- dns.query: each name of a query in a packet of port 53, without a dot at its end; tls.sni: the name in a
  ClientHello that a packet begins with. dns and tls rules: packets of connections in which one was seen.
- flow in Suricata: the client of a connection sent its first packet. TCP is
  established behind the client's ACK of the SYN-ACK; a SYN begins a new one behind FIN or RST, or before that
  unless it repeats the first. Others are established with the first packet of the second side. A connection
  ends after 600 s without packets if it is an established one of TCP, other ones of TCP after 60 s, others
  after 300 s if both sides have sent, or 30 s.
- flow in Snort: a SYN begins a connection (its sender is the client), or a SYN-ACK without one (its sender is
  the server). Established is what comes behind the SYN-ACK, a RST ends it. UDP: the first packet begins it,
  established is what comes once both were heard. Others have none.
- Rules that set marks come before those that ask for them. A mark set by a match holds from there on.
- In Suricata, a rule of a header alone matches the first packet of each direction of a connection, unless a
  range of addresses or `!` before some is part of it.
- Rates count a rule's matches by address in periods: a match behind `seconds` begins the next one, in Snort
  also one at `seconds`.
  limit: the first `count`; threshold: each `count`-th; both: the `count`-th; detection_filter: those behind
  the `count`-th.
"""

import gzip
import ipaddress
import os
import re
import struct
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
SNORT = "--snort" in sys.argv
TRACES = Path(os.environ.get("FLAME_TRACES", HERE / "../../../../shared/traces")) / "open"

# --- rules --------------------------------------------------------------------------------------------------


def split_options(text):
    part, quoted, escaped, parts = "", False, False, []
    for c in text:
        if c == ";" and not quoted and not escaped:
            parts.append(part.strip())
            part = ""
            continue
        if c == '"' and not escaped:
            quoted = not quoted
        escaped = c == "\\" and not escaped
        part += c
    assert not part.strip(), part
    return [tuple(p.split(":", 1)) if ":" in p else (p, "") for p in parts]


def content_bytes(text):
    out, hexa, i = b"", False, 0
    while i < len(text):
        if text[i] == "|":
            hexa = not hexa
        elif hexa:
            if not text[i].isspace():
                out += bytes([int(text[i : i + 2], 16)])
                i += 1
        elif text[i] == "\\":
            i += 1
            out += text[i].encode()
        else:
            out += text[i].encode()
        i += 1
    return out


def EVERYTHING(_):
    return True


class Lists:
    """Addresses or ports: a function that says whether one is in it."""

    def __init__(self, single):
        self.single, self.names = single, {}

    def parse(self, text):
        text = text.strip()
        if text.startswith("!"):
            inner = self.parse(text[1:])
            return lambda x: not inner(x)
        if text.startswith("["):
            parts, depth, part = [], 0, ""
            for c in text[1:-1]:
                depth += {"[": 1, "]": -1}.get(c, 0)
                if c == "," and depth == 0:
                    parts.append(part.strip())
                    part = ""
                else:
                    part += c
            parts.append(part.strip())
            yes = [self.parse(p) for p in parts if not p.startswith("!")]
            no = [self.parse(p[1:]) for p in parts if p.startswith("!")]
            return lambda x: (not yes or any(f(x) for f in yes)) and not any(f(x) for f in no)
        if text == "any":
            return EVERYTHING
        if text.startswith("$"):
            return self.names[text[1:]]
        return self.single(text)


def address(text):
    net = ipaddress.ip_network(text, strict=False)
    return lambda a: a.version == net.version and a in net


def port(text):
    first, _, last = text.partition(":")
    low = int(first) if first else 0
    high = (int(last) if last else 65535) if ":" in text else low
    return lambda p: low <= p <= high


def number(text, ends=False):
    if text.startswith("!"):
        inner = number(text[1:], ends)
        return lambda n: not inner(n)
    if m := re.fullmatch(r"(\d+)<>(\d+)", text):
        low, high = map(int, m.groups())
        return lambda n: low <= n <= high if ends else low < n < high
    if m := re.fullmatch(r"(\d+)-(\d+)", text):
        low, high = map(int, m.groups())
        return lambda n: low <= n <= high if SNORT else low < n < high
    if m := re.fullmatch(r"(<=|>=|<|>)(\d+)", text):
        op, limit = m.group(1), int(m.group(2))
        return lambda n: {"<": n < limit, ">": n > limit, "<=": n <= limit, ">=": n >= limit}[op]
    return lambda n: n == int(text)


def flag_bits(text, letters):
    parts = text.split(",")
    wanted, mode = parts[0], ""
    for sign in "+*!":
        if sign in wanted:
            mode, wanted = sign, wanted.replace(sign, "")
    bits = sum(letters[c] for c in wanted if c != "0")
    mask = ~sum(letters[c] for c in parts[1]) if len(parts) > 1 else ~0
    bits &= mask
    return {
        "": lambda v: v & mask == bits,
        "+": lambda v: v & mask & bits == bits,
        "*": lambda v: v & mask & bits != 0,
        "!": lambda v: v & mask & bits == 0 if SNORT else v & mask & bits != bits,
    }[mode]


TCP_FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16, "U": 32, "E": 64, "C": 128}
IP_FLAGS = {"M": 1, "D": 2, "R": 4}


def parse_pcre(text):
    text = text.strip('"')
    negated = text.startswith("!")
    text = text.lstrip("!")
    body, flags = text[1 : text.rindex(text[0])], text[text.rindex(text[0]) + 1 :]
    f = sum({"i": re.I, "s": re.S, "m": re.M, "x": re.X}.get(c, 0) for c in flags)
    return dict(re=re.compile(body.encode("latin-1"), f), no=negated, relative="R" in flags)


PROTOCOLS = {"tcp": 6, "udp": 17, "icmp": 1, "igmp": 2, "gre": 47, "esp": 50, "ah": 51, "ospf": 89,
    "pim": 103}


def constant(text):
    """A number, or the name of a variable."""
    text = text.strip()
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return int(text, 16) if text.startswith("0x") else text


def parse_field(words):
    """What the options about numbers share."""
    f = dict(relative=False, order="big", base=None, mask=None, multiplier=1, align=1, origin=None, post=0)
    for word in words:
        name, _, value = word.partition(" ")
        if name == "endian":
            f["order"] = value
        elif name in ("big", "little"):
            f["order"] = name
        elif name == "relative":
            f["relative"] = True
        elif name in ("string", "hex", "dec", "oct"):
            stated = {"hex": 16, "oct": 8}.get(value or name, 10)
            f["base"] = stated if name != "string" or value else f["base"] or 10
        elif name == "bitmask":
            f["mask"] = int(value, 16)
        elif name == "multiplier":
            f["multiplier"] = int(value)
        elif name == "align":
            f["align"] = int(value or 4)
        elif name in ("from_beginning", "from_end"):
            f["origin"] = name
        elif name == "post_offset":
            f["post"] = constant(value)
        else:
            raise ValueError(word)
    return f


def parse_step(name, value):
    words = [w.strip() for w in value.split(",")]
    if name == "content":
        no = value.startswith("!")
        step = dict(bytes=content_bytes(value.lstrip("!").strip('"')), no=no, nocase=False, ends=False)
        return step | dict(start=0, length=None, relative=False)
    if name == "pcre":
        return parse_pcre(value)
    if name == "isdataat":
        return dict(at=constant(words[0].lstrip("!")), no=value.startswith("!"), relative="relative" in words)
    if name == "byte_test":
        sign = words[1].lstrip("!") or "="
        step = dict(no=words[1].startswith("!"), sign=sign, value=constant(words[2]))
        return parse_field(words[4:]) | step | dict(size=constant(words[0]), at=constant(words[3]))
    if name == "byte_jump":
        return parse_field(words[2:]) | dict(size=constant(words[0]), at=constant(words[1]))
    if name == "byte_extract":
        return parse_field(words[3:]) | dict(size=constant(words[0]), at=constant(words[1]), name=words[2])
    named = dict(w.split(None, 1) for w in words
        if w.split()[0] in ("bytes", "offset", "oper", "rvalue", "result"))
    step = parse_field([w for w in words if w.split()[0] not in named])
    step |= dict(size=constant(named["bytes"]), at=constant(named["offset"]), name=named["result"])
    return step | dict(sign=named["oper"], value=constant(named["rvalue"]))


STEPS = ("content", "pcre", "isdataat", "byte_test", "byte_jump", "byte_extract", "byte_math")
BUFFERS = {"dns.query": "dns", "dns_query": "dns", "tls.sni": "sni", "tls_sni": "sni", "pkt_data": "payload"}


def parse_rules(paths):
    addresses, ports, rules, texts = Lists(address), Lists(port), [], {}
    special = lambda text: any(c in text for c in "!-") or any(map(special, (
        texts[name] for name in re.findall(r"\$(\w+)", text))))
    for line in "\n".join(path.read_text() for path in paths).splitlines():
        line = line.strip()
        if not line or line.startswith(("#", "config")):
            continue
        word = line.split()[0]
        if word in ("ipvar", "portvar"):
            _, name, value = line.split(None, 2)
            lists = addresses if word == "ipvar" else ports
            lists.names[name] = lists.parse(value)
            texts[name] = value
            continue
        head, body = line.split("(", 1)
        _, proto, src, sport, arrow, dst, dport = head.split()
        source, destination = src, dst
        r = dict(proto=proto, both=arrow == "<>", parts=[], checks=[], flow=set(), rate=None, marks=[],
            silent=False)
        r["ends"] = (addresses.parse(src), ports.parse(sport), addresses.parse(dst), ports.parse(dport))
        for name, value in split_options(body.rsplit(")", 1)[0]):
            value = value.strip()
            last = r["parts"][-1]["steps"][-1] if r["parts"] and r["parts"][-1]["steps"] else None
            if name == "sid":
                r["sid"] = int(value)
            elif name in BUFFERS:
                r["parts"].append(dict(buffer=BUFFERS[name], steps=[], sizes=[], dot=False))
            elif name == "dotprefix":
                r["parts"][-1]["dot"] = True
            elif name == "bsize":
                r["parts"][-1]["sizes"].append(number(value))
            elif name in STEPS:
                if not r["parts"]:
                    r["parts"].append(dict(buffer="payload", steps=[], sizes=[], dot=False))
                r["parts"][-1]["steps"].append(dict(kind=name) | parse_step(name, value))
            elif name == "nocase":
                last["nocase"] = True
            elif name in ("offset", "distance"):
                last["start"], last["relative"] = constant(value), last["relative"] or name == "distance"
            elif name in ("depth", "within"):
                last["length"], last["relative"] = constant(value), last["relative"] or name == "within"
            elif name == "startswith":
                last["length"] = len(last["bytes"])
            elif name == "endswith":
                last["ends"] = True
            elif name == "flow":
                r["flow"] = {w.strip() for w in value.split(",")}
            elif name in ("threshold", "detection_filter"):
                rate = dict(w.split() for w in value.split(","))
                r["rate"] = (rate.get("type", "detection"), rate["track"], int(rate["count"]),
                    int(rate["seconds"]))
            elif name == "noalert" or (name, value) == ("flowbits", "noalert"):
                r["silent"] = True
            elif name in ("flowbits", "xbits"):
                action, marks, *rest = [w.strip() for w in value.split(",")]
                rest = dict(w.split() for w in rest)
                expire = int(rest.get("expire", 30)) if name == "xbits" else None
                r["marks"].append((rest.get("track", "flow"), action, marks.split("|"), expire))
            elif name in ("flags", "tcp.flags"):
                r["checks"].append(("flags", flag_bits(value, TCP_FLAGS)))
            elif name == "fragbits":
                r["checks"].append(("fragbits", flag_bits(value, IP_FLAGS)))
            elif name == "sameip":
                r["checks"].append(("sameip", bool))
            elif name == "ip_proto":
                plain = value.lstrip("!")
                r["checks"].append((name, number(value.replace(plain, str(PROTOCOLS.get(plain, plain))))))
            elif name in ("dsize", "ttl", "itype", "icode", "fragoffset", "id"):
                r["checks"].append((name, number(value, SNORT and name == "dsize")))
                if name == "dsize" and value.startswith("!") and not SNORT:
                    r["checks"].append((name, bool))
            else:
                known = ("msg", "rev", "classtype", "reference", "fast_pattern", "priority", "metadata",
                    "target")
                assert name in (*known, "prefilter"), name
        alone = not (r["parts"] or r["checks"] or r["flow"]
            or proto in ("dns", "tls") or special(source) or special(destination))
        r["once"] = not SNORT and alone and all(m[1] == "set" for m in r["marks"])
        rules.append(r)

    def stage(r):
        asks = any(m[1].startswith("is") for m in r["marks"])
        leaves = any(not m[1].startswith("is") for m in r["marks"])
        return [(True, False), (True, True), (False, True), (False, False)].index((leaves, asks))

    return sorted(rules, key=stage)


# --- captures -----------------------------------------------------------------------------------------------


def packets(path):
    """Link type, time in ns and bytes of each packet, until the end or the first damage."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    magic = data[:4]
    if magic == b"\x0a\x0d\x0d\x0a":
        yield from pcapng(data)
        return
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">",
        b"\xa1\xb2\x3c\x4d": ">"}
    if magic not in order and magic != b"\x34\xcd\xb2\xa1" and magic != b"\xa1\xb2\xcd\x34":
        return
    e = order.get(magic, "<" if magic[0] == 0x34 else ">")
    extra = 8 if magic in (b"\x34\xcd\xb2\xa1", b"\xa1\xb2\xcd\x34") else 0
    unit = 1 if magic in (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d") else 1000
    link, at = struct.unpack(e + "I", data[20:24])[0] & 0xFFFF, 24
    while at + 16 <= len(data):
        s, f, n, _ = struct.unpack(e + "IIII", data[at : at + 16])
        at += 16 + extra
        if n > 262144 or at + n > len(data):
            return
        yield link, s * 10**9 + f * unit, data[at : at + n]
        at += n


def pcapng(data):
    at, e, links = 0, "<", []
    while at + 12 <= len(data):
        kind = data[at : at + 4]
        if kind == b"\x0a\x0d\x0d\x0a":
            e, links = ("<" if data[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"), []
        kind, size = struct.unpack(e + "II", data[at : at + 8])
        if size < 12 or at + size > len(data):
            return
        body = data[at + 8 : at + size - 4]
        if kind == 1:
            link, unit, shift, o = struct.unpack(e + "H", body[:2])[0], 1000, 0, 8
            while o + 4 <= len(body):
                code, n = struct.unpack(e + "HH", body[o : o + 4])
                if code == 0:
                    break
                if code == 9:
                    power = body[o + 4]
                    unit = 10.0 ** (9 - power) if power < 128 else 1e9 / 2 ** (power & 127)
                if code == 14:
                    shift = struct.unpack(e + "q", body[o + 4 : o + 12])[0]
                o += 4 + (n + 3) // 4 * 4
            links.append((link, unit, shift))
        elif kind == 6:
            i, high, low, n, _ = struct.unpack(e + "IIIII", body[:20])
            if i >= len(links) or 20 + n > len(body):
                return
            link, unit, shift = links[i]
            yield link, int((high << 32 | low) * unit) + shift * 10**9, body[20 : 20 + n]
        elif kind == 3 and links:
            n = min(struct.unpack(e + "I", body[:4])[0], len(body) - 4)
            yield links[0][0], 0, body[4 : 4 + n]
        at += size


def network(link, b):
    """Offset of the outermost IP header, or nothing; where a type names the version, it must be that."""
    u16 = lambda at: int.from_bytes(b[at : at + 2], "big")
    if link in (12, 14, 101, 228, 229):
        return 0
    if link in (0, 108):
        families = [f.to_bytes(4, o) for f in (2, 10, 23, 24, 28, 30) for o in ("big", "little")]
        return 4 if b[:4] in families else None
    if link == 1:
        kind, at = u16(12), 14
    elif link == 113:
        kind, at = u16(14), 16
    elif link == 276:
        kind, at = u16(0), 20
    else:
        return None
    while True:
        if kind in (0x8100, 0x88A8, 0x9100, 0x9200):
            kind, at = u16(at + 2), at + 4
        elif kind in (0x8847, 0x8848):
            while at + 4 <= len(b) and not b[at + 2] & 1:
                at += 4
            at += 4
            if at < len(b) and b[at] == 0 and u16(at + 16) in (0x0800, 0x86DD, 0x0806, 0x8100):
                kind, at = u16(at + 16), at + 18  # a pseudowire's control word, then Ethernet
                continue
            return at if at < len(b) and b[at] >> 4 in (4, 6) else None
        elif kind == 0x8864:
            return at + 8 if u16(at + 6) in (0x21, 0x57) else None
        elif kind <= 1500 and link == 1 and b[at : at + 6] == b"\xaa\xaa\x03\0\0\0":
            kind, at = u16(at + 6), at + 8
        else:
            return at if (kind, b[at] >> 4 if at < len(b) else 0) in ((0x0800, 4), (0x86DD, 6)) else None


def decode(link, ts, b):
    at = network(link, b)
    if at is None or len(b) < at + 20:
        return None
    ip = b[at:]
    u16 = lambda i: int.from_bytes(ip[i : i + 2], "big")
    p = dict(ts=ts, ports=(0, 0), part=None, wire=b[:at])
    later = part = False
    if ip[0] >> 4 == 4:
        head, total = (ip[0] & 15) * 4, u16(2)
        if head < 20 or len(ip) < head:
            return None
        end = max(total, head) if total else len(ip)
        p |= dict(src=ip[12:16], dst=ip[16:20], ttl=ip[8], id=u16(4), fragbits=ip[6] >> 5,
            fragoffset=u16(6) & 0x1FFF)
        proto, later = ip[9], u16(6) & 0x1FFF != 0
        part = later or ip[6] & 0x20 != 0
        if part and u16(2) >= head:
            key = (p["src"], p["dst"], ip[9], u16(4))
            p["part"] = (key, ip[:head], (u16(6) & 0x1FFF) * 8, ip[6] & 0x20 != 0, ip[head:], u16(2) - head)
        if proto == 51 and not later and head + 8 <= len(ip):
            proto, head = ip[head], head + (ip[head + 1] + 2) * 4
    elif ip[0] >> 4 == 6 and len(ip) >= 40:
        head, end, proto, last = 40, 40 + u16(4) if u16(4) else len(ip), ip[6], 6
        p |= dict(src=ip[8:24], dst=ip[24:40], ttl=ip[7], id=None, fragbits=None, fragoffset=None)
        while proto in (0, 43, 44, 51, 60, 139, 140) and not later and head + 8 <= len(ip):
            later = proto == 44 and u16(head + 2) & 0xFFF8 != 0
            if proto == 44 and p["part"] is None and (later or ip[head + 3] & 1):
                part = True
                first = bytearray(ip[:head])
                first[last] = ip[head]
                key = (p["src"], p["dst"], ip[head + 4 : head + 8])
                more, data, size = ip[head + 3] & 1 != 0, ip[head + 8 :], end - head - 8
                p["part"] = (key, bytes(first), u16(head + 2) & 0xFFF8, more, data, size)
            last = head
            size = 8 if proto == 44 else (ip[head + 1] + 2) * 4 if proto == 51 else (ip[head + 1] + 1) * 8
            proto, head = ip[head], head + size
    else:
        return None
    p["src"], p["dst"] = ipaddress.ip_address(p["src"]), ipaddress.ip_address(p["dst"])
    l4 = ip[head:end]
    tcp = (l4[12] >> 4) * 4 if len(l4) > 12 else 20
    size = {6: tcp, 17: 8, 1: 8, 58: 8, 132: 12, 136: 8, 33: 12}.get(proto)
    whole = size is not None and not part and len(l4) >= size and (proto != 6 or size >= 20)
    group = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp"}.get(proto)
    p["proto"], p["group"] = proto, group if whole or part and not SNORT else None
    p["whole"] = whole
    p["payload"] = l4[size:] if whole else l4
    p["dsize"] = end - head - (size if whole else 0)
    if not SNORT and p["group"] is None and not (whole and proto == 132):
        skipped = 8 if proto == 50 and not part else len(l4)
        p["payload"] = l4[skipped:]
        p["dsize"] = max(end - head - 8, 0) if proto == 50 and not part else 0
    if not SNORT and part:
        p["payload"], p["dsize"] = b"", 0
    if whole and proto == 17 and int.from_bytes(l4[4:6], "big") >= 8:
        n = int.from_bytes(l4[4:6], "big") - 8
        p["payload"], p["dsize"] = p["payload"][:n], min(p["dsize"], n)
    if not part and len(l4) >= 4 and proto in (6, 17, 132):
        p["ports"] = struct.unpack(">HH", l4[:4])
    p["no_ports"] = not SNORT and (part or len(l4) < 4 or proto not in (6, 17, 132))
    p["flags"] = l4[13] if whole and proto == 6 else None
    p["itype"], p["icode"] = (l4[0], l4[1]) if whole and p["group"] == "icmp" else (None, None)
    p["in_flow"] = SNORT or not part and (proto in (4, 41, 50) or whole and (
        proto in (6, 17, 132) or proto == (1 if ip[0] >> 4 == 4 else 58)))
    p["ip_proto"], p["sameip"] = proto, p["src"] == p["dst"]
    return p


class Fragments:
    """Datagrams whose fragments are not all there yet."""

    def __init__(self):
        self.open = {}

    def see(self, p):
        """The datagram that this fragment completes, decoded, or nothing."""
        key, head, offset, more, data, size = p["part"]
        if size <= 0 or len(data) < size or offset + size > 65535 - (20 if head[0] >> 4 == 4 else 0):
            return None
        tags, at = [], 12
        while p["wire"][at : at + 2] in (b"\x81\0", b"\x88\xa8", b"\x91\0") and len(tags) < 3:
            tags.append(int.from_bytes(p["wire"][at + 2 : at + 4], "big") & 0xFFF)
            at += 4
        key = (key, *tags)
        d = self.open.get(key)
        if d is None or p["ts"] - d["ts"] >= 60 * 10**9:
            d = self.open[key] = dict(ts=p["ts"], head=None, end=None, pieces=[])
        d["ts"] = max(d["ts"], p["ts"])
        if offset == 0 and d["head"] is None:
            d["head"] = head
        if not more and d["end"] is None:
            d["end"] = offset + size
        # Pieces are (start, bytes) that do not overlap, those before the new one first.
        start, end, data = offset, offset + size, data[:size]
        for at, piece in d["pieces"]:
            if at <= offset < at + len(piece):
                start = at + len(piece)
        if start < end:
            kept = [(max(at, end), piece[max(end - at, 0) :]) if at > offset else (at, piece)
                for at, piece in d["pieces"]]
            d["pieces"] = [x for x in kept if x[1]] + [(start, data[start - offset :])]
        if d["end"] is None or d["head"] is None:
            return None
        body = b""
        for at, piece in sorted(d["pieces"]):
            if at != len(body):
                break
            body += piece
        if len(body) < d["end"]:
            return None
        del self.open[key]
        whole, body = bytearray(d["head"]), body[: d["end"]]
        if len(whole) + len(body) > 65535 + (40 if whole[0] >> 4 == 6 else 0):
            return None
        if whole[0] >> 4 == 4:
            whole[2:4], whole[6:8] = (len(whole) + len(body)).to_bytes(4, "big")[2:], b"\0\0"
        else:
            whole[4:6] = (len(whole) - 40 + len(body)).to_bytes(4, "big")[2:]
        return decode(101, p["ts"], bytes(whole) + body)


# --- names --------------------------------------------------------------------------------------------------


def dns_message(m):
    """Whether these bytes are a DNS message, and the names that it asks for."""
    if len(m) < 12 or (m[2] >> 3) & 15 > 6 or m[3] & 0x40:
        return False, []
    count = int.from_bytes(m[4:6], "big")
    if not 1 <= count <= 256:
        return False, []
    names, at = [], 12
    try:
        for _ in range(min(count, 16)):
            labels, i, end, jumps = [], at, None, 0
            while m[i]:
                if m[i] >= 0xC0:
                    end = end or i + 2
                    to = (m[i] & 0x3F) << 8 | m[i + 1]
                    jumps += 1
                    if to >= i or jumps > 8:
                        return False, []
                    i = to
                    continue
                label = m[i + 1 : i + 1 + m[i]]
                if m[i] > 63 or len(label) < m[i]:
                    return False, []
                labels.append(label)
                if len(b".".join(labels)) > 254:
                    return False, []
                i += 1 + m[i]
            at = (end or i + 1) + 4
            if at > len(m):
                return False, []
            names.append(b".".join(labels))
    except IndexError:
        return False, []
    return True, names if m[2] < 0x80 else []


def dns(p):
    if 53 not in p["ports"] or p["group"] not in ("tcp", "udp"):
        return False, []
    if p["group"] == "udp":
        return dns_message(p["payload"])
    rest, found, messages = p["payload"], [], 0
    while len(rest) >= 2 and messages < 16:
        size = int.from_bytes(rest[:2], "big")
        good, names = dns_message(rest[2 : 2 + size]) if len(rest) >= 2 + size else (False, [])
        if not good:
            break
        found, messages, rest = found + names, messages + 1, rest[2 + size :]
    return messages > 0, found


def sni(b):
    """The server name in a ClientHello at the beginning of these bytes."""
    take = lambda data, n: (data[n : n + int.from_bytes(data[:n], "big")],
        data[n + int.from_bytes(data[:n], "big") :])
    whole = lambda data, n: len(data) >= n and len(data) >= n + int.from_bytes(data[:n], "big")
    record = b[5 : 5 + int.from_bytes(b[3:5], "big")]
    if len(record) < 4 or record[0] != 1:
        return None
    hello = record[4 : 4 + int.from_bytes(record[1:4], "big")][34:]
    for n in (1, 2, 1):
        if not whole(hello, n):
            return None
        hello = take(hello, n)[1]
    if len(hello) < 2:
        return None
    extensions = hello[2 : 2 + int.from_bytes(hello[:2], "big")]
    while len(extensions) >= 4:
        kind, data = extensions[:2], extensions[2:]
        if not whole(data, 2):
            return None
        data, extensions = take(data, 2)
        if kind == b"\0\0":
            if not whole(data, 2):
                return None
            names = take(data, 2)[0]
            while names:
                if not whole(names[1:], 2):
                    return None
                name, rest = take(names[1:], 2)
                if names[0] == 0:
                    return name
                names = rest
            return None
    return None


def app_of(p):
    b = p["payload"]
    if p["group"] == "tcp":
        if len(b) >= 6 and b[0] == 22 and b[1] == 3 and b[2] <= 4 and b[5] in (1, 2):
            return "tls"
        if b.startswith(b"SSH-"):
            return "ssh"
        methods = (b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"PATCH ",
            b"HTTP/1.")
        if b.startswith(methods):
            return "http"
    return "dns" if p["dns"][0] else None


# --- matching -----------------------------------------------------------------------------------------------


def read_number(step, payload, cursor, names, mask=True):
    """The number at a step's field and the offset behind it, or nothing."""
    at = names.get(step["at"], step["at"]) + (cursor if step["relative"] else 0)
    size = names.get(step["size"], step["size"])
    if at < 0 or size > (23 if step["base"] else 8) or at + size > len(payload):
        return None
    data = payload[at : at + size]
    if step["base"]:
        digits = {8: rb"[0-7]+", 10: rb"[0-9]+", 16: rb"(?:0[xX](?=[0-9a-fA-F]))?[0-9a-fA-F]+"}[step["base"]]
        m = re.match(rb"[ \t\n\r\f\v]*([+-]?)(" + digits + rb")", data)
        if not m or int(m.group(2), step["base"]) >= 1 << 64:
            return None
        value, end = int(m.group(2), step["base"]), at + m.end()
        value = -value % (1 << 64) if m.group(1) == b"-" else value
    else:
        value, end = int.from_bytes(data, step["order"]), at + size
    return (masked(value, step["mask"]) if mask else value), end


def masked(value, mask):
    return value if mask is None else (value & mask) >> (mask & -mask).bit_length() - 1


def scaled(value, step):
    value = value * step["multiplier"] % (1 << 64)
    return (value + step["align"] - 1) // step["align"] * step["align"]


def steps_fit(steps, payload, cursor, names=None):
    names = {} if names is None else names
    if not steps:
        return True
    step, rest = steps[0], steps[1:]
    base = cursor if step["relative"] else 0
    known = lambda n: names.get(n, n)
    if step["kind"] == "isdataat":
        end = base + known(step["at"]) + (0 if step["relative"] and not SNORT else 1)
        return (end <= len(payload)) != step["no"] and steps_fit(rest, payload, cursor, names)
    if step["kind"].startswith("byte_"):
        found = read_number(step, payload, cursor, names, mask=step["kind"] != "byte_math")
        if found is None:
            return False
        value, end = found
        if step["kind"] == "byte_test":
            other, sign = known(step["value"]), step["sign"]
            fits = {"<": value < other, ">": value > other, "<=": value <= other, ">=": value >= other}
            fits |= {"=": value == other, "==": value == other, "&": value & other != 0,
                "^": value ^ other != 0}
            return fits[sign] != step["no"] and steps_fit(rest, payload, cursor, names)
        if step["kind"] == "byte_jump":
            start = {None: end, "from_beginning": 0, "from_end": len(payload)}[step["origin"]]
            to = max(start + scaled(value, step) + known(step["post"]), 0)
            return to <= len(payload) - SNORT and steps_fit(rest, payload, to, names)
        if step["kind"] == "byte_extract":
            names = names | {step["name"]: scaled(value, step)}
        else:
            other, sign = known(step["value"]), step["sign"]
            if sign == "/" and other == 0:
                return False
            results = {"+": lambda: value + other, "-": lambda: value - other, "*": lambda: value * other}
            results |= {"/": lambda: value // other, "<<": lambda: value << other if other < 64 else 0}
            results |= {">>": lambda: value >> other if other < 64 else 0}
            names = names | {step["name"]: masked(results[sign]() % (1 << 64), step["mask"])}
        return steps_fit(rest, payload, end, names)
    if step["kind"] == "content":
        low = base + known(step["start"])
        high = len(payload) if step["length"] is None else min(len(payload), low + known(step["length"]))
        found, wanted = payload, step["bytes"]
        if step["nocase"]:
            found, wanted = payload.lower(), wanted.lower()
        ends, at = [], max(low, 0)
        while (at := found.find(wanted, at, max(high, 0))) >= 0:
            if not step["ends"] or at + len(wanted) == len(payload):
                ends.append(at + len(wanted))
            at += 1
    else:
        ends, rest_of = [], payload[base:]
        m = step["re"].search(rest_of)
        more = any(later["relative"] for later in rest)
        while m:
            ends.append(base + m.end())
            # As if each place were the first of the payload, since `^` means where the search begins.
            m = next((x for s in range(m.start() + 1, len(rest_of) + 1)
                if (x := step["re"].match(rest_of, s))), None) \
                if more else None
    if step["no"]:
        return not ends and steps_fit(rest, payload, cursor, names)
    return any(steps_fit(rest, payload, end, names) for end in ends)


class Connections:
    """The side of each packet, whether its connection is established, whether it is the first of its side,
    the protocol above, and a number of the connection."""

    def __init__(self):
        self.known, self.count = {}, 0

    def begin(self, key, client, app, **more):
        self.count += 1
        self.known[key] = dict(client=client, app=app, number=self.count, seen={client}) | more
        return self.known[key]

    def see(self, p, app):
        a, b = (p["src"].packed, p["ports"][0]), (p["dst"].packed, p["ports"][1])
        key = (p["proto"], *sorted([a, b]))
        if not p["in_flow"]:
            return None, False, True, app, None
        p = p | dict(flags=p["flags"] or 0)
        syn, fin, rst, ack = p["flags"] & 2, p["flags"] & 1, p["flags"] & 4, p["flags"] & 16
        return (self.snort if SNORT else self.suricata)(p, app, a, b, key, syn, fin, rst, ack)

    def suricata(self, p, app, a, b, key, syn, fin, rst, ack):
        c, tcp = self.known.get(key), p["proto"] == 6
        if c is not None and p["ts"] - c["ts"] >= self.idle(c, tcp) * 10**9:
            c = None
        if c is None or tcp and syn and not ack and (
            c.get("closed") or not c.get("established") and not (c.get("syn") and c["client"] == a)
        ):
            c = self.begin(key, a, app, syn=bool(tcp and syn and not ack), ts=p["ts"])
            return "to_server", False, True, app, c["number"]
        c["ts"] = max(c["ts"], p["ts"])
        side, first = ("to_server" if c["client"] == a else "to_client"), a not in c["seen"]
        c["seen"].add(a)
        c["app"] = c["app"] or app
        established = c.get("established", False) if tcp else len(c["seen"]) == 2
        if tcp and (rst or fin):
            c["closed"] = True
        elif tcp and syn and ack and side == "to_client" and c["syn"]:
            c["answered"] = True
        elif tcp and ack and not syn and side == "to_server" and c.get("answered"):
            c["established"] = True
        return side, established, first, c["app"], c["number"]

    def idle(self, c, tcp):
        if tcp:
            return 600 if c.get("established") and not c.get("closed") else 60
        return 300 if len(c["seen"]) == 2 else 30

    def snort(self, p, app, a, b, key, syn, fin, rst, ack):
        if p["group"] not in ("tcp", "udp"):
            return None, False, False, app, None
        if (p["group"] == "tcp" and syn and not ack) or (p["group"] == "udp" and key not in self.known):
            return "to_server", False, False, app, self.begin(key, a, app)["number"]
        if p["group"] == "tcp" and syn and key not in self.known:
            return "to_client", False, False, app, self.begin(key, b, app, answered=True)["number"]
        c = self.known.get(key)
        if c is None:
            return None, False, False, app, None
        side, established = ("to_server" if c["client"] == a else "to_client"), c.get("answered", False)
        c["app"] = c["app"] or app
        if side == "to_client" and (p["group"] == "udp" or syn and ack):
            c["answered"] = True
        if p["group"] == "tcp" and rst:
            del self.known[key]
        return side, established, False, c["app"], c["number"]


def proto_fits(proto, p, app):
    if proto in ("tcp", "tcp-pkt", "udp", "icmp"):
        return p["group"] == proto.removesuffix("-pkt")
    if proto == "icmpv6":
        return p["group"] == "icmp" and p["proto"] == 58
    if proto in ("dns", "tls"):
        return p["group"] in (("tcp", "udp") if proto == "dns" else ("tcp",)) and app == proto
    if proto in ("ip4", "ipv4", "ip6", "ipv6"):
        return p["src"].version == int(proto[-1])
    return proto == "ip" or p["proto"] == PROTOCOLS[proto]


def part_fits(part, p, app, names):
    if part["buffer"] == "payload":
        if part["steps"] and not p["payload"] and not SNORT:
            return False
        buffers = [p["payload"]]
    elif part["buffer"] == "dns":
        buffers = p["dns"][1] if app == "dns" else []
    else:
        name = sni(p["payload"]) if app_of(p) == "tls" else None
        buffers = [] if name is None else [name]
    for buffer in buffers:
        buffer = b"." + buffer if part["dot"] else buffer
        if all(size(len(buffer)) for size in part["sizes"]) and steps_fit(part["steps"], buffer, 0):
            return True
    return False


def rule_fits(r, p, side, established, first, app):
    if not proto_fits(r["proto"], p, app) or r["once"] and not first:
        return False
    src, sport, dst, dport = r["ends"]
    one = lambda s, sp, d, dp: src(s) and sport(sp) and dst(d) and dport(dp)
    (sp, dp), s, d = p["ports"], p["src"], p["dst"]
    if p["no_ports"] and not (sport is EVERYTHING and dport is EVERYTHING):
        return False
    if not (one(s, sp, d, dp) or r["both"] and one(d, dp, s, sp)):
        return False
    if any(p[name] is None or not check(p[name]) for name, check in r["checks"]):
        return False
    for word in r["flow"]:
        if word in ("to_server", "to_client") and word != side:
            return False
        if word == "established" and not established or word == "not_established" and established:
            return False
    return all(part_fits(part, p, app, {}) for part in r["parts"])


class Marks:
    def __init__(self):
        self.until = {}

    def key(self, track, name, p, number):
        if track == "flow":
            return None if number is None else ("flow", number, name)
        pair = tuple(sorted([p["src"].packed, p["dst"].packed]))
        return ("host", {"ip_src": p["src"].packed, "ip_dst": p["dst"].packed, "ip_pair": pair}[track], name)

    def has(self, key, ts):
        return self.until.get(key, 0) > ts

    def fit(self, marks, p, number):
        for track, action, names, _ in marks:
            if action.startswith("is"):
                keys = [key for key in (self.key(track, n, p, number) for n in names) if key]
                if not any(self.has(key, p["ts"]) == (action == "isset") for key in keys):
                    return False
        return True

    def leave(self, marks, p, number):
        for track, action, names, expire in marks:
            for key in (self.key(track, n, p, number) for n in names):
                if key is None or action.startswith("is"):
                    continue
                if action == "set" or action == "toggle" and not self.has(key, p["ts"]):
                    self.until[key] = float("inf") if expire is None else p["ts"] + expire * 10**9
                else:
                    self.until.pop(key, None)


def decoded(packet, fragments):
    """A packet, and the datagram that it completes."""
    p = decode(*packet)
    if p is not None:
        yield p
    whole = p and p["part"] and fragments.see(p)
    if whole:
        yield whole


def alerts(path, rules):
    connections, periods, found, marks = Connections(), {}, Counter(), Marks()
    fragments = Fragments()
    for p in (p for packet in packets(path) for p in decoded(packet, fragments)):
        ts = p["ts"]
        p["dns"] = dns(p)
        side, established, first, app, number = connections.see(p, app_of(p))
        for r in rules:
            if not rule_fits(r, p, side, established, first, app):
                continue
            if r["marks"]:
                if not marks.fit(r["marks"], p, number):
                    continue
                marks.leave(r["marks"], p, number)
            if r["silent"]:
                continue
            if r["rate"]:
                kind, track, count, seconds = r["rate"]
                ends = sorted([(p["src"].packed, p["ports"][0]), (p["dst"].packed, p["ports"][1])])
                by = {"by_src": p["src"], "by_dst": p["dst"], "by_rule": None}
                by |= {"by_both": tuple(sorted([p["src"].packed, p["dst"].packed])),
                    "by_flow": (p["proto"], *ends) if number is None else number}
                key = (r["sid"], by[track])
                start, events = periods.get(key, (None, 0))
                if start is None or ts >= start + seconds * 10**9 + (not SNORT):
                    start, events = ts, 0
                events += 1
                periods[key] = (start, events)
                passes = dict(limit=events <= count, threshold=events % count == 0, both=events == count)
                if not passes.get(kind, events > count):
                    continue
            found[r["sid"]] += 1
    return found


def main():
    option = lambda name: sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None
    own = option("--rules")
    rules = parse_rules([Path(own)] if own else [HERE / "../rules/flame.rules", HERE / "words.rules"])
    only = option("--only")
    print("capture\tsid\talerts")
    for line in (TRACES / "TRUTH.tsv").read_text().splitlines()[1:]:
        name = line.split("\t")[0]
        if only and only != name:
            continue
        try:
            found = alerts(TRACES / "files" / name, rules)
        except (OSError, EOFError, struct.error) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        for sid, n in sorted(found.items()):
            print(name, sid, n, sep="\t")


main()
