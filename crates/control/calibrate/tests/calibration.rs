//! Tests that a measured machine makes sense, and that its file is read back or refused.

use flame_bounds::Class;
use flame_calibrate::{Calibration, Chain, Latency, MAX_PS, file_name, load_or_measure};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

/// Returns a calibration without measuring.
fn example() -> Calibration {
    let chain = |i: u64| Chain { dependent_ps: 2 * i, independent_ps: i };
    Calibration {
        cpu: "a processor".into(),
        engine: "an engine".into(),
        classes: (0..).zip(Class::ALL).map(|(i, c)| (c.name().to_owned(), chain(i))).collect(),
        latency: (12..20).map(|i| Latency { bytes: 1 << i, picoseconds: 100 * i }).collect(),
        host_call_ps: 7000,
        dispatch_ps: 20_000,
    }
}

/// Checks the properties on which any reader may rely.
fn is_valid(c: &Calibration) {
    assert_eq!(c.classes.len(), Class::ALL.len());
    for class in Class::ALL {
        let chain = c.classes[class.name()];
        assert_eq!(chain, c.class(class));
        assert!(chain.independent_ps <= chain.dependent_ps && chain.dependent_ps <= MAX_PS);
    }
    assert!(!c.latency.is_empty() && c.latency.is_sorted_by(|a, b| a.bytes < b.bytes));
    let mut before = 0;
    for shift in 0..64 {
        for bytes in [(1u64 << shift) - 1, 1 << shift, 3 << shift >> 1] {
            let ps = c.latency_ps(bytes);
            assert!(ps >= before && ps <= MAX_PS, "{bytes}: {ps} after {before}");
            before = ps;
        }
    }
}

#[test]
fn this_machine_makes_sense_and_is_measured_once() {
    let engine = flame_compile::Engines::new().unwrap().of(flame_plan::ModuleClass::Bounded).clone();
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("made/when/missing");
    let mut said = Vec::new();
    let (c, cached) = load_or_measure(&engine, &inner, false, &mut |s| said.push(s.to_owned())).unwrap();
    assert!(!cached && said.iter().any(|s| s == "divide"), "{said:?}");
    is_valid(&c);
    let dependent = |class| c.class(class).dependent_ps;
    assert_eq!(c.class(Class::Free), Chain::default());
    assert!(dependent(Class::Divide) >= dependent(Class::Integer));
    assert!(dependent(Class::FloatDivide) >= dependent(Class::Integer));
    assert!(dependent(Class::Call) >= c.class(Class::Integer).independent_ps);
    assert!(c.host_call_ps > 0 && c.dispatch_ps > 0);
    for class in &Class::ALL[1..] {
        let Chain { dependent_ps, independent_ps } = c.class(*class);
        assert!(independent_ps > 0 && 2 * dependent_ps >= independent_ps, "{}", class.name());
    }

    let path = inner.join(file_name(&c.cpu));
    let quiet = &mut |_: &str| panic!("measured what was there");
    assert_eq!(load_or_measure(&engine, &inner, false, quiet).unwrap(), (c.clone(), true));

    // The machine is measured if the file is from another processor or another engine, is damaged, or if
    // requested.
    let other = Calibration { engine: "another".into(), ..c.clone() };
    other.store(&path).unwrap();
    assert!(!load_or_measure(&engine, &inner, false, &mut |_| {}).unwrap().1);
    fs::write(&path, b"{").unwrap();
    assert!(!load_or_measure(&engine, &inner, false, &mut |_| {}).unwrap().1);
    let other = Calibration { cpu: "another".into(), ..c };
    other.store(&path).unwrap();
    let (again, cached) = load_or_measure(&engine, &inner, false, &mut |_| {}).unwrap();
    assert!(!cached && again.cpu != "another");
    let names: Vec<_> = fs::read_dir(&inner).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let engine = flame_compile::Engines::new().unwrap().of(flame_plan::ModuleClass::Bounded).clone();
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = load_or_measure(&engine, file.path(), false, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains(&file.path().display().to_string()) && error.contains("FLAME_CACHE"), "{error}");
}

#[test]
fn what_is_stored_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.json");
    example().store(&path).unwrap();
    assert_eq!(Calibration::load(&path).unwrap(), example());
    assert!(Calibration::load(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
}

/// Loads the bytes. A result that is not refused must be valid.
fn load(path: &Path, bytes: &[u8]) -> Result<Calibration, String> {
    fs::write(path, bytes).unwrap();
    let loaded = Calibration::load(path).map_err(|e| e.to_string());
    if let Ok(c) = &loaded {
        is_valid(c);
    }
    loaded
}

#[test]
fn a_damaged_file_is_refused_or_valid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.json");
    let whole = serde_json::to_vec(&example()).unwrap();
    for end in 0..whole.len() {
        assert!(load(&path, &whole[..end]).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            let _ = load(&path, &changed);
        }
    }
}

#[test]
fn what_is_wrong_with_a_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.json");
    type Change = fn(&mut Calibration);
    let cases: [(Change, &str); 10] = [
        (|c| c.latency.clear(), "1 to 64 working sets"),
        (|c| c.latency.reverse(), "ascending"),
        (|c| c.latency[1] = c.latency[0], "ascending"),
        (|c| c.latency[0].bytes = 0, "larger than 0"),
        (|c| c.latency[0].picoseconds = MAX_PS + 1, "1000000001 picoseconds"),
        (|c| c.dispatch_ps = u64::MAX, "picoseconds"),
        (
            |c| {
                c.classes.remove("divide");
            },
            "divide is missing",
        ),
        (
            |c| {
                c.classes.insert("x".into(), Chain::default());
            },
            "16 of them",
        ),
        (|c| c.classes.get_mut("load").unwrap().dependent_ps = 0, "faster"),
        (|c| c.cpu = "\x1b[2J".into(), "cpu: expected a line"),
    ];
    for (change, expected) in cases {
        let mut c = example();
        change(&mut c);
        let error = load(&path, &serde_json::to_vec(&c).unwrap()).unwrap_err();
        assert!(error.contains(expected) && error.contains("c.json"), "{expected}: {error}");
    }
    assert!(load(&path, &vec![b' '; 70_000]).unwrap_err().contains("65536 bytes"));
    assert!(load(&path, &vec![b'['; 60_000]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_or_valid(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let _ = load(file.path(), &bytes);
    }

    #[test]
    fn any_curve_rises(points in proptest::collection::btree_map(1..=1u64 << 40, 0..=MAX_PS, 1..20)) {
        let latency = points.into_iter().map(|(bytes, picoseconds)| Latency { bytes, picoseconds });
        is_valid(&Calibration { latency: latency.collect(), ..example() });
    }
}
