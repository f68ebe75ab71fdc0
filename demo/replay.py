"""Sends the packets of a capture on an interface, TIMES times at RATE packets a second, and prints their
number: replay.py CAPTURE INTERFACE TIMES RATE"""
import socket
import struct
import sys
import time

capture, interface, times, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
data = open(capture, "rb").read()
frames, at = [], 24
while at < len(data):
    (length,) = struct.unpack_from("<I", data, at + 8)
    frames.append(data[at + 16 : at + 16 + length])
    at += 16 + length
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((interface, 0))
start, sent = time.monotonic(), 0
for _ in range(times):
    for frame in frames:
        out.send(frame)
        sent += 1
        if sent % 20 == 0:
            time.sleep(max(0, start + sent / rate - time.monotonic()))
print(sent)
