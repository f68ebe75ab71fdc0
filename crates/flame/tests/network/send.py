"""Sends the frames of a file (u16 length, bytes; network order) from an interface: send.py INTERFACE FILE
[TIMES [COMMAND [STOP]]]

COMMAND is run by the shell at once after the last frame. With STOP they go out in bursts of 100 a
millisecond, until a file of that name exists.
"""

import os
import socket
import struct
import sys
import time

interface, path = sys.argv[1:3]
times = int(sys.argv[3]) if len(sys.argv) > 3 else 1
data = open(path, "rb").read()
frames, at = [], 0
while at < len(data):
    (n,) = struct.unpack_from(">H", data, at)
    frames.append(data[at + 2 : at + 2 + n])
    at += 2 + n
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
s.bind((interface, 0))
for _ in range(times):
    for number, frame in enumerate(frames):
        if len(sys.argv) > 5 and number % 100 == 0:
            if os.path.exists(sys.argv[5]):
                break
            time.sleep(0.001)
        while True:
            try:
                s.send(frame)
                break
            except OSError as e:  # The queue is full for a moment.
                if e.errno != 105:
                    raise
                time.sleep(0.0002)
if len(sys.argv) > 4 and sys.argv[4] and os.system(sys.argv[4]):
    sys.exit(1)
