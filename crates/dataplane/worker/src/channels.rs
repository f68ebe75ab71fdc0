//! The channels of a module: filters, and the way to the link.

use crate::error::RunError;
use flame_abi::LinkType;
use flame_abi::manifest::Channel as Declared;
use flame_filter::{PacketFilter, ShownPacket};
use flame_plan::{Account, ModulePlan, ShownFilter, Unsent};
use flame_transmit::{Channel, Link, Reservation};
use std::sync::Arc;

/// The channels of one module, by their numbers.
#[derive(Default)]
pub(crate) struct Channels(Vec<One>);

struct One {
    /// The filters of the manifest and of the grant, all of which a frame must pass.
    filters: Vec<PacketFilter<ShownFilter>>,
    reservation: Reservation,
    out: Option<Channel>,
}

/// Returns the parameters of a channel: no more is reserved than the grant lets out.
fn reservation(plan: &ModulePlan, declared: &Declared) -> Reservation {
    let granted = plan.terms.release.transmit.saturating_mul(8).max(1);
    Reservation { rate: declared.rate().min(granted), period_ns: declared.period_ns(), extra: declared.extra }
}

/// Returns the bandwidth that a module's channels reserve of their link, in bits per second.
pub fn reserved_rate(plan: &ModulePlan) -> u64 {
    plan.manifest.channels.iter().map(|declared| reservation(plan, declared).rate).sum()
}

impl Channels {
    /// Compiles the filters of a module's channels.
    ///
    /// # Errors
    ///
    /// Returns an error if a filter cannot be compiled.
    pub(crate) fn new(plan: &ModulePlan) -> Result<Self, RunError> {
        let one = |declared: &Declared| {
            let wrong = |reason: String| RunError::Channel {
                module: plan.name.clone(),
                channel: declared.name.clone(),
                reason,
            };
            let own = ShownFilter::parse(&declared.filter).map_err(wrong)?;
            let all = own.iter().chain(&plan.terms.sending.filters);
            let compile = |filter| {
                let compiled = PacketFilter::compile(filter, LinkType::ETHERNET);
                compiled.map_err(|e| wrong(e.to_string()))
            };
            let filters = all.map(compile).collect::<Result<_, _>>()?;
            Ok(One { filters, reservation: reservation(plan, declared), out: None })
        };
        plan.manifest.channels.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Opens the channels on a link, unless they are open.
    ///
    /// # Errors
    ///
    /// Returns an error if the link has not enough bandwidth left. None of them is open then.
    pub(crate) fn open(&mut self, link: &Arc<Link>) -> Result<(), RunError> {
        if self.0.iter().any(|one| one.out.is_some()) {
            return Ok(());
        }
        let opened: Vec<_> = self.0.iter().map(|one| link.open(one.reservation)).collect::<Result<_, _>>()?;
        self.0.iter_mut().zip(opened).for_each(|(one, channel)| one.out = Some(channel));
        Ok(())
    }

    /// Queues a frame that the gate lets out, or counts it.
    pub(crate) fn send(&self, channel: u16, bytes: &[u8], now_ns: u64, account: &mut Account) {
        let Some(one) = self.0.get(usize::from(channel)) else { return };
        let packet = ShownPacket { bytes, wire_len: bytes.len() as u32 };
        let cause = match &one.out {
            None => Unsent::Link,
            Some(_) if !one.filters.iter().all(|filter| filter.matches(packet)) => Unsent::Filter,
            Some(out) if out.send(bytes, now_ns) => return,
            Some(_) => Unsent::Queue,
        };
        account.unsent(cause, 1);
    }

    /// Returns whether frames wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.iter().any(|one| one.out.as_ref().is_some_and(Channel::is_waiting))
    }

    /// Updates an account with what the link did so far.
    pub(crate) fn count(&self, account: &mut Account) {
        let traffic = || self.0.iter().filter_map(|one| Some(one.out.as_ref()?.traffic()));
        account.sent = traffic().map(|t| t.sent).sum();
        account.set_unsent(Unsent::Interface, traffic().map(|t| t.refused).sum());
    }

    /// Closes the channels, and updates an account for the last time.
    pub(crate) fn close(self, account: &mut Account) {
        let (mut sent, mut refused) = (0, 0);
        for channel in self.0.into_iter().filter_map(|one| one.out) {
            let traffic = channel.close();
            (sent, refused) = (sent + traffic.sent, refused + traffic.refused);
        }
        account.sent = sent;
        account.set_unsent(Unsent::Interface, refused);
    }
}
