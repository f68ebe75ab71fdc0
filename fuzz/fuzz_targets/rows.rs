//! A node's database of any rows: refused with table and column, or modules of which none has more than it
//! had. Values are separated by zeros and begin with their type; those that are missing are NULL.
#![no_main]

use flame_daemon::{StoreError, read_all};
use libfuzzer_sys::fuzz_target;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

/// Tables without types, as somebody else could have made them, and the columns of each that the input fills.
/// States and ends have the key of the module.
const TABLES: &str = "
    CREATE TABLE modules (root, principal, name, source, hash, signatures, settings, narrow, credential,
        challenge, answer_key, answer, state, reason, revision, installed);
    CREATE TABLE sessions (root, principal, reservations);
    CREATE TABLE states (root, principal, name, place, terms, state, hash);
    CREATE TABLE revocations (line, time);
    CREATE TABLE audit (id, entries);
    CREATE TABLE ends (root, principal, name, state, reason, revision);
";

fn value(text: &[u8]) -> Value {
    let Some((kind, rest)) = text.split_first() else { return Value::Null };
    let lossy = || String::from_utf8_lossy(rest).into_owned();
    match kind {
        b't' => Value::Text(lossy()),
        b'i' => lossy().parse().map_or(Value::Null, Value::Integer),
        b'r' => lossy().parse().map_or(Value::Null, Value::Real),
        // In hexadecimal, so that it may have zeros.
        b'b' => {
            let digit = |b: &u8| char::from(*b).to_digit(16).unwrap_or(0) as u8;
            Value::Blob(
                rest.chunks(2).map(|pair| pair.iter().fold(0, |all, b| all << 4 | digit(b))).collect(),
            )
        }
        _ => Value::Null,
    }
}

fuzz_target!(|data: &[u8]| {
    let mut values = data.split(|b| *b == 0).map(value);
    let mut next = |n: usize| (0..n).map(|_| values.next().unwrap_or(Value::Null)).collect::<Vec<_>>();
    let (module, session, state) = (next(16), next(1), next(4));
    let (line, entries, end) = (next(1), next(1), next(3));
    let database = Connection::open_in_memory().unwrap();
    database.execute_batch(TABLES).unwrap();
    let insert = |table: &str, row: &[Value]| {
        let places = vec!["?"; row.len()].join(", ");
        database.execute(&format!("INSERT INTO {table} VALUES ({places})"), params_from_iter(row)).unwrap();
    };
    insert("modules", &module);
    insert("sessions", &[&module[..2], &session].concat());
    insert("states", &[&module[..3], &state].concat());
    if end[2] != Value::Null {
        insert("ends", &[&module[..3], &end].concat());
    }
    if line[0] != Value::Null {
        insert("revocations", &[line[0].clone(), Value::Integer(0)]);
    }
    if entries[0] != Value::Null {
        insert("audit", &[Value::Integer(1), entries[0].clone()]);
    }
    match read_all(database) {
        Ok(rows) => {
            assert_eq!(rows.len(), 1);
            let row = &rows[0];
            // The operator's modules have all rights, so none becomes one.
            assert_eq!(row.is_operators, module[0] == Value::Text(String::new()));
            assert_eq!(row.has_credential, !row.is_operators);
            assert!(
                row.revision > 0 && row.revision.checked_add(1).is_some_and(|n| i64::try_from(n).is_ok())
            );
            assert!(!row.name.is_empty() && row.name.bytes().all(|b| b.is_ascii_graphic()));
            assert_eq!(row.states.0 + row.states.1, 1);
        }
        Err(StoreError::Row { place, error, .. }) => {
            assert!(place.starts_with("table ") && !error.to_string().is_empty(), "{place}: {error}");
        }
        Err(e) => panic!("no place: {e}"),
    }
});
