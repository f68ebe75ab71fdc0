#!/usr/bin/env python3
"""Counts packets by the display filters of filters.tsv: tshark.py FOLDER > tshark.tsv

FOLDER holds the shared captures. Every 8th classic capture of Ethernet below 1 MB is counted, without
reassembly. #1 is the outermost header of its kind (Wireshark 4)."""
import re, struct, subprocess, sys
from pathlib import Path

rows = [line.split("\t") for line in (Path(__file__).parent / "filters.tsv").read_text().splitlines()[1:]]
options = ["ip.defragment:FALSE", "ipv6.defragment:FALSE", "tcp.desegment_tcp_streams:FALSE"]
print("\t".join(["file"] + [pcap for pcap, _ in rows]))
for path in sorted(Path(sys.argv[1]).iterdir())[::8]:
    head = path.read_bytes()[:24]
    if path.stat().st_size > 1_000_000 or len(head) < 24:
        continue
    magic, link = struct.unpack("<I16xI", head)
    if magic not in (0xA1B2C3D4, 0xA1B23C4D) or link != 1:
        continue
    command = ["tshark", "-n", "-q", "-r", path, "-z", ",".join(["io,stat,0"] + [show for _, show in rows])]
    for option in options:
        command += ["-o", option]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    cells = [line for line in done.stdout.splitlines() if "<>" in line]
    counts = re.findall(r"\|\s*(\d+)\s*\|\s*\d+\s", cells[0].split("<>", 1)[1]) if cells else []
    if done.returncode == 0 and len(counts) == len(rows):
        print("\t".join([path.name] + counts), flush=True)
    else:
        print(f"{path.name}: {done.stderr.strip()[:200]} {len(counts)}", file=sys.stderr)
