//! Runs one batch of a module in a process without compiler: reads a plan from standard input (postcard), gives its
//! first module as many packets as the argument says, ends it, and writes the output of the end to standard output.

use flame_abi::{Descriptor, LinkType, layout};
use flame_block::Pool;
use flame_plan::Plan;
use flame_run::{Call, Engines, Instance, Loaded, Mapping, Role};
use std::io::{Read, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let packets: u32 = std::env::args().nth(1).ok_or("usage: flame-runtime-test PACKETS < PLAN")?.parse()?;
    let mut plan = Vec::new();
    std::io::stdin().read_to_end(&mut plan)?;
    let plan: Plan = postcard::from_bytes(&plan)?;
    let module = plan.modules.first().ok_or("the plan has no module")?;
    let mut pool = Pool::new(1)?;
    let slot = pool.claim().ok_or("no slot is free")?;
    let (descriptors, data) = pool.slot(slot);
    data[..64].fill(0x5a);
    let packet = Descriptor { wire_len: 64, cap_len: 64, addr: layout::VIEW, ..Descriptor::default() };
    descriptors[..packets as usize].fill(packet);
    let (fd, offset, bytes) = pool.window();
    let loaded = Loaded::new(&Engines::new()?, module)?;
    let window = Mapping { fd, offset, bytes, at: layout::VIEW };
    let mut instance = Instance::new(&loaded, &[window], false).map_err(|e| e.to_string())?;
    let (role, tick_ns) = (Role::Fast { worker: 0 }, plan.tick_ns());
    let link = LinkType::ETHERNET;
    let calls = [
        Call::Init { role, workers: 1, tick_ns, interval_ns: plan.interval_ns },
        Call::Batch { descriptors: layout::VIEW + Pool::offset(slot) as u32, count: packets, lost: 0, link },
        Call::End { now_ns: 0 },
    ];
    let mut last = Vec::new();
    for call in calls {
        last = instance.call(&call).map_err(|e| e.to_string())?.output.bytes.to_vec();
    }
    std::io::stdout().write_all(&last)?;
    Ok(())
}
