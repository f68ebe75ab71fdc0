use crate::ModuleClass;
use serde::{Deserialize, Serialize};

/// The discipline of a run: where its packets come from, and so who waits for whom.
///
/// The source or the owner of the packets states it, the run passes it on by value, and a process receives it
/// with the blocks of its modules. What follows from it is asked by name: nothing else records a part of the
/// answer. The whole of it, by [`Placement`] where that matters:
///
/// ```text
///                      Link          File          Pipe          LiveGraph     WaitingGraph  StepwiseGraph
/// late packets         lost          wait          wait          lost          wait          wait
/// workers              1 or more     1 or more     1 or more     1             1             1
/// modules              measure       measure       measure       both          both          both
/// one worker reads     its source    its source    its source    is given      is given      is given
/// several workers read (a)           the source    a thread
/// events of workers    as they come  by tick       by tick
/// output of intervals  at their end  at once       at once       at their end  at once       at once
/// messages, ticks      in slices     at once       at once       in slices     at once       at once
/// inline:
/// metered calls        slices        whole         whole         slices        whole         whole
/// services, 1 worker   wall clock    edges         edges         wall clock    edges         edges
/// services, several    wall clock    packet time   packet time
/// forwarding                                                     in slices     decided       decided
/// in a process:
/// metered calls        slices        slices        slices        slices        slices        slices
/// blocks without room  lost          wait          wait          gather (b)    wait          wait
/// services             wall clock    wall clock    wall clock    wall clock    wall clock    wall clock
/// accounts             at intervals  at intervals  at intervals  at intervals  at intervals  each block
/// forwarding                                                     1 slice (c)   decided       decided
/// ```
///
/// (a) a source each, or a thread for all. (b) They gather in one block; those that do not fit are lost.
/// (c) The graph waits for a decision during one slice, and then looks for it now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Discipline {
    /// An interface, or another source that does not wait for its readers.
    Link,
    /// A capture file, whose packets all exist.
    #[default]
    File,
    /// A capture whose next packets may not exist yet, as from a pipe.
    Pipe,
    /// Elements of a graph, which lose the packets that a module does not take in time.
    LiveGraph,
    /// Elements of a graph, which wait until there is room for their packets.
    WaitingGraph,
    /// Elements of a graph, which also wait for the outcome of each block before they give the next one.
    StepwiseGraph,
}

/// The place where the calls of a module are made. Its process has a name besides
/// ([`crate::ModulePlan::process`]), which is not disclosed to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The thread of the worker, in the process of the command or the node.
    Inline,
    /// A process of its own, or of its principal.
    Process,
}

/// The time by which calls of services are late, and at which they are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceTime {
    /// The node's clock. Calls are delivered whenever a module has time for one.
    WallClock,
    /// The time of packets. Calls are delivered after each output.
    Packets,
    /// The time of packets. Calls are delivered after a fixed number of packets and at ticks only, so that
    /// what a module sees in a replay follows from packets alone.
    PacketEdges,
}

impl Discipline {
    /// Returns whether packets are lost that are not taken in time. Then nothing waits for a module: its
    /// calls have slices, its blocks are limited, and messages for its slow instance as well.
    pub const fn loses_late_packets(self) -> bool {
        match self {
            Self::Link | Self::LiveGraph => true,
            Self::File | Self::Pipe | Self::WaitingGraph | Self::StepwiseGraph => false,
        }
    }

    /// Returns whether modules that take too long lose something besides packets: a module that exceeds its
    /// time limit its place, and one without processor time left the calls that it pays for. Where packets
    /// wait, a slow module costs time only, and the results of a replay do not depend on the machine.
    pub const fn limits_time(self) -> bool {
        self.loses_late_packets()
    }

    /// Returns whether messages, outcomes and ticks of a module are processed before the packets that follow
    /// them, so that a replay is exact. Where packets would be lost meanwhile, they wait for a slice.
    pub const fn processes_messages_at_once(self) -> bool {
        !self.loses_late_packets()
    }

    /// Returns the turns of a module's calls. They pause where packets could be lost, and in a process, which
    /// must notice commands.
    pub const fn turns(self, placement: Placement, class: ModuleClass) -> Turns {
        match (self, placement, class) {
            (_, Placement::Process, _) | (Self::LiveGraph, ..) => Turns::Slices,
            (Self::Link, Placement::Inline, ModuleClass::Metered) => Turns::Slices,
            (Self::Link, Placement::Inline, ModuleClass::Bounded) => Turns::Lent,
            (Self::File | Self::Pipe | Self::WaitingGraph | Self::StepwiseGraph, Placement::Inline, _) => {
                Turns::ToEnd
            }
        }
    }

    /// Returns whether the source waits until a module has room for a block. Inline there always is room: the
    /// module has processed the block before.
    pub const fn waits_for_room(self, placement: Placement) -> bool {
        matches!(placement, Placement::Process) && !self.loses_late_packets()
    }

    /// Returns whether packets gather in a block while the process of their module has much to do. Elements
    /// push packets alone as well as together, so blocks would be used up with one packet in each.
    pub const fn gathers_packets(self, placement: Placement) -> bool {
        matches!((self, placement), (Self::LiveGraph, Placement::Process))
    }

