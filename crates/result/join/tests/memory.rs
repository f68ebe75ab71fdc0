//! Tests that memory stays within the limits of the options for any number of records, and that packets
//! beyond them are counted.

use flame_join::{Joined, Line, Log, Options, ReadError, Records, join_with};

/// Logs of one monitor that never match the other's. Each belongs to another flow, and is waited for.
struct Flood {
    next: u64,
    end: u64,
    label: u32,
}

impl Records for Flood {
    fn next(&mut self) -> Result<Option<Line>, ReadError> {
        let n = self.next;
        self.next += 1;
        let log = Log { ts_ns: n * 100, flow: n, label: self.label, wire_len: 100 };
        Ok((n < self.end).then_some(Line::Log(log)))
    }
}

fn joined(logs: u64, options: Options) -> Joined {
    let monitors = ["a", "b"].into_iter().zip(0..);
    let monitors = monitors.map(|(name, label)| (name.to_owned(), Flood { next: 0, end: logs, label }));
    join_with(monitors.collect(), options, |_| Ok::<_, ReadError>(())).unwrap()
}

/// Returns the maximum resident memory so far, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn millions_of_logs_take_no_more_memory_than_the_options_allow() {
    let options = Options { max_waiting: 10_000, max_flows: 10_000, ..Options::default() };
    joined(50_000, options);
    let before = peak();
    let logs = 1_500_000;
    let all = joined(logs, options);
    let grown = peak().saturating_sub(before);
    // Holding all logs and flows would take over 500 MiB.
    assert!(grown < 64 << 20, "{} MiB for {logs} logs", grown >> 20);
    assert_eq!(all.logs, 2 * logs);
    assert_eq!(all.hurried, 2 * logs - options.max_waiting as u64, "what was not waited for");
    assert_eq!(all.crowded, 2 * (logs - options.max_flows as u64), "what had no room");
    assert_eq!(all.alone, 2 * options.max_flows as u64);
}
