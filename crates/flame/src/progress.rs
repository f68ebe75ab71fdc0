use crate::console::complain;
use flame_plan::Audience;
use flame_record::escape;
use flame_source::{Notice, Progress};
use flame_worker::Observer;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The output of a run on standard error: progress, and texts of modules and the source. Progress, which
/// counts all packets of the source, and the times of overloads are the operator's.
pub struct Console {
    terminal: Option<Terminal>,
    logs: bool,
    audience: Audience,
}

impl Console {
    /// Creates the output for `audience`. With `quiet` it stays empty.
    pub fn new(audience: Audience, quiet: bool) -> Self {
        let terminal = Terminal::new(quiet || !audience.is_operator());
        Self { terminal, logs: !quiet, audience }
    }

    /// Prints a line above the progress, if texts are shown.
    fn line(&self, from: &str, text: &str) {
        if !self.logs {
            return;
        }
        let print = || complain!("{from}: {text}");
        match &self.terminal {
            Some(terminal) => terminal.bar.suspend(print),
            None => print(),
        }
    }
}

impl Observer for Console {
    fn progress(&mut self, packets: u64, progress: Progress) {
        if let Some(terminal) = &mut self.terminal {
            terminal.progress(packets, progress);
        }
    }

    fn source(&mut self, notice: &Notice) {
        self.line("flame", notice.text());
    }

    fn stopping(&mut self, until_ns: u64) {
        let until = flame_trust::time::show(until_ns.div_ceil(1_000_000_000));
        let text = "when an interval ends that is shown whole; interrupt again to end now, without it";
        self.line("flame", &format!("stopping at {until}, {text}"));
    }

    fn overload(&mut self, module: &str, worker: usize, begins: bool) {
        if !self.audience.is_operator() {
            return;
        }
        let text = match begins {
            true => "is behind, and others have a higher priority",
            false => "has caught up",
        };
        let what = if begins { "loses packets" } else { "receives all packets again" };
        self.line("flame", &format!("{module} {what}: worker {worker} {text}"));
    }

    fn log(&mut self, module: &str, text: &str) {
        // A line end would let a module write lines in the name of another.
        self.line(module, &escape::line(text));
    }
}

/// A progress line on standard error: packets, rate, drops, time left. It is drawn five times per second at
/// most, and only if standard error is a terminal.
struct Terminal {
    bar: ProgressBar,
    next: Instant,
    start: Instant,
}

const PERIOD: Duration = Duration::from_millis(200);

impl Terminal {
    fn new(quiet: bool) -> Option<Self> {
        if quiet || !std::io::stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let now = Instant::now();
        Some(Self { bar, next: now + PERIOD, start: now })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Terminal {
    fn progress(&mut self, packets: u64, progress: Progress) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + PERIOD;
        let template = match progress.total {
            Some(_) => "{bar:30} {percent}%  {msg}  {eta} left",
            None => "{spinner} {elapsed}  {msg}",
        };
        if let Some(total) = progress.total {
            self.bar.set_length(total);
        }
        self.bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.bar.set_position(progress.bytes);
        let rate = packets as f64 / now.duration_since(self.start).as_secs_f64();
        let dropped = progress.kernel_drops.map(|drops| format!("  {} dropped", HumanCount(drops)));
        self.bar.set_message(format!(
            "{} packets  {}/s{}",
            HumanCount(packets),
            HumanCount(rate as u64),
            dropped.unwrap_or_default()
        ));
        self.bar.tick();
    }
}
