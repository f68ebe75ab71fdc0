//! Tests of a connection whose other end is slow.

use flame_remote::{MAX_HEAD, Receiver, Sender};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const FRAMES: u32 = 8;

/// Sends more than the socket holds, where the other end reads nothing for `pause` and the sender has
/// `limit`.
fn send(pause: Duration, limit: Duration) -> bool {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    let reader = std::thread::spawn(move || {
        std::thread::sleep(pause);
        let (mut receiver, mut frames) = (Receiver::new(OwnedFd::from(theirs)), 0);
        while frames < FRAMES && receiver.receive(true).is_ok() {
            while let Some((number, body)) = receiver.next::<u32>(MAX_HEAD).unwrap() {
                assert_eq!((number, body.len()), (frames, 1 << 20));
                frames += 1;
            }
        }
    });
    let mut sender = Sender::with_limit(OwnedFd::from(ours), limit);
    let body = vec![0; 1 << 20];
    let sent = (0..FRAMES).try_for_each(|number| sender.send(&number, &body)).is_ok();
    drop(sender);
    reader.join().unwrap();
    sent
}

#[test]
fn a_sender_waits_for_its_limit_whatever_the_timeout_of_its_socket() {
    assert!(send(Duration::from_millis(200), Duration::from_secs(60)));
    assert!(!send(Duration::from_millis(500), Duration::from_millis(100)));
}
