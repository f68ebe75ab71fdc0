//! Event queues, among which the packets of a module are divided.

use super::check::{Checked, at_most, fault, name, one_line};
use super::{Manifest, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The maximum number of event queues of a module.
pub const MAX_QUEUES: usize = 8;
/// The maximum number of blocks of all queues of a module together.
pub const MAX_QUEUE_BLOCKS: u32 = 16;

/// An event queue: packets that wait for the module in blocks of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// A pcap filter, which is evaluated on the packet as shown. A packet belongs to the first queue whose
    /// filter it passes. Empty for all packets.
    pub select: String,
    /// The number of blocks that may wait in the queue on each worker.
    #[serde(default = "two")]
    pub blocks: u32,
}

fn two() -> u32 {
    2
}

impl Manifest {
    pub(super) fn check_queues(&self) -> Checked<'_> {
        const KEY: &str = "queues";
        at_most(&[Step::Key(KEY)], KEY, self.queues.len(), MAX_QUEUES, "entries")?;
        if self.ports.is_some() && !self.queues.is_empty() {
            let reason = "a module with ports has its inputs in place of queues: remove one of the two";
            return fault(&[Step::Key(KEY)], KEY, reason);
        }
        let mut names = BTreeSet::new();
        let mut sum = 0;
        for (index, queue) in self.queues.iter().enumerate() {
            let path = |step| [Step::Key(KEY), Step::Index(index), Step::Key(step)];
            name(&path("name"), KEY, &queue.name)?;
            let place = |step: &str| format!("{KEY}.{}.{step}", queue.name);
            if !names.insert(&queue.name) {
                return fault(&path("name"), place("name"), "appears twice: choose another name");
            }
            one_line(&path("description"), &place("description"), &queue.description)?;
            one_line(&path("select"), &place("select"), &queue.select)?;
            if !(1..=MAX_QUEUE_BLOCKS).contains(&queue.blocks) {
                let reason = format!("{} is not in 1 to {MAX_QUEUE_BLOCKS}", queue.blocks);
                return fault(&path("blocks"), place("blocks"), reason);
            }
            sum += queue.blocks;
            if sum > MAX_QUEUE_BLOCKS {
                let reason = format!("{sum} blocks with those before it, at most {MAX_QUEUE_BLOCKS} in all");
                return fault(&path("blocks"), place("blocks"), reason);
            }
            if queue.select.trim().is_empty() && index + 1 < self.queues.len() {
                let reason = "takes all packets, so those after it get none: make it the last one";
                return fault(&path("select"), place("select"), reason);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_queue_is_named() {
        let head = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n";
        let parse = |text: &str| Manifest::parse(format!("{head}{text}").as_bytes());
        let queue = "[[queues]]\nname = \"dns\"\nselect = \"port 53\"\nblocks = 4\n";
        let rest = "[[queues]]\nname = \"rest\"\nselect = \"\"\n";
        let good = parse(&format!("{queue}{rest}")).unwrap();
        assert_eq!((good.queues[0].blocks, good.queues[1].blocks), (4, 2));
        assert_eq!(Manifest::from_toml(&good.to_toml().unwrap()).unwrap(), good);
        for (text, said) in [
            (format!("{queue}{queue}"), "line 10: queues.dns.name: appears twice"),
            (queue.replace("\"dns\"", "\"DNS\""), "is not a name"),
            (queue.replace("4", "0"), "line 8: queues.dns.blocks: 0 is not in 1 to 16"),
            (queue.replace("4", "4294967295"), "queues.dns.blocks: 4294967295 is not in 1 to 16"),
            (queue.replace("4", "4294967296"), "invalid value"),
            (queue.replace("= 4", "= -1"), "invalid value"),
            (format!("{}{rest}", queue.replace("4", "15")), "rest.blocks: 17 blocks with those before it"),
            (format!("{rest}{queue}"), "queues.rest.select: takes all packets"),
            (format!("[ports]\n{queue}"), "has its inputs in place of queues"),
            (queue.replace("port 53", "port\\n53"), "queues.dns.select: has control characters"),
            (queue.replace("select = \"port 53\"\n", ""), "add it, for example select = \"port 53\""),
            (queue.replace("blocks", "depth"), "unknown field"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{said}\n{error}");
        }
        let many: String = (0..64).map(|n| queue.replace("dns", &format!("q{n}"))).collect();
        assert!(parse(&many).unwrap_err().to_string().contains("64 entries, at most 8"));
    }
}
