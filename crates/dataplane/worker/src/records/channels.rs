//! The channels of a module: filters, and the way to the link.

mod whole;

use crate::error::RunError;
use flame_abi::LinkType;
use flame_abi::manifest::Channel as Declared;
use flame_filter::{PacketFilter, ShownPacket};
use flame_plan::{Account, ModulePlan, ShownFilter, Unsent};
use flame_transmit::{Channel, Link, Reservation};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The filters of a module's channels. Compiling them may take long, so they are compiled before the module
/// reaches the collector, which others wait for.
#[derive(Default)]
pub(crate) struct Filters {
    /// Those of the manifest, for each channel.
    own: Vec<Vec<PacketFilter<ShownFilter>>>,
    /// Those of the grant, for all channels.
    granted: Vec<PacketFilter<ShownFilter>>,
}

/// The channels of one module, by their numbers.
#[derive(Default)]
pub(crate) struct Channels {
    filters: Arc<Filters>,
    all: Vec<One>,
}

struct One {
    reservation: Reservation,
    out: Option<Channel>,
}

/// Returns the parameters of each channel: all together reserve no more than the grant lets out.
fn reservations(plan: &ModulePlan) -> impl Iterator<Item = Reservation> {
    let granted = u128::from(plan.terms.release.transmit.saturating_mul(8));
    let declared = || plan.manifest.channels.iter();
    let sum = declared().map(|d| u128::from(d.rate())).sum::<u128>().max(1);
    declared().map(move |d| {
        let part = u64::try_from(u128::from(d.rate()) * granted / sum).unwrap_or(u64::MAX);
        Reservation { rate: d.rate().min(part).max(1), period_ns: d.period_ns(), extra: d.extra }
    })
}

/// Returns the bandwidth that a module's channels reserve of their link, in bits per second.
pub fn reserved_rate(plan: &ModulePlan) -> u64 {
    reservations(plan).map(|reservation| reservation.rate).sum()
}

impl Filters {
    /// Compiles the filters of a module's channels.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too many, or if one cannot be compiled.
    pub(crate) fn new(plan: &ModulePlan) -> Result<Self, RunError> {
        let declared = &plan.manifest.channels;
        let wrong = |channel: &str| {
            let (module, channel) = (plan.name.clone(), channel.to_owned());
            move |reason: String| RunError::Channel { module, channel, reason }
        };
        let Some(first) = declared.first() else { return Ok(Self::default()) };
        let parse = |d: &Declared| ShownFilter::parse(&d.filter).map_err(wrong(&d.name));
        let own: Vec<Option<ShownFilter>> = declared.iter().map(parse).collect::<Result<_, _>>()?;
        let granted = &plan.terms.sending.filters;
        ShownFilter::affordable(own.iter().flatten().chain(granted)).map_err(wrong(&first.name))?;
        let compile = |filter: &ShownFilter, channel: &str| {
            PacketFilter::compile(filter, LinkType::ETHERNET).map_err(|e| wrong(channel)(e.to_string()))
        };
        let of = |(filter, d): (&Option<ShownFilter>, &Declared)| {
            filter.iter().map(|filter| compile(filter, &d.name)).collect()
        };
        Ok(Self {
            own: own.iter().zip(declared).map(of).collect::<Result<_, _>>()?,
            granted: granted.iter().map(|filter| compile(filter, &first.name)).collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether a frame passes the filters of a channel and of the grant. A grant's filters bind the
    /// whole frame.
    fn pass(&self, channel: usize, bytes: &[u8]) -> bool {
        if !self.granted.is_empty() && !whole::is_whole(bytes) {
            return false;
        }
        let packet = ShownPacket { bytes, wire_len: bytes.len() as u32 };
        let all = self.own.get(channel).map(|own| own.iter().chain(&self.granted));
        all.is_some_and(|mut all| all.all(|filter| filter.matches(packet)))
    }
}

impl Channels {
    pub(crate) fn new(plan: &ModulePlan, filters: Arc<Filters>) -> Self {
        Self { filters, all: reservations(plan).map(|reservation| One { reservation, out: None }).collect() }
    }

    /// Opens the channels on a link. The bytes of frames that leave are added to `bill`.
    ///
    /// # Errors
    ///
    /// Returns an error if the link has not enough bandwidth left. None of them is open then.
    pub(crate) fn open(&mut self, link: &Arc<Link>, bill: Option<&Arc<AtomicU64>>) -> Result<(), RunError> {
        let opened: Vec<_> =
            self.all.iter().map(|one| link.open(one.reservation)).collect::<Result<_, _>>()?;
        if let Some(bill) = bill {
            opened.iter().for_each(|channel| channel.bill(bill.clone()));
        }
        self.all.iter_mut().zip(opened).for_each(|(one, channel)| one.out = Some(channel));
        Ok(())
    }

    /// Queues a frame that the gate lets out, or counts it.
    pub(crate) fn send(&self, channel: u16, bytes: &[u8], now_ns: u64, account: &mut Account) {
        let channel = usize::from(channel);
        let Some(one) = self.all.get(channel) else { return };
        let cause = match &one.out {
            None => Unsent::Link,
            Some(_) if !self.filters.pass(channel, bytes) => Unsent::Filter,
            Some(out) if out.send(bytes, now_ns) => return,
            Some(_) => Unsent::Queue,
        };
        account.unsent(cause, 1);
    }

    /// Returns whether frames wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.all.iter().any(|one| one.out.as_ref().is_some_and(Channel::is_waiting))
    }

    /// Updates an account with what the link did so far.
    pub(crate) fn count(&self, account: &mut Account) {
        let traffic = || self.all.iter().filter_map(|one| Some(one.out.as_ref()?.traffic()));
        account.sent = traffic().map(|t| t.sent).sum();
        account.set_unsent(Unsent::Interface, traffic().map(|t| t.refused).sum());
    }

    /// Closes the channels, and updates an account for the last time.
    pub(crate) fn close(self, account: &mut Account) {
        let (mut sent, mut refused) = (0, 0);
        for channel in self.all.into_iter().filter_map(|one| one.out) {
            let traffic = channel.close();
            (sent, refused) = (sent + traffic.sent, refused + traffic.refused);
        }
        account.sent = sent;
        account.set_unsent(Unsent::Interface, refused);
    }
}
