use crate::config::{Config, From, Limits, Readers};
use crate::store::Owner;
use std::path::Path;

const LEAST: &str =
    "[node]\nstorage = \"s\"\n[socket]\npath = \"sock\"\n[sources.tap]\ninterface = \"eth0\"\n";

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text.as_bytes(), "node.toml", Path::new("/etc/flame")).map_err(|e| e.to_string())
}

#[test]
fn the_example_in_the_manual_is_valid() {
    let manual = include_str!("../../../../docs/node-toml.md");
    let text = manual.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = parse(text).unwrap();
    assert_eq!(config.limits, Limits::default());
    let capacity = config.capacity;
    assert_eq!((capacity.cpu_ppm, capacity.memory), (1_600_000, 4 << 30));
    assert_eq!((capacity.blocks, capacity.record_bytes), (1024, 64 << 20));
    assert_eq!(config.sources.len(), 2);
    assert!(matches!(&config.sources["tap"].from, From::Interface { name, .. } if name == "eth0"));
    let tap = config.sources["tap"].link.as_deref().map(|link| config.links[link].bandwidth);
    assert_eq!(tap, Some(100_000_000));
    let metrics = config.metrics.unwrap();
    assert_eq!(metrics.listen.to_string(), "127.0.0.1:9464");
    assert_eq!(metrics.readers, Readers::Token(Some("/etc/flame/metrics.token".into())));
    let fleet = config.fleet.unwrap();
    assert_eq!((fleet.bytes, fleet.labels["site"].as_str()), (1 << 30, "penn"));
    let of = |root: &str, name: &str| Owner { root: root.to_owned(), principal: name.to_owned() };
    let is_of = |root, name| fleet.installs(&of(root, name));
    assert!(is_of("ed25519/00", "fleet") && is_of("ed25519/00", "fleet/alice#00"));
    assert!(!is_of("ed25519/00", "fleets") && !is_of("ed25519/00", "alice/fleet") && !is_of("", "fleet"));
    assert_eq!(config.socket.unwrap().mode, 0o666);
}

#[test]
fn paths_are_relative_to_the_file() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.storage, Path::new("/etc/flame/s"));
    assert_eq!(config.socket.unwrap().path, Path::new("/etc/flame/sock"));
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let cases = [
        ("[limits]\nspool = \"8 MB\"\n", "line 8: \"8 MB\": expected a size as in \"8MiB\""),
        ("[limits]\nspool = \"99999999999GiB\"\n", "line 8"),
        ("[capacity]\ncpu = \"160\"\n", "line 8: \"160\": expected percent as in \"160%\""),
        ("[capacity]\nrecords = \"1MB\"\n", "line 8: \"1MB\": expected a size"),
        ("[limits]\nmodules = 0\n", "line 8: 0: expected 1 to 10000"),
        ("[limits]\nrequest_time = \"soon\"\n", "line 8: "),
        ("[metrics]\nlisten = \"9464\"\n", "line 8: listen \"9464\": expected an address and a port"),
        (
            "[metrics]\nlisten = \"0.0.0.0:9464\"\n",
            "line 8: listen 0.0.0.0:9464: other addresses than loopback",
        ),
        (
            "[metrics]\nlisten = \"[::1]:1\"\nreaders = \"all\"\n",
            "line 9: readers \"all\": expected \"token\"",
        ),
        (
            "[metrics]\nlisten = \"[::1]:1\"\nreaders = \"loopback\"\ntoken = \"t\"\n",
            "line 10: readers \"loopback\" need no token",
        ),
        (
            "[tls]\nlisten = \"0.0.0.0:7443\"\n[metrics]\nlisten = \"0.0.0.0:1\"\nreaders = \"loopback\"\n",
            "line 11: readers \"loopback\": 0.0.0.0:1 is reached from elsewhere",
        ),
        ("workers = 65\n", "line 7: workers = 65: expected 1 to 64"),
        ("cores = [4096]\n", "line 7: core 4096: it is none of the"),
        ("file = \"x\"\n", "line 5: give either interface"),
        ("repeat = true\n", "line 5: repeat is for files"),
        ("link = \"out\"\n", "line 7: link \"out\": there is no [links.out]"),
        (
            "[links.out]\ninterface = \"eth1\"\nbandwidth = \"1 MB\"\n",
            "line 9: bandwidth \"1 MB\": expected a",
        ),
        ("[sources.Tap]\ninterface = \"x\"\n", "line 7: source \"Tap\": expected a lower-case letter"),
        ("[tls]\nlisten = \"7443\"\n", "line 8: listen \"7443\": expected an address and a port"),
        ("[tls]\nlisten = \"[::]:1\"\nkey = \"k\"\n", "line 8: give both certificate and key"),
        ("[fleet]\nname = \"A\"\nspool = \"s\"\n", "line 8: name \"A\": expected a lower-case letter"),
        (
            "[fleet]\nname = \"a\"\nspool = \"s\"\nbytes = \"1MiB\"\n",
            "line 10: \"1MiB\": expected a size as in \"1GiB\", at least 16MiB",
        ),
        ("[socket2]\n", "unknown field `socket2`"),
        ("interval = \"0s\"\n", "line 7: \"0s\": must be longer than 0"),
    ];
    for (more, said) in cases {
        let error = parse(&format!("{LEAST}{more}")).unwrap_err();
        assert!(error.starts_with("node.toml") && error.contains(said), "{more}: {error}");
    }
    let error =
        parse("[node]\nstorage = \"s\"\n[socket]\npath = \"p\"\nmode = \"rw\"\n[sources.a]\nfile = \"f\"\n");
    assert!(error.unwrap_err().contains("line 5: mode \"rw\": expected octal digits"));
    assert!(parse("[node]\nstorage = \"s\"\n[socket]\npath = \"p\"\n").unwrap_err().contains("no source"));
}
