//! Every limit on a call, a process, a stop and a removal.
//!
//! Clocks: *monotonic* is the node's, which never stands; *pausable* is the same without the time in which a
//! process could do nothing (`flame_remote::PausableClock`); *processor* is processor time by the kernel's
//! account; *packet* is packet time. A limit is checked at its granularity, so it may be exceeded by that.
//!
//! **Calls**
//!
//! | limit | value | limits | granularity | at the limit | clock |
//! | --- | --- | --- | --- | --- | --- |
//! | `SLICE` | 500µs | a metered call while others wait; the wait for a call of a bounded module in another thread, which makes those with longer bounds | itself | the call pauses | monotonic |
//! | `UNIT_MAX` | 150ns | nothing: the time of one instruction at most, by which bounds are times | none | none | none |
//! | `LONG_SLICE` | 5ms | a metered call for which nothing waits | itself | the call continues, unless its module was evicted or the run stopped | monotonic |
//! | `QUANTUM_CALLS_MAX` | 10ms | the calls of one module in a process in turn | a call | no further call begins before commands are read | monotonic |
//! | `LENT_CALL_MAX` | 50ms | on a link, a call of a bounded module without packets, or the delivery of output of one | a slice, `OUTPUT_PIECE` | it pauses, and the blocks that wait for the module are lost to it | processor; monotonic for output, and from `CALL_DEADLINE_MAX` on |
//! | `QUANTUM_BLOCKS_MAX` | 16 | the blocks of a module in turn | a block | others have their turn | none |
//! | `OUTPUT_PIECE` | 32768 | the bytes of output, 32 KiB, that are checked or delivered at once | a frame | the rest waits for the next slice if the slice is over | none |
//! | `CALL_DEADLINE_MAX` | 850ms | a call of a bounded module | a period of the watchdog | the call traps, and its module is metered from the next run on | processor |
//! | `OVERRUN_MAX` | 50ms | a batch, and a call for the rest of its output, of a module with a time limit or a share, on a live source; with a time limit, the time of all its batches beyond the limit, besides the part of the time in which they may exceed it | a period of the watchdog; a batch | the call traps, and its module is metered from the next run on; it is evicted | processor |
//! | `SERVICE_REPLY_MAX` | 1s | a call of a service | a delivery | the caller gets the outcome "late" | pausable, or packet where modules wait for each other |
//! | `SERVICE_OPEN_MAX` | 256 | the calls of a module without an outcome that it has taken | a call | the call is refused | none |
//! | `SERVICE_DELIVERED_MAX` | 2 | the calls, and the outcomes, delivered to a module that it has not made | a call | further ones wait | none |
//!
//! **A process that is waited for**: where it is killed, the fault of its modules states the reason.
//!
//! | limit | value | limits | granularity | at the limit | clock |
//! | --- | --- | --- | --- | --- | --- |
//! | `PROCESS_START_MAX` | 10s | the time from its start until it has confined itself | itself | no module of it starts | monotonic |
//! | `PROCESS_PING` | 1s | nothing: the interval of pings, and at which its use is compared | itself | a ping is sent, if the last one was answered | monotonic |
//! | `PROCESS_ANSWER_PINGS` | 10 | the pings for which an answer may be missing; as many for one write of commands | `PROCESS_PING` | killed | pausable |
//! | `PROCESS_ANSWER_PINGS_MAX` | 600.0 | the same for a process with a guaranteed part of a processor: 10 divided by that part, at most this | `PROCESS_PING` | killed | pausable |
//! | `PROCESS_BLOCK_MAX` | 60s | the wait for the next block that it releases | a check of the worker | killed | pausable |
//! | `PROCESS_ASLEEP_MAX` | 30s | its sleep in all waits of one worker for one module together, unless it has a share of time | `PROCESS_MEASURE` | killed | pausable |
//! | `PROCESS_MEASURE` | 200ms | nothing: the interval at which its sleep is measured | itself | its scheduling is read from the kernel | pausable |
//! | `PROCESS_CLOSED_MAX` | 500ms | the time for which it has the buffer of a module closed that was not removed | a block | killed | monotonic |
//! | `STRAY_REPORTS_MAX` | 1000 | its reports that belong to no module | a report | killed | none |
//! | `PROCESS_MEMORY_BASE` | 67108864 | the bytes of private memory of a process, 64 MiB; its modules add theirs | an allocation | the process has no more | none |
//! | `PROCESS_MEMORY_UNCOUNTED` | 33554432 | the bytes, 32 MiB, of its first stack and the tables of its pages, which that does not count | `PROCESS_PING` | killed | none |
//! | `SETTLE_MAX` | 1s | the wait of a replayed graph for what processes report about its packets | a check | the graph continues without | monotonic |
//!
//! **The processor time of a process**, as the kernel measures it
//!
//! | limit | value | limits | granularity | at the limit | clock |
//! | --- | --- | --- | --- | --- | --- |
//! | `USE_WINDOW` | 5s | nothing: the time over which use is compared with the shares | `PROCESS_PING` | the next window begins | monotonic |
//! | `USE_EXCESS` | 1.5 | the multiple of its shares that it uses in a window | `USE_WINDOW` | killed | processor |
//! | `USE_SLACK` | 500ms | its further use: in a window, and while all its modules are held | `USE_WINDOW`, `HELD_DECISION` | killed | processor |
//! | `HELD_DECISION` | 10ms | nothing: the interval at which modules without time are held | itself | commands hold and release modules | monotonic |
//! | `HELD_NOTICE` | 3 | the decisions until it has noticed that all its modules are held | `HELD_DECISION` | its use counts in the next two | none |
//! | `HELD_USE` | 0.02 | the part of a processor that it uses while all are held | `HELD_DECISION` | the excess counts in `USE_SLACK` | processor |
//! | `HELD_LOAD_MAX` | 100ms | its further use for each module that is loaded meanwhile | `HELD_DECISION` | the excess counts in `USE_SLACK` | processor |
//! | `UNCHARGED_MAX` | 1s | its time that is not charged yet while it makes a call of a service, for which the caller may have to pay | a charge | it is charged to its own modules | processor |
//!
//! **Steps of pausable clocks**: what exceeds them does not count, since the program was suspended.
//!
//! | limit | value | limits | granularity | at the limit | clock |
//! | --- | --- | --- | --- | --- | --- |
//! | `PROCESS_CLOCK_STEP_MAX` | 2s | the time between two checks of a process that counts | a check | the rest does not count | monotonic |
//! | `COLLECTOR_CLOCK_STEP_MAX` | 250ms | the same for calls of services and the ends of modules | an event | the rest does not count | monotonic |
//! | `COLLECTOR_EVENT_MAX` | 20ms | the time of one event of the thread that collects that counts in limits of processes | an event | the rest does not count: a reader of the output is slow | monotonic |
//!
//! **A stop of the run**
//!
//! | limit | value | limits | granularity | at the limit | clock |
//! | --- | --- | --- | --- | --- | --- |
//! | `STOP_BEHIND_MAX` | 3s | the work of a worker on what was read before | a call | it takes nothing more, and only last calls are made | monotonic |
//! | `STOP_GRACE` | 1s | for each instance the blocks that wait, and once more the batch or init in progress | a call, `SLICE` | the blocks are lost; the call is interrupted | monotonic |
//! | `LAST_SERVICE_CALLS_MAX` | 1s | the deliveries of calls after the last packet, by the node's clock | a delivery | further calls are refused | pausable |
//! | `LAST_SERVICE_ROUNDS` | 4 | the same where modules wait for each other | a round of all calls | further calls are refused | none |
//! | `LAST_OUTCOMES_MAX` | 5s | the time in which a module in a process takes the outcomes of its last calls | an event | they are lost and counted | pausable |
//! | `LAST_CALLS_MIN` | 3s | the last calls of each instance in a process: they have at least this | none | counts in the time of its process | pausable |
//! | `LAST_CALLS_BUDGETS` | 5 | the budgets of a call that they may cost, if that takes longer | none | the same | none |
//! | `LAST_CALLS_UNITS_PER_NS` | 4 | nothing: the work of a slow machine in a nanosecond, by which budgets are times | none | the same | none |
//! | `PROCESS_LAST_MAX` | 10s | the end of a process after the stop, besides its last calls; of one module at its removal | a check of the worker | killed | pausable |
//! | `PROCESS_END_MAX` | 600s | the end of a process after the end of its source, with all the work that is left | a check of the worker | killed; the calls of others end without it | pausable |
//! | `LAST_FRAMES_MAX` | 1s | the wait for frames that modules have sent | a check | they are lost and counted | monotonic |
//! | `FLUSH_MAX` | 1s | the last writes of the command after a second signal | a check | the process ends without them | monotonic |
//!
//! **A removal while the run continues**
//!
//! | limit | value | limits | granularity | at the limit | clock |
//! | --- | --- | --- | --- | --- | --- |
//! | `REMOVAL_MAX` | 12s | the last calls of a module, in a process or not | itself | it is evicted | monotonic |
//!
//! **In a process**
//!
//! | limit | value | limits | granularity | at the limit | clock |
//! | --- | --- | --- | --- | --- | --- |
//! | `RUNNER_COMMANDS_MAX` | 50ms | the quanta of modules between two reads of commands | a quantum | commands are read | monotonic |
//! | `RUNNER_REPORT` | 20ms | nothing: the interval of reports of an account | a quantum | the account is reported | monotonic |
//!
//! **On a node**
//!
//! | limit | value | limits | granularity | at the limit | clock |
//! | --- | --- | --- | --- | --- | --- |
//! | `RESTART_FIRST` | 100ms | nothing: the time from the first end of a process by itself until it is started again, twice as long for each further one | a check of processes | it is started | monotonic |
//! | `RESTART_MAX` | 30s | that time | a check of processes | it is started | monotonic |
//! | `RESTART_WINDOW` | 600s | nothing: the time in which ends count | itself | the end counts no more | monotonic |
//! | `NODE_CHANGE_MAX` | 3s | the wait of a request for a change of its module by the node | itself | the request is refused | monotonic |
//! | `BEGUN_MAX` | 2s | the wait of a change for new instances to begin | itself | the reply does not state how they did | monotonic |
//! | `REVOCATION_MAX` | 2s | the wait of a revocation until no instance has lost its grant | a check | it replies; the review evicts the others | monotonic |

