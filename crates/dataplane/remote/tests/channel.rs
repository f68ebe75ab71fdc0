//! Tests of a connection whose other end is slow, and of bodies in shared memory.

use flame_remote::{BodyReader, BodyWriter, ChannelError, MAX_HEAD, Receiver, Sender, Stall};
use std::borrow::Cow;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

const FRAMES: u32 = 8;

/// Sends more than the socket holds, where the other end reads nothing for `pause` and the sender has
/// `limit`, without the time of `stall`.
fn send(pause: Duration, limit: Duration, stall: Arc<Stall>) -> bool {
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
    let mut sender = Sender::with_limit(OwnedFd::from(ours), limit, stall);
    let body = vec![0; 1 << 20];
    let sent = (0..FRAMES).try_for_each(|number| sender.send(&number, &body)).is_ok();
    drop(sender);
    reader.join().unwrap();
    sent
}

#[test]
fn a_sender_waits_for_its_limit_whatever_the_timeout_of_its_socket() {
    let (pause, limit) = (Duration::from_millis(500), Duration::from_millis(100));
    assert!(send(pause, Duration::from_secs(60), Stall::none()));
    assert!(!send(pause, limit, Stall::none()));
    let (recorder, stall) = Stall::create(Duration::ZERO);
    let _stalled = recorder.begin();
    assert!(send(pause, limit, stall), "of which nobody had any use");
}

/// Returns a sender and a receiver with shared memory for bodies.
fn with_bodies() -> (Sender, Receiver) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (reader, [file, read]) = BodyReader::create().unwrap();
    let (mut sender, mut receiver) = (Sender::new(ours.into()), Receiver::new(theirs.into()));
    sender.place_bodies(BodyWriter::open(file, read).unwrap());
    receiver.take_bodies(reader);
    (sender, receiver)
}

/// Returns the bytes of the body of a frame: of any length, most of which are long.
fn body(number: u32) -> Vec<u8> {
    let mut state = u64::from(number) * 0x9e37_79b9_7f4a_7c15 + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let length = match next() % 8 {
        0 => 0,
        1 => next() % 100,
        // At most the memory, and sometimes more than it has.
        2 => next() % (5 << 20),
        3 => 2 << 20,
        _ => next() % (200 << 10),
    };
    let first = next();
    (0..length).map(|at| (first + at * 7) as u8).collect()
}

/// Whichever way bodies pass, they arrive whole and in order: while the reader is slow, and while it is fast.
#[test]
fn bodies_in_shared_memory_arrive_whole_and_in_order() {
    let (mut sender, mut receiver) = with_bodies();
    const COUNT: u32 = 2000;
    let writer = std::thread::spawn(move || {
        for number in 0..COUNT {
            sender.send(&number, &body(number)).unwrap();
            if number % 50 == 0 {
                sender.flush().unwrap();
            }
        }
        sender.flush().unwrap();
    });
    let (mut expected, mut placed) = (0, 0);
    while expected < COUNT {
        if expected % 300 < 10 {
            std::thread::sleep(Duration::from_millis(2));
        }
        receiver.receive(true).unwrap();
        while let Some((number, found)) = receiver.next::<u32>(MAX_HEAD).unwrap() {
            assert!(number == expected && *found == body(number), "frame {number}, {expected} expected");
            placed += u32::from(matches!(found, Cow::Owned(_)));
            expected += 1;
        }
    }
    writer.join().unwrap();
    assert!(placed > COUNT / 4, "{placed} of {COUNT} in shared memory");
}

/// A body that waits in shared memory is not overwritten, however many follow it.
#[test]
fn a_body_stays_until_it_is_read() {
    let (mut sender, mut receiver) = with_bodies();
    let bodies: Vec<Vec<u8>> = (0..40).map(|n| vec![n; (64 << 10) + usize::from(n) * 100]).collect();
    let (first, rest) = bodies.split_at(16);
    first.iter().for_each(|body| sender.send(&0_u32, body).unwrap());
    sender.flush().unwrap();
    let rest = rest.to_vec();
    // What does not fit waits in the socket, so it needs a thread.
    let writer = std::thread::spawn(move || {
        rest.iter().for_each(|body| sender.send(&0_u32, body).unwrap());
        sender.flush().unwrap();
    });
    std::thread::sleep(Duration::from_millis(50));
    let mut found = Vec::new();
    while found.len() < bodies.len() {
        receiver.receive(true).unwrap();
        while let Some((_, body)) = receiver.next::<u32>(MAX_HEAD).unwrap() {
            found.push(body.into_owned());
        }
    }
    writer.join().unwrap();
    assert!(found == bodies);
}

