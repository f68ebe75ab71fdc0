//! The compiler of capsules: a confined child for each program, whose time the account pays.

use flame_active_node::Failure;
use flame_active_sandbox::{Compile, Compiled};
use flame_capsule::Payer;
use flame_compile::Compiler;
use flame_plan::Share;
use flame_quota::{Allowance, Amounts, Ledger, Quota, ThisRun};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The processor time that each account may use for compilation.
const ALLOWANCE: Share = Share { slice_ns: 10_000_000_000, period_ns: 3_600_000_000_000 };

/// The confined compiler, with the time that each account has used.
pub struct Confined {
    compiler: Compiler<'static>,
    accounts: BTreeMap<Payer, Arc<ThisRun>>,
}

impl Confined {
    #[must_use]
    pub fn new(compiler: Compiler<'static>) -> Self {
        Self { compiler, accounts: BTreeMap::new() }
    }

    fn allowance(&mut self, account: Payer) -> Allowance {
        let ledger = self.accounts.entry(account).or_insert_with(|| {
            let none = Amounts::default();
            let share = Some(ALLOWANCE);
            Arc::new(ThisRun::new(Quota { per_second: none, per_packet: none, share, memory: 0 }))
        });
        Allowance::new(vec![(ALLOWANCE, Arc::clone(ledger) as Arc<dyn Ledger>)])
    }
}

impl Compile for Confined {
    fn compile(&mut self, code: &[u8], account: Payer) -> Result<Compiled, Failure> {
        let allowance = self.allowance(account);
        let made = self.compiler.of("active", "", allowance).capsule(code);
        made.map(|made| Compiled { code: made.code, bounds: made.bounds }).map_err(|error| {
            tracing::debug!("a capsule's code is refused: {error}");
            Failure::NotCompiled
        })
    }
}
