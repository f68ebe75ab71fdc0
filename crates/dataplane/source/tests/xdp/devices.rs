//! Tests of receivers and senders by AF_XDP.

use crate::{frame, said, send, sh, within};
use flame_source::live::{
    DeviceOptions, FrameIn, Receive, Receiver, Sender, Unsent, XdpReceiver, XdpSender, interfaces,
};
use std::time::{Duration, Instant};

const OPTIONS: DeviceOptions =
    DeviceOptions { is_promiscuous: false, is_outgoing: false, is_sniffer: true, blocks: 128 };

/// Takes `count` frames, each with its type.
fn take(receiver: &mut dyn Receive, count: usize) -> Vec<(Vec<u8>, u8)> {
    let (mut all, start) = (Vec::new(), Instant::now());
    while all.len() < count && start.elapsed() < Duration::from_secs(10) {
        let before = all.len();
        let taken = receiver.take(50.min(count - before), &mut |frame: FrameIn<'_>| {
            assert!(frame.work.is_nothing() && frame.wire_len as usize == frame.bytes.len());
            all.push((frame.bytes.to_vec(), frame.kind));
            1
        });
        assert_eq!(taken, all.len() - before);
        assert!(taken <= 50);
        if !receiver.is_ready() {
            assert_eq!(receiver.look().unwrap(), None);
        }
    }
    all
}

