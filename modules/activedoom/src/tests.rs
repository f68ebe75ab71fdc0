use super::*;
use crate::datagram::sum;
use flame_module::testing::{self, Parameters, SentPacket, Traffic};

fn doom(hold: i64) -> ActiveDoom {
    let parameters = Parameters::of(Params::DEFAULTS).integer("hold", hold);
    ActiveDoom::new(&Init::new(&parameters.init()))
}

fn payload(updates: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![b'A', b'D', 1, updates.len() as u8];
    for (player, state) in updates {
        bytes.extend(player.to_be_bytes());
        bytes.push(state.len() as u8);
        bytes.extend(*state);
    }
    bytes
}

const SERVER: &str = "10.0.9.9:5029";

/// Adds the update of a player, who has the address of that number.
fn update(traffic: &mut Traffic, player: u16, state: &[u8], ts_ns: u64) {
    let from = format!("10.0.0.{player}:4000");
    traffic.udp(&from, SERVER).payload(&payload(&[(player, state)])).at(ts_ns);
}

/// Returns the payloads of new packets, whose lengths and checksums must be right.
fn made(sent: &[SentPacket]) -> Vec<Vec<u8>> {
    let each = sent.iter().filter(|packet| packet.index.is_none()).map(|packet| {
        let ip = &packet.bytes[14..];
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
        assert_eq!(usize::from(u16::from_be_bytes([ip[24], ip[25]])), ip.len() - 20);
        assert_eq!(sum(&ip[..20], 0), 0xffff);
        let pseudo = sum(&ip[12..20], 17 + (ip.len() - 20) as u32);
        assert_eq!(sum(&ip[20..], pseudo.into()), 0xffff);
        ip[28..].to_vec()
    });
    each.collect()
}

#[test]
fn the_newest_update_of_each_player_leaves_in_one_datagram() {
    let mut doom = doom(1000);
    let mut traffic = Traffic::default();
    update(&mut traffic, 1, b"old", 0);
    update(&mut traffic, 2, b"two", 10);
    update(&mut traffic, 1, b"newer", 20);
    traffic.udp("10.0.0.3:4000", "10.0.9.9:80").payload(b"AD\x01\x00").at(30);
    let sent = testing::push(&mut doom, 0, &traffic);
    assert_eq!(sent.iter().map(|p| p.index).collect::<Vec<_>>(), [Some(3)], "others pass");
    let mut clock = Traffic::default();
    clock.ip("0.0.0.1", "0.0.0.2", 0).at(999);
    assert_eq!(testing::push(&mut doom, 1, &clock), []);
    clock.ip("0.0.0.1", "0.0.0.2", 0).at(1000);
    let sent = testing::push(&mut doom, 1, &clock);
    assert_eq!(made(&sent), [payload(&[(2, b"two"), (1, b"newer")])]);
    assert_eq!((doom.counts.updates, doom.counts.replaced, doom.counts.sent), (3, 1, 1));
    assert_eq!((doom.counts.received, doom.counts.passed), (3, 1));
}

#[test]
fn a_full_datagram_leaves_before_its_time() {
    let mut doom = doom(10_000_000_000);
    let mut traffic = Traffic::default();
    for player in 0..30 {
        update(&mut traffic, player, &[player as u8; 97], u64::from(player));
    }
    let sent = testing::push(&mut doom, 0, &traffic);
    let made = made(&sent);
    // 4 + 13 × 100 bytes, and one more would be above 1400.
    assert_eq!(made.iter().map(Vec::len).collect::<Vec<_>>(), [1304, 1304]);
    assert_eq!(doom.waiting(0).map(|waiting| waiting.datagram.count()), Some(4));
    let players: Vec<u8> = made.iter().flat_map(|m| m[4..].chunks(100).map(|u| u[1])).collect();
    assert_eq!(players, (0..26).collect::<Vec<_>>(), "each once, in order");
}

#[test]
fn updates_for_two_servers_do_not_mix_and_a_seventeenth_passes() {
    let mut doom = doom(1000);
    let mut traffic = Traffic::default();
    for server in 0..17 {
        let to = format!("10.0.9.{server}:5029");
        traffic.udp("10.0.0.1:4000", &to).payload(&payload(&[(1, &[server])])).at(0);
    }
    let sent = testing::push(&mut doom, 0, &traffic);
    assert_eq!(sent.iter().map(|p| p.index).collect::<Vec<_>>(), [Some(16)]);
    let mut clock = Traffic::default();
    clock.ip("0.0.0.1", "0.0.0.2", 0).at(2000);
    let sent = testing::push(&mut doom, 1, &clock);
    let of: std::collections::BTreeSet<_> =
        sent.iter().map(|p| (p.bytes[33], *p.bytes.last().unwrap())).collect();
    assert_eq!(of, (0..16).map(|n| (n, n)).collect());
}

/// Any payload passes or is kept whole: what leaves is a datagram of updates, or came.
#[test]
fn damaged_updates_pass_as_they_came() {
    let whole = payload(&[(1, b"abc"), (2, b"")]);
    for end in 0..whole.len() {
        let mut doom = doom(0);
        let mut traffic = Traffic::default();
        traffic.udp("10.0.0.1:4000", SERVER).payload(&whole[..end]);
        let sent = testing::push(&mut doom, 0, &traffic);
        assert_eq!(sent.iter().map(|p| p.index).collect::<Vec<_>>(), [Some(0)], "{end}");
    }
    for (at, byte) in [(0, b'B'), (2, 2), (3, 0), (3, 1), (3, 3), (6, 4)] {
        let mut changed = whole.clone();
        changed[at] = byte;
        assert!(updates(&changed).is_none(), "{at}");
    }
    assert!(updates(&whole).is_some());
    // A part of a datagram is none.
    let mut doom = doom(0);
    let mut traffic = Traffic::default();
    traffic.udp("10.0.0.1:4000", SERVER).payload(&whole).captured(50);
    assert_eq!(testing::push(&mut doom, 0, &traffic).len(), 1);
}

/// Senders with another time to live do not share a datagram, and one with many updates passes.
#[test]
fn no_sender_decides_for_others() {
    let mut doom = doom(1000);
    let mut traffic = Traffic::default();
    update(&mut traffic, 1, b"one", 0);
    update(&mut traffic, 2, b"two", 0);
    traffic.last().bytes()[22] = 1;
    let many: Vec<_> = (0..65).map(|player| (player, &[][..])).collect();
    traffic.udp("10.0.0.3:4000", SERVER).payload(&payload(&many)).at(0);
    assert_eq!(testing::push(&mut doom, 0, &traffic).len(), 1);
    assert_eq!(doom.servers.iter().flatten().count(), 2);
}

/// Thirty updates a second of eight players for ten seconds.
#[test]
fn eight_players_cause_as_many_packets_as_one() {
    let mut doom = doom(33_000_000);
    let mut sent = 0;
    for round in 0..300_u64 {
        let mut traffic = Traffic::default();
        for player in 1..9 {
            update(
                &mut traffic,
                player,
                &[round as u8; 20],
                round * 33_333_333 + u64::from(player) * 1_000_000,
            );
        }
        sent += made(&testing::push(&mut doom, 0, &traffic)).len();
    }
    assert_eq!((doom.counts.updates, doom.counts.replaced), (2400, 0));
    assert!((299..=300).contains(&sent), "{sent}");
    assert!(doom.counts.sent_bytes * 2 < doom.counts.received_bytes, "fewer than half of the bytes");
}
