#!/usr/bin/env python3
"""What tests/truth.rs expects, found without this module: tshark takes the payloads out, Python searches
them.

    expected.py FOLDER > expected.tsv

FOLDER holds captures. The signatures stand here once more, on purpose: shipped ones, and those of
signatures.txt. A line for each capture and name that was found: sources with targets and ports, packets,
first and last time. A match may begin in earlier segments of its TCP direction if each began where the one
before ended; with an offset, in the last of them.
"""
import os, subprocess, sys
from concurrent.futures import ThreadPoolExecutor

TCP, UDP = 6, 17
SIGNATURES = [
    ('code-red-i', TCP, 80, 0, b'GET /default.ida?' + b'N' * 16),
    ('code-red-ii', TCP, 80, 0, b'GET /default.ida?' + b'X' * 16),
    ('nimda', TCP, 80, None, b'/root.exe?/c+dir'),
    ('nimda', TCP, 80, None, b'/winnt/system32/cmd.exe?/c+dir'),
    ('slammer', UDP, 1434, 0, b'\4' + b'\1' * 15),
    ('blaster', TCP, None, None, b'GET msblast.exe'),
    ('blaster', UDP, 69, 0, b'\0\1msblast.exe\0'),
    ('ms17-010', TCP, 445, None, bytes.fromhex('4a0000004a000200230000000700') + b'\\PIPE\\\0'),
    ('wget', TCP, None, None, b'User-Agent: Wget'),
    ('form', TCP, 80, None, b'Content-Type: application/x-www-form-urlencoded'),
    ('up', TCP, 80, None, b'../../'),
    ('ssh', TCP, 22, 0, b'SSH-2.0-'),
    ('ssdp', UDP, 1900, 0, b'M-SEARCH * HTTP/1.1'),
    ('sip', UDP, 5060, 0, b'REGISTER sip:'),
    ('smb-transaction', TCP, 445, 4, b'\xffSMB%'),
    ('zeros', TCP, 445, None, bytes(24)),
    ('hello', TCP, 443, 0, b'\x16\x03\x01'),
    ('base64', TCP, 25, None, b'AAAAAAAA'),
]
FIELDS = 'frame.time_epoch frame.protocols ip.src ip.dst ipv6.src ipv6.dst tcp.srcport tcp.dstport ' \
    'udp.dstport ' \
    'tcp.seq tcp.payload udp.payload'.split()
OPTIONS = 'ip.defragment:FALSE ipv6.defragment:FALSE tcp.desegment_tcp_streams:FALSE ' \
    'tcp.relative_sequence_numbers:FALSE ip.check_checksum:FALSE'.split()
EXTENSIONS = {'ipv6.hopopts', 'ipv6.routing', 'ipv6.fraghdr', 'ipv6.dstopts', 'ah', 'ipv6.shim6', 'ipv6.mip6'}


def packets(path):
    """(ns, proto, src, dst, sport, dport, seq, payload) of the outermost TCP and UDP."""
    command = ['tshark', '-n', '-r', path, '-T', 'fields', '-E', 'occurrence=f', '-E', 'separator=/t']
    for o in OPTIONS: command += ['-o', o]
    for f in FIELDS: command += ['-e', f]
    out = subprocess.run(command, capture_output=True, text=True, errors='replace').stdout
    for line in out.splitlines():
        v = dict(zip(FIELDS, line.split('\t') + [''] * len(FIELDS)))
        chain = v['frame.protocols'].split(':')
        at = next((i for i, t in enumerate(chain) if t in ('ip', 'ipv6')), len(chain))
        family = ''.join(chain[at:at + 1])
        at += 1
        while at < len(chain) and chain[at] in EXTENSIONS: at += 1
        name = ''.join(chain[at:at + 1])
        if name not in ('tcp', 'udp') or not v[name + '.payload']: continue
        seconds, _, fraction = v['frame.time_epoch'].partition('.')
        time = int(seconds or 0) * 10**9 + int(fraction.ljust(9, '0'))
        yield (time, TCP if name == 'tcp' else UDP, v[family + '.src'],
               v[family + '.dst'], v['tcp.srcport'], int(v[name + '.dstport']), int(v['tcp.seq'] or 0),
               bytes.fromhex(v[name + '.payload']))


def begins(pattern, data):
    at = data.find(pattern)
    while at >= 0:
        yield at
        at = data.find(pattern, at + 1)


def expected(path):
    """Found by name: (src, dst, dport) to packets, times; how many matches began in an earlier segment."""
    found, crossing, directions = {}, 0, {}
    for ns, proto, src, dst, sport, dport, seq, payload in packets(path):
        before, last = b'', 0
        if proto == TCP:
            key = src, dst, sport, dport
            carried = directions.get(key)
            if carried and carried[0] == seq: _, before, last = carried
            directions[key] = ((seq + len(payload)) % 2**32, (before + payload)[-4096:], len(payload))
        data, hits = before + payload, {}
        for name, p, port, offset, pattern in SIGNATURES:
            if p != proto or port not in (None, dport): continue
            for at in begins(pattern, data):
                if at + len(pattern) <= len(before): continue  # Was there before.
                inside = at - len(before) if at >= len(before) else at - len(before) + last
                if offset is None or offset == inside: hits[name] = hits.get(name, False) or at < len(before)
        for name, crosses in hits.items():
            crossing += crosses
            entry = found.setdefault(name, {}).setdefault((src, dst, dport), [0, ns, ns])
            entry[:] = entry[0] + 1, min(entry[1], ns), max(entry[2], ns)
    return found, crossing


def main(folder):
    files = sorted(os.listdir(folder))
    print('file worm infections sources packets first_ns last_ns'.replace(' ', '\t'))
    total = 0
    with ThreadPoolExecutor(2) as pool:
        for file, (found, crossing) in zip(files,
            pool.map(lambda f: expected(os.path.join(folder, f)), files)):
            total += crossing
            for name, entries in sorted(found.items()):
                values = list(entries.values())
                print(file, name, len(values), len({k[0] for k in entries}), sum(v[0] for v in values),
                      min(v[1] for v in values), max(v[2] for v in values), sep='\t')
    print(f'{len(files)} captures, {total} packets complete a match that an earlier segment began',
        file=sys.stderr)


if __name__ == '__main__':
    main(sys.argv[1])
