"""Compares FOLDER/parquet and FOLDER/integers with FOLDER/records.json through DuckDB, pyarrow and pandas,
and reads times in text from FOLDER/times.json and FOLDER/times.csv.

Written for tests/parquet.rs; needs duckdb, pandas and pyarrow.
"""

import json
import math
import pathlib
import sys

import duckdb
import pandas
import pyarrow as pa
import pyarrow.parquet

folder = pathlib.Path(sys.argv[1])
all_rows = str(folder / "integers" / "probe.all.parquet")
no_rows = str(folder / "integers" / "probe.empty.parquet")
typed_rows = str(folder / "parquet" / "probe.all.parquet")

TYPES = {
    "ok": ("BOOLEAN", pa.bool_()),
    "ttl": ("UTINYINT", pa.uint8()),
    "port": ("USMALLINT", pa.uint16()),
    "packets": ("UINTEGER", pa.uint32()),
    "wire": ("UBIGINT", pa.uint64()),
    "drift": ("BIGINT", pa.int64()),
    "load": ("DOUBLE", pa.float64()),
    "first_ns": ("UBIGINT", pa.uint64()),
    "rtt_ns": ("BIGINT", pa.int64()),
    "mac": ("VARCHAR", pa.string()),
    "src": ("VARCHAR", pa.string()),
    "note": ("VARCHAR", pa.string()),
    "end": ("VARCHAR", pa.dictionary(pa.uint8(), pa.string())),
}
UNITS = {"packets": "packets", "wire": "bytes", "drift": "ppb", "load": "Mbit/s"}
UNITS |= {"first_ns": "ns", "rtt_ns": "ns"}


def plain(value):
    """JSON has no NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


expected = []
for line in open(folder / "records.json", encoding="utf-8"):
    row = json.loads(line)
    assert (row.pop("module"), row.pop("table")) == ("probe", "all")
    expected.append(row)
assert len(expected) == 20_000

# pyarrow
for path, rows in [(all_rows, expected), (no_rows, [])]:
    table = pyarrow.parquet.read_table(path)
    found = [{k: plain(v) for k, v in row.items()} for row in table.to_pylist()]
    assert found == rows, f"pyarrow: {path}"
    for name, (_, arrow_type) in TYPES.items():
        field = table.schema.field(name)
        assert field.type == arrow_type, f"pyarrow: {field}"
        unit = (field.metadata or {}).get(b"unit")
        assert unit == (UNITS[name].encode() if name in UNITS else None), f"pyarrow: {name}: {unit}"
    metadata = table.schema.metadata
    assert metadata[b"flame.module"] == b"probe" and metadata[b"flame.version"] == b"1.2.3", metadata
    assert metadata[b"flame.sha256"] == b"ab" * 32, metadata

# DuckDB
for path, rows in [(all_rows, expected), (no_rows, [])]:
    result = duckdb.sql(f"SELECT * FROM '{path}'")
    assert {n: str(t) for n, t in zip(result.columns, result.types)} == {n: t for n, (t, _) in TYPES.items()}
    found = [{k: plain(v) for k, v in zip(result.columns, row)} for row in result.fetchall()]
    assert found == rows, f"duckdb: {path}"
    query = f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{path}')"
    keys = dict(duckdb.sql(query).fetchall())
    units = {k.removeprefix("flame.unit."): v for k, v in keys.items() if k.startswith("flame.unit.")}
    assert units == UNITS, keys
    assert keys["flame.module"] == "probe", keys

query = f"SELECT make_timestamp_ns(first_ns::BIGINT)::VARCHAR FROM '{all_rows}' LIMIT 1"
first = duckdb.sql(query).fetchall()
assert first == [("2023-11-14 22:13:20.123456789",)], first

# Typed times and durations. Nothing else differs.
TYPED = {
    "first_ns": ("TIMESTAMP WITH TIME ZONE", pa.timestamp("ns", "UTC")),
    "rtt_ns": ("BIGINT", pa.duration("ns")),
}
table = pyarrow.parquet.read_table(typed_rows)
for name, (_, arrow_type) in TYPES.items():
    field = table.schema.field(name)
    assert field.type == TYPED.get(name, (None, arrow_type))[1], f"pyarrow: {field}"
for name in TYPED:
    found = table.column(name).cast(pa.int64()).to_pylist()
    assert found == [row[name] for row in expected], f"pyarrow: {name}"
result = duckdb.sql(f"SELECT * FROM '{typed_rows}'")
types = {n: str(t) for n, t in zip(result.columns, result.types)}
wanted = {name: TYPED.get(name, t)[0] for name, t in TYPES.items()}
assert {n: "TIMESTAMP" if t.startswith("TIMESTAMP") else t for n, t in types.items()} == {
    n: "TIMESTAMP" if t.startswith("TIMESTAMP") else t for n, t in wanted.items()
}, types
print("duckdb has", types["first_ns"])
# DuckDB keeps at least microseconds; from 2.0 on, it has epoch_ns alone for this type.
query = f"SELECT epoch_ns(first_ns) // 1000, rtt_ns FROM '{typed_rows}'"
for row, found in zip(expected, duckdb.sql(query).fetchall(), strict=True):
    # The greatest time of nanoseconds is DuckDB's infinity.
    is_infinite = row["first_ns"] == 2**63 - 1 and found[0] is None
    assert is_infinite or found[0] == row["first_ns"] // 1000, f"duckdb: {found} {row}"
    assert found[1] == row["rtt_ns"], f"duckdb: {found} {row}"
# Addresses are compared and sorted as addresses after a cast, and words as words.
query = f"SELECT DISTINCT src FROM '{typed_rows}' WHERE src LIKE '%.%.%.%' AND src NOT LIKE '%:%'"
ips = duckdb.sql(query).fetchall()
ipv4 = {row["src"] for row in expected if "." in row["src"] and ":" not in row["src"]}
assert {ip for (ip,) in ips} == ipv4

# pandas
frame = pandas.read_parquet(typed_rows)
assert str(frame["first_ns"].dtype) == "datetime64[ns, UTC]", frame.dtypes
assert str(frame["rtt_ns"].dtype) == "timedelta64[ns]", frame.dtypes
assert str(frame["end"].dtype) == "category", frame.dtypes
assert frame["first_ns"].iloc[0] == pandas.Timestamp("2023-11-14T22:13:20.123456789Z")
assert frame["rtt_ns"].iloc[0] == pandas.Timedelta(expected[0]["rtt_ns"], "ns")
assert frame["src"].tolist() == [row["src"] for row in expected]

# Times in text.
times = [json.loads(line)["first_ns"] for line in open(folder / "times.json", encoding="utf-8")]
assert times[0] == "2023-11-14T22:13:20.123456789Z", times[0]
assert [t.value for t in pandas.to_datetime(times[:4])] == [row["first_ns"] for row in expected[:4]]
found = duckdb.sql(f"SELECT epoch_us(first_ns::TIMESTAMPTZ) FROM read_csv('{folder}/times.csv')").fetchall()
assert [us for (us,) in found] == [row["first_ns"] // 1000 for row in expected]
versions = f"duckdb {duckdb.__version__}, pandas {pandas.__version__}, pyarrow {pa.__version__}"
print(f"{versions}: {len(expected)} rows agree")
