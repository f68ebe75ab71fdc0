//! Tests of the memory of idle instances.

use crate::common::{self, install, request};
use flame_abi::{LinkType, layout};
use flame_plan::Limits;
use flame_run::{Call, Instance, Loaded, Mapping, Role};

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// The instances are started, have a window, and are called once each.
#[test]
fn a_hundred_idle_instances_of_flow_fit_in_a_gibibyte() {
    let _turn = crate::turn();
    let Some(wasm) = common::module("flow") else { return };
    let engine = flame_run::Engines::new().unwrap();
    let request = flame_compile::InstallRequest { limits: Limits::default(), ..request() };
    let plan = install(&wasm, &request).unwrap();
    let loaded = Loaded::new(&engine, &plan).unwrap();
    let mut pool = flame_block::Pool::new(4).unwrap();
    pool.slot(0).0[0] = Default::default();
    let (fd, offset, bytes) = pool.window();
    let before = resident();
    let mut instances: Vec<Instance> = (0..100)
        .map(|_| {
            let window = Mapping { fd, offset, bytes, at: layout::VIEW };
            let mut instance = Instance::new(&loaded, &[window], false).unwrap();
            let role = Role::Fast { worker: 0 };
            let init = Call::Init { role, workers: 1, tick_ns: 1_000_000_000, interval_ns: 0 };
            instance.call(&init).unwrap();
            instance
        })
        .collect();
    for instance in &mut instances {
        let link = LinkType::ETHERNET;
        instance.call(&Call::Batch { descriptors: layout::VIEW, count: 1, lost: 0, link, queue: 0 }).unwrap();
    }
    let each = (resident() - before) / instances.len();
    println!("{} KiB each", each >> 10);
    assert!(each * 100 < 1 << 30, "{each} bytes each");
}
