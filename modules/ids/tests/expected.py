#!/usr/bin/env python3
"""Alerts that the shipped rules must give on the shared captures, found without any code of the module.

    FLAME_TRACES=FOLDER tests/expected.py > tests/expected.tsv

Slow and plain: every rule is tried on every packet, contents at every place with full backtracking, regular
expressions by Python's re. What the language means here:

- The outermost IP header counts; nothing is reassembled. A payload ends where the datagram does, or the capture.
- tcp, udp and icmp rules need the whole transport header; a later fragment has none and can match ip rules only.
- depth counts from offset; distance and within count from the end of the content or pcre before. A negated
  content or pcre moves nothing. isdataat:N asks for a byte at N, from 0 or from there.
- dsize is the payload's length by the headers. `$` of a pcre without m is the very end.
- flow: a SYN begins a connection (its sender is the client), established is what comes behind the server's
  SYN-ACK, a RST ends it. UDP: the first packet begins it, established is what comes once both were heard.
- Rates count a rule's matches by address in periods: a match at or behind `seconds` begins the next one. limit:
  the first `count`; threshold: each `count`-th; both: the `count`-th; detection_filter: those behind the `count`-th.
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
TRACES = Path(os.environ.get("FLAME_TRACES", HERE / "../../../../shared/traces")) / "open"

# --- rules ---------------------------------------------------------------------------------------------------


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
            return lambda x: True
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
        return lambda n: low <= n <= high
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
        "!": lambda v: v & mask & bits == 0,
    }[mode]


TCP_FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16, "U": 32, "E": 64, "C": 128}
IP_FLAGS = {"M": 1, "D": 2, "R": 4}


def parse_pcre(text):
    text = text.strip('"')
    negated = text.startswith("!")
    text = text.lstrip("!")
    body, flags = text[1 : text.rindex(text[0])], text[text.rindex(text[0]) + 1 :]
    body = re.sub(r"(?<!\\)\$", r"\\Z", body) if "m" not in flags else body
    f = sum({"i": re.I, "s": re.S, "m": re.M, "x": re.X}.get(c, 0) for c in flags)
    return dict(kind="pcre", re=re.compile(body.encode("latin-1"), f), no=negated, relative="R" in flags)


def parse_rules(path):
    addresses, ports, rules = Lists(address), Lists(port), []
    for line in path.read_text().splitlines():
        line = line.strip()
        if not line or line.startswith(("#", "config")):
            continue
        word = line.split()[0]
        if word in ("ipvar", "portvar"):
            _, name, value = line.split(None, 2)
            lists = addresses if word == "ipvar" else ports
            lists.names[name] = lists.parse(value)
            continue
        head, body = line.split("(", 1)
        _, proto, src, sport, arrow, dst, dport = head.split()
        r = dict(proto=proto, both=arrow == "<>", steps=[], checks=[], flow=set(), rate=None)
        r["ends"] = (addresses.parse(src), ports.parse(sport), addresses.parse(dst), ports.parse(dport))
        for name, value in split_options(body.rsplit(")", 1)[0]):
            value = value.strip()
            last = r["steps"][-1] if r["steps"] else None
            if name == "sid":
                r["sid"] = int(value)
            elif name == "content":
                no = value.startswith("!")
                step = dict(kind="content", bytes=content_bytes(value.lstrip("!").strip('"')), no=no, nocase=False)
                r["steps"].append(step | dict(start=0, length=None, relative=False))
            elif name == "nocase":
                last["nocase"] = True
            elif name in ("offset", "distance"):
                last["start"], last["relative"] = int(value), last["relative"] or name == "distance"
            elif name in ("depth", "within"):
                last["length"], last["relative"] = int(value), last["relative"] or name == "within"
            elif name == "pcre":
                r["steps"].append(parse_pcre(value))
            elif name == "isdataat":
                at, *rest = value.lstrip("!").split(",")
                r["steps"].append(dict(kind="data", at=int(at), no=value.startswith("!"), relative="relative" in rest))
            elif name == "flow":
                r["flow"] = {w.strip() for w in value.split(",")}
            elif name in ("threshold", "detection_filter"):
                rate = dict(w.split() for w in value.split(","))
                r["rate"] = (rate.get("type", "detection"), rate["track"], int(rate["count"]), int(rate["seconds"]))
            elif name == "flags":
                r["checks"].append(("flags", flag_bits(value, TCP_FLAGS)))
            elif name == "fragbits":
                r["checks"].append(("fragbits", flag_bits(value, IP_FLAGS)))
            elif name == "sameip":
                r["checks"].append(("sameip", bool))
            elif name in ("dsize", "ttl", "itype", "icode", "fragoffset", "ip_proto", "id"):
                r["checks"].append((name, number(value, name == "dsize")))
            else:
                assert name in ("msg", "rev", "classtype", "reference", "fast_pattern", "priority"), name
        rules.append(r)
    return rules


# --- captures ------------------------------------------------------------------------------------------------


def packets(path):
    """Link type, time in ns and bytes of each packet, until the end or the first damage."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    magic = data[:4]
    if magic == b"\x0a\x0d\x0d\x0a":
        yield from pcapng(data)
        return
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}
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
        return 4 if b[:4] in [f.to_bytes(4, o) for f in (2, 10, 23, 24, 28, 30) for o in ("big", "little")] else None
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
    p = dict(ts=ts, ports=(0, 0))
    later = False
    if ip[0] >> 4 == 4:
        head, total = (ip[0] & 15) * 4, u16(2)
        if head < 20 or len(ip) < head:
            return None
        end = total if total >= head else len(ip)
        p |= dict(src=ip[12:16], dst=ip[16:20], ttl=ip[8], id=u16(4), fragbits=ip[6] >> 5, fragoffset=u16(6) & 0x1FFF)
        proto, later = ip[9], u16(6) & 0x1FFF != 0
        if proto == 51 and not later and head + 8 <= len(ip):
            proto, head = ip[head], head + (ip[head + 1] + 2) * 4
    elif ip[0] >> 4 == 6 and len(ip) >= 40:
        head, end, proto = 40, 40 + u16(4) if u16(4) else len(ip), ip[6]
        p |= dict(src=ip[8:24], dst=ip[24:40], ttl=ip[7], id=None, fragbits=None, fragoffset=None)
        while proto in (0, 43, 44, 51, 60, 135, 139, 140) and not later and head + 8 <= len(ip):
            later = proto == 44 and u16(head + 2) & 0xFFF8 != 0
            size = 8 if proto == 44 else (ip[head + 1] + 2) * 4 if proto == 51 else (ip[head + 1] + 1) * 8
            proto, head = ip[head], head + size
    else:
        return None
    p["src"], p["dst"] = ipaddress.ip_address(p["src"]), ipaddress.ip_address(p["dst"])
    l4 = ip[head:end]
    size = {6: (l4[12] >> 4) * 4 if len(l4) > 12 else 20, 17: 8, 1: 8, 58: 8, 132: 12, 136: 8, 33: 12}.get(proto)
    whole = size is not None and not later and len(l4) >= size and (proto != 6 or size >= 20)
    p["proto"], p["group"] = proto, {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp"}.get(proto) if whole else None
    p["payload"] = l4[size:] if whole else l4
    p["dsize"] = end - head - (size if whole else 0)
    if whole and proto == 17 and int.from_bytes(l4[4:6], "big") >= 8:
        n = int.from_bytes(l4[4:6], "big") - 8
        p["payload"], p["dsize"] = p["payload"][:n], min(p["dsize"], n)
    if not later and len(l4) >= 4 and proto in (6, 17, 132):
        p["ports"] = struct.unpack(">HH", l4[:4])
    p["flags"] = l4[13] if whole and proto == 6 else 0
    p["itype"], p["icode"] = (l4[0], l4[1]) if p["group"] == "icmp" else (None, None)
    p["ip_proto"], p["sameip"] = proto, p["src"] == p["dst"]
    return p


# --- matching ------------------------------------------------------------------------------------------------


def steps_fit(steps, payload, cursor):
    if not steps:
        return True
    step, rest = steps[0], steps[1:]
    base = cursor if step["relative"] else 0
    if step["kind"] == "data":
        return (base + step["at"] < len(payload)) != step["no"] and steps_fit(rest, payload, cursor)
    if step["kind"] == "content":
        low = base + step["start"]
        high = len(payload) if step["length"] is None else min(len(payload), low + step["length"])
        found, wanted = payload, step["bytes"]
        if step["nocase"]:
            found, wanted = payload.lower(), wanted.lower()
        ends, at = [], max(low, 0)
        while (at := found.find(wanted, at, max(high, 0))) >= 0:
            ends.append(at + len(wanted))
            at += 1
    else:
        ends, rest_of = [], payload[base:]
        m = step["re"].search(rest_of)
        while m:
            ends.append(base + m.end())
            m = next((x for s in range(m.start() + 1, len(rest_of) + 1) if (x := step["re"].match(rest_of, s))), None) \
                if rest and rest[0]["relative"] else None
    if step["no"]:
        return not ends and steps_fit(rest, payload, cursor)
    return any(steps_fit(rest, payload, end) for end in ends)


class Connections:
    def __init__(self):
        self.known = {}

    def see(self, p):
        if p["group"] not in ("tcp", "udp"):
            return None, False
        a, b = (p["src"].packed, p["ports"][0]), (p["dst"].packed, p["ports"][1])
        key = (p["proto"], *sorted([a, b]))
        syn, ack, rst = p["flags"] & 2, p["flags"] & 16, p["flags"] & 4
        if (p["group"] == "tcp" and syn and not ack) or (p["group"] == "udp" and key not in self.known):
            self.known[key] = [a, False]
            return "to_server", False
        if key not in self.known:
            return None, False
        client, answered = self.known[key]
        side = "to_server" if client == a else "to_client"
        if side == "to_client" and (p["group"] == "udp" or syn and ack):
            self.known[key][1] = True
        if p["group"] == "tcp" and rst:
            del self.known[key]
        return side, answered


def rule_fits(r, p, side, established):
    if r["proto"] != "ip" and r["proto"] != p["group"]:
        return False
    src, sport, dst, dport = r["ends"]
    one = lambda s, sp, d, dp: src(s) and sport(sp) and dst(d) and dport(dp)
    (sp, dp), s, d = p["ports"], p["src"], p["dst"]
    if not (one(s, sp, d, dp) or r["both"] and one(d, dp, s, sp)):
        return False
    if any(p[name] is None or not check(p[name]) for name, check in r["checks"]):
        return False
    for word in r["flow"]:
        if word == "established" and not established or word in ("to_server", "to_client") and word != side:
            return False
    return steps_fit(r["steps"], p["payload"], 0)


def alerts(path, rules):
    connections, periods, found = Connections(), {}, Counter()
    for link, ts, data in packets(path):
        p = decode(link, ts, data)
        if p is None:
            continue
        side, established = connections.see(p)
        for r in rules:
            if not rule_fits(r, p, side, established):
                continue
            if r["rate"]:
                kind, track, count, seconds = r["rate"]
                key = (r["sid"], p["src"] if track == "by_src" else p["dst"])
                start, events = periods.get(key, (None, 0))
                if start is None or ts >= start + seconds * 10**9:
                    start, events = ts, 0
                events += 1
                periods[key] = (start, events)
                passes = dict(limit=events <= count, threshold=events % count == 0, both=events == count)
                if not passes.get(kind, events > count):
                    continue
            found[r["sid"]] += 1
    return found


def main():
    rules = parse_rules(HERE / "../rules/flame.rules")
    print("capture\tsid\talerts")
    for line in (TRACES / "TRUTH.tsv").read_text().splitlines()[1:]:
        name = line.split("\t")[0]
        try:
            found = alerts(TRACES / "files" / name, rules)
        except (OSError, EOFError, struct.error) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        for sid, n in sorted(found.items()):
            print(name, sid, n, sep="\t")


main()
