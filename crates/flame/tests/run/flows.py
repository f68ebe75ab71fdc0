"""A reference of the module `flow`, written from its README: one line for each record of a capture.

Captures in the format of pcap with Ethernet or IP alone are read, as far as all their frames are IPv4,
IPv6 or a kind without IP, and times go back by 10 s at most. Others are named with the reason. Nothing of
FLAME is used.
"""

import ipaddress
import struct
import sys

IDLE, ACTIVE, LINGER, LATE = 60 * 10**9, 1800 * 10**9, 5 * 10**9, 10 * 10**9
FIN, SYN, RST, ACK = 1, 2, 4, 16
PORTS = {6, 17, 33, 132, 136}
ANSWERS = {
    1: {8: 0, 13: 14, 15: 16, 17: 18, 10: 9},
    58: {128: 129, 133: 134, 135: 136, 130: 131, 139: 140, 144: 145},
}
for pairs in ANSWERS.values():
    pairs.update({answer: question for question, answer in list(pairs.items())})
WITHOUT_IP = {0x0806, 0x8035, 0x88CC, 0x888E, 0x9000, 0x8809, 0x88E1, 0x809B, 0x80F3, 0x6003, 0x8899, 0x8912}


class Unknown(Exception):
    """A capture or frame that is not read."""


def packets(data):
    """Yields time in nanoseconds, link type, length on the wire and bytes of each packet."""
    magic = data[:4]
    order = "<" if magic in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    if magic not in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\xa1\xb2\x3c\x4d"):
        raise Unknown("format")
    unit = 1 if b"\x3c" in magic else 1000
    major, minor, _, _, _, link = struct.unpack(order + "HHiIII", data[4:24])
    if (major, minor) != (2, 4):
        raise Unknown("version")
    at = 24
    while at < len(data):
        if at + 16 > len(data):
            raise Unknown("cut short")
        seconds, part, captured, wire = struct.unpack(order + "IIII", data[at : at + 16])
        if at + 16 + captured > len(data) or part * unit >= 10**9 or captured > 262144:
            raise Unknown("damaged")
        bytes_of_frame = data[at + 16 : at + 16 + captured]
        yield seconds * 10**9 + part * unit, link & 0xFFFFFFF, max(wire, captured), bytes_of_frame
        at += 16 + captured


def network(link, frame):
    """Returns the offset of the IP header, or None for a frame without IP."""
    if link in (101, 228, 229):
        return 0
    if link != 1:
        raise Unknown("link type")
    if len(frame) < 14:
        raise Unknown("short frame")
    at = 12
    while True:
        kind = int.from_bytes(frame[at : at + 2], "big")
        if kind in (0x8100, 0x88A8, 0x9100):
            at += 4
        elif kind in (0x0800, 0x86DD):
            return at + 2
        elif 1536 <= kind and kind in WITHOUT_IP:
            return None
        else:
            raise Unknown(f"EtherType {kind:#x}")


class Seen:
    """What a flow needs of a packet."""

    def __init__(self, at, wire, frame, l3):
        ip = frame[l3:]
        version = ip[0] >> 4 if ip else 0
        if version == 4 and len(ip) >= 20 and ip[0] & 15 >= 5:
            total, self.proto = int.from_bytes(ip[2:4], "big"), ip[9]
            ends, length = (ip[12:16], ip[16:20]), total if total >= 20 else 0
            l4, later = (ip[0] & 15) * 4, int.from_bytes(ip[6:8], "big") & 0x1FFF != 0
            end = total
        elif version == 6 and len(ip) >= 40:
            payload, self.proto, l4 = int.from_bytes(ip[4:6], "big"), ip[6], 40
            ends, length = (ip[8:24], ip[24:40]), 0 if payload == 0 and ip[6] != 59 else payload + 40
            later, end = False, 0 if payload == 0 else payload + 40
            while self.proto in (0, 43, 44, 51, 60, 135, 139, 140):
                if self.proto not in (0, 44, 60) or len(ip) < l4 + 8:
                    raise Unknown("extension header")
                if self.proto == 44:
                    later = int.from_bytes(ip[l4 + 2 : l4 + 4], "big") & 0xFFF8 != 0
                self.proto, l4 = ip[l4], l4 + (8 if self.proto == 44 else 8 + ip[l4 + 1] * 8)
                if later:
                    break
        else:
            raise Unknown("IP header")
        # Without a length, the datagram ends with the frame.
        stated = ip[: end] if end else ip
        head = stated[l4:]
        self.at, self.frame, self.addresses = at, wire, ends
        self.unstated = length == 0
        self.length = length or max(0, wire - l3)
        self.unknown = self.proto in PORTS and (later or len(head) < 4)
        self.flags, self.numbers = 0, None
        if self.proto in PORTS:
            ports = (0, 0) if self.unknown else struct.unpack(">HH", head[:4])
            if self.proto == 6 and not later:
                if len(head) >= 14:
                    self.flags = head[13]
                # Numbers are read where they were captured.
                if len(ip) >= l4 + 12:
                    self.numbers = struct.unpack(">II", ip[l4 + 4 : l4 + 12])
        elif self.proto in ANSWERS and not later:
            if len(head) < 2:
                ports = (0xFFFF, None)
            else:
                kind, code = head[0], head[1]
                answer = ANSWERS[self.proto].get(kind)
                ports = (kind | code << 8, None if answer is None else answer | code << 8)
        elif self.proto in ANSWERS:
            ports = (0xFFFF, None)
        else:
            ports = (0, 0)
        here, there = (ends[0], ports[0]), (ends[1], ports[1])
        self.here = (version, self.proto, self.unknown, here, there)
        self.back = (version, self.proto, self.unknown, (ends[1], ports[1]), (ends[0], ports[0]))


