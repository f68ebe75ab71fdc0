#![allow(unsafe_code)] // Enters a network namespace.

//! Tests of AF_XDP on a pair of interfaces, each in a network namespace of its own: AF_PACKET on the sending
//! end, which copies, is the oracle.

#[path = "xdp/devices.rs"]
mod devices;

use flame_plan::Discipline;
use flame_source::live::{self, Capture, Interface, LiveOptions, Opened, Sender, Unsent, Way, XdpMode};
use flame_source::{Next, RawBlock, Source};
use std::process::Command;
use std::time::{Duration, Instant};

/// Runs a test in a namespace with the pair `tx0`–`rx0`. Without the rights it is skipped with a message.
fn within(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        // SAFETY: moves only this thread to a new network namespace, which ends with it.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            eprintln!("skipped: no network namespace can be made here (needs root)");
            return;
        }
        sh("for c in all default; do echo 1 > /proc/sys/net/ipv6/conf/$c/disable_ipv6; done; \
            ip link add tx0 type veth peer name rx0; ip link set tx0 up; ip link set rx0 up");
        test();
    });
    thread.join().unwrap();
}

fn sh(script: &str) {
    assert!(Command::new("sh").args(["-ec", script]).status().unwrap().success(), "{script}");
}

fn said(script: &str) -> String {
    let out = Command::new("sh").args(["-ec", script]).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Returns a frame of `size` bytes, with the number `n`, behind `tags` VLAN tags.
fn frame(n: u32, size: usize, tags: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    (0..tags).for_each(|tag| frame.extend([0x81, 0, 0, 7 + tag as u8]));
    frame.extend([0x88, 0xb5]);
    frame.extend(n.to_be_bytes());
    frame.resize(size, n as u8);
    frame
}

/// Sends frames, a few at a time, as the queue of a virtual interface holds 256.
fn send(sender: &Sender, frames: &[Vec<u8>]) {
    for batch in frames.chunks(Sender::MOST) {
        let mut left = batch;
        while !left.is_empty() {
            match sender.send(left.iter().map(Vec::as_slice)) {
                Ok(sent) => left = &left[sent..],
                Err(Unsent::NoRoom | Unsent::QueueFull | Unsent::Dropped) => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(e) => panic!("{e:?}"),
            }
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

fn rx0() -> Interface {
    Interface::find("rx0").unwrap()
}

fn open(capture: Capture, options: &LiveOptions) -> Opened {
    live::open_by(capture, &rx0(), options, 1).unwrap()
}

fn mode(opened: &Opened) -> XdpMode {
    match opened.way {
        Way::Xdp(manner) => manner.mode,
        Way::Packet => panic!("{:?}", opened.reason),
    }
}

#[derive(Debug, Default, PartialEq)]
struct Seen {
    packets: Vec<(Vec<u8>, u32)>,
    times: Vec<u64>,
}

impl Seen {
    /// Takes all packets up to the end or `most`. Every packet comes within five seconds.
    fn take(&mut self, source: &mut dyn Source, most: usize) {
        let (mut block, start) = (RawBlock::default(), Instant::now());
        while self.packets.len() < most && start.elapsed() < Duration::from_secs(5) {
            match source.next(&mut block).unwrap() {
                Next::End => return,
                Next::Idle | Next::Quiet => continue,
                Next::Packets => {}
            }
            assert!(block.packets.len() <= flame_abi::MAX_BLOCK_PACKETS);
            for p in &block.packets {
                let bytes = &block.data[p.offset as usize..(p.offset + p.cap_len) as usize];
                self.packets.push((bytes.to_vec(), p.wire_len));
                self.times.push(p.ts_ns);
            }
        }
    }
}

fn seen(source: &mut dyn Source, most: usize) -> Seen {
    let mut seen = Seen::default();
    seen.take(source, most);
    seen
}

/// Names move and have others beside them. A right is for the interface that was found.
#[test]
fn what_was_found_is_opened_whatever_has_its_name_by_then() {
    within(|| {
        sh("ip link property add dev rx0 altname visitor0");
        let found = rx0();
        for name in ["visitor0", "rx0:1"] {
            assert_eq!(Interface::find(name).unwrap(), found, "{name}");
        }
        let sender = Sender::open("tx0").unwrap();
        sh(
            "ip link property del dev rx0 altname visitor0; ip link set rx0 down; ip link set rx0 name was0; \
            ip link set was0 up; ip link add rx0 type veth peer name other0; ip link set rx0 up; \
            ip link property add dev rx0 altname visitor0",
        );
        assert_ne!(Interface::find("visitor0").unwrap(), found);
        let frames: Vec<_> = (0..20).map(|n| frame(n, 60, 0)).collect();
        for capture in [Capture::Packet, Capture::XdpGeneric, Capture::Auto] {
            let mut opened = live::open_by(capture, &found, &LiveOptions::default(), 1).unwrap();
            send(&sender, &frames);
            assert_eq!(
                seen(&mut *opened.sources[0], frames.len()).packets.len(),
                frames.len(),
                "{capture:?}"
            );
        }
    });
}

#[test]
fn both_ways_show_the_same_packets_of_all_sizes() {
    within(|| {
        let sizes = [60, 61, 64, 128, 590, 1513, 1514];
        let sized = |n: u32| {
            let tags = n as usize % 3;
            // The interface sends frames that are too long by one tag.
            frame(n, (sizes[n as usize % 7] + 4 * tags).min(1518), tags)
        };
        let frames: Vec<_> = (0..700).map(sized).collect();
        for (capture, expected) in [(Capture::Xdp, XdpMode::Native), (Capture::XdpGeneric, XdpMode::Generic)]
        {
            for snaplen in [65_536, 100] {
                let options = LiveOptions { snaplen, ..LiveOptions::default() };
                let mut oracle = live::open("tx0", &options).unwrap();
                let mut opened = open(capture, &options);
                assert_eq!(mode(&opened), expected);
                let before = std::time::SystemTime::now();
                send(&Sender::open("tx0").unwrap(), &frames);
                let ours = seen(&mut *opened.sources[0], frames.len());
                let theirs = seen(&mut oracle, frames.len());
                assert_eq!(ours.packets.len(), frames.len());
                assert!(ours.packets == theirs.packets, "{expected:?}, snaplen {snaplen}");
                // The kernel states the time of each packet: of both, a moment apart.
                let since = before.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
                assert!(ours.times.is_sorted() && ours.times[0] >= since);
                let apart = ours.times.iter().zip(&theirs.times).map(|(a, b)| a.abs_diff(*b));
                let near = apart.filter(|apart| *apart < 1_000_000).count();
                assert!(near > frames.len() / 2, "{near} of {} times are near", frames.len());
                let progress = opened.sources[0].progress();
                assert_eq!(progress.kernel_drops, Some(0));
                let captured: usize = ours.packets.iter().map(|(bytes, _)| bytes.len()).sum();
                assert_eq!(progress.bytes, captured as u64);
            }
        }
    });
}

#[test]
fn a_hundred_thousand_packets_are_counted_by_both() {
    within(|| {
        let total = 100_000;
        let options = LiveOptions::default();
        let mut oracle = live::open("tx0", &options).unwrap();
        let mut opened = open(Capture::Xdp, &options);
        let sending = {
            let sender = Sender::open("tx0").unwrap();
            std::thread::spawn(move || {
                let frames: Vec<_> = (0..1000).map(|n| frame(n, 100, 0)).collect();
                (0..total / 1000).for_each(|_| send(&sender, &frames));
            })
        };
        let watching = std::thread::spawn(move || {
            let mut seen = Seen::default();
            (0..20).for_each(|_| seen.take(&mut oracle, total));
            seen.packets.len()
        });
        let mut ours = Seen::default();
        (0..20).for_each(|_| ours.take(&mut *opened.sources[0], total));
        sending.join().unwrap();
        // The queue of the virtual interface is before both the program and its sockets.
        let lost: usize = said("cat /proc/net/dev | grep tx0 | awk '{print $13}'").trim().parse().unwrap();
        let drops = opened.sources[0].progress().kernel_drops.unwrap() as usize;
        assert_eq!(watching.join().unwrap(), total);
        assert_eq!(ours.packets.len() + drops + lost, total, "{lost} lost, {drops} dropped");
        assert!(ours.packets.len() > total / 2, "{}", ours.packets.len());
    });
}

#[test]
fn packets_that_nobody_takes_are_drops() {
    within(|| {
        let mut opened = open(Capture::XdpGeneric, &LiveOptions::default());
        let sender = Sender::open("tx0").unwrap();
        let frames: Vec<_> = (0..1000).map(|n| frame(n, 60, 0)).collect();
        // More than there are frames.
        let sent = 40_000;
        (0..40).for_each(|_| send(&sender, &frames));
        let drops = opened.sources[0].progress().kernel_drops.unwrap() as usize;
        assert!(drops > 0, "none of {sent}");
        assert_eq!(seen(&mut *opened.sources[0], sent - drops).packets.len() + drops, sent);
        // The frames are free again.
        send(&sender, &frames);
        assert_eq!(seen(&mut *opened.sources[0], 1000).packets.len(), 1000);
        assert_eq!(opened.sources[0].progress().kernel_drops.unwrap() as usize, drops);
    });
}

#[test]
fn packets_that_arrived_before_the_end_are_returned_and_the_program_is_gone() {
    within(|| {
        let mut opened = open(Capture::Xdp, &LiveOptions::default());
        assert!(said("ip link show rx0").contains("xdp"), "{}", said("ip link show rx0"));
        assert!(opened.sources[0].take_notice().unwrap().text().contains("AF_XDP (native, copy"));
        let frames: Vec<_> = (0..100).map(|n| frame(n, 60, 0)).collect();
        send(&Sender::open("tx0").unwrap(), &frames);
        assert!(opened.sources[0].discipline() == Discipline::Link && opened.sources[0].is_ready());
        assert!(opened.sources[0].close());
        assert!(!said("ip link show rx0").contains("xdp"));
        assert_eq!(seen(&mut *opened.sources[0], usize::MAX).packets.len(), 100);
        assert_eq!(opened.sources[0].next(&mut RawBlock::default()).unwrap(), Next::End);
        // Others receive the packets again, and it can be opened again.
        let mut packet = open(Capture::Packet, &LiveOptions::default());
        send(&Sender::open("tx0").unwrap(), &frames);
        assert_eq!(seen(&mut *packet.sources[0], 100).packets.len(), 100);
        drop((packet, opened));
        let start = Instant::now();
        while let Err(e) = live::open_by(Capture::Xdp, &rx0(), &LiveOptions::default(), 1) {
            assert!(start.elapsed() < Duration::from_secs(5), "{e}");
        }
    });
}

#[test]
fn an_interface_that_goes_down_is_waited_for_and_one_that_is_removed_ends_the_capture() {
    within(|| {
        let mut opened = open(Capture::Xdp, &LiveOptions::default());
        let source = &mut *opened.sources[0];
        let frames: Vec<_> = (0..50).map(|n| frame(n, 60, 0)).collect();
        assert!(source.take_notice().is_some());
        let mut block = RawBlock::default();
        let mut until = |source: &mut dyn Source, text: &str| {
            let start = Instant::now();
            loop {
                assert_eq!(source.next(&mut block).unwrap(), Next::Idle);
                match source.take_notice() {
                    Some(notice) => return assert!(notice.text().contains(text), "{notice:?}"),
                    None => assert!(start.elapsed() < Duration::from_secs(5), "{text}"),
                }
            }
        };
        sh("ip link set rx0 down");
        until(source, "rx0 went down");
        sh("ip link set rx0 up");
        until(source, "rx0 is up again");
        std::thread::sleep(Duration::from_millis(100));
        send(&Sender::open("tx0").unwrap(), &frames);
        assert_eq!(seen(source, 50).packets.len(), 50);
        sh("ip link del rx0");
        let start = Instant::now();
        let error = loop {
            match source.next(&mut block) {
                Ok(_) => assert!(start.elapsed() < Duration::from_secs(5)),
                Err(e) => break e.to_string(),
            }
        };
        assert!(error.contains("the interface was removed"), "{error}");
    });
}

#[test]
fn what_does_not_fit_is_refused_with_its_reason_and_auto_copies() {
    within(|| {
        let options = LiveOptions::default();
        let refused = |interface: &str, options: &LiveOptions| {
            live::open_by(Capture::Xdp, &Interface::find(interface).unwrap(), options, 1)
                .err()
                .unwrap()
                .to_string()
        };
        assert!(refused("any", &options).contains("one interface"));
        let hardware = LiveOptions { hardware_timestamps: true, ..options };
        assert!(refused("rx0", &hardware).contains("--hardware-timestamps"));
        sh("ip link set rx0 mtu 9000; ip link set tx0 mtu 9000");
        let error = refused("rx0", &options);
        assert!(error.contains("9000") && error.contains("3810"), "{error}");
        sh("ip link set rx0 mtu 1500; ip link set tx0 mtu 1500");
        // The program is another's already.
        let first = open(Capture::Xdp, &options);
        let error = refused("rx0", &options);
        assert!(error.contains("another XDP program"), "{error}");
        drop(first);
        sh("ip address add 10.0.0.1/24 dev rx0");
        let copied = open(Capture::Auto, &options);
        assert_eq!(copied.way, Way::Packet);
        assert!(copied.reason.unwrap().contains("has an address"));
        sh("ip link set lo up; ip address flush dev rx0");
        assert!(!said("ip link show").contains("xdp"));
    });
}
