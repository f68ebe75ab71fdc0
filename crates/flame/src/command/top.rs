use crate::client::{AnswerArgs, Client, NodeArgs};
use crate::console::say_json;
use crate::error::Error;
use crate::exit::Status;
use crate::top::{Rates, Sort, View, screen};
use clap::Args;
use flame_api::{Modules, Sources};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Watch the modules of a node: packets, time, shares, drops
///
/// On a terminal the view is drawn again after each interval, until q. Otherwise, and with --once, it is
/// printed once. For principals, processor time is rounded and changes with the intervals of the accounting.
#[derive(Args)]
pub struct Top {
    /// Time between two polls: 1s, 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Order of the modules
    #[arg(long, value_enum, default_value = "cpu")]
    sort: Sort,

    /// Print one view, of the time between two polls
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    node: NodeArgs,

    #[command(flatten)]
    answer: AnswerArgs,
}

/// The shortest time between two polls, far below the node's limit of requests.
const LEAST: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let ns = flame_abi::manifest::duration_ns(text)?;
    let interval = Duration::from_nanos(u64::try_from(ns).unwrap_or(0));
    if interval < LEAST { Err(format!("expected {LEAST:?} or more")) } else { Ok(interval) }
}

/// A connection that is opened again when it breaks, and the rates of what it gave.
struct Poller {
    args: NodeArgs,
    client: Option<Client>,
    rates: Rates,
    began: Instant,
}

impl Poller {
    fn poll(&mut self, sort: Sort) -> Result<View, Error> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::open(&self.args)?,
        };
        let Modules { modules } = client.get("/v1/modules")?;
        let Sources { sources } = client.get("/v1/sources")?;
        self.client = Some(client);
        Ok(self.rates.poll(&modules, &sources, sort, self.began.elapsed()))
    }
}

impl Top {
    pub fn run(self) -> Result<Status, Error> {
        let mut poller =
            Poller { args: self.node.clone(), client: None, rates: Rates::default(), began: Instant::now() };
        // Also before the screen is taken, so that a wrong address is an ordinary error.
        let first = poller.poll(self.sort)?;
        if self.once || self.answer.is_json() || !std::io::stdout().is_terminal() {
            std::thread::sleep(self.interval);
            let view = poller.poll(self.sort)?;
            match self.answer.is_json() {
                true => say_json!(view),
                false => screen::print(&view),
            }
            return Ok(Status::Done);
        }
        let mut terminal = ratatui::try_init()?;
        let watched = self.watch(&mut terminal, &mut poller, first);
        ratatui::try_restore()?;
        watched?;
        Ok(Status::Done)
    }

    /// Draws the view until a key ends it.
    fn watch(
        &self,
        terminal: &mut ratatui::DefaultTerminal,
        poller: &mut Poller,
        mut view: View,
    ) -> Result<(), Error> {
        const HELP: &str = "q ends   s next order   c cpu  p packets  t time  d shed  m memory  n name";
        let (mut sort, mut next, mut failed) = (self.sort, Instant::now() + self.interval, None::<String>);
        loop {
            let of = self.node.node.as_deref().unwrap_or("node");
            let state = failed.as_ref().map_or_else(String::new, |reason| format!("   {reason}"));
            let title = format!("flame top   {of}   by {}   every {:?}{state}", sort.name(), self.interval);
            terminal.draw(|frame| screen::draw(frame, &view, (&title, HELP)))?;
            let left = next.saturating_duration_since(Instant::now());
            let is_due = match event::poll(left)? {
                false => true,
                true => match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        match (key.code, key.modifiers) {
                            (KeyCode::Char('q') | KeyCode::Esc, _) => return Ok(()),
                            (KeyCode::Char('c'), KeyModifiers::CONTROL) => return Ok(()),
                            (KeyCode::Char('s'), _) => sort = sort.next(),
                            (KeyCode::Char('c'), _) => sort = Sort::Cpu,
                            (KeyCode::Char('p'), _) => sort = Sort::Packets,
                            (KeyCode::Char('t'), _) => sort = Sort::Time,
                            (KeyCode::Char('d'), _) => sort = Sort::Shed,
                            (KeyCode::Char('m'), _) => sort = Sort::Memory,
                            (KeyCode::Char('n'), _) => sort = Sort::Name,
                            _ => {}
                        }
                        false
                    }
                    _ => false,
                },
            };
            if is_due {
                next = Instant::now() + self.interval;
                match poller.poll(sort) {
                    Ok(new) => (view, failed) = (new, None),
                    // The node may be back at the next poll.
                    Err(e) => failed = Some(e.to_string()),
                }
            }
            view.sort(sort);
        }
    }
}