use std::time::Duration;

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: $type = $value;)*

        #[cfg(test)]
        const ALL: &[(&str, &dyn std::fmt::Debug)] = &[$((stringify!($name), &$name)),*];
    };
}

const fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

limits! {
    SLICE: Duration = Duration::from_micros(500);
    /// A read of memory that is in no cache, with its translation.
    UNIT_MAX: Duration = Duration::from_nanos(150);
    /// Longer than [`SLICE`]: to end a slice costs an interrupt where all processors work.
    LONG_SLICE: Duration = ms(5);
    QUANTUM_CALLS_MAX: Duration = ms(10);
    /// The source's buffer holds more.
    LENT_CALL_MAX: Duration = ms(50);
    /// The writer continues meanwhile if it is another process, and others would wait for ever.
    QUANTUM_BLOCKS_MAX: u32 = 16;
    /// A row of one byte takes 9, and some 60 ns.
    OUTPUT_PIECE: usize = 32 << 10;
    /// With the time until the watchdog finds the call, a worker waits for less than a second.
    CALL_DEADLINE_MAX: Duration = ms(850);
    /// A source keeps what comes in this time in its buffer.
    OVERRUN_MAX: Duration = ms(50);
    SERVICE_REPLY_MAX: Duration = seconds(1);
    SERVICE_OPEN_MAX: usize = 256;
    /// The second one waits there while the first one is made.
    SERVICE_DELIVERED_MAX: usize = 2;

    PROCESS_START_MAX: Duration = seconds(10);
    PROCESS_PING: Duration = seconds(1);
    /// It answers between two calls, and calls of metered modules are cut into slices.
    PROCESS_ANSWER_PINGS: u32 = 10;
    PROCESS_ANSWER_PINGS_MAX: f64 = 600.0;
    /// Ends a process that works without progress.
    PROCESS_BLOCK_MAX: Duration = seconds(60);
    /// Ends a process that does a little work from time to time. Reports are no evidence of work. The
    /// time in which they are handled does not count as sleep, since it has to wait for that.
    PROCESS_ASLEEP_MAX: Duration = seconds(30);
    PROCESS_MEASURE: Duration = ms(200);
    /// The kernel closes the files of a process that is killed before its end is known.
    PROCESS_CLOSED_MAX: Duration = ms(500);
    STRAY_REPORTS_MAX: u64 = 1000;
    PROCESS_MEMORY_BASE: u64 = 64 << 20;
    PROCESS_MEMORY_UNCOUNTED: u64 = 32 << 20;
    SETTLE_MAX: Duration = seconds(1);

    USE_WINDOW: Duration = seconds(5);
    /// Its own scheduler keeps to the share itself.
    USE_EXCESS: f64 = 1.5;
    /// Loading modules takes time, too.
    USE_SLACK: Duration = ms(500);
    HELD_DECISION: Duration = ms(10);
    HELD_NOTICE: u32 = 3;
    /// It answers pings.
    HELD_USE: f64 = 0.02;
    HELD_LOAD_MAX: Duration = ms(100);
    /// No more than the call can have taken: a longer call is late.
    UNCHARGED_MAX: Duration = SERVICE_REPLY_MAX;

    PROCESS_CLOCK_STEP_MAX: Duration = seconds(2);
    COLLECTOR_CLOCK_STEP_MAX: Duration = ms(250);
    /// A report takes less.
    COLLECTOR_EVENT_MAX: Duration = ms(20);

    /// Much less is usually left, but the time that a module will take is not known.
    STOP_BEHIND_MAX: Duration = seconds(3);
    /// Calls other than batches and init have budgets instead (`flame_run::Allowance::last`), so that a slow
    /// machine does not cause the loss of a module's state.
    STOP_GRACE: Duration = seconds(1);
    /// Two modules could call each other without an end.
    LAST_SERVICE_CALLS_MAX: Duration = seconds(1);
    LAST_SERVICE_ROUNDS: usize = 4;
    LAST_OUTCOMES_MAX: Duration = seconds(5);
    /// It shares the processors with others.
    LAST_CALLS_MIN: Duration = seconds(3);
    /// For the call in progress; for messages and ticks, two, since the last of them may begin shortly before
    /// their budget is used up; for its state; and for its end.
    LAST_CALLS_BUDGETS: u32 = 5;
    LAST_CALLS_UNITS_PER_NS: u64 = 4;
    PROCESS_LAST_MAX: Duration = seconds(10);
    PROCESS_END_MAX: Duration = seconds(600);
    LAST_FRAMES_MAX: Duration = seconds(1);
    /// A reader that has stopped reading would block the command forever.
    FLUSH_MAX: Duration = seconds(1);

    REMOVAL_MAX: Duration = seconds(12);

    /// A worker waits for an answer as long as the calls of one module take.
    RUNNER_COMMANDS_MAX: Duration = ms(50);
    RUNNER_REPORT: Duration = ms(20);

    RESTART_FIRST: Duration = ms(100);
    RESTART_MAX: Duration = seconds(30);
    RESTART_WINDOW: Duration = seconds(600);
    NODE_CHANGE_MAX: Duration = seconds(3);
    BEGUN_MAX: Duration = seconds(2);
    REVOCATION_MAX: Duration = seconds(2);
}