/// Returns a frame that a hostile writer makes up: its body lies at `place`.
fn frame(place: u32, bytes: u32) -> Vec<u8> {
    let head = 1_u32 | 1 << 31;
    let mut frame = [head.to_le_bytes(), bytes.to_le_bytes()].concat();
    frame.push(0);
    frame.extend(place.to_le_bytes());
    frame
}

/// A runner may write any frame, and states any place.
#[test]
fn a_body_outside_the_shared_memory_is_an_error() {
    const END: u32 = 2 << 20;
    for (place, bytes) in
        [(END, 1), (END - 1, 2), (u32::MAX, 1), (0, END + 1), (1, END), (u32::MAX, 32 << 20)]
    {
        let (mut socket, theirs) = UnixStream::pair().unwrap();
        let mut receiver = Receiver::new(OwnedFd::from(theirs));
        let (bodies, _) = BodyReader::create().unwrap();
        receiver.take_bodies(bodies);
        socket.write_all(&frame(place, bytes)).unwrap();
        receiver.receive(true).unwrap();
        let error = receiver.next::<u32>(MAX_HEAD).unwrap_err().to_string();
        assert!(error.contains(&format!("{bytes} bytes at {place}")), "{error}");
    }
    // Without shared memory, and the most that lies in it.
    let (mut socket, theirs) = UnixStream::pair().unwrap();
    let mut receiver = Receiver::new(OwnedFd::from(theirs));
    socket.write_all(&[frame(0, END), frame(0, END)].concat()).unwrap();
    receiver.receive(true).unwrap();
    assert!(receiver.next::<u32>(MAX_HEAD).is_err());
    let (bodies, _) = BodyReader::create().unwrap();
    receiver.take_bodies(bodies);
    let (_, body) = receiver.next::<u32>(MAX_HEAD).unwrap().unwrap();
    assert_eq!(body.len(), END as usize);
}

/// A writer that never listens does not keep the reader. Its places are used up.
#[test]
fn a_reader_waits_for_no_writer_that_does_not_listen() {
    let (mut socket, theirs) = UnixStream::pair().unwrap();
    let mut receiver = Receiver::new(OwnedFd::from(theirs));
    let (bodies, _kept) = BodyReader::create().unwrap();
    receiver.take_bodies(bodies);
    let mut taken = 0;
    let error = loop {
        socket.write_all(&frame((taken % 128) << 14, 1 << 14)).unwrap();
        receiver.receive(true).unwrap();
        match receiver.next::<u32>(MAX_HEAD) {
            Ok(_) => taken += 1,
            Err(e) => break e,
        }
        assert!(taken < 10_000);
    };
    assert!(matches!(error, ChannelError::Place { .. }) && taken > 128, "{error}, after {taken}");
}

/// Frames that come at once refer to each byte of the memory once: few bytes stand for little work.
#[test]
fn a_place_is_used_once_until_the_writer_is_told() {
    let taken = |frames: &[Vec<u8>]| {
        let (mut socket, theirs) = UnixStream::pair().unwrap();
        let mut receiver = Receiver::new(OwnedFd::from(theirs));
        let (bodies, _kept) = BodyReader::create().unwrap();
        receiver.take_bodies(bodies);
        socket.write_all(&frames.concat()).unwrap();
        receiver.receive(true).unwrap();
        let mut taken = 0;
        loop {
            match receiver.next::<u32>(MAX_HEAD) {
                Ok(Some(_)) => taken += 1,
                Ok(None) => break (taken, None),
                Err(e) => break (taken, Some(e)),
            }
        }
    };
    const LONG: u32 = 16 << 10;
    let disjoint: Vec<_> = (0..128).map(|n| frame(n * LONG, LONG)).collect();
    assert!(matches!(taken(&disjoint), (128, None)));
    for second in [frame(0, 2 << 20), frame(LONG - 1, LONG), frame(5, LONG), frame(3 * LONG, LONG - 1)] {
        let (count, error) = taken(&[frame(0, LONG), second]);
        assert!(count == 1 && matches!(error, Some(ChannelError::Place { .. })), "{count} {error:?}");
    }
}
