//! The classes of elements. Each has one line in [`CLASSES`].

use crate::elements as e;
use crate::runtime::element::Element;
use flame_click::Args;

/// A class of elements.
pub struct Class {
    pub name: &'static str,
    /// How many inputs and outputs it may have: `1/1-2`, `-/1`, `1-/=`.
    pub ports: &'static str,
    /// Push (`h`), pull (`l`) or agnostic (`a`), for each port; the last letter stands for the rest.
    pub processing: &'static str,
    pub keywords: &'static [&'static str],
    pub make: fn(&mut Args<'_>, &Setup<'_>) -> Box<dyn Element>,
    /// The file it is in, whose head is its manual.
    pub source: &'static str,
}

/// What a class knows when it makes an element.
pub struct Setup<'a> {
    pub name: &'a str,
    pub class: &'static str,
    pub config: &'a str,
    pub inputs: usize,
    pub outputs: usize,
    pub router: &'a crate::runtime::build::Partial<'a>,
}

/// Returns the class of this name.
pub fn find(name: &str) -> Option<&'static Class> {
    // The list is sorted by name; a test checks it.
    CLASSES.binary_search_by(|c| c.name.cmp(name)).ok().map(|at| CLASSES[at])
}

impl Class {
    /// Returns the lines of the manual about this class.
    pub fn manual(&self) -> String {
        let head = self.source.lines().map_while(|l| l.strip_prefix("//!"));
        let text: Vec<&str> = head.map(|l| l.strip_prefix(' ').unwrap_or(l)).collect();
        let text = text.join("\n");
        let names = |paragraph: &str| {
            let first = paragraph.split(':').next().unwrap_or("");
            first.split(',').any(|n| n.trim().split('(').next() == Some(self.name))
        };
        text.split("\n\n").find(|p| names(p)).unwrap_or("").to_owned()
    }
}

macro_rules! classes {
    ($($class:path,)*) => { &[$(&$class,)*] };
}

/// All classes, sorted by name.
pub static CLASSES: &[&Class] = classes![
    e::basic::ADDRESS_INFO,
    e::counter::AGGREGATE_COUNTER,
    e::basic::ALIGN,
    e::basic::ALIGNMENT_INFO,
    e::counter::AVERAGE_COUNTER,
    e::unqueue::BANDWIDTH_RATED_SPLITTER,
    e::unqueue::BANDWIDTH_RATED_UNQUEUE,
    e::unqueue::BANDWIDTH_SHAPER,
    e::switch::BYPASS,
    e::paint::CHECK_PAINT,
    e::counter::COUNTER,
    e::unqueue::DELAY_SHAPER,
    e::unqueue::DELAY_UNQUEUE,
    e::basic::DISCARD,
    e::script::DRIVER_MANAGER,
    e::basic::ERROR,
    e::summary::FROM,
    e::queue::FRONT_DROP_QUEUE,
    e::queue::FULL_NOTE_QUEUE,
    e::switch::HASH_SWITCH,
    e::switch::HUB,
    e::basic::IDLE,
    e::source::INFINITE_SOURCE,
    e::switch::INPUT_SWITCH,
    e::unqueue::LINK_UNQUEUE,
    e::bound::LOOP,
    e::basic::MESSAGE,
    e::queue::MIXED_QUEUE,
    e::queue::NOTIFIER_QUEUE,
    e::basic::NULL,
    e::paint::PAINT,
    e::paint::PAINT_SWITCH,
    e::paint::PAINT_TEE,
    e::bound::POLL,
    e::basic::PORT_INFO,
    e::print::PRINT,
    e::sched::PRIO_SCHED,
    e::basic::PULL_NULL,
    e::switch::PULL_SWITCH,
    e::switch::PULL_TEE,
    e::basic::PUSH_NULL,
    e::queue::QUEUE,
    e::queue::QUICK_NOTE_QUEUE,
    e::switch::RANDOM_SWITCH,
    e::source::RATED_SOURCE,
    e::unqueue::RATED_SPLITTER,
    e::unqueue::RATED_UNQUEUE,
    e::sched::ROUND_ROBIN_SCHED,
    e::switch::ROUND_ROBIN_SWITCH,
    e::basic::SCHEDULE_INFO,
    e::script::SCRIPT,
    e::unqueue::SHAPER,
    e::switch::SIMPLE_PULL_SWITCH,
    e::queue::SIMPLE_QUEUE,
    e::switch::STATIC_PULL_SWITCH,
    e::switch::STATIC_SWITCH,
    e::sched::STRIDE_SCHED,
    e::sched::STRIDE_SWITCH,
    e::switch::SWITCH_CLASS,
    e::switch::TEE,
    e::queue::THREAD_SAFE_QUEUE,
    e::sched::TIME_SORTED_SCHED,
    e::unqueue::TIMED_SINK,
    e::source::TIMED_SOURCE,
    e::summary::TO,
    e::unqueue::UNQUEUE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_sorted_and_have_manuals() {
        assert!(CLASSES.windows(2).all(|w| w[0].name < w[1].name), "sort the list");
        for class in CLASSES {
            let manual = class.manual();
            for part in ["Expects:", "Gives:", "Handlers:", "Example:"] {
                assert!(manual.contains(part), "the manual of {} lacks {part}", class.name);
            }
            assert!(crate::runtime::ports::counts(class.ports, 1, 1).is_ok(), "{}", class.name);
        }
    }
}
