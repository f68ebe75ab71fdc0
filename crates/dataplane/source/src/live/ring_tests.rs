use super::*;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

const BLOCK: usize = 4096;
const FRAME: usize = 192;

/// Returns the bytes of a block of `count` packets, of which every third lacks its VLAN tag.
fn block(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    let mut put = |at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    put(block::STATUS, libc::TP_STATUS_USER);
    put(block::PACKETS, count as u32);
    put(block::FIRST, 48);
    for n in 0..count {
        let at = 48 + n * FRAME;
        put(at + packet::NEXT, if n + 1 < count { FRAME as u32 } else { 0 });
        put(at + packet::SEC, n as u32);
        put(at + packet::CAPTURED, 60);
        put(at + packet::LENGTH, 100);
        put(at + packet::MAC, 86);
        if n % 3 == 2 {
            put(at + packet::STATUS, libc::TP_STATUS_VLAN_VALID);
            put(at + packet::VLAN_TCI, n as u32);
        }
    }
    for n in 0..count {
        bytes[48 + n * FRAME + 86..][..60].fill(n as u8);
    }
    bytes
}

fn ring(blocks: usize, count: usize) -> Arc<Ring> {
    let file = tempfile::tempfile().unwrap();
    (0..blocks).for_each(|n| file.write_all_at(&block(count), (n * BLOCK) as u64).unwrap());
    Arc::new(Ring::new(Socket::of(file.into()), Form::Plain, BLOCK, blocks).unwrap())
}

/// Checks packet `n` of a block with restored tags.
fn check(n: usize, packet: &[u8], found: &Found) {
    let value = n as u8;
    let expected = match n % 3 {
        2 => [&[value; 12][..], &[0x81, 0, 0, value], &[value; 48]].concat(),
        _ => vec![value; 60],
    };
    assert_eq!(packet, expected);
    let tag = expected.len() as u32 - 60;
    assert_eq!((found.ts_ns, found.wire_len), (n as u64 * 1_000_000_000, 100 + tag));
}

/// However a block is divided, each packet comes once, complete, and what was lent does not change. The
/// kernel has the block back when the last part is dropped.
#[test]
fn parts_of_a_block_are_its_packets() {
    for (count, each) in [(20, 1), (20, 3), (20, 20), (20, 21), (1, 1), (0, 5)] {
        let ring = ring(2, count);
        let mut taken = Ring::take(&ring, 1);
        let (mut parts, mut next) = (Vec::new(), 0);
        while !taken.is_over() {
            let mut packets = Vec::new();
            let (data, offset) = taken.part(|_, found| {
                packets.push(found);
                packets.len() < each
            });
            assert!(packets.len() <= each && (BLOCK..2 * BLOCK).contains(&offset));
            parts.push((data, packets));
        }
        drop(taken);
        let all = parts.len();
        for (nth, (data, packets)) in parts.into_iter().enumerate() {
            assert!(ring.is_ready(1), "part {nth} of {all} is lent out");
            for found in packets {
                check(next, &data[found.offset as usize..][..found.cap_len as usize], &found);
                next += 1;
            }
        }
        assert_eq!((next, ring.is_ready(1), ring.is_ready(0)), (count, false, true), "{count} by {each}");
    }
}

#[test]
fn heads_that_lie_are_passed_over() {
    let ring = ring(1, 3);
    let file = ring.socket().as_fd().try_clone_to_owned().map(std::fs::File::from).unwrap();
    // More bytes than the frame has, and a next frame beyond the block.
    file.write_all_at(&1000_u32.to_ne_bytes(), (48 + packet::CAPTURED) as u64).unwrap();
    file.write_all_at(&(BLOCK as u32).to_ne_bytes(), (48 + FRAME) as u64).unwrap();
    let (mut taken, mut times) = (Ring::take(&ring, 0), Vec::new());
    taken.read(|_, found| {
        times.push(found.ts_ns / 1_000_000_000);
        true
    });
    assert!(taken.is_over());
    assert_eq!(times, [1]);
}
