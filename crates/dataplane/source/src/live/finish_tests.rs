use super::*;
use proptest::prelude::*;

/// Returns a frame with `payload` bytes and wrong checksums.
fn frame(is_v4: bool, is_tcp: bool, tags: usize, payload: usize) -> Vec<u8> {
    let mut f = vec![2; 12];
    (0..tags).for_each(|i| f.extend([0x81, 0, 0, i as u8]));
    let transport = if is_tcp { 24 } else { 8 };
    let protocol = if is_tcp { 6 } else { 17 };
    if is_v4 {
        let total = 24 + transport + payload;
        f.extend([8, 0, 0x46, 0, (total >> 8) as u8, total as u8, 0xff, 0xff, 0x40, 0, 64, protocol, 0, 0]);
        f.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0]);
    } else {
        let total = transport + payload;
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0, (total >> 8) as u8, total as u8, protocol, 64]);
        f.extend([0xfd; 32]);
    }
    match is_tcp {
        // Flags CWR, ACK, PSH and FIN.
        true => f.extend([
            0, 80, 1, 2, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9, 0x60, 0x99, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1,
        ]),
        false => f.extend([0, 80, 1, 2, 0, 0, 0, 0]),
    }
    f.extend((0..payload).map(|i| i as u8));
    f
}

fn all(work: Unfinished, frame: &[u8]) -> Result<Vec<Vec<u8>>, Unfinishable> {
    let mut frames = Vec::new();
    work.finish(frame, &mut Vec::new(), &mut |front, rest| frames.push([front, rest].concat()))?;
    Ok(frames)
}

/// Checks lengths and checksums of a frame from its own bytes, and returns its TCP or UDP header onward.
fn checked(frame: &[u8], is_v4: bool, tags: usize) -> &[u8] {
    let ip = &frame[14 + tags * 4..];
    let half = |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
    let (header, protocol, addresses) =
        if is_v4 { (24, ip[9], &ip[12..20]) } else { (40, ip[6], &ip[8..40]) };
    assert_eq!(if is_v4 { half(2) } else { half(4) + 40 }, ip.len());
    assert!(!is_v4 || folded(add(0, &ip[..24])) == 0);
    let rest = &ip[header..];
    let sum = add(u64::from(protocol) + rest.len() as u64, addresses);
    assert_eq!(folded(add(sum, rest)), 0);
    assert!(protocol != 17 || half(header + 4) == rest.len());
    rest
}

#[test]
fn a_missing_checksum_is_computed() {
    for (is_v4, is_tcp, payload) in [(true, true, 7), (true, false, 0), (false, true, 10), (false, false, 33)]
    {
        let mut f = frame(is_v4, is_tcp, 1, payload);
        let start = if is_v4 { 42 } else { 58 };
        let offset = if is_tcp { 16 } else { 6 };
        if is_v4 {
            let value = folded(add(0, &f[18..42]));
            put(&mut f, 28, value);
        }
        if !is_tcp {
            put(&mut f, start + 4, 8 + payload as u16);
        }
        // The kernel leaves the sum of the addresses in the field.
        let network = Network { at: 18, is_v4 };
        let length = f.len() - start;
        let sum = network.sum(&f, if is_tcp { 6 } else { 17 }, length);
        put(&mut f, start + offset, !folded(sum));
        let work = Unfinished { needs_checksum: true, start, offset, ..Unfinished::default() };
        let frames = all(work, &f).unwrap();
        assert_eq!(frames.len(), 1);
        checked(&frames[0], is_v4, 1);
        assert_eq!(all(work, &f[..start + offset + 1]), Err(Unfinishable::CutOff));
    }
}

#[test]
fn a_frame_of_very_many_segments_is_refused() {
    let f = frame(true, true, 0, 60_000);
    let work = |size| Unfinished { segments: TCP4, size, ..Unfinished::default() };
    assert_eq!(all(work(59), &f).unwrap().len(), 1017);
    assert_eq!(all(work(58), &f), Err(Unfinishable::TooMany));
    assert_eq!(all(work(1), &f), Err(Unfinishable::TooMany));
}

#[test]
fn joined_segments_are_cut_at_their_size() {
    for (is_v4, is_tcp) in [(true, true), (true, false), (false, true), (false, false)] {
        for tags in 0..3 {
            let f = frame(is_v4, is_tcp, tags, 3001);
            let segments = if !is_tcp {
                UDP
            } else if is_v4 {
                TCP4
            } else {
                TCP6
            };
            let start = 14 + tags * 4 + if is_v4 { 24 } else { 40 };
            let work = Unfinished { needs_checksum: true, segments, size: 1000, start, offset: 16 };
            let frames = all(work, &f).unwrap();
            assert_eq!(frames.len(), 4);
            let mut payload = Vec::new();
            for (i, frame) in frames.iter().enumerate() {
                let rest = checked(frame, is_v4, tags);
                if is_v4 {
                    let id = 14 + tags * 4 + 4;
                    let id = u16::from_be_bytes([frame[id], frame[id + 1]]);
                    assert_eq!(id, 0xffff_u16.wrapping_add(i as u16));
                }
                if is_tcp {
                    let number = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
                    assert_eq!(number, 0xffff_fff0_u32.wrapping_add(i as u32 * 1000));
                    let flags = 0x10 | if i == 0 { 0x80 } else { 0 } | if i == 3 { 9 } else { 0 };
                    assert_eq!(rest[13], flags);
                }
                payload.extend_from_slice(&rest[if is_tcp { 24 } else { 8 }..]);
            }
            assert_eq!(payload, f[f.len() - 3001..]);
            // Inside a tunnel, the inner segments would be cut.
            let inner = Unfinished { start: start + 28, ..work };
            assert_eq!(all(inner, &f), Err(Unfinishable::Unknown));
        }
    }
}

#[test]
fn a_statement_is_read_by_its_offsets() {
    let mut statement = [0; STATEMENT];
    (statement[0], statement[1]) = (NEEDS_CHECKSUM | 2, TCP4 | ECN);
    for (at, value) in [(2, 66_u16), (4, 1448), (6, 34), (8, 16)] {
        statement[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
    let read = Unfinished::read(statement);
    let expected = Unfinished { needs_checksum: true, segments: TCP4, size: 1448, start: 34, offset: 16 };
    assert_eq!((read, read.is_nothing()), (expected, false));
    assert!(Unfinished::read([0; STATEMENT]).is_nothing());
    assert_eq!(all(Unfinished::default(), b"whole").unwrap(), [b"whole"]);
}

proptest! {
    /// Neither bytes nor statements make it panic, and no byte of payload is lost.
    #[test]
    fn any_frame_is_finished_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        shape in (any::<bool>(), any::<bool>(), 0..3_usize, 0..300_usize, 0..400_usize),
        is_shaped in any::<bool>(),
        statement in any::<[u8; STATEMENT]>(),
        kind in prop::sample::select(vec![0, TCP4, TCP6, UDP]),
        size in 0..100_u16,
    ) {
        let (is_v4, is_tcp, tags, payload, cut) = shape;
        let shaped = frame(is_v4, is_tcp, tags, payload);
        let f = if is_shaped { &shaped[..shaped.len().min(cut)] } else { &bytes };
        let mut work = Unfinished::read(statement);
        let _ = all(work, f);
        (work.segments, work.size, work.needs_checksum) = (kind, usize::from(size), false);
        if let Ok(frames) = all(work, f) {
            let total: usize = frames.iter().map(Vec::len).sum();
            prop_assert!(total >= f.len());
        }
    }
}
