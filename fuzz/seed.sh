#!/usr/bin/env bash
# Fills fuzz/corpus, or the folder FLAME_CORPUS, from real captures and from the project's own files.
# FLAME_TRACES is a folder with open/files; without it only the small seeds written here are made.
set -euo pipefail
cd "$(dirname "$0")"
traces="${FLAME_TRACES:-../../shared/traces}/open/files"
corpus="${FLAME_CORPUS:-corpus}"
mkdir -p "$corpus"/{pcap,pcapng,decode,filter,records,manifest,rewriter,signatures,joined,rules,names} \
    "$corpus"/{policy,credential,analyser,programs,certificate,view,click,finish,rows} \
    "$corpus"/{capsule,language,exchange}

# Captures up to 64 KiB: larger ones only slow the fuzzer down.
if [ -d "$traces" ]; then
    find "$traces" -size -65k \( -name '*.pcap' -o -name '*.cap' \) -exec cp -t "$corpus"/pcap {} +
    find "$traces" -size -65k -name '*.pcapng' -exec cp -t "$corpus"/pcapng {} +
else
    echo "skipped: $traces is missing (set FLAME_TRACES); captures and packets are not seeded"
fi

# The first packets of the project's own capture, in both formats.
python3 - ../demo/demo.pcap "$corpus" <<'PY'
import pathlib, struct, sys
data, corpus = pathlib.Path(sys.argv[1]).read_bytes(), pathlib.Path(sys.argv[2])
at, blocks = 24, []
for _ in range(40):
    seconds, fraction, size, length = struct.unpack_from("<4I", data, at)
    packet = data[at + 16 : at + 16 + size]
    at += 16 + size
    ticks = seconds * 1_000_000 + fraction // 1000
    body = struct.pack("<5I", 0, ticks >> 32, ticks & 0xFFFFFFFF, size, length) + packet + bytes(-size % 4)
    blocks.append((6, body))
(corpus / "pcap" / "demo").write_bytes(data[:at])
head = [(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)), (1, struct.pack("<HHI", 1, 0, 0))]
wrapped = (struct.pack("<2I", k, len(b) + 12) + b + struct.pack("<I", len(b) + 12) for k, b in head + blocks)
(corpus / "pcapng" / "demo").write_bytes(b"".join(wrapped))
PY