/// Sends all frames. Returns how often there was no room.
fn send_all(sender: &XdpSender, frames: &[Vec<u8>]) -> usize {
    let (mut left, mut waits) = (frames, 0);
    while !left.is_empty() {
        match sender.send(&mut left.iter().take(64).map(Vec::as_slice)) {
            Ok(sent) => left = &left[sent..],
            Err(Unsent::QueueFull | Unsent::Dropped) => {
                waits += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(e) => panic!("{e:?}"),
        }
    }
    waits
}

#[test]
fn frames_are_those_of_a_ring_with_the_same_types() {
    within(|| {
        let address = said("ip link show rx0 | sed -n 's/.*ether \\([^ ]*\\).*/\\1/p'");
        let own: Vec<u8> = address.trim().split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
        let frames: Vec<_> = (0..500)
            .map(|n| {
                let mut frame = frame(n, 60 + n as usize * 2, n as usize % 3);
                match n % 5 {
                    0 => frame[..6].fill(0xff),
                    1 => frame[0] |= 1,
                    2 | 3 => frame[..6].copy_from_slice(&own),
                    _ => {}
                }
                frame
            })
            .collect();
        let mut seen = Vec::new();
        for is_xdp in [false, true] {
            let mut receiver: Box<dyn Receive> = match is_xdp {
                true => Box::new(XdpReceiver::open("rx0", &OPTIONS).unwrap()),
                false => Box::new(Receiver::open("rx0", &OPTIONS).unwrap()),
            };
            send(&Sender::open("tx0").unwrap(), &frames);
            seen.push(take(&mut *receiver, frames.len()));
            assert_eq!(receiver.drops(), 0);
        }
        assert!(seen[0] == seen[1]);
        assert!(seen[1].iter().map(|(frame, _)| frame).eq(&frames));
        // The address of the interface is another.
        let mut receiver = XdpReceiver::open("rx0", &OPTIONS).unwrap();
        sh("ip link set rx0 address 2:0:0:0:0:2");
        std::thread::sleep(Duration::from_millis(250));
        send(&Sender::open("tx0").unwrap(), &[frame(0, 60, 0)]);
        assert_eq!(take(&mut receiver, 1)[0].1, 0);
    });
}

#[test]
fn one_interface_receives_and_sends_all_frames_in_order() {
    within(|| {
        // More than there are frames in the memory, several times.
        let frames: Vec<_> = (0..20_000).map(|n| frame(n, 60 + n as usize % 1400, 0)).collect();
        // In either order of their opening.
        for is_sender_first in [false, true] {
            let open = || XdpSender::open("rx0").unwrap();
            let first = is_sender_first.then(open);
            let mut receiver = XdpReceiver::open("rx0", &OPTIONS).unwrap();
            let sender = first.unwrap_or_else(open);
            assert_eq!(sender.way(), "AF_XDP (copy, queue 0)");
            let mut far = Receiver::open("tx0", &DeviceOptions { blocks: 1024, ..OPTIONS }).unwrap();
            let (mut there, mut back, mut waits) = (Vec::new(), Vec::new(), 0);
            for part in frames.chunks(500) {
                send(&Sender::open("tx0").unwrap(), part);
                waits += send_all(&sender, part);
                there.extend(take(&mut receiver, part.len()).into_iter().map(|(frame, _)| frame));
                back.extend(take(&mut far, part.len()).into_iter().map(|(frame, _)| frame));
            }
            assert!(there == frames && back == frames, "{waits} waits");
            assert_eq!((receiver.drops(), far.drops()), (0, 0));
            // The sender continues without the receiver, and with another one.
            drop(receiver);
            // The kernel takes the program away a moment later.
            let has_program = || said("ip link show rx0").contains("xdp");
            let begun = std::time::Instant::now();
            while has_program() && begun.elapsed() < std::time::Duration::from_secs(10) {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert!(!has_program());
            send_all(&sender, &frames[..10]);
            assert_eq!(take(&mut far, 10).len(), 10);
            let mut receiver = XdpReceiver::open("rx0", &OPTIONS).unwrap();
            send(&Sender::open("tx0").unwrap(), &frames[..10]);
            assert_eq!(take(&mut receiver, 10).len(), 10);
        }
    });
}

#[test]
fn a_frame_that_the_interface_drops_is_sent_again_in_order() {
    within(|| {
        let frames: Vec<_> = (0..300).map(|n| frame(n, 60, 0)).collect();
        let sender = XdpSender::open("tx0").unwrap();
        let mut receiver = Receiver::open("rx0", &OPTIONS).unwrap();
        let once = |most: usize| sender.send(&mut frames[..most].iter().map(Vec::as_slice));
        // The other end is down: there is no carrier.
        sh("ip link set rx0 down");
        for most in [1, 2, 64, 3, 1, 300, 1, 64] {
            assert_eq!(once(most), Err(Unsent::Dropped), "{most}");
            assert!(!sender.has_carrier());
        }
        assert!(receiver.look().unwrap().unwrap().contains("rx0 is down"));
        sh("ip link set rx0 up");
        assert!(receiver.look().unwrap().unwrap().contains("rx0 is up again"));
        // The kernel may know places of frames that are not given again.
        send_all(&sender, &frames[..2]);
        send_all(&sender, &frames[2..]);
        let seen: Vec<_> = take(&mut receiver, 300).into_iter().map(|(frame, _)| frame).collect();
        assert!(seen == frames);
        // The interface itself is down, and has gone.
        sh("ip link set tx0 down");
        for most in [1, 64, 2] {
            assert_eq!(once(most), Err(Unsent::Down));
            assert!(!sender.is_gone());
        }
        sh("ip link set tx0 up");
        let start = Instant::now();
        while once(1) != Ok(1) {
            assert!(start.elapsed() < Duration::from_secs(5));
        }
        assert_eq!(take(&mut receiver, 1), [(frames[0].clone(), 3)]);
        sh("ip link set tx0 mtu 500");
        std::thread::sleep(Duration::from_millis(150));
        let long = [frame(0, 514, 0), frame(1, 518, 1), frame(2, 515, 0)];
        assert_eq!(sender.send(&mut long.iter().map(Vec::as_slice)), Ok(2));
        assert_eq!(sender.send(&mut long[2..].iter().map(Vec::as_slice)), Err(Unsent::TooLong));
        sh("ip link del tx0");
        assert_eq!(once(1), Err(Unsent::Down));
        assert!(sender.is_gone() && !interfaces().contains(&"tx0".to_owned()));
    });
}
