//! Capsules that wait for the replies of modules.

use crate::programs::{ALICE, CLOCK, Interpreter, MOST, Wire, address, links, settings};
use flame_active_link::{Clock, Role};
use flame_active_node::{Begin, Cause, Node, Services};
use flame_active_simulation::Authority;
use flame_capsule::{Key, Limits, Payer, name};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What an evaluation takes.
const COST: u64 = 300;

/// The questions that were asked, and the replies that have come.
#[derive(Default)]
struct Modules {
    asked: Vec<(Payer, u64, Vec<u8>)>,
    replies: VecDeque<(u64, Vec<u8>)>,
}

type Shared = Rc<RefCell<Modules>>;

/// All services but `none` are of modules.
struct Later(Shared);

impl Services for Later {
    fn service(&mut self, _: Payer, _: u64, _: i64) -> Option<i64> {
        None
    }

    fn is_served(&self, _: u64) -> bool {
        true
    }

    fn ask(&mut self, account: Payer, service: u64, request: &[u8]) -> Option<u64> {
        if service == name("none").unwrap() {
            return None;
        }
        let mut modules = self.0.borrow_mut();
        modules.asked.push((account, service, request.to_vec()));
        Some(modules.asked.len() as u64)
    }

    fn answered(&mut self) -> Option<(u64, Vec<u8>)> {
        self.0.borrow_mut().replies.pop_front()
    }
}

struct World {
    node: Node<Authority, Interpreter, Later>,
    modules: Shared,
    wire: Wire,
}

impl World {
    fn new() -> Self {
        let modules = Shared::default();
        let links = links(1, Role::Node);
        let node = Node::new(
            settings(1, &[2], &[]),
            links,
            Interpreter { claims: Some(COST) },
            Later(modules.clone()),
        );
        Self { node, modules, wire: Wire { here: Some(address(1)), ..Wire::default() } }
    }

    fn begin(&mut self, text: &str, limits: Limits) {
        let (key, code) = (Key::default(), text.as_bytes());
        let begin = Begin { payer: ALICE, key, code, function: 0, arguments: &[], limits };
        self.node.begin(begin, CLOCK, &mut self.wire);
    }

    /// Brings a reply, and returns what was delivered until then.
    fn reply(&mut self, question: u64, reply: i64) -> Vec<Vec<i64>> {
        self.modules.borrow_mut().replies.push_back((question, reply.to_le_bytes().to_vec()));
        self.node.resume(CLOCK, &mut self.wire);
        self.wire.delivered.drain(..).map(|(_, numbers)| numbers).collect()
    }

    fn instructions(&self) -> u64 {
        self.node.accounts()[&ALICE].instructions
    }
}

#[test]
fn a_capsule_waits_for_replies() {
    let mut world = World::new();
    let text = "fun f() = deliver(1); leave(\"a\", find(\"a\") + 1, 9); \
                deliver(service(\"one\", 3) + service(\"none\", 5) + service(\"two\", 4), find(\"a\"))";
    world.begin(text, MOST);
    let asked = |world: &World| world.modules.borrow().asked.clone();
    let question = |text: &str, argument: i64| (ALICE, name(text).unwrap(), argument.to_le_bytes().to_vec());
    assert_eq!(asked(&world), [question("one", 3)]);
    assert!(world.node.is_making());
    // A reply to nothing changes nothing.
    assert!(world.reply(9, 0).is_empty());
    assert_eq!(world.instructions(), COST);
    assert!(world.reply(1, 30).is_empty());
    assert_eq!(asked(&world), [question("one", 3), question("two", 4)]);
    // One more until the second question, which has no module, and another one until the third.
    assert_eq!(world.instructions(), 3 * COST);
    // Only the last evaluation has effects.
    assert_eq!(world.reply(2, 400), [vec![1], vec![430, 1]]);
    assert_eq!(world.instructions(), 4 * COST);
    assert!(world.reply(2, 400).is_empty() && !world.node.is_making());
}

#[test]
fn questions_are_bounded() {
    // A ninth question ends a capsule.
    let mut world = World::new();
    let many = |count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("service(\"one\", {n})")).collect();
        format!("fun f() = deliver({})", all.join(" + "))
    };
    for (count, ended) in [(8, 0), (9, 1)] {
        world.begin(&many(count), MOST);
        let asked = world.modules.borrow().asked.len() as u64;
        let delivered: Vec<_> = (asked..asked + 8).flat_map(|question| world.reply(question, 1)).collect();
        assert_eq!(delivered.len(), 1 - ended);
        assert_eq!(world.node.counts().of(Cause::Trapped), ended as u64);
    }
    // The bound pays for each evaluation.
    let mut world = World::new();
    world.begin(&many(1), Limits { instructions: COST + 10, ..MOST });
    assert!(world.reply(1, 1).is_empty());
    assert_eq!(world.node.counts().of(Cause::Exhausted), 1);
    // An account has at most 32 that wait, and not for ever.
    let mut world = World::new();
    (0..40).for_each(|_| world.begin(&many(1), MOST));
    assert_eq!((world.node.sizes()[1], world.node.counts().of(Cause::Full)), (32, 8));
    let late = Clock { wall: CLOCK.wall + 5000, steady: CLOCK.steady + 5000 };
    world.node.handle(address(2), &mut [], late, &mut world.wire);
    assert_eq!((world.node.sizes()[1], world.node.counts().of(Cause::Overdue)), (0, 32));
    assert!(world.reply(1, 1).is_empty());
}
