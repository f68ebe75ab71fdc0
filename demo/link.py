#!/usr/bin/env python3
"""A link between two Ethernet interfaces, with delay, loss and a mirror port.

usage: link.py CLIENT SERVER CLIENT_VLAN SERVER_VLAN MIRROR

Frames pass between CLIENT and SERVER, and between CLIENT_VLAN and SERVER_VLAN, 10 ms later. What a
monitor at the client's end of the trunk would see goes out of MIRROR too, the second pair's frames
tagged with VLAN 42. Of long frames 1 % are lost (seeded), and of port 8081 the first SYN. It stands in for
the kernel's netem and VLAN devices, which not every kernel has.
"""
import heapq, random, select, socket, struct, sys, time

DELAY, LOSS, VLAN, LOST_SYN_PORT = 0.010, 0.01, 42, 8081
random.seed(42)


def open_socket(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind((name, 0))
    return s


def is_syn_to(frame, port):
    return (len(frame) > 47 and frame[12:14] == b"\x08\x00" and frame[23] == 6
            and frame[36:38] == struct.pack(">H", port) and frame[47] & 0x12 == 2)


client, server, client_vlan, server_vlan, mirror = map(open_socket, sys.argv[1:])
peers = {client: server, server: client, client_vlan: server_vlan, server_vlan: client_vlan}
at_client = {client, client_vlan}
tagged = {client_vlan, server_vlan}
queue, number, syn_lost = [], 0, False


def show(source, frame):
    if source in tagged:
        frame = frame[:12] + struct.pack(">HH", 0x8100, VLAN) + frame[12:]
    mirror.send(frame)


while True:
    wait = max(0, queue[0][0] - time.monotonic()) if queue else 1
    for source in select.select(list(peers), [], [], wait)[0]:
        frame, address = source.recvfrom(65536)
        if address[2] == socket.PACKET_OUTGOING:
            continue
        if source in at_client:
            show(source, frame)
        if len(frame) > 1000 and random.random() < LOSS:
            continue
        if is_syn_to(frame, LOST_SYN_PORT) and not syn_lost:
            syn_lost = True
            continue
        number += 1
        heapq.heappush(queue, (time.monotonic() + DELAY, number, source, frame))
    while queue and queue[0][0] <= time.monotonic():
        _, _, source, frame = heapq.heappop(queue)
        if source not in at_client:
            show(source, frame)
        peers[source].send(frame)