/// Asserts that each of these durations is less than the next.
const fn assert_rising(durations: &[Duration]) {
    let mut at = 1;
    while at < durations.len() {
        assert!(durations[at - 1].as_nanos() < durations[at].as_nanos(), "limits out of order");
        at += 1;
    }
}

const ANSWER: Duration = PROCESS_PING.saturating_mul(PROCESS_ANSWER_PINGS);

// A call is cut into slices within the quantum of its module.
const _: () = assert_rising(&[SLICE, LONG_SLICE, QUANTUM_CALLS_MAX, RUNNER_COMMANDS_MAX]);
// A process that reads its commands between two modules answers in time. Of the reasons to end a process
// that does nothing, the most specific is found first.
const _: () = assert_rising(&[
    RUNNER_COMMANDS_MAX.saturating_add(CALL_DEADLINE_MAX),
    ANSWER,
    PROCESS_ASLEEP_MAX,
    PROCESS_BLOCK_MAX,
    PROCESS_END_MAX,
]);
// The time until it reads that its modules are held does not end it.
const _: () = assert_rising(&[
    RUNNER_COMMANDS_MAX.saturating_add(QUANTUM_CALLS_MAX),
    HELD_DECISION.saturating_mul(HELD_NOTICE).saturating_add(USE_SLACK),
]);
// Clocks are read within their steps, so a step is lost only if the program is suspended.
const _: () = assert_rising(&[PROCESS_MEASURE, PROCESS_PING, PROCESS_CLOCK_STEP_MAX]);
const _: () = assert_rising(&[COLLECTOR_EVENT_MAX, COLLECTOR_CLOCK_STEP_MAX]);
// The end of a module has its last calls, their outcomes, the end in its process, and then the removal.
const _: () = assert_rising(&[
    LAST_SERVICE_CALLS_MAX.saturating_add(LAST_OUTCOMES_MAX),
    PROCESS_LAST_MAX,
    REMOVAL_MAX,
    PROCESS_END_MAX,
]);
// A process that obeys a stop ends in time, and each of its instances has its part.
const _: () =
    assert_rising(&[STOP_BEHIND_MAX.saturating_add(STOP_GRACE.saturating_mul(2)), PROCESS_LAST_MAX]);
