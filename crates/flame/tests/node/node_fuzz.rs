//! Every call of the API is tried with data made from its own description, by schemathesis.
//! `FLAME_PYTHON` names a Python that has it.

use crate::daemon::{self, Node, module, replay};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Accepts connections on a port of this machine and passes them on to the socket, as the operator.
fn pass_on(socket: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(node) = UnixStream::connect(&socket) else { return };
            let (to, from) = (node.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || pump(from, to, |node| drop(node.shutdown(Shutdown::Write))));
            std::thread::spawn(move || {
                pump(node, client, |client: &TcpStream| drop(client.shutdown(Shutdown::Write)))
            });
        }
    });
    port
}

fn pump<W: Write>(mut from: impl Read, mut to: W, end: impl Fn(&W)) {
    let _ = std::io::copy(&mut from, &mut to);
    end(&to);
}

/// A stream that waits for further rows has no end, and `node` tests those. Of a parameter with a fixed
/// value, no wrong values are tried.
const STREAMS: &str = r#"
[[operations]]
include-name = ["GET /v1/accounting", "GET /v1/modules/{name}/records"]
parameters = { "query.follow" = false }
checks.negative_data_rejection.enabled = false
"#;

#[test]
fn requests_made_from_the_description_are_answered_as_it_says() {
    let Some(count) = module("count") else { return };
    let python = std::env::var_os("FLAME_PYTHON").map(PathBuf::from).unwrap_or_default();
    let schemathesis = python.parent().unwrap_or(Path::new("")).join("schemathesis");
    if !schemathesis.is_file() {
        eprintln!("skipped: no schemathesis beside FLAME_PYTHON ({})", python.display());
        return;
    }
    let mut node = Node::new(&replay());
    node.start();
    node.json(&["install", &count.display().to_string()]);
    std::fs::write(node.path("schemathesis.toml"), STREAMS).unwrap();
    let address = format!("http://127.0.0.1:{}", pass_on(node.path("node.sock")));
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,\
                  negative_data_rejection,unsupported_method";
    let out = Command::new(schemathesis)
        .args(["run", &format!("{address}/v1/openapi.json"), "--checks", checks])
        .args(["--max-examples", "15", "--seed", "1", "--request-timeout", "20"])
        .current_dir(node.folder.path())
        .output()
        .unwrap();
    let said = daemon::text(&out.stdout);
    assert!(out.status.success(), "{said}{}", daemon::text(&out.stderr));
    assert!(said.contains("23 selected / 23 total"), "{said}");
    assert_eq!(node.request("GET", "/v1/health", None).0, 200);
    node.end();
}
