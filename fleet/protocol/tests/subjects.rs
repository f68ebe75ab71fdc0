//! Names as subjects.

use flame_fleet_protocol::subject::{Parts, escape};
use flame_fleet_protocol::{Subject, SubjectError};

/// Names that a server would take apart, or that look like an escape, stay apart and come back.
#[test]
fn names_never_collide_and_come_back() {
    let names = ["a", "", "%", "%61", "a.b", "*", ">", "a b", "A", "ä", "\0", "REC_a", "a-b_c"];
    let mut seen = std::collections::BTreeSet::new();
    for node in names {
        for table in names {
            let subject = Subject::new(node, "p", "m", table).unwrap();
            assert_eq!(Subject::parse(subject.as_str()).unwrap(), subject);
            let [node, principal, module, table] = [node, "p", "m", table].map(str::to_owned);
            assert_eq!(subject.parts(), Parts { node, principal, module, table });
            assert_eq!(subject.as_str().split('.').count(), 6, "{subject}");
            assert!(seen.insert(subject), "two tables have one subject");
        }
    }
    assert_eq!(Subject::new("n", "a.b", "m", "t").unwrap().stream(), "REC_a%2Eb");
}

#[test]
fn other_subjects_are_refused_with_their_place() {
    for (text, at) in [
        ("flame.marks.n.p.m.t", 1),
        ("flame.records.n.p.m", 20),
        ("flame.records.n.p.m.t.u", 23),
        ("flame.records.n..m.t", 17),
        ("flame.records.n.p*.m.t", 17),
        ("flame.records.%6e.p.m.t", 15),
    ] {
        let error = Subject::parse(text).unwrap_err();
        assert!(matches!(error, SubjectError::Form { at: found, .. } if found == at), "{error}");
    }
    let long = "x".repeat(201);
    assert!(matches!(Subject::new("n", &long, "m", "t"), Err(SubjectError::Long { what: "principal", .. })));
    assert_eq!(escape("é"), "%C3%A9");
}
