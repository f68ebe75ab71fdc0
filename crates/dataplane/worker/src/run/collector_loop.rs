//! The loop of the thread that collects: takes events from the workers and from each process.

use crate::error::RunError;
use crate::records::collect::Collector;
use crate::records::collector_nap::CollectorNap;
use crate::records::event::{Event, QUEUE};
use crate::records::queues::Queues;
use crate::records::tick_order::Order;
use crate::run::wiring::{Ends, Wiring};
use flame_plan::limits::COLLECTOR_CLOCK_STEP_MAX;
use std::time::Duration;

/// Longest wait for an event before files of the output that are due are completed. It is within the step of
/// the collector's clock.
const ROTATE_CHECK: Duration = Duration::from_millis(50);
const _: () = assert!(ROTATE_CHECK.as_millis() < COLLECTOR_CLOCK_STEP_MAX.as_millis());

/// Waits without an event after which a pipe is quiet.
const QUIET_CHECKS: u32 = 4;

/// Returns the next event, if one is there. An error states that all workers are gone, and their events were
/// taken.
fn next(queues: &mut Queues, order: &mut Order) -> Result<Option<Event>, RunError> {
    loop {
        if let Some(event) = order.next() {
            return Ok(Some(event));
        }
        match queues.poll() {
            Ok(Some(sent)) => {
                if let Some(event) = order.take(sent) {
                    return Ok(Some(event));
                }
            }
            Ok(None) => return Ok(None),
            Err(e) => {
                order.release();
                return order.next().map_or(Err(e), |event| Ok(Some(event)));
            }
        }
    }
}

/// Collects until every worker has ended or one has failed.
pub(crate) fn collect(
    queues: &mut Queues,
    collector: &mut Collector<'_>,
    wiring: &Wiring<'_>,
) -> Result<Ends, RunError> {
    let workers = wiring.shape.workers;
    let mut all = Vec::new();
    let mut last = 0;
    let mut ended = 0;
    // The number of workers whose fast instances have ended, or are about to in processes.
    let mut ending = 0;
    let mut broken = false;
    // The number of events since slow instances had a quantum. They receive one when no event waits, and
    // after every `QUEUE` events otherwise.
    let mut since = 0;
    // The number of waits since the last event, and whether the next one may come after a nap.
    let mut checks = 0;
    let mut may_nap = false;
    let mut nap = CollectorNap::new();
    let mut order = Order::new(workers, queues.lead(), wiring.discipline);
    while ended < workers {
        collector.rotate()?;
        collector.end_slow();
        if ending >= workers {
            // Before the last calls end: those of the last interval leave with it.
            wiring.complete(collector)?;
            collector.end_calls()?;
        }
        let can_progress = collector.can_progress();
        let event = match next(queues, &mut order) {
            Ok(Some(event)) => {
                checks = 0;
                may_nap = ending == 0 && nap.is_due() && !collector.is_awaited();
                event
            }
            Ok(None) if can_progress => {
                (since, _) = (0, collector.resume()?);
                continue;
            }
            Ok(None) if std::mem::take(&mut may_nap) => {
                std::thread::sleep(nap.length());
                nap.napped(queues.is_any_full());
                continue;
            }
            Ok(None) => {
                queues.wait(ROTATE_CHECK);
                nap.waited();
                checks += 1;
                if checks == QUIET_CHECKS && wiring.discipline.shows_rows_when_quiet() {
                    collector.show()?;
                }
                continue;
            }
            Err(_) => break,
        };
        if can_progress && since >= QUEUE {
            (since, _) = (0, collector.resume()?);
        }
        since += 1;
        match event {
            Event::Module(event) => collector.event(event)?,
            Event::Tick { worker, now_ns, accounts } => collector.tick(worker, (now_ns, accounts))?,
            Event::Add(module, done) => {
                collector.add(&module)?;
                let _ = done.send(());
            }
            Event::Removed(removed) => collector.removed(removed)?,
            Event::Overload(worker, change) => collector.overload(worker, change),
            Event::Accounts(reply) => drop(reply.send(collector.accounts())),
            Event::Ask(module, question) => collector.ask(module, question)?,
            Event::Ending => ending += 1,
            Event::End { accounts, now_ns } => {
                all.extend(accounts);
                last = last.max(now_ns);
                ended += 1;
            }
            // The first specific error takes precedence over workers that only found the queue closed.
            Event::Failed(RunError::Broken) => {
                // Workers with sources of their own would otherwise continue as long as these do.
                collector.stop.set();
                broken = true;
                ended += 1;
                ending += 1;
            }
            Event::Failed(e) => return Err(e),
        }
    }
    if broken || ended < workers { Err(RunError::Broken) } else { Ok((all, last)) }
}
