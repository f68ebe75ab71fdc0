//! A Click configuration of any bytes: refused with a place, or flat, and its printed form is the same graph.
//! What it declares is then made: arguments are refused or accepted, and nothing runs.
#![no_main]

use flame_graph::{Limits, Options, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let limits = Limits { elements: 2000, connections: 4000, expanded: 1 << 20, ..Limits::default() };
    let options = Options { limits, ..Options::default() };
    let graph = match read(data, "f", &options) {
        Ok(graph) => graph,
        Err(errors) => {
            assert!(
                !errors.is_empty() && errors.messages().iter().all(|m| m.landmark.contains(':')),
                "{errors}"
            );
            return;
        }
    };
    let printed = flame_click::text::encode(&graph.unparse());
    let again = read(&printed, "f", &Options::default());
    if let Ok(again) = again {
        assert_eq!(graph.elements.len(), again.elements.len());
        assert_eq!(graph.connections.len(), again.connections.len());
    }
    let _ = flame_element::Router::check(&graph, None);
});
