#!/usr/bin/env python3
"""A path with a bottleneck between two interfaces, traffic over it, and what truly happened to each packet.

usage: path.py SEND IN OUT RECEIVE [SECONDS] > TRUTH

Packets go out of SEND, whose peer is IN; from there to OUT, whose peer is RECEIVE, as over a slow line:
4 Mbit/s, a queue of 25,000 bytes, 10 ms and up to 2 ms of jitter, 2 % lost (seeded; none in the first and
last 0.2 s, where nobody could tell from not having begun). Probes: 100 packets a second of UDP to port 9001,
50 of TCP segments to port 9003, 50 of UDP over IPv6 to port 9004. In the middle third of the time 1,500 packets of
1,000 bytes a second go to port 9002 by UDP: more than the line takes.

TRUTH, a line a packet: port, when it came in at IN, when it came out at RECEIVE (the kernel's time stamps, in
nanoseconds; 0 if it was lost). It stands in for the kernel's netem, which not every kernel has.
"""
import collections, heapq, random, select, socket, struct, sys, time

RATE, QUEUE, DELAY, JITTER, LOSS = 4_000_000 / 8, 25_000, 0.010, 0.002, 0.02
SO_TIMESTAMPNS, MARK = 35, b"flame path"
random.seed(7)


def open_socket(name, stamped=False):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind((name, 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    if stamped:
        s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return s


def checksum(header):
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def ip4(number, proto, length):
    def header(check):
        source, target = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
        return struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + length, number & 0xFFFF, 0, 64, proto, check,
            source, target)

    return b"\x08\0" + header(checksum(header(0)))


def ip6(number, proto, length):
    host = bytes.fromhex("20010db80000000000000000000000")
    return b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, length, proto, 64) + host + b"\1" + host + b"\2"


def frame(number, flow):
    """A frame that ends with its port and number; checksums of UDP and TCP are left out."""
    size = flow.size - (54 if flow.ip is ip6 else 34)
    if flow.proto == 17:
        start = struct.pack(">HHHHQ", 5000, flow.port, size, 0, number)
    else:
        start = struct.pack(">HHIIBBHHH", 5000, flow.port, number * 100 & 0xFFFFFFFF, 1, 5 << 4, 0x10, 1024,
            0, 0)
    data = start.ljust(size - len(MARK) - 10, b".") + MARK + struct.pack(">HQ", flow.port, number)
    return b"\2\0\0\0\0\2\2\0\0\0\0\1" + flow.ip(number, flow.proto, size) + data


def receive(s):
    """A packet of ours: its number, port, time stamp and bytes."""
    data, control, _, address = s.recvmsg(65536, 64)
    if address[2] == socket.PACKET_OUTGOING or data[-10 - len(MARK):-10] != MARK:
        return None
    seconds, ns = struct.unpack("qq", control[0][2][:16])
    port, number = struct.unpack(">HQ", data[-10:])
    return number, port, seconds * 10**9 + ns, data


send, out = map(open_socket, (sys.argv[1], sys.argv[3]))
inward, received = open_socket(sys.argv[2], True), open_socket(sys.argv[4], True)
length = float(sys.argv[5]) if len(sys.argv) > 5 else 6
start = time.monotonic()
Flow = collections.namedtuple("Flow", "port ip proto begin end gap size")
FLOWS = [
    Flow(9001, ip4, 17, 0, length, 1 / 100, 200),
    Flow(9002, ip4, 17, length / 3, 2 * length / 3, 1 / 1500, 1000),
    Flow(9003, ip4, 6, 0, length, 1 / 50, 300),
    Flow(9004, ip6, 17, 0, length, 1 / 50, 200),
]
due = [(start + flow.begin, flow) for flow in FLOWS]
heapq.heapify(due)
truth, on_the_way, number, line_free = {}, [], 0, start

while due or on_the_way or time.monotonic() < start + length + 0.5:
    now = time.monotonic()
    while due and due[0][0] <= now:
        at, flow = heapq.heappop(due)
        number += 1
        send.send(frame(number, flow))
        if at + flow.gap < start + flow.end:
            heapq.heappush(due, (at + flow.gap, flow))
    while on_the_way and on_the_way[0][0] <= now:
        out.send(heapq.heappop(on_the_way)[2])
    next_event = min([t[0] for t in due[:1] + on_the_way[:1]], default=now + 0.1)
    for s in select.select([inward, received], [], [], max(0, min(next_event - now, 0.1)))[0]:
        packet = receive(s)
        if packet is None:
            continue
        n, port, stamp, data = packet
        if s is received:
            truth[n][2] = stamp
            continue
        truth[n] = [port, stamp, 0]
        now = time.monotonic()
        waiting = max(0, line_free - now) * RATE
        may_lose = start + 0.2 < now < start + length - 0.2
        if waiting + len(data) > QUEUE or may_lose and random.random() < LOSS:
            continue
        line_free = max(now, line_free) + len(data) / RATE
        heapq.heappush(on_the_way, (line_free + DELAY + random.uniform(0, JITTER), n, data))

for line in truth.values():
    print(*line, sep="\t")