    /// Returns whether what a view with steps shows begins and ends with whole intervals, and whether output
    /// about an interval waits for its end. A reader who sees output of a live source at once learns the time
    /// of the packet that caused it. The times of a capture show in nothing that is read before its end.
    pub const fn releases_by_interval(self) -> bool {
        self.loses_late_packets()
    }

    /// Returns whether events of a worker after a tick wait until all workers have passed it, so that each
    /// counts in its own interval. A worker of a capture may be far ahead of another one; on a live source
    /// all are at about the same time.
    pub const fn orders_events_by_tick(self) -> bool {
        !self.loses_late_packets()
    }

    /// Returns the time of calls of services in a run of `workers`, of which modules may run at `placement`.
    /// Modules in processes are called while packet time advances, and live modules whenever they have time:
    /// packet time would be exact for neither. Several workers have no common order of packets, so there are
    /// edges with one only.
    pub const fn service_time(self, workers: usize, placement: Placement) -> ServiceTime {
        match (self.loses_late_packets(), placement) {
            (true, _) | (_, Placement::Process) => ServiceTime::WallClock,
            (false, Placement::Inline) if workers == 1 => ServiceTime::PacketEdges,
            (false, Placement::Inline) => ServiceTime::Packets,
        }
    }

    /// Returns whether modules that share memory receive blocks whose ends follow from packets alone: what
    /// one sees of another depends on these ends. A graph decides itself which packets come together.
    pub const fn gives_turns(self) -> bool {
        matches!(self, Self::File | Self::Pipe)
    }

    /// Returns whether several workers read the source themselves. A worker that waits for packets would
    /// process nothing meanwhile, so a thread of its own reads all other sources.
    pub const fn is_read_by_workers(self) -> bool {
        matches!(self, Self::File)
    }

    /// Returns whether rows are shown when no packet has come for a while. On a live source ticks show them.
    pub const fn shows_rows_when_quiet(self) -> bool {
        matches!(self, Self::Pipe)
    }

    /// Returns whether the thread that collects, or does everything, has time of its own after a stop for
    /// packets that were read before. Of a capture these may be many seconds; of all others few wait.
    pub const fn drains_after_stop(self) -> bool {
        matches!(self, Self::File | Self::Pipe)
    }

    /// Returns whether the owner of the packets waits for the outcome of each block, so that its accounts and
    /// faults are those after the last packet.
    pub const fn steps(self) -> bool {
        matches!(self, Self::StepwiseGraph)
    }
}

/// The turns of the calls of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// Each call is made to its end.
    ToEnd,
    /// Calls pause at the end of a slice, and blocks wait meanwhile. Batches of a bounded module do not.
    Slices,
    /// The module shares blocks that the source takes back. A batch is made to its end, within its bound.
    /// Other calls, and the delivery of output, pause at the end of a long quantum, and then of each slice;
    /// the module loses the blocks that wait.
    Lent,
}

#[cfg(test)]
mod tests {
    use super::*;
    use Discipline::{File, Link, LiveGraph, Pipe, StepwiseGraph, WaitingGraph};

    const ALL: [Discipline; 6] = [Link, File, Pipe, LiveGraph, WaitingGraph, StepwiseGraph];
    const WAITING: [Discipline; 4] = [File, Pipe, WaitingGraph, StepwiseGraph];

    /// Returns the disciplines that `is` names, in the order of the table.
    fn those(is: impl Fn(Discipline) -> bool) -> Vec<Discipline> {
        ALL.into_iter().filter(|discipline| is(*discipline)).collect()
    }

    #[test]
    fn answers_are_those_of_the_table() {
        assert_eq!(those(Discipline::loses_late_packets), [Link, LiveGraph]);
        assert_eq!(those(Discipline::is_read_by_workers), [File]);
        assert_eq!(those(Discipline::orders_events_by_tick), WAITING);
        let having = |turns, placement, class| those(|d| d.turns(placement, class) == turns);
        for class in [ModuleClass::Metered, ModuleClass::Bounded] {
            assert_eq!(having(Turns::ToEnd, Placement::Inline, class), WAITING);
            assert_eq!(having(Turns::Slices, Placement::Process, class), ALL);
        }
        assert_eq!(having(Turns::Slices, Placement::Inline, ModuleClass::Metered), [Link, LiveGraph]);
        assert_eq!(having(Turns::Slices, Placement::Inline, ModuleClass::Bounded), [LiveGraph]);
        assert_eq!(having(Turns::Lent, Placement::Inline, ModuleClass::Bounded), [Link]);
        assert!(those(|d| d.waits_for_room(Placement::Inline)).is_empty());
        assert_eq!(
            those(|d| d.waits_for_room(Placement::Process)),
            [File, Pipe, WaitingGraph, StepwiseGraph]
        );
        assert_eq!(those(|d| d.gathers_packets(Placement::Process)), [LiveGraph]);
        assert_eq!(those(Discipline::steps), [StepwiseGraph]);
        assert_eq!(those(Discipline::drains_after_stop), [File, Pipe]);
        assert_eq!(those(Discipline::shows_rows_when_quiet), [Pipe]);
        let by = |time, workers, place| those(|d| d.service_time(workers, place) == time);
        assert_eq!(by(ServiceTime::PacketEdges, 1, Placement::Inline), WAITING);
        assert_eq!(by(ServiceTime::Packets, 2, Placement::Inline), WAITING);
        assert_eq!(by(ServiceTime::WallClock, 1, Placement::Process), ALL);
    }
}
