"""Compares FOLDER/parquet with FOLDER/records.json through DuckDB and pyarrow.

Written for tests/parquet.rs; needs duckdb and pyarrow.
"""

import json
import math
import pathlib
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet

folder = pathlib.Path(sys.argv[1])
all_rows = str(folder / "parquet" / "probe.all.parquet")
no_rows = str(folder / "parquet" / "probe.empty.parquet")

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
UNITS = {"packets": "packets", "wire": "bytes", "drift": "ppb", "load": "Mbit/s", "first_ns": "ns", "rtt_ns": "ns"}


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
    keys = dict(duckdb.sql(f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{path}')").fetchall())
    assert {k.removeprefix("flame.unit."): v for k, v in keys.items() if k.startswith("flame.unit.")} == UNITS, keys
    assert keys["flame.module"] == "probe", keys

first = duckdb.sql(f"SELECT make_timestamp_ns(first_ns::BIGINT)::VARCHAR FROM '{all_rows}' LIMIT 1").fetchall()
assert first == [("2023-11-14 22:13:20.123456789",)], first
print(f"duckdb {duckdb.__version__} and pyarrow {pa.__version__} agree on {len(expected)} rows")
