//! Tests of channels: frames that modules send, checked, filtered, within their rates, and counted; in this
//! process and in one of its own; on an interface and to a capture file.

use crate::built::build;
use crate::common::{self, Lines, Memory, frame, install, options, request, root, runner, with_manifest};
use crate::network::{self, Net, PING};
use flame_admit::Protection;
use flame_compile::InstallRequest;
use flame_plan::{Account, ModuleId, ModulePlan, Plan, Release, Sending, ShownFilter, Terms, Unsent};
use flame_run::Engines;
use flame_source::live::Unsent as Refused;
use flame_source::{FileOptions, Next, RawBlock, RawPacket};
use flame_worker::{Capture, Input, Link, Options, Run, Runner, Silent, Wire};
use serde_json::Value;
use std::process::Command;
use std::sync::{Arc, Mutex};

const CHANNELS: &str = "abi = 1\nname = \"hostile\"\nversion = \"1\"\ndescription = \"test\"\n\
    [[channels]]\nname = \"a\"\nfilter = \"udp dst port 53\"\nrate = \"8 Mbit/s\"\n\
    [[channels]]\nname = \"b\"\nfilter = \"udp\"\nrate = \"8 Mbit/s\"\n";

/// Returns an Ethernet frame of UDP from 192.0.2.`host` to `port`.
fn udp(host: u8, port: u16, size: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((size as u16 - 14).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, host, 192, 0, 2, 1, 4, 0]);
    frame.extend(port.to_be_bytes());
    // A grant's filter lets only frames out whose lengths agree.
    frame.extend((size as u16).saturating_sub(34).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(size, host);
    frame
}