const _: () = assert_rising(&[STOP_GRACE.saturating_mul(2), LAST_CALLS_MIN]);

// A process that ends whenever it is started has ended often within the window.
const _: () = assert_rising(&[RESTART_FIRST, RESTART_MAX, RESTART_WINDOW]);

/// The limits of the waits for a process, which tests shorten.
#[derive(Clone, Copy, Debug)]
pub struct ProcessLimits {
    /// [`PROCESS_START_MAX`].
    pub start: Duration,
    /// [`PROCESS_PING`].
    pub ping: Duration,
    /// [`PROCESS_ASLEEP_MAX`].
    pub asleep: Duration,
    /// [`PROCESS_BLOCK_MAX`].
    pub block: Duration,
    /// [`PROCESS_LAST_MAX`].
    pub last: Duration,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self {
            start: PROCESS_START_MAX,
            ping: PROCESS_PING,
            asleep: PROCESS_ASLEEP_MAX,
            block: PROCESS_BLOCK_MAX,
            last: PROCESS_LAST_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values change only together with the table, which states them.
    #[test]
    fn the_table_states_each_limit() {
        let rows = include_str!("limits.rs").lines().filter_map(|line| line.strip_prefix("//! | `"));
        let stated =
            rows.filter_map(|row| row.split_once("` | ")?.1.split_once(" |").zip(row.split_once('`')));
        let stated: Vec<_> = stated.map(|((value, _), (name, _))| format!("{name} = {value}")).collect();
        let real: Vec<_> = ALL.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
        assert_eq!(stated, real);
    }
}