# Packets for decode: link type (u16, little-endian), then the bytes. The first four of each capture.
python3 - "$corpus"/pcap "$corpus"/decode <<'PY'
import hashlib, pathlib, struct, sys
source, target = map(pathlib.Path, sys.argv[1:])
for path in source.iterdir():
    data = path.read_bytes()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<"}.get(data[:4], ">")
    if len(data) < 24:
        continue
    link = struct.unpack_from(order + "I", data, 20)[0] & 0xFFFF
    at = 24
    for _ in range(4):
        if at + 16 > len(data):
            break
        size = struct.unpack_from(order + "I", data, at + 8)[0]
        packet = data[at + 16 : at + 16 + size]
        at += 16 + size
        if len(packet) != size or size > 2048:
            break
        seed = struct.pack("<H", link) + packet
        (target / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
PY

# One expression a file.
n=0
while IFS= read -r expression; do
    n=$((n + 1))
    printf '%s' "$expression" > "$corpus/filter/$n"
done <<'FILTERS'
tcp
udp port 53
tcp dst port 80
host 192.0.2.1 and not port 22
net 10.0.0.0/8
ip6 and tcp
ip6 host 2001:db8::1
vlan 5 and ip
vlan and vlan and ip6
mpls and ip
pppoes and ip
icmp or icmp6
tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn
ip[0] & 0xf != 5
ether host 02:00:00:00:00:01
ether proto 0x88cc
greater 1000
portrange 1000-2000
ip[6:2] & 0x1fff != 0
len - ip[2:2] > 14
FILTERS

# Output frames for the tables of fuzz_targets/records.rs: a byte of choices, then frames.
row='\x05\x00gr\xc3\xb6e\x06\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01'
printf '\x00\x18\x00\x00\x00\x01\x00\x00\x00'"$row" > "$corpus"/records/short
printf '\x00\x01\x00\x00\x00\x02\x00\x00\x00\x07\x01\x00\x00\x00\x02\x00\x00\x00\x08' \
    > "$corpus"/records/bytes
printf '\x00\x02\x00\x00\x00\xff\xff\x00\x00hi\x08\x00\x00\x00\xfe\xff\x00\x00\x03\x00\x00\x00\x00\x00'\
'\x00\x00' \
    > "$corpus"/records/message-lost
{
    printf '\x02\x4f\x00\x00\x00\x00\x00\x00\x00\x01\x40\x50\x00\x04\x03\x02\x01' # ok a b c
    printf '\x01\x02\x03\x04\x05\x06\x07\x08\xff\xff\xff\xff\xff\xff\xff\xff'     # d e
    printf '\x00\x00\x00\x00\x00\x00\xf0\x3f\x15\xcd\x5b\x07\x2a\x1f\x98\x17'     # f first_ns
    printf '\x40\xe2\x01\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x01'             # rtt_ns mac
    printf '\x04\xc0\x00\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00' # ip
    printf '\x05\x00hello\x01'                                                    # note end
} > "$corpus"/records/all

for file in ../modules/*/module.toml ../crates/flame/src/template/module.toml; do
    [ -f "$file" ] && cp "$file" "$corpus/manifest/$(basename "$(dirname "$file")").toml"
done
printf 'abi = 1\nname = "a"\nversion = "1"\ndescription = ""\n[parameters.p]\ntype = "duration"\ndefault'\
' = "10s"\ndescription = ""\n' \
    > "$corpus"/manifest/parameter.toml

printf '\x00\x14\x00\x00\x00\xfd\xff\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08\x40\x00\x00\x00\x01\x00\x00'\
'\x00\xde\xad\xbe\xef' > "$corpus"/records/packet

cp ../modules/worm/worms.txt "$corpus"/signatures/
# The definitions with each rule, and a packet that some match.
head='\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x08\x00\x45\x00\x00\x38\x00\x01\x40\x00\x40\x06'\
'\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02'
tcp='\x04\x00\x00\x50\x00\x00\x00\x01\x00\x00\x00\x02\x50\x18\x01\x00\x00\x00\x00\x00GET /../../etc HT'
python3 - "$corpus"/names <<'PY'
import pathlib, struct, sys
target = pathlib.Path(sys.argv[1])
name = b"\3www\7example\3com\0"
query = struct.pack(">6H", 1, 0x100, 2, 0, 0, 0) + name + b"\0\1\0\1" + b"\4mail\xc0\x10" + b"\0\1\0\1"
entry = b"\0\0\x0cwww.test.org"
sni = b"\0\0" + struct.pack(">HH", len(entry) + 2, len(entry)) + entry
extensions = b"\0\x17\0\0" + sni
length = struct.pack(">H", len(extensions))
hello = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + length + extensions
record = b"\x16\3\1" + struct.pack(">H", len(hello) + 4) + b"\1\0" + struct.pack(">H", len(hello)) + hello
for i, seed in enumerate((query, record)):
    (target / str(i)).write_bytes(b"\xff" + seed)
PY
rules=../modules/ids/rules/flame.rules
grep -h '^alert' $rules ../modules/ids/tests/words.rules | split -l 1 - "$corpus"/rules/one.
for file in "$corpus"/rules/one.*; do
    { grep -E '^(ipvar|portvar|config)' $rules; cat "$file"; printf '\x00%b' "$head$tcp"; } > "$file.new"
    mv "$file.new" "$file"
done
log='{"module":"trajectory","table":"log","ts_ns":%d,"flow":7,"label":9,"wire_len":60}\n'
flow='{"module":"trajectory","table":"flow","ts_ns":1,"flow":7,"proto":6,"src":"10.0.0.1","sport":1,"dst'\
'":"10.0.0.2","dport":80}\n'
# shellcheck disable=SC2059
{ printf "$flow$log" 5; printf '\x00'; printf "$log" 9; } > "$corpus"/joined/two

# Rows of a node's database: a module of a principal with a state, and one of the operator.
python3 - "$corpus"/rows <<'PY'
import hashlib, pathlib, struct, sys
root = "ed25519/1055c750b1a1505937af1537c626ba3263995c33a64758aaafb1275b0312e284"
terms = '{"module":"count","version":1,"workers":1,"rights":""}'
for name, root, principal in (("principal", root, "alice"), ("operator", "", "")):
    key = "".join(text + "\0" for text in (root, principal, "count", terms))
    hash = hashlib.sha256(struct.pack("<q", 0) + key.encode() + b"state").hexdigest()
    module = ["t" + root, "t" + principal, "tcount", "ttap", "b" + "07" * 32, "t", 't{"n":"1"}']
    module += ['t[{"field":"expose","value":"headers"}]']
    module += ["tcred", "b" + "01" * 32, "tkey", "b" + "02" * 64] if root else ["n"] * 4
    module += ["tstopped", "tby request", "i3", "i1800000000"]
    session = ['t{"count":{"cpu_ppm":10000,"memory":0,"blocks":0,"record_bytes":0}}']
    state = ["i0", "t" + terms, "b" + b"state".hex(), "b" + hash]
    end = ["tevicted", "ta reason", "i4"] if root else []
    rows = module + session + state + ["tid 00ff", "i7"] + end
    pathlib.Path(sys.argv[1], name).write_bytes(b"\0".join(value.encode() for value in rows))
PY

# The policy of docs/operators.md with a key in place of the shell's; Datalog, fields, and a credential's
# text.
key=ed25519/1055c750b1a1505937af1537c626ba3263995c33a64758aaafb1275b0312e284
sed -n '/^\[node\]/,/^END/p' ../docs/operators.md | sed "/^END/d; s|\$(cat root.pub)|$key|" \
    > "$corpus"/policy/operators
printf '[node]\nname = "n"\nkey = "k"\n[best-effort]\nselect = ["tcp", "port 80"]\nexpose = "payload:9"'\
'\ncalls = ""\ncode = "%s"\ngroup = 5\n[checks]\ndatalog = "check if time($t), $t > 2020-01-01T00:00:00Z'\
'"\n' $key \
    > "$corpus"/policy/best-effort
printf 'id 00ff\nkey %s # gone\n' $key > "$corpus"/policy/revoked
n=0
while IFS= read -r line; do
    n=$((n + 1))
    printf '%s' "$line" > "$corpus/credential/$n"
done <<'DATALOG'
select("port 53"); expose("headers"); sample("10");
check if time($t), $t < 2030-01-01T00:00:00Z;
x_n(1); x_n(2); x_m($a, $b) <- x_n($a), x_n($b); check if x_m($a, $b), $a + $b == 3;
check all x_n($a), {1, 2}.contains($a); reject if interface("eth1");
check if [1, 2].any($p -> $p == 2) || "a".starts_with("b");
holder("ed25519/1055c750b1a1505937af1537c626ba3263995c33a64758aaafb1275b0312e284"); principal("bob");
ip=prefix,mac=zero,port=truncate:8
10ms/100ms
2027-01-01T00:00:00Z
DATALOG
printf '\x00asm\x01\x00\x00\x00' > "$corpus"/rewriter/empty.wasm
for file in "${FLAME_MODULES:-../target/fast-build/modules}"/*.wasm; do
    [ -f "$file" ] && cp "$file" "$corpus"/rewriter/
    # Large ones take the analyser too long under a sanitizer.
    [ -f "$file" ] && [ "$(stat -c %s "$file")" -lt 20000 ] && cp "$file" "$corpus"/analyser/
done
printf '\x00asm\x01\x00\x00\x00' > "$corpus"/analyser/empty.wasm

for case in ../crates/dataplane/element/tests/cases/*.clicktest; do
    sed -n '/^%file CONFIG/,/^%expect/{/^%/d;p}' "$case" > "$corpus/click/$(basename "$case" .clicktest)"
done

# The honest certificates of crates/control/verify/tests/modules, and those that small modules carry, before
# their module.
printf '\x00\x01\x00\x00\x02\x01\x02\x00\x01\x00\x00\x01\x00\x01\x05\x00\x01\x01\x00\x02\x01\x04\x04\x00'\
'\x7f\x01\x00\x02\x01\x00\x00\x01\x02\x01\x00\x80\xc0\x3f\x02\x00\x02\x01\x00\x02\x7f\x01\x00\x02\x01'\
'\x04\x01\x00\x7f\x00\x02\x00' > "$corpus"/certificate/packets
printf '\x01\x01\x01\x01\x01\x00\x02\x00\x00\x00\x00\x00\x02\x03\x01\x00\x00\x01\x01\x00\x03\x01\xe3\x00'\
'\x01\x7d\x01\x01\x01\x01\x00\x00\x01\x01\x00\x01\x01\x00\x02\x01\x04\x00\x00\x7f\x01\x00\x04\x01\x00'\
'\x04\x00\x00\x00\x01\x00\x01\x00\x02\x00\x00\x00\x00' > "$corpus"/certificate/calls
python3 - "$corpus"/rewriter "$corpus"/certificate <<'PY'
import pathlib, struct, sys
source, target = map(pathlib.Path, sys.argv[1:])

def number(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return n, at

for path in source.glob("*.wasm"):
    data, at = path.read_bytes(), 8
    while at < len(data):
        kind, (size, start) = data[at], number(data, at + 1)
        at = start + size
        if kind == 0:
            length, name = number(data, start)
            certificate = data[name + length : at]
            is_small = len(certificate) < 65536 and len(data) < 20000
            if data[name : name + length] == b"flame.bounds" and is_small:
                seed = b"\xff" + struct.pack("<H", len(certificate)) + certificate + data
                (target / path.stem).write_bytes(seed)
PY

# As many choices as a module of the generator takes; the same every time.
python3 - "$corpus"/programs "$corpus"/view <<'PY'
import pathlib, random, sys
for folder in sys.argv[1:]:
    for n in range(8):
        pathlib.Path(folder, str(n)).write_bytes(random.Random(n).randbytes(2000))
PY

# Messages of active nodes: a capsule with code and by hash, a request, an answer, a delivery; a capsule's
# code. Programs with arguments. A change of each datagram of an exchange.
python3 - "$corpus" <<'PY'
import hashlib, pathlib, struct, sys
corpus = pathlib.Path(sys.argv[1])
code = b"\0asm\1\0\0\0"
digest = hashlib.sha256(code).digest()
bound = struct.pack("<QQI4x", 10_000, 20_000, 30)
places = struct.pack("<QQ", 7, 8) + bytes([3]) * 16 + bytes([4]) * 16
for name, body in (("code", code), ("hash", b"")):
    head = struct.pack("<4BHH", 1, 1, 2, 9, 5, len(body))
    (corpus / "capsule" / name).write_bytes(head + bound + places + digest + b"split" + body)
(corpus / "capsule" / "request").write_bytes(struct.pack("<2B2xI", 1, 2, 8191) + digest)
(corpus / "capsule" / "answer").write_bytes(struct.pack("<2B2xI", 1, 3, len(code)) + digest + code)
(corpus / "capsule" / "delivery").write_bytes(struct.pack("<2B2xI", 1, 4, 5) + bytes([4]) * 16 + b"bytes")
# (module (memory (export "memory") 1 1) (global (mut i64) (i64.const 5)) (func (export "f") (param i32)))
capsule = "0061736d01000000" + "01050160017f00" + "03020100" + "050401010101" + "0606017e0142050b"
capsule += "070e02066d656d6f7279020001660000" + "0a040102000b"
(corpus / "analyser" / "capsule.wasm").write_bytes(bytes.fromhex(capsule))
for path in pathlib.Path("../crates/active/language/programs").iterdir():
    arguments = struct.pack("<6q", 3, 8, 9, 12, 77, 5)
    for length in (0, 8, 16, 48):
        seed = path.read_bytes() + b"\0" + arguments[:length]
        (corpus / "language" / f"{path.stem}-{length}").write_bytes(seed)
for step in range(5):
    for change in range(3):
        (corpus / "exchange" / f"{step}-{change}").write_bytes(bytes([step, change]) + bytes(40) + b"\1")
PY

for target in "$corpus"/*/; do
    printf '%6d seeds for %s\n' "$(find "$target" -type f | wc -l)" "$(basename "$target")"
done

# Frames that the kernel left unfinished: segments of TCP, and a datagram without its checksum.
python3 - "$corpus"/finish <<'PY'
import pathlib, struct, sys
target = pathlib.Path(sys.argv[1])
ether = bytes(12) + b"\x08\x00"
def ip(protocol, rest):
    return bytes([0x45, 0]) + struct.pack(">HHHBBH", 20 + len(rest), 1, 0, 64, protocol, 0) + bytes(8) + rest
tcp = struct.pack(">HHIIBBHHH", 80, 9, 1, 2, 0x50, 0x19, 9, 0, 0) + bytes(300)
udp = struct.pack(">HHHH", 80, 9, 8 + 9, 0) + bytes(9)
(target / "tcp").write_bytes(struct.pack("=BBHHHH", 1, 1, 54, 100, 34, 16) + ether + ip(6, tcp))
(target / "udp").write_bytes(struct.pack("=BBHHHH", 1, 0, 0, 0, 34, 6) + ether + ip(17, udp))
PY
