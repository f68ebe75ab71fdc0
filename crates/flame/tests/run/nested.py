"""Makes captures of datagrams in random links and tunnels: nested.py FOLDER SEED.

Writes a capture for each link type into FOLDER and prints a line for each: its name and the source ports of
the innermost datagrams, which are from 192.0.2.1:PORT to 198.51.100.9:53. The forms of headers are from
the documents that the decoder names, and nothing of FLAME is used.
"""

import pathlib
import random
import struct
import sys

FOLDER, R = pathlib.Path(sys.argv[1]), random.Random(int(sys.argv[2]))
PACKETS, pack = 300, struct.pack


def checksum(header):
    total = sum(struct.unpack("!%dH" % (len(header) // 2), header))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ipv4(protocol, rest, addresses=None):
    addresses = addresses or bytes([10, R.randrange(256), 1, 2, 10, 9, R.randrange(256), 7])
    head = pack("!BBHHHBBH", 0x45, 0, 20 + len(rest), R.randrange(65536), 0, 64, protocol, 0) + addresses
    return head[:10] + pack("!H", checksum(head)) + head[12:] + rest


def ipv6(protocol, rest):
    if R.random() < 0.3:  # Destination options, which are padding.
        protocol, rest = 60, bytes([protocol, 0, 1, 4, 0, 0, 0, 0]) + rest
    addresses = bytes([0x20, 1, *bytes(13), R.randrange(256), 0x20, 1, *bytes(14)])
    return pack("!IHBB", 6 << 28, len(rest), protocol, 64) + addresses + rest


def ip(protocol, rest):
    return R.choice([ipv4, ipv4, ipv6])(protocol, rest)


def udp(source, target, payload):
    return pack("!HHHH", source, target, 8 + len(payload), 0) + payload


def of(packet, four, six):
    return four if packet[0] >> 4 == 4 else six


def typed(packet):
    return pack("!H", of(packet, 0x0800, 0x86DD)) + packet


def macs(count=2):
    return b"".join(bytes([2, R.randrange(256), 3, 4, 5, R.randrange(256)]) for _ in range(count))


def ppp(packet):
    protocol = pack("!H", of(packet, 0x21, 0x57))
    return R.choice([b"", b"\xff\x03"]) + R.choice([protocol, protocol[1:]]) + packet


def labelled(packet):
    return pack("!I", R.randrange(16, 1 << 20) << 12 | 0x140) + packet


def snap(packet):
    return b"\xaa\xaa\x03\0\0\0" + typed(packet)


def ethernet(packet):
    tags = [b"\x81\0\0\5", b"\x88\xa8\0\7", b"\x89\x2f\x10\x44\0\x09"]
    head = macs() + b"".join(R.choice(tags) for _ in range(R.randrange(3)))
    session = pack("!H", of(packet, 0x21, 0x57)) + packet
    forms = [
        typed(packet),
        typed(packet),
        b"\x88\x47" + labelled(packet),
        b"\x88\x64\x11\0\0\x09" + pack("!H", len(session)) + session,
        (pack("!H", len(snap(packet))) if len(packet) < 1400 else b"\x88\x70") + snap(packet),
    ]
    return head + R.choice(forms)


def pseudowire(packet):
    tags = R.choice([b"", b"\x81\0\0\5", b"\x88\xa8\0\5\x81\0\0\6"])
    return labelled(R.choice([b"", bytes(4)]) + macs() + tags + typed(packet))


def wireless(packet):
    """Returns a frame of 802.11, with or without a class of service."""
    head = bytes([R.choice([0x08, 0x88]), R.choice([1, 2]), 0, 0]) + macs(3) + b"\x10\0"
    return head + (b"\0\0" if head[0] == 0x88 else b"") + snap(packet)


def aggregated(packets):
    head, frames = b"\x88\x02\0\0" + macs(3) + b"\x20\0\x80\0", b""
    for packet in packets:
        frames += bytes(-len(frames) % 4)
        frames += macs() + pack("!H", len(snap(packet))) + snap(packet)
    return head + frames


def gre(packet):
    flags = R.choice([0, 0x2000, 0x8000, 0x3000])
    kind, inner = R.choice([
        (0x6558, ethernet(packet)),
        (of(packet, 0x0800, 0x86DD), packet),
        (0x8847, labelled(packet)),
        (0x8847, pseudowire(packet)),
        (0x8100, b"\0\5" + typed(packet)),
    ])
    return ip(47, pack("!HH", flags, kind) + bytes(4 * (flags >> 12).bit_count()) + inner)


def geneve(packet):
    options = R.choice([b"", b"\1\2\3\1abcd"])
    kind, inner = R.choice([
        (0x6558, ethernet(packet)),
        (of(packet, 0x0800, 0x86DD), packet),
        (0x8847, labelled(packet)),
    ])
    return pack("!BBHI", len(options) // 4, 0, kind, 7 << 8) + options + inner


def capwap(packet):
    words, native = R.choice([2, 4, 6]), R.choice([0, 0x100])
    head = pack("!IHH", words << 19 | 1 << 14 | 1 << 9 | native, 0, 0) + bytes(words * 4 - 8)
    return head + (wireless(packet) if native else ethernet(packet))


def gtp(packet):
    flags, more = R.choice([(0x30, b""), (0x32, b"\0\5\0\0"), (0x34, b"\0\0\0\x85\1\x10\7\0")])
    return pack("!BBHI", flags, 255, len(more + packet), 7) + more + packet


def gpe(packet):
    kind, inner = R.choice([(of(packet, 1, 2), packet), (3, ethernet(packet)), (5, labelled(packet))])
    return bytes([0x0C, 0, 0, kind, 0, 0, 1, 0]) + inner


def l2tp(packet):
    flags = R.choice([2, 0x4002, 0x0802])
    numbers = 2 * bool(flags & 0x4000) + 4 * bool(flags & 0x0800)
    return pack("!H", flags) + bytes(numbers) + b"\0\1\0\2" + ppp(packet)


def pptp(packet):
    answers = R.choice([0, 0x80])
    head = pack("!HHHHI", 0x3001 | answers, 0x880B, len(packet) + 4, 3, 9)
    return ip(47, head + bytes(4 * bool(answers)) + ppp(packet))


def tzsp(packet):
    kind, inner = R.choice([(1, ethernet), (0x12, wireless)])
    return pack("!BBH", 1, 0, kind) + R.choice([b"\1", b"\x0a\1\7\1", b"\0\0\1"]) + inner(packet)


def tunnel(packet):
    other = R.randrange(20000, 40000)
    ports = {5247: R.choice([(other, 5247), (5247, other)]), 1701: (1701, 1701)}
    in_udp = lambda port, payload: ip(17, udp(*ports.get(port, (other, port)), payload))
    return R.choice([
        lambda: in_udp(2152, gtp(packet)),
        lambda: in_udp(R.choice([4789, 8472]), b"\x08\0\0\0\0\0\x09\0" + ethernet(packet)),
        lambda: in_udp(6081, geneve(packet)),
        lambda: in_udp(6635, labelled(packet)),
        lambda: in_udp(1701, l2tp(packet)),
        lambda: in_udp(37008, tzsp(packet)),
        lambda: in_udp(5247, capwap(packet)),
        lambda: in_udp(4341, b"\x80\1\2\3\0\0\0\1" + packet),
        lambda: in_udp(4790, gpe(packet)),
        lambda: gre(packet),
        lambda: pptp(packet),
        lambda: ip(of(packet, 4, 41), packet),
        lambda: ip(97, b"\x30\0" + ethernet(packet)),
        lambda: ip(137, R.choice([labelled, pseudowire])(packet)),
        lambda: ip(47, b"\x10\0\x88\xbe\0\0\0\1\x10\1\0\0\0\0\0\1" + ethernet(packet)),
    ])()


def link(packet):
    """Returns a link type and a packet of it."""
    return R.choice([
        lambda: (1, ethernet(packet)),
        lambda: (1, macs() + b"\x88\x47" + pseudowire(packet)),
        lambda: (0, pack("<I", of(packet, 2, 30)) + packet),
        lambda: (9, ppp(packet)),
        lambda: (51, b"\x11\0\0\x09" + pack("!HH", len(packet) + 2, of(packet, 0x21, 0x57)) + packet),
        lambda: (100, snap(packet)),
        lambda: (101, packet),
        lambda: (104, b"\x0f\0" + typed(packet)),
        lambda: (105, wireless(packet)),
        lambda: (107, b"\x18\x41\3" + bytes([of(packet, 0xCC, 0x8E)]) + packet),
        lambda: (113, b"\0\0\0\1\0\6" + macs(1) + b"\0\0" + typed(packet)),
        lambda: (127, b"\0\0\x0c\0\0\0\0\0abcd" + wireless(packet)),
        lambda: (192, b"\0\0\x08\0\1\0\0\0" + ethernet(packet)),
        lambda: (192, b"\0\0\x08\0\x69\0\0\0" + wireless(packet)),
        lambda: (204, b"\1" + ppp(packet)),
        lambda: (258, pack("<III", 108, 1, 1) + bytes(96) + ethernet(packet)),
    ])()


def datagram(port):
    packet = ipv4(17, udp(port, 53, b"xyz"), bytes([192, 0, 2, 1, 198, 51, 100, 9]))
    for _ in range(R.randrange(4)):
        packet = tunnel(packet)
    return packet


captures, port = {}, 1000
while port < 1000 + PACKETS:
    if R.random() < 0.1:
        count = R.randrange(2, 6)
        kind, frame = 105, aggregated([datagram(port + n) for n in range(count)])
    else:
        count, (kind, frame) = 1, link(datagram(port))
    captures.setdefault(kind, []).append((range(port, port + count), frame))
    port += count
for kind, frames in sorted(captures.items()):
    data = pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, kind)
    data += b"".join(pack("<IIII", 1000, 0, len(f), len(f)) + f for _, f in frames)
    (FOLDER / f"{kind}.pcap").write_bytes(data)
    print(f"{kind}.pcap", *(port for ports, _ in frames for port in ports))