/// Returns a module that sends these frames in each batch.
fn module(manifest: &str, frames: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let output: Vec<u8> = frames
        .iter()
        .flat_map(|(channel, bytes)| frame(0xfffa, &[&channel.to_le_bytes()[..], &[0, 0], bytes].concat()))
        .collect();
    let data: String = output.iter().map(|byte| format!("\\{byte:02x}")).collect();
    let text = format!(
        "(module (memory (export \"memory\") 4) (data (i32.const 0) \"{data}\")
           (func (export \"flame_batch\") (param i32) (result i64) (i64.const {:#x})))",
        (output.len() as u64) << 32
    );
    with_manifest(wat::parse_str(text).unwrap(), manifest.as_bytes())
}

fn plan(frames: &[(u16, Vec<u8>)], protection: Protection, apart: bool) -> ModulePlan {
    let plan = install(&module(CHANNELS, frames), &InstallRequest { protection, ..request() }).unwrap();
    ModulePlan { process: apart.then(|| "p".to_owned()), ..plan }
}

/// A wire that keeps what it sends.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Vec<u8>>>>);

impl Wire for Kept {
    fn send(&mut self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Refused> {
        let mut kept = self.0.lock().unwrap();
        let before = kept.len();
        kept.extend(frames.map(<[u8]>::to_vec));
        Ok(kept.len() - before)
    }
}

/// A wire that takes nothing.
struct Stuck;

impl Wire for Stuck {
    fn send(&mut self, _: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Refused> {
        Err(Refused::QueueFull)
    }
}

/// Runs a module over `packets` packets, 1 ms apart, each in a batch of its own.
fn run(plan: ModulePlan, packets: usize, link: Option<Arc<Link>>) -> Account {
    let runner = plan.process.is_some().then(|| Runner::at(&runner()).unwrap());
    let options = Options { link, runner, ..options(Arc::default()) };
    let run = Run::new(&Plan::new(vec![plan], 1, 0), &[], &Engines::new().unwrap(), options).unwrap();
    let source = Memory { per_block: 1, ..Memory::tcp(packets, 1) };
    let report = run.execute(Input::Shared(Box::new(source)), &mut Lines::default(), &mut Silent).unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    report.accounts[0].1.clone()
}

fn unsent(account: &Account) -> Vec<(Unsent, u64)> {
    Unsent::ALL.into_iter().map(|cause| (cause, account.unsent_by(cause))).filter(|(_, n)| *n > 0).collect()
}

#[test]
fn frames_leave_in_order_as_far_as_the_filters_let_them() {
    let frames = [(0, udp(1, 53, 60)), (1, udp(2, 80, 1514)), (0, udp(3, 54, 60)), (1, udp(4, 9, 80))];
    for (protection, apart) in
        [(Protection::Auto, false), (Protection::Metered, false), (Protection::Auto, true)]
    {
        let kept = Kept::default();
        let link = Link::on(Box::new(kept.clone()), 1_000_000_000).unwrap();
        let account = run(plan(&frames, protection, apart), 5, Some(link.clone()));
        assert_eq!(
            (account.sent, unsent(&account)),
            (15, vec![(Unsent::Filter, 5)]),
            "{protection:?} {apart}"
        );
        let sent = kept.0.lock().unwrap().clone();
        let of = |host: u8| sent.iter().filter(|frame| frame[29] == host).collect::<Vec<_>>();
        assert_eq!((of(1), of(3).len()), (vec![&frames[0].1; 5], 0));
        // Those of one channel.
        let second: Vec<_> = sent.iter().filter(|frame| frame[29] % 2 == 0).cloned().collect();
        let all: Vec<_> = [1, 3].iter().cycle().take(10).map(|n| frames[*n].1.clone()).collect();
        assert_eq!(second, all);
        // A link holds a second module's channels after the first has gone.
        let account = run(plan(&frames[..1], protection, false), 1, Some(link));
        assert_eq!(account.sent, 1);
    }
}

#[test]
fn a_grant_narrows_what_a_channel_sends() {
    let frames = [(0, udp(1, 53, 60)), (1, udp(2, 80, 60)), (1, udp(3, 53, 68))];
    let with = |sending: Sending, transmit: u64| {
        let terms =
            Terms { sending, release: Release { transmit, ..Release::default() }, ..Terms::default() };
        let plan = ModulePlan { terms, ..plan(&frames, Protection::Auto, false) };
        let link = Link::on(Box::new(Kept::default()), 1_000_000_000).unwrap();
        let account = run(plan, 10, Some(link));
        (account.sent, unsent(&account))
    };
    let filter = |text: &str| ShownFilter::parse(text).unwrap().unwrap();
    let sending = |filters: Vec<ShownFilter>| Sending { is_allowed: true, filters };
    assert_eq!(with(sending(vec![]), u64::MAX), (30, vec![]));
    let one = with(sending(vec![filter("port 53")]), u64::MAX);
    assert_eq!(one, (20, vec![(Unsent::Filter, 10)]));
    let both = with(sending(vec![filter("port 53"), filter("src host 192.0.2.3")]), u64::MAX);
    assert_eq!(both, (10, vec![(Unsent::Filter, 20)]));
    // Bytes after the datagram would pass the filter unseen.
    let trailed = [(0, [udp(1, 53, 64), vec![1]].concat())];
    let sending_of = |filters| {
        let terms = Terms { sending: sending(filters), ..Terms::default() };
        let plan = ModulePlan { terms, ..plan(&trailed, Protection::Auto, false) };
        let account = run(plan, 10, Some(Link::on(Box::new(Kept::default()), 1_000_000_000).unwrap()));
        (account.sent, unsent(&account))
    };
    assert_eq!(sending_of(vec![filter("port 53")]), (0, vec![(Unsent::Filter, 10)]));
    assert_eq!(sending_of(vec![]), (10, vec![]));
    // 92, 92 and 100 bytes with what a frame costs; a second of packet time.
    assert_eq!(with(sending(vec![]), 284), (3, vec![(Unsent::Rate, 27)]));
    let none = with(Sending { is_allowed: false, filters: vec![] }, u64::MAX);
    assert_eq!(none, (0, vec![(Unsent::Rate, 30)]));
}

#[test]
fn frames_that_nothing_takes_are_counted_by_cause() {
    let frames = [(0, udp(1, 53, 1514)), (0, udp(1, 53, 1514))];
    let account = run(plan(&frames, Protection::Auto, false), 50, None);
    assert_eq!((account.sent, unsent(&account)), (0, vec![(Unsent::Link, 100)]));
    // A queue of 64 KiB and what the thread has in its hands; and what waits at the end.
    let stuck = Link::on(Box::new(Stuck), 100_000_000).unwrap();
    let account = run(plan(&frames, Protection::Auto, false), 50, Some(stuck));
    let waiting = (8_000_000 / 8 / 10) / (1514 + 64);
    assert_eq!(
        (account.sent, unsent(&account)),
        (0, vec![(Unsent::Queue, 100 - waiting), (Unsent::Interface, waiting)])
    );
    // Both channels reserve 16 Mbit/s.
    let link = Link::on(Box::new(Kept::default()), 15_000_000).unwrap();
    let options = Options { link: Some(link), ..options(Arc::default()) };
    let modules = vec![plan(&frames, Protection::Auto, false)];
    let run = Run::new(&Plan::new(modules, 1, 0), &[], &Engines::new().unwrap(), options).unwrap();
    let source = Input::Shared(Box::new(Memory::tcp(1, 1)));
    let error = run.execute(source, &mut Lines::default(), &mut Silent).unwrap_err().to_string();
    assert!(error.contains("would reserve 16000000 bit/s, and the link has 15000000"), "{error}");
}

/// Filters are compiled before a module runs, and bounded together: those who wait for output do not wait for
/// them.
/// A wire whose other end refuses long frames.
struct Narrow(Kept);

impl Wire for Narrow {
    fn send(&mut self, frames: &mut dyn Iterator<Item = &[u8]>) -> Result<usize, Refused> {
        let frames: Vec<_> = frames.collect();
        match frames.iter().position(|frame| frame.len() > 500) {
            Some(0) => Err(Refused::Dropped),
            Some(first) => self.0.send(&mut frames[..first].iter().copied()),
            None => self.0.send(&mut frames.into_iter()),
        }
    }
}

/// A module that sends frames which the other end refuses does not stop the frames of others.
#[test]
fn refused_frames_stop_no_others() {
    let kept = Kept::default();
    let link = Link::on(Box::new(Narrow(kept.clone())), 1_000_000_000).unwrap();
    let long = plan(&[(1, udp(1, 99, 600))], Protection::Auto, false);
    let short = plan(&[(1, udp(2, 53, 60))], Protection::Auto, false);
    let short = ModulePlan { id: ModuleId(1), name: "short".to_owned(), ..short };
    let options = Options { link: Some(link), ..options(Arc::default()) };
    let run = Run::new(&Plan::new(vec![long, short], 1, 0), &[], &Engines::new().unwrap(), options).unwrap();
    let source = crate::services::paced(1500, 3);
    let report = run.execute(Input::Shared(Box::new(source)), &mut Lines::default(), &mut Silent).unwrap();
    let of = |name: &str| &report.accounts.iter().find(|(of, _)| of == name).unwrap().1;
    let (long, short) = (of("hostile"), of("short"));
    assert!(long.sent == 0 && unsent(long).iter().any(|(cause, n)| *cause == Unsent::Interface && *n > 50));
    assert!(short.sent > 500, "{short:?}");
    assert!(kept.0.lock().unwrap().iter().all(|frame| frame.len() == 60));
}

#[test]
fn filters_that_cannot_be_compiled_are_refused_with_their_channel() {
    let refused = |manifest: &str| {
        let plan = install(&module(manifest, &[]), &request()).unwrap();
        let run = Run::new(&Plan::new(vec![plan], 1, 0), &[], &Engines::new().unwrap(), Options::default());
        run.err().expect("a refusal").to_string()
    };
    let error = refused(&CHANNELS.replace("udp dst port 53", "udp port 53 port"));
    assert!(error.starts_with("hostile, channel a: filter: "), "{error}");
    let ports: Vec<_> = (1..61).map(|n| format!("port {n}")).collect();
    let one = |n: usize| {
        let filter = ports.join(" or ");
        format!("[[channels]]\nname = \"c{n}\"\nfilter = \"{filter}\"\nrate = \"1 kbit/s\"\n")
    };
    let head = CHANNELS.split("[[channels]]").next().unwrap();
    let error = refused(&(0..16).fold(head.to_owned(), |text, n| text + &one(n)));
    assert!(error.contains("16 filters with 960 addresses and numbers"), "{error}");
}

type Frames = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// A capture in memory.
struct InMemory(Frames);

impl Capture for InMemory {
    fn frame(&mut self, ts_ns: u64, bytes: &[u8]) -> Result<(), String> {
        self.0.lock().unwrap().push((ts_ns, bytes.to_vec()));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

/// The capture has what the wire gets, at the times at which a link of this bandwidth would send it.
#[test]
fn a_capture_has_what_a_link_would_carry() {
    // A thousand bytes in each millisecond of packet time are the rate of the channel; the second half of
    // the packets sends twice as much.
    let frames = [(0, udp(1, 53, 1000))];
    let captured = |frames: &[(u16, Vec<u8>)], apart: bool| {
        let kept = Frames::default();
        let link = Link::capture(Box::new(InMemory(kept.clone())), 16_000_000);
        let account = run(plan(frames, Protection::Auto, apart), 40, Some(link));
        let kept = kept.lock().unwrap().clone();
        assert_eq!(account.sent, kept.len() as u64);
        kept
    };
    let second = 1_000_000_000;
    let one = captured(&frames, false);
    let times: Vec<_> = one.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, (0..40).map(|n| second + n * 1_000_000).collect::<Vec<_>>());
    // Twice as much leaves in twice the time, 10,000 bytes in each period.
    let two = captured(&[frames[0].clone(), frames[0].clone()], false);
    let within =
        |from: u64, to: u64| two.iter().filter(|(at, _)| (second + from..second + to).contains(at)).count();
    assert_eq!(two.len(), 80);
    assert!((0..8).all(|period| within(period * 10_000_000, (period + 1) * 10_000_000) == 10), "{two:?}");
    // The times of a process are those of the ticks that it reports, and the frames are the same.
    let apart = captured(&frames, true);
    assert!(apart.iter().map(|(_, bytes)| bytes).eq(one.iter().map(|(_, bytes)| bytes)));
    let kept = Kept::default();
    let link = Link::on(Box::new(kept.clone()), 16_000_000).unwrap();
    run(plan(&frames, Protection::Auto, false), 40, Some(link));
    assert!(kept.0.lock().unwrap().iter().eq(one.iter().map(|(_, bytes)| bytes)));
}

/// The module answers for an address that no machine has: the kernel asks for it by ARP, and gets replies.
#[test]
fn a_module_answers_ping_through_its_channels() {
    let Some(net) = Net::new() else { return };
    let echo = build(&root().join("sdk/rust/examples/echo"));
    // For --isolate: as this checkout has it.
    runner();
    net.shell("ip addr add 192.0.2.1/24 dev tx0");
    for more in [&[][..], &["--metered"], &["--isolate"]] {
        net.shell("ip neigh flush dev tx0");
        let usual = [&echo, "--expose", "all", "--send", "rx0", "-q", "--format", "json"];
        let capture = net.capture(&[&usual[..], more].concat(), 1);
        let ping = net.command("python3").args(["-c", PING, "192.0.2.2", "5"]).output().unwrap();
        let said = String::from_utf8_lossy(&ping.stdout).trim().to_owned();
        let out = capture.interrupt();
        let records = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(said, "5", "{more:?}: {}\n{records}", String::from_utf8_lossy(&out.stderr));
        let rows: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // An answer is no question: the module sees its own frames, and sends none for them.
        assert_eq!(rows.iter().filter(|row| row["kind"] == "echo").count(), 5, "{records}");
    }
    // The same in C, for each address that its filter shows.
    let echo = build(&root().join("sdk/c/examples/echo-c"));
    net.shell("ip neigh replace 192.0.2.3 lladdr 02:00:00:00:00:07 dev tx0");
    let filter = ["dst", "host", "192.0.2.3"];
    let capture =
        net.capture(&[&[&echo[..]], &filter[..], &["--expose", "all", "--send", "rx0"]].concat(), 1);
    let ping = net.command("python3").args(["-c", PING, "192.0.2.3", "5"]).output().unwrap();
    let out = capture.interrupt();
    assert_eq!(String::from_utf8_lossy(&ping.stdout).trim(), "5", "{}", String::from_utf8_lossy(&out.stderr));
}

/// A replay to a file and one to an interface: the other end of the interface gets what is in the file.
#[test]
fn a_file_has_the_frames_that_an_interface_carries() {
    let Some(net) = Net::new() else { return };
    let echo = build(&root().join("sdk/rust/examples/echo"));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (questions, file) = (path("questions.pcap"), path("sent.pcapng"));
    let ping = |n: u8| {
        let head = vec![2, 0, 0, 0, 0, 7, 9, 9, 9, 9, 9, 9, 8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 1, 0, 0];
        [&head[..], &[192, 0, 2, n, 192, 0, 2, 2, 8, 0, 0, 0, 0, n, 0, 7]].concat()
    };
    std::fs::write(&questions, common::pcap((0..100).map(|n| (1000 + n, ping(n as u8))))).unwrap();
    let replay = |target: &str, more: &[&str]| {
        let usual = ["run", &echo, "-r", &questions, "--expose", "all", "--send", target, "--stats", "json"];
        let out = net.command(&network::flame()).args(usual).args(more).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{text}");
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        last["modules"]["echo"]["sent"].as_u64().unwrap()
    };
    assert_eq!(replay(&file, &[]), 100);
    let got = path("got.pcapng");
    let capture = net.capture(&["-w", &got, "-q"], 1);
    assert_eq!(replay("tx0", &["--send-rate", "10 Mbit/s"]), 100);
    capture.interrupt();
    let bytes = |file: &str| {
        let (mut all, mut block) = (Vec::new(), RawBlock::default());
        let mut source = flame_source::open(&[file.into()], &FileOptions::default()).unwrap();
        while source.next(&mut block).unwrap() == Next::Packets {
            let bytes = |p: &RawPacket| block.data[p.offset as usize..][..p.cap_len as usize].to_vec();
            all.extend(block.packets.iter().map(|packet| (packet.ts_ns, bytes(packet))));
        }
        all
    };
    let (sent, got) = (bytes(&file), bytes(&got));
    assert_eq!((sent.len(), got.len()), (100, 100));
    assert!(sent.iter().map(|(_, bytes)| bytes).eq(got.iter().map(|(_, bytes)| bytes)));
    assert!(sent.is_sorted_by_key(|(at, _)| *at), "times of packets");
    // Without --send, a note states that nothing is sent; a module without channels cannot send.
    let flame = |args: &[&str]| Command::new(network::flame()).args(args).output().unwrap();
    let out = flame(&["run", &echo, "-r", &questions, "--expose", "all"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("echo sends frames, which are counted and not sent: --send"), "{text}");
    assert!(text.contains("not sent: link"), "{text}");
    let out = flame(&["run", &echo, "-r", &questions, "--send", &file, "--workers", "2"]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("--workers 1"));
}
