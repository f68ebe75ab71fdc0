//! ControlSocket(TCP, PORT | UNIX, FILENAME, READONLY, LOCALHOST, VERBOSE, RETRIES, RETRY_WARNINGS): other
//! programs read and write handlers through a socket, in Click's protocol 1.3: READ, READDATA, READUNTIL,
//! WRITE, WRITEDATA, WRITEUNTIL, CHECKREAD, CHECKWRITE, QUIT and HELP. A TCP socket listens on this machine
//! only, unless LOCALHOST is false; PORT 0 lets the kernel choose one, and PORT+ tries the ports after PORT
//! until one is free. At most 64 clients are served: another one ends the longest idle client,
//! and 10 minutes without a command end one. Requests take at most an eighth of the time of their thread,
//! beyond a single one. With READONLY, handlers that change something can be neither written nor read, as
//! `run` of a script. A command has at most 64 KiB and 1 MiB of data. Who may connect
//! may do what the operator may: all users of this machine with TCP, and with UNIX the users who can enter
//! the folder of FILENAME.
//! Expects: nothing.
//! Gives: nothing.
//! Handlers: port, requests.
//! Example: `ControlSocket(UNIX, router.sock, READONLY true)`

use super::control_commands::{Command, Commands, Verb};
use super::inbox::Inbox;
use super::stream::{Place, Server, Stream};
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::handler::Access;
use flame_click::time::SECOND;
use flame_click::{Nanos, text};
use std::cell::{Cell, RefCell};
use std::io::{BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

const SOURCE: &str = include_str!("control_socket.rs");

/// The time after which no further request is answered before others work.
const BURST: Nanos = Nanos(SECOND / 1000);
/// The time that packets have after requests, as a multiple of the time that those took.
const PAUSE: i64 = 7;
/// The timers: of another attempt to listen, and of the end of a pause.
const LISTEN: usize = 0;
const RESUME: usize = 1;
/// The time in which a client must send something.
const IDLE: Duration = Duration::from_secs(600);
/// The number of ports after `PORT+` that are tried.
const MORE_PORTS: u16 = 50;
/// The time between two attempts to listen.
const RETRY: Nanos = Nanos(SECOND);

const OK: u16 = 200;
const SYNTAX: u16 = 500;
const UNIMPLEMENTED: u16 = 501;
const NO_ELEMENT: u16 = 510;
const NO_HANDLER: u16 = 511;
const HANDLER_ERROR: u16 = 520;
const PERMISSION: u16 = 530;

const HELP: [&str; 11] = [
    "Commands supported:",
    "READ handler [arg...]    read a handler, return DATA",
    "READDATA handler len     the same, with len bytes as argument",
    "READUNTIL handler term   the same, with the lines before term as argument",
    "WRITE handler [arg...]   write a handler",
    "WRITEDATA handler len    the same, with len bytes",
    "WRITEUNTIL handler term  the same, with the lines before term",
    "CHECKREAD handler        check whether a handler can be read",
    "CHECKWRITE handler       check whether a handler can be written",
    "QUIT                     close the connection",
    "HELP                     print this",
];

/// A request of a client to the router.
struct Request {
    verb: Verb,
    handler: String,
    data: String,
    reply: SyncSender<Vec<u8>>,
}

fn messages(code: u16, lines: &[&str]) -> Vec<u8> {
    let mut out = String::new();
    for (n, line) in lines.iter().enumerate() {
        let mark = if n + 1 < lines.len() { '-' } else { ' ' };
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        out += &format!("{code}{mark}{line}\r\n");
    }
    text::encode(&out)
}

fn message(code: u16, line: &str) -> Vec<u8> {
    messages(code, &[line])
}

/// One client, with its commands.
struct Client(Commands<BufReader<Stream>>);

impl Client {
    /// Serves the client to its end.
    fn serve(&mut self, inbox: &Inbox<Request>) -> std::io::Result<()> {
        self.send(b"Click::ControlSocket/1.3\r\n")?;
        while let Some(command) = self.0.next()? {
            let answer = match command {
                Command::Quit => return self.send(&message(OK, "Goodbye!")),
                Command::Help => messages(OK, &HELP),
                Command::Llrpc => message(UNIMPLEMENTED, "Cannot call LLRPC remotely"),
                Command::Unknown(word) => message(UNIMPLEMENTED, &format!("Command '{word}' unimplemented")),
                Command::ArgumentCount => message(SYNTAX, "Wrong number of arguments"),
                Command::Length(word) => message(SYNTAX, &format!("Syntax error in '{word}'")),
                Command::Handle { verb, handler, data } => {
                    let (reply, answer) = sync_channel(1);
                    let (handler, data) = (text::decode(&handler), text::decode(&data));
                    if !inbox.put(Request { verb, handler, data, reply }) {
                        return Ok(());
                    }
                    // The router may end meanwhile.
                    let Ok(answer) = answer.recv() else { return Ok(()) };
                    answer
                }
            };
            self.send(&answer)?;
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.input.get_mut().write_all(bytes)
    }
}

/// The share of requests in the time of the router's thread.
#[derive(Default)]
struct Share {
    /// The end of the pause.
    until: Cell<Nanos>,
}

impl Share {
    /// Returns whether requests may be answered.
    fn is_due(&self, now: Nanos) -> bool {
        now >= self.until.get()
    }

    /// Ends requests that took from `began` until `now`. Returns how long others work then.
    fn end(&self, began: Nanos, now: Nanos) -> Nanos {
        let pause = Nanos((now.0 - began.0).max(0).saturating_mul(PAUSE));
        self.until.set(Nanos(now.0.saturating_add(pause.0)));
        pause
    }
}

struct ControlSocket {
    share: Share,
    place: Place,
    /// The number of further ports that are tried if the port of `place` is in use.
    more_ports: u16,
    is_read_only: bool,
    is_verbose: bool,
    warns: bool,
    retries: Cell<u32>,
    inbox: RefCell<Arc<Inbox<Request>>>,
    server: RefCell<Option<Server>>,
    requests: Cell<u64>,
}

impl ControlSocket {
    fn listen(&self, cx: &Cx<'_>) -> std::io::Result<()> {
        let inbox = self.inbox.borrow().clone();
        inbox.adopt(cx.router.waker(cx.me));
        let serve = move |stream: Stream| {
            let Ok(copy) = stream.try_clone() else { return };
            // A client that breaks the protocol or goes away ends its connection, and nothing else.
            let _ = Client(Commands::new(BufReader::new(copy))).serve(&inbox);
            stream.shut();
        };
        *self.server.borrow_mut() =
            Some(self.first_free(|place| Server::listen(place, Some(IDLE), serve.clone()))?);
        Ok(())
    }

    /// Listens at the first place that is free.
    fn first_free(&self, listen: impl Fn(&Place) -> std::io::Result<Server>) -> std::io::Result<Server> {
        let mut place = self.place.clone();
        for _ in 0..self.more_ports {
            match listen(&place) {
                Err(e) if e.kind() == ErrorKind::AddrInUse => {}
                done => return done,
            }
            if let Place::Tcp(address) = &mut place {
                address.set_port(address.port() + 1);
            }
        }
        listen(&place)
    }

    fn answer(&self, cx: &Cx<'_>, request: &Request) -> Vec<u8> {
        let Request { verb, handler, data, .. } = request;
        let name = by_number(cx, handler);
        let access = match cx.router.access(&name) {
            Access::NoElement(element) => {
                return message(NO_ELEMENT, &format!("No element named '{element}'"));
            }
            Access::NoHandler => return message(NO_HANDLER, &format!("No handler named '{handler}'")),
            Access::Handler { reads, writes, acts } => {
                // The right follows from what the handler does, not from the verb.
                let acts = if matches!(verb, Verb::Read | Verb::CheckRead) { acts } else { writes };
                if self.is_read_only && acts {
                    return message(PERMISSION, &format!("Permission denied for '{handler}'"));
                }
                (reads, writes)
            }
        };
        match (verb, access) {
            (Verb::CheckRead, (true, _)) => message(OK, &format!("Read handler '{handler}' OK")),
            (Verb::CheckRead, _) => message(NO_HANDLER, &format!("Handler '{handler}' not readable")),
            (Verb::CheckWrite, (_, true)) => message(OK, &format!("Write handler '{handler}' OK")),
            (Verb::CheckWrite, _) => message(NO_HANDLER, &format!("Handler '{handler}' not writable")),
            (Verb::Read, (false, _)) => message(PERMISSION, &format!("Handler '{handler}' write-only")),
            (Verb::Write, (_, false)) => message(PERMISSION, &format!("Handler '{handler}' read-only")),
            (Verb::Read, _) => match cx.router.read(None, &name, data) {
                Ok(value) => {
                    let value = text::encode(&value);
                    let mut out = message(OK, &format!("Read handler '{handler}' OK"));
                    out.extend(format!("DATA {}\r\n", value.len()).into_bytes());
                    out.extend(value);
                    out
                }
                Err(e) => failed(&format!("Read handler '{handler}' error:"), &e),
            },
            (Verb::Write, _) => match cx.router.write(None, &name, data) {
                Ok(()) => message(OK, &format!("Write handler '{handler}' OK")),
                Err(e) => failed(&format!("Write handler '{handler}' error:"), &e),
            },
        }
    }
}

fn failed(first: &str, error: &str) -> Vec<u8> {
    let lines: Vec<&str> = std::iter::once(first).chain(error.lines()).collect();
    messages(HANDLER_ERROR, &lines)
}

/// Replaces the number of an element, from 1, by its name.
fn by_number(cx: &Cx<'_>, handler: &str) -> String {
    let Some((element, rest)) = handler.split_once('.') else { return handler.to_owned() };
    let number = element.parse::<usize>().ok().filter(|_| !cx.router.by_name.contains_key(element));
    match number.and_then(|n| cx.router.nodes.get(n.checked_sub(1)?)) {
        Some(node) => format!("{}.{rest}", node.name),
        None if number == Some(0) => rest.to_owned(),
        None => handler.to_owned(),
    }
}

impl Element for ControlSocket {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        match self.listen(cx) {
            Ok(()) => Ok(()),
            Err(e) if self.retries.get() > 0 => {
                if self.warns {
                    cx.error(&format!("{e} ({} tries left)", self.retries.get()));
                }
                cx.timer_after(LISTEN, RETRY);
                Ok(())
            }
            // The element that this one replaces may have the socket, and hands it over before tasks run.
            Err(e) if e.kind() == ErrorKind::AddrInUse && cx.router.parse.is_some() => {
                cx.reschedule();
                Ok(())
            }
            Err(e) => Err(e.to_string()),
        }
    }

    fn run_timer(&self, cx: &Cx<'_>, timer: usize) {
        if timer == RESUME {
            return cx.reschedule();
        }
        if self.server.borrow().is_some() {
            return;
        }
        self.retries.set(self.retries.get().saturating_sub(1));
        if let Err(e) = self.listen(cx) {
            if self.warns || self.retries.get() == 0 {
                cx.error(&format!("{e} ({} tries left)", self.retries.get()));
            }
            match self.retries.get() {
                0 => cx.router.please_stop(),
                _ => cx.timer_after(LISTEN, RETRY),
            }
        }
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        if self.server.borrow().is_none()
            && self.retries.get() == 0
            && let Err(e) = self.listen(cx)
        {
            cx.error(&e.to_string());
            return false;
        }
        let began = cx.now();
        // The timer runs already.
        if !self.share.is_due(began) {
            return false;
        }
        let (inbox, mut requests) = (self.inbox.borrow().clone(), Vec::new());
        let mut has_answered = false;
        loop {
            let more = inbox.take(1, &mut requests);
            let Some(request) = requests.pop() else { return has_answered };
            has_answered = true;
            add(&self.requests, 1);
            let answer = self.answer(cx, &request);
            if self.is_verbose {
                cx.error(&format!("{:?} {}", request.verb, request.handler));
            }
            // The client may have gone.
            let _ = request.reply.try_send(answer);
            let now = cx.now();
            if !more || now.0 - began.0 >= BURST.0 {
                match self.share.end(began, now) {
                    Nanos(0) if more => cx.reschedule(),
                    Nanos(0) => {}
                    pause => cx.timer_after(RESUME, pause),
                }
                return true;
            }
        }
    }

    fn cleanup(&self, _: &Cx<'_>) {
        if self.server.borrow_mut().take().is_some() {
            self.inbox.borrow().close();
        }
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.requests]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        if old.place != self.place {
            return;
        }
        if let Some(server) = old.server.borrow_mut().take() {
            let inbox = old.inbox.borrow().clone();
            inbox.adopt(cx.router.waker(cx.me));
            (*self.inbox.borrow_mut(), *self.server.borrow_mut()) = (inbox, Some(server));
        }
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        match name {
            "requests" => Some(Ok(self.requests.get().to_string())),
            "port" => {
                let address = self.server.borrow().as_ref().and_then(|server| server.address);
                Some(Ok(address.map_or(String::new(), |a| a.port().to_string())))
            }
            _ => None,
        }
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("port", "r"), ("requests", "r")]
    }
}