def address(end):
    """Returns the text of an address; Python writes mapped ones in two forms, by its version."""
    found = ipaddress.ip_address(end)
    mapped = getattr(found, "ipv4_mapped", None)
    return f"::ffff:{mapped}" if mapped else str(found)


class Flow:
    """A flow in the direction of its key."""

    def __init__(self, key, at):
        self.key, self.first, self.last, self.open = key, at, at, True
        self.packets, self.ip, self.frames, self.flags = [0, 0], [0, 0], [0, 0], [0, 0]
        self.initial = [None, None]

    def closed(self):
        return self.flags[0] & self.flags[1] & FIN or (self.flags[0] | self.flags[1]) & RST

    def count(self, seen, side):
        self.packets[side] += 1
        self.ip[side] += seen.length
        self.frames[side] += seen.frame
        self.flags[side] |= seen.flags
        self.first, self.last = min(self.first, seen.at), max(self.last, seen.at)

    def another(self, seen, side):
        """Returns whether a SYN, or the answer to one, is of another connection."""
        answer = seen.flags & ACK
        if seen.numbers is None:
            return not answer and self.closed()
        sequence, acknowledged = seen.numbers
        of, number = (1 - side, (acknowledged - 1) % 2**32) if answer else (side, sequence)
        known, late = self.initial[of], seen.at < self.first
        if known is None:
            another = not answer and self.closed()
        elif answer:
            another = (number - known) % 2**32 > 0xFFFF and not late
        else:
            another = (number != known or self.closed()) and not late
        if not another:
            if not answer or known is None:
                self.initial[of] = number
            if answer:
                self.initial[side] = sequence
        return another

    def record(self):
        (_, proto, unknown, (src, sport), (dst, dport)) = self.key
        kind = [255, 255] if sport == 0xFFFF else [sport & 255, sport >> 8]
        ports = "- -" if unknown or proto not in PORTS else f"{sport} {dport}"
        names = [address(end) for end in (src, dst)]
        kind = kind if proto in ANSWERS else ["-", "-"]
        flags = self.flags if proto == 6 else ["-", "-"]
        parts = [proto, *names, ports, *kind, *self.packets, *self.ip, *self.frames, *flags]
        return " ".join(map(str, [*parts, self.first, self.last]))


def flows(data):
    """Returns the records of a capture."""
    table, records = {}, []

    def begin(seen, turned):
        flow = Flow(seen.back if turned else seen.here, seen.at)
        if seen.numbers is not None and seen.proto == 6:
            sequence, acknowledged = seen.numbers
            if seen.flags & SYN:
                flow.initial[turned] = sequence
            elif sequence:
                flow.initial[turned] = (sequence - 1) % 2**32
            if seen.flags & ACK:
                flow.initial[1 - turned] = (acknowledged - 1) % 2**32
        flow.count(seen, turned)
        table[seen.here], table[seen.back] = flow, flow

    newest = 0
    for at, link, wire, frame in packets(data):
        newest = max(newest, at)
        if at < newest - LATE:
            raise Unknown("a clock that was set back")
        l3 = network(link, frame)
        if l3 is None:
            continue
        seen = Seen(at, wire, frame, l3)
        flow = table.get(seen.here)
        answer = seen.flags & (SYN | ACK) == SYN | ACK
        if flow is None:
            begin(seen, int(answer))
            continue
        side = 0 if flow.key == seen.here else 1
        silent = max(0, at - flow.last)
        old = at - flow.first > ACTIVE or flow.first - at > LATE
        if silent > (LINGER if flow.closed() else IDLE) or old:
            again = False
        elif seen.flags & SYN and flow.another(seen, side):
            again = True
        else:
            flow.count(seen, side)
            continue
        records.append(flow.record())
        keeps = not flow.closed() and silent <= ACTIVE and not seen.flags & SYN and not again
        begin(seen, side if keeps else int(answer))
    records.extend(flow.record() for flow in {id(flow): flow for flow in table.values()}.values())
    return sorted(records)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        try:
            with open(path, "rb") as file:
                lines = flows(file.read())
        except Unknown as unknown:
            print(f"? {path}: {unknown}")
            continue
        print(f"# {path}")
        for line in lines:
            print(line)
