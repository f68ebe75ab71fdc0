//! A sandbox whose programs follow from numbers, and the ledger of what is spent.

use fastrand::Rng;
use flame_active_node::{Execute, Failure, Ran, Rights, Services};
use flame_capsule::{Host, Parts, Payer, Place, Target, hash_of};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What was spent or begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub instructions: u128,
    pub bytes: u128,
    pub copies: u128,
}

/// What the network and the sandboxes have seen.
#[derive(Debug, Default)]
pub struct Ledger {
    pub spent: BTreeMap<Payer, Sum>,
    pub begun: BTreeMap<Payer, Sum>,
    /// The most hops that a payer's capsule began with.
    pub hops: BTreeMap<Payer, u8>,
    /// The moment after which no capsule of a payer may be evaluated.
    pub until: BTreeMap<Payer, u64>,
    pub now: u64,
    pub evaluations: u64,
    pub wrong: Option<String>,
}

pub type Shared = Rc<RefCell<Ledger>>;

/// Programs: the payer, a number from which all follows, and filling.
pub struct Sandbox(pub Shared);

pub const PROBE: u8 = 200;

/// Returns a program.
pub fn program(payer: Payer, seed: u64, filling: usize) -> Vec<u8> {
    let mut code = payer.0.to_vec();
    code.extend_from_slice(&seed.to_le_bytes());
    code.resize(code.len() + filling, 7);
    code
}

impl Execute for Sandbox {
    type Code = Vec<u8>;

    fn compile(&mut self, code: &[u8], _: Payer, _: Rights) -> Option<Result<Vec<u8>, Failure>> {
        Some(if code.len() < 24 { Err(Failure::NotCompiled) } else { Ok(code.to_vec()) })
    }

    fn run(
        &mut self,
        code: &mut Vec<u8>,
        function: u8,
        arguments: &[u8],
        limit: u64,
        host: &mut dyn Host,
    ) -> Ran {
        let payer = Payer(code[..16].try_into().unwrap_or_default());
        let depth = arguments.first().copied().unwrap_or(0);
        let mut ledger = self.0.borrow_mut();
        ledger.evaluations += 1;
        let most = ledger.hops.get(&payer).copied();
        if most.is_some_and(|most| u16::from(depth) + u16::from(host.hops()) > most.into()) {
            ledger.wrong = Some(format!("a copy of {payer:?} has {} hops at depth {depth}", host.hops()));
        }
        if ledger.until.get(&payer).is_some_and(|until| *until < ledger.now) {
            ledger.wrong = Some(format!("a capsule of {payer:?} runs after its certificate has ended"));
        }
        let seed = hash_of(&[code.as_slice(), &host.here().0.to_le_bytes()[..], arguments].concat()).0;
        let mut rng = Rng::with_seed(u64::from_le_bytes(seed[..8].try_into().unwrap_or_default()));
        let wanted = if function == PROBE { 10 } else { rng.u64(..3000) };
        let instructions = wanted.min(limit);
        ledger.spent.entry(payer).or_default().instructions += u128::from(instructions);
        drop(ledger);
        if wanted > limit {
            return Ran { instructions, end: Err(Failure::Limit) };
        }
        if function == PROBE {
            // From its origin to one neighbour, and delivered there.
            let sent = match depth {
                0 => {
                    let to = arguments.get(1).copied().unwrap_or(0);
                    host.send(PROBE, &[1, to], Target::Neighbour(Place(to.into())), Parts::ALL)
                }
                _ => host.deliver(arguments),
            };
            return Ran { instructions, end: sent.map_err(|_| Failure::Trapped) };
        }
        let neighbours = host.neighbours().to_vec();
        let mut end = Ok(());
        for _ in 0..rng.u32(..6) {
            let mut arguments = vec![depth.saturating_add(1); rng.usize(1..40)];
            rng.fill(&mut arguments[1..]);
            let to = match rng.u8(..3) {
                0 => Target::Remote(Place(rng.u64(1..9))),
                _ if neighbours.is_empty() => continue,
                _ => Target::Neighbour(neighbours[rng.usize(..neighbours.len())]),
            };
            let parts = Parts::thousandths(rng.i64(0..1200));
            end = end.and(host.send(rng.u8(..3), &arguments, to, parts));
        }
        for _ in 0..rng.u32(..5) {
            end = end.and(host.leave(rng.u64(..200), 1, rng.u64(..30)));
        }
        if rng.u8(..4) == 0 {
            end = end.and(host.deliver(&[1]));
        }
        let end = if rng.u8(..20) == 0 { Err(Failure::Trapped) } else { end.map_err(|_| Failure::Trapped) };
        Ran { instructions, end }
    }
}

/// No services.
pub struct Without;

impl Services for Without {
    fn service(&mut self, _: Payer, _: u64, _: i64) -> Option<i64> {
        None
    }
}