class!(
    CONTROL_SOCKET,
    "ControlSocket",
    "0/0",
    "a/a",
    ["TYPE", "PORT", "FILENAME", "READONLY", "LOCALHOST", "VERBOSE", "RETRIES", "RETRY_WARNINGS"],
    |args, _| {
        let kind: String = args.req("TYPE");
        let is_local = args.key("LOCALHOST").unwrap_or(true);
        let mut more_ports = 0;
        let place = match kind.to_uppercase().as_str() {
            "TCP" => {
                let text: String = args.req("PORT");
                let (port, has_more) = text.strip_suffix('+').map_or((&*text, false), |port| (port, true));
                let port: u16 = port.trim().parse().unwrap_or_else(|_| {
                    args.error(format!(
                        "PORT: expected a number from 0 to 65535, or one with a +, found '{text}'"
                    ));
                    0
                });
                more_ports = if has_more { MORE_PORTS.min(u16::MAX - port) } else { 0 };
                let address = if is_local { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
                Place::Tcp(SocketAddr::from((address, port)))
            }
            "UNIX" => Place::Unix(args.req::<String>("FILENAME").into()),
            _ => {
                args.error(format!("TYPE: expected TCP or UNIX, found '{kind}'"));
                Place::Unix(String::new().into())
            }
        };
        Box::new(ControlSocket {
            share: Share::default(),
            place,
            more_ports,
            is_read_only: args.key("READONLY").unwrap_or(false),
            is_verbose: args.key("VERBOSE").unwrap_or(false),
            warns: args.key("RETRY_WARNINGS").unwrap_or(true),
            retries: Cell::new(args.key("RETRIES").unwrap_or(0)),
            inbox: RefCell::new(Arc::new(Inbox::new(64))),
            server: RefCell::default(),
            requests: Cell::new(0),
        })
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_take_an_eighth_of_the_time() {
        let share = Share::default();
        assert!(share.is_due(Nanos(0)));
        // 5 ms of requests, then 35 ms of packets, whatever wakes the element meanwhile.
        assert_eq!(share.end(Nanos(1_000_000), Nanos(6_000_000)), Nanos(35_000_000));
        assert!(!share.is_due(Nanos(6_000_000)) && !share.is_due(Nanos(40_999_999)));
        assert!(share.is_due(Nanos(41_000_000)));
        // In simulated time, requests take none.
        assert_eq!(share.end(Nanos(50_000_000), Nanos(50_000_000)), Nanos(0));
        assert!(share.is_due(Nanos(50_000_000)));
    }
}
