//! Tests of graphs in line on interfaces by AF_XDP, as those of `devices.rs`. They need root, and report when
//! they are skipped.

use crate::devices::{self, CLIENT, CONTROL, ECHO, Graph, add_up, between, frames, net, towards, value};
use crate::network::{Net, flame, ipv4, wait_for};
use std::time::Duration;

/// Returns whether an interface has an XDP program.
fn has_program(net: &Net, device: &str) -> bool {
    net.said(&format!("ip link show {device}")).contains("xdp")
}

/// Returns `count` frames with numbers, of different lengths.
fn numbered(count: u16) -> Vec<Vec<u8>> {
    (0..count).map(|i| ipv4(&[], 17, (7, i), (9, 53), 60 + usize::from(i % 1400))).collect()
}

/// Frames are received by one interface and sent by another, 20,000 of them, in either order of the elements.
#[test]
fn frames_leave_as_they_came_by_af_xdp() {
    let tags: [&[u8]; 3] = [&[], &[0x81, 0, 0x20, 7], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5]];
    let sent: Vec<Vec<u8>> = (0..2000_u16)
        .map(|i| ipv4(tags[usize::from(i % 3)], 17, (7, i), (9, 53), 60 + usize::from(i % 1450)))
        .collect();
    for times in [1, 10] {
        let Some(net) = net() else { return };
        let text = format!(
            "{CONTROL} from :: FromDevice(rx0, PROMISC true, METHOD XDP, RING 512) -> q :: Queue(100000)
              -> to :: ToDevice(out0, METHOD XDP);
            far :: FromDevice(far0, PROMISC true, RING 1024) -> ToDump(far.pcap) -> c :: Counter -> Discard;"
        );
        let handlers = ["*.account", "from.count", "to.count", "from.kernel_drops", "far.kernel_drops"];
        let arguments: Vec<&str> = handlers.iter().flat_map(|h| ["-h", h]).collect();
        let mut graph = Graph::start(&net, &text, &arguments);
        let said = graph.said();
        assert!(said.contains("interface rx0 by AF_XDP (native, copy, 1 queue); the kernel does"), "{said}");
        assert!(said.contains("interface out0 by AF_XDP (copy, queue 0)"), "{said}");
        assert!(has_program(&net, "rx0") && !has_program(&net, "out0"));
        net.send(&sent, times);
        let count = (sent.len() * times).to_string();
        graph.wait("c.count", &count);
        let out = graph.end();
        add_up(&out);
        assert_eq!((value(&out, "from.count"), value(&out, "to.count")), (&*count, &*count));
        assert_eq!((value(&out, "from.kernel_drops"), value(&out, "far.kernel_drops")), ("0", "0"));
        let came = frames(&graph.path().join("far.pcap"));
        let wrong = came.iter().zip(sent.iter().cycle()).position(|(a, b)| a != b);
        assert_eq!((came.len(), wrong), (sent.len() * times, None));
        assert!(!has_program(&net, "rx0"));
    }
}

#[test]
fn a_sender_alone_and_a_receiver_alone_work_with_all_queues() {
    let Some(net) = net() else { return };
    net.shell("ip link del tx0");
    net.shell(
        "ip link add tx0 numtxqueues 3 numrxqueues 3 type veth peer name rx0 numrxqueues 3 numtxqueues 3
        ip link set tx0 up && ip link set rx0 up",
    );
    let sent = numbered(1000);
    let text = format!(
        "{CONTROL} FromDevice(rx0, METHOD XDP) -> c :: Counter -> Queue(2000) -> ToDevice(out0);
        FromDevice(far0, PROMISC true) -> ToDump(far.pcap) -> far :: Counter -> Discard;"
    );
    let mut graph = Graph::start(&net, &text, &["-h", "*.account"]);
    assert!(graph.said().contains("interface rx0 by AF_XDP (native, copy, 3 queues)"), "{}", graph.said());
    net.send(&sent, 1);
    graph.wait("far.count", "1000");
    add_up(&graph.end());
    // Each queue keeps the order, and a flow has one.
    let (mut came, mut all) = (frames(&graph.path().join("far.pcap")), sent.clone());
    came.sort();
    all.sort();
    assert!(came == all);
    let text = format!(
        "{CONTROL} FromDevice(rx0, PROMISC true) -> Queue(2000) -> ToDevice(out0, METHOD XDP);
        FromDevice(far0, PROMISC true) -> ToDump(far.pcap) -> far :: Counter -> Discard;"
    );
    let mut graph = Graph::start(&net, &text, &["-h", "*.account"]);
    net.send(&sent, 1);
    graph.wait("far.count", "1000");
    add_up(&graph.end());
    assert!(frames(&graph.path().join("far.pcap")) == sent);
}

/// Types are those that AF_PACKET states.
#[test]
fn types_filters_and_cuts_are_those_of_af_packet() {
    let Some(net) = net() else { return };
    let mut sent = Vec::new();
    let address = net.said("cat /sys/class/net/rx0/address");
    let own: Vec<u8> = address.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
    for i in 0..20 {
        let tag: &[u8] = if i < 4 { &[0x81, 0, 0, 7] } else { &[] };
        let mut frame = ipv4(tag, if i < 2 { 6 } else { 17 }, (1, i), (2, 53), 100);
        match i {
            8..11 => frame[..6].fill(0xff),
            11..15 => frame[0] = 1,
            15..17 => frame[..6].copy_from_slice(&own),
            17 => frame[12] = 0x99,
            _ => {}
        }
        sent.push(frame);
    }
    let mut seen = Vec::new();
    for method in ["LINUX", "XDP"] {
        let text = format!(
            "{CONTROL} FromDevice(rx0, METHOD {method}, BPF_FILTER \"not port 9\", SNAPLEN 90, FORCE_IP true)
              -> c :: Counter -> t :: Tee;
            t [0] -> DropBroadcasts -> named :: Counter -> Discard;
            t [1] -> HostEtherFilter(rx0:eth) -> mine :: Counter -> Discard;
            t [2] -> MarkIPHeader(14) -> CheckIPHeader(OFFSET 14, CHECKSUM false)
              -> right :: Counter -> Discard; t [3] -> Queue -> to :: ToDevice(far0, METHOD XDP);"
        );
        let handlers =
            ["c.count", "named.count", "mine.count", "right.count", "c.byte_count", "to.drops", "*.account"];
        let arguments: Vec<&str> = handlers.iter().flat_map(|h| ["-h", h]).collect();
        let mut graph = Graph::start(&net, &text, &arguments);
        net.send(&sent, 1);
        graph.wait("c.count", "18");
        graph.wait("to.drops", "18");
        let out = graph.end();
        add_up(&out);
        seen.push(handlers[..6].iter().map(|h| value(&out, h).to_owned()).collect::<Vec<_>>());
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[1][1], "12", "{seen:?}");
}

/// Does what `ethtool -K eth0 tx off` does.
const NO_OFFLOAD: &str = "
import ctypes, fcntl, socket, struct
value = ctypes.create_string_buffer(struct.pack('II', 0x17, 0))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack('16sP', b'eth0', ctypes.addressof(value)))
";

/// Both interfaces receive and send by AF_XDP, between hosts.
#[test]
fn an_interface_receives_and_sends_by_af_xdp() {
    let Some((net, near, far)) = between() else { return };
    // The elements that send stand first: the receiver opens the memory nevertheless.
    let text = format!(
        "{CONTROL} qa :: Queue(10000) -> ToDevice(out0, METHOD XDP);
        qb :: Queue(10000) -> ToDevice(rx0, METHOD XDP);
        a :: FromDevice(rx0, METHOD XDP) -> ta :: Tee -> qa;
        b :: FromDevice(out0, METHOD XDP) -> tb :: Tee -> qb;
        ta [1], tb [1] -> k :: Classifier(12/0800, -) -> Strip(14) -> CheckIPHeader
        -> p :: IPClassifier(tcp, -) -> raw :: Counter -> CheckTCPHeader -> tcp :: Counter -> Discard;
        k [1] -> Discard; p [1] -> Discard;"
    );
    let handlers = ["-h", "*.account", "-h", "tcp.count", "-h", "a.kernel_drops", "-h", "b.kernel_drops"];
    let mut graph = Graph::start(&net, &text, &handlers);
    assert!(has_program(&net, "rx0") && has_program(&net, "out0"));
    let ping = ["-c", crate::network::PING, "10.8.0.2", "30"];
    assert_eq!(near.command("python3").args(ping).output().unwrap().stdout, b"30\n");
    let mut server = far.command("python3").args(["-c", ECHO]).spawn().unwrap();
    wait_for("the server", || far.said("ss -Hltn").contains(":7 "));
    // Checksums that a host left to its card are missing, and nothing states it: none is right.
    let knock = near.command("timeout").args(["2", "python3", "-c", CLIENT]).output().unwrap();
    assert_ne!(knock.stdout, b"True\n");
    let answer = graph.ask("READ raw.count");
    assert!(answer.contains("DATA ") && !answer.contains("DATA 1\r\n0"), "{answer}");
    graph.wait("tcp.count", "0");
    // The remedy.
    for host in [&near, &far] {
        assert!(host.command("python3").args(["-c", NO_OFFLOAD]).status().unwrap().success());
    }
    assert_eq!(near.command("python3").args(["-c", CLIENT]).output().unwrap().stdout, b"True\n");
    server.wait().unwrap();
    let out = graph.end();
    add_up(&out);
    let tcp: u64 = value(&out, "tcp.count").parse().unwrap();
    assert!(tcp > 2700, "{tcp} segments");
    assert_eq!((value(&out, "a.kernel_drops"), value(&out, "b.kernel_drops")), ("0", "0"));
}

/// A frame for which the interface has no room is sent again, in order.
#[test]
fn frames_wait_while_the_interface_takes_none() {
    let Some(net) = net() else { return };
    let text = format!(
        "{CONTROL} FromDevice(rx0, METHOD XDP) -> c :: Counter -> Queue(2000)
          -> to :: ToDevice(out0, METHOD XDP);
        FromDevice(far0, PROMISC true) -> ToDump(far.pcap) -> far :: Counter -> Discard;"
    );
    let mut graph = Graph::start(&net, &text, &["-h", "*.account", "-h", "to.count"]);
    let sent = numbered(300);
    // Without its other end, the interface has no carrier, and drops each frame that it gets.
    net.shell("ip link set far0 down");
    net.send(&sent, 1);
    graph.wait("c.count", "300");
    std::thread::sleep(Duration::from_millis(100));
    graph.wait("to.count", "0");
    net.shell("ip link set far0 up");
    graph.wait("far.count", "300");
    let out = graph.end();
    add_up(&out);
    assert_eq!(value(&out, "to.count"), "300");
    assert!(frames(&graph.path().join("far.pcap")) == sent);
}

#[test]
fn a_frame_that_the_other_end_refuses_does_not_stop_the_others_by_af_xdp() {
    devices::a_refused_frame_is_given_up("XDP");
}

#[test]
fn an_interface_that_comes_back_with_its_number_is_opened_again_by_af_xdp() {
    devices::an_interface_with_the_same_number_is_opened_again("XDP");
}

/// Frames that wait for an interface go on to it, by any method, but not to another one.
#[test]
fn frames_that_wait_do_not_leave_by_another_interface_by_af_xdp() {
    let Some(net) = net() else { return };
    let mut graph = Graph::start(&net, &towards("out0", "XDP"), &["-R", "-h", "*.account"]);
    // Without a carrier, they wait for as long as it takes.
    net.shell("ip link set far0 down");
    let sent = numbered(50);
    net.send(&sent, 1);
    graph.wait_for_account("to", "held 50");
    // Longer than the two seconds with a carrier.
    std::thread::sleep(Duration::from_millis(2200));
    graph.swap(&towards("out0", "XDP"));
    graph.wait_for_account("to", "held 50");
    graph.swap(&towards("rx0", "XDP"));
    graph.wait_for_account("to", "dropped 50 replaced");
    net.send(&sent[..10], 1);
    graph.wait("near.count", "10");
    graph.swap(&towards("out0", "XDP"));
    net.send(&sent, 1);
    graph.wait_for_account("to", "held 50");
    net.shell("ip link set far0 up");
    graph.swap(&towards("out0", "LINUX"));
    graph.wait("far.count", "50");
    add_up(&graph.end());
}

/// Sets the numbers of receive and transmit queues: `ethtool -L DEVICE rx COUNT tx COUNT`.
const QUEUES: &str = "
import ctypes, fcntl, socket, struct, sys
device, count = sys.argv[1].encode(), int(sys.argv[2])
value = ctypes.create_string_buffer(struct.pack('9I', 0x3d, 0, 0, 0, 0, count, count, 0, 0))
fcntl.ioctl(socket.socket(), 0x8946, struct.pack('16sP', device, ctypes.addressof(value)))
";

/// Prints how many datagrams the kernel's stack receives, until there are none for three seconds.
const KERNEL: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
s.settimeout(3)
count = 0
print('ready', flush=True)
try:
    while True:
        s.recv(2000)
        count += 1
except OSError:
    print(count)
";

/// Frames of receive queues that come while the graph runs are dropped until they have a socket, and never
/// handled by the kernel.
#[test]
fn queues_that_come_later_are_closed_until_they_are_opened() {
    let Some(net) = net() else { return };
    net.shell("ip link del tx0");
    net.shell(
        "ip link add tx0 numtxqueues 4 numrxqueues 4 type veth peer name rx0 numrxqueues 4 numtxqueues 4
        ip link set tx0 up && ip link set rx0 up && ip addr add 10.0.0.9/8 dev rx0
        for c in all rx0; do echo 0 > /proc/sys/net/ipv4/conf/$c/rp_filter; done",
    );
    let queues = |count: u32| {
        for device in ["rx0", "tx0"] {
            let arguments = ["-c", QUEUES, device, &count.to_string()];
            assert!(net.command("python3").args(arguments).status().unwrap().success());
        }
    };
    queues(1);
    let text = format!("{CONTROL} from :: FromDevice(rx0, METHOD XDP) -> c :: Counter -> Discard;");
    let mut graph =
        Graph::start(&net, &text, &["-h", "*.account", "-h", "c.count", "-h", "from.kernel_drops"]);
    assert!(graph.said().contains("1 queue)"), "{}", graph.said());
    let address = net.said("cat /sys/class/net/rx0/address");
    let own: Vec<u8> = address.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
    let sent: Vec<Vec<u8>> = (0..64_u16)
        .map(|i| {
            let mut frame = ipv4(&[], 17, (7, i), (0, 9), 60);
            frame[..6].copy_from_slice(&own);
            // An IP header with its checksum, which the stack asks for.
            let words = frame[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
            let folded = (words & 0xffff) + (words >> 16);
            let sum = !(((folded & 0xffff) + (folded >> 16)) as u16);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame
        })
        .collect();
    let mut kernel = net.command("python3");
    let kernel = kernel.args(["-c", KERNEL]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_for("the socket", || net.said("cat /proc/net/raw").contains(":0011"));
    net.send(&sent, 1);
    graph.wait("c.count", "64");
    queues(4);
    net.send(&sent, 4);
    wait_for("the message", || graph.said().contains("interface rx0 has 4 receive queues now"));
    net.send(&sent, 10);
    // All of these come.
    let drops = || {
        let answer = graph.ask("READ from.kernel_drops");
        let (_, data) = answer.split_once("DATA ").unwrap();
        let (count, rest) = data.split_once("\r\n").unwrap();
        rest[..count.parse().unwrap()].parse::<u64>().unwrap()
    };
    let expected = 64 * 15 - drops();
    assert!(expected >= 64 * 11, "{expected}");
    graph.wait("c.count", &expected.to_string());
    let out = kernel.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "ready\n0\n");
    add_up(&graph.end());
}

/// An interface that is renamed stays in use with its own MTU and address, whatever has its name.
#[test]
fn a_renamed_interface_keeps_its_own_properties() {
    let Some(net) = net() else { return };
    let text = format!(
        "{CONTROL} FromDevice(rx0, METHOD XDP) -> HostEtherFilter($mac, DROP_OTHER true) -> Queue(1000)
          -> to :: ToDevice(out0, METHOD XDP) -> sent :: Counter -> Discard;"
    );
    let address = net.said("cat /sys/class/net/rx0/address");
    let mut graph = Graph::start(&net, &text, &[&format!("mac={address}"), "-h", "*.account"]);
    net.shell(
        "for i in rx0 out0; do ip link set $i name ${i}x
        ip link add $i type veth peer name z$i; ip link set $i mtu 500 address 02:00:00:00:99:99 up; done",
    );
    std::thread::sleep(Duration::from_millis(400));
    let own: Vec<u8> = address.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
    let mut sent = numbered(1000);
    sent.iter_mut().for_each(|frame| frame[..6].copy_from_slice(&own));
    net.send(&sent, 1);
    graph.wait("sent.count", "1000");
    add_up(&graph.end());
}

/// An MTU that has grown since the opening is reported.
#[test]
fn frames_that_grow_out_of_their_room_are_reported() {
    let Some(net) = net() else { return };
    let graph = Graph::start(&net, "FromDevice(rx0, METHOD XDP) -> Discard", &[]);
    net.shell("ip link set rx0 mtu 3000");
    wait_for("the message", || graph.said().contains("its MTU is 3000 now, but there is room for"));
}

#[test]
fn interfaces_of_af_xdp_go_down_and_come_back() {
    let Some(net) = net() else { return };
    let text = format!(
        "{CONTROL} from :: FromDevice(rx0, METHOD XDP) -> Queue(1000) -> to :: ToDevice(out0, METHOD XDP)
          -> sent :: Counter -> Discard; to [1] -> refused :: Counter -> Discard;"
    );
    let mut graph = Graph::start(&net, &text, &["-R", "-h", "*.account"]);
    let frames = |size: usize| vec![ipv4(&[], 17, (1, 1), (2, 53), size); 10];
    net.shell("ip link set out0 mtu 1000");
    std::thread::sleep(Duration::from_millis(150));
    net.send(&[frames(1000), frames(1200), frames(1000)].concat(), 1);
    graph.wait("sent.count", "20");
    graph.wait("refused.count", "10");
    net.shell("ip link set out0 down");
    net.send(&frames(100), 1);
    graph.wait("refused.count", "20");
    net.shell("ip link set out0 up && ip link set rx0 down");
    wait_for("the message", || graph.said().contains("interface rx0 is down"));
    net.shell("ip link set rx0 up");
    wait_for("the message", || graph.said().contains("interface rx0 is up again"));
    net.send(&frames(100), 1);
    graph.wait("sent.count", "30");
    // A removed interface is looked for, and opened again.
    let opened = |device: &str| graph.said().matches(&format!("interface {device} by ")).count();
    net.shell("ip link del rx0");
    wait_for("the message", || graph.said().contains("the interface was removed"));
    net.link();
    wait_for("the interface", || opened("rx0") == 2);
    net.send(&frames(100), 1);
    graph.wait("sent.count", "40");
    net.shell("ip link del out0");
    net.send(&frames(100), 1);
    wait_for("the message", || graph.said().contains("interface out0: it was removed"));
    net.shell("ip link add out0 type veth peer name far0 && ip link set out0 up && ip link set far0 up");
    graph.wait("sent.count", "50");
    add_up(&graph.end());
}

/// Under traffic, another configuration loses no frame, and sees none twice, whatever its options. The memory
/// has room for all frames, should the router get no processor time.
#[test]
fn another_configuration_takes_the_sockets_over() {
    let Some(net) = net() else { return };
    let text = |round: usize| {
        format!(
            "{CONTROL} from :: FromDevice(rx0, PROMISC {}, METHOD XDP, RING 512) -> {} q :: Queue(100000)
              -> to :: ToDevice(out0, METHOD XDP, BURST {});
            far :: FromDevice(far0, PROMISC true, RING 1024) -> c :: Counter -> Discard;
            back :: FromDevice(out0, METHOD XDP) -> Queue -> home :: ToDevice(rx0, METHOD XDP);",
            round % 2 == 1,
            "Null -> ".repeat(round % 3),
            round + 10,
        )
    };
    let mut graph = Graph::start(&net, &text(0), &["-R", "-h", "*.account"]);
    wait_for("the socket", || graph.path().join("control").exists());
    let sent: Vec<Vec<u8>> = (0..2000_u16).map(|i| ipv4(&[], 17, (1, i), (2, 53), 100)).collect();
    let mut sender = net.sender(&sent, 10, "");
    for round in 0..8 {
        let new = text(round);
        let answer = graph.ask(&format!("WRITEDATA hotconfig {}\n{new}", new.len()));
        assert!(answer.contains("200 "), "{answer}");
        let promiscuity = format!("promiscuity {} ", round % 2);
        wait_for("the mode", || net.said("ip -d link show rx0").contains(&promiscuity));
    }
    assert!(sender.wait().unwrap().success());
    graph.wait("c.count", "20000");
    graph.wait("from.kernel_drops", "0");
    // Each was opened once.
    assert_eq!(graph.said().matches(" by AF_XDP").count(), 4, "{}", graph.said());
    // Another method opens the interface again, and back.
    for (method, opened, count) in [("LINUX", 5, "20010"), ("XDP", 6, "20020")] {
        let new = format!("{CONTROL} from :: FromDevice(rx0, METHOD {method}) -> c :: Counter -> Discard");
        let answer = graph.ask(&format!("WRITEDATA hotconfig {}\n{new}", new.len()));
        assert!(answer.contains("200 "), "{answer}");
        wait_for("the interface", || graph.said().matches(": interface ").count() > opened);
        assert_eq!(has_program(&net, "rx0"), method == "XDP");
        net.send(&sent[..10], 1);
        graph.wait("c.count", count);
    }
    add_up(&graph.end());
}

#[test]
fn quiet_sockets_cost_nothing_and_nothing_is_left_of_a_killed_graph() {
    let Some(net) = net() else { return };
    let text = "FromDevice(rx0, METHOD XDP) -> Queue -> ToDevice(rx0, METHOD XDP)";
    let mut graph = Graph::start(&net, text, &[]);
    assert!(graph.is_quiet());
    assert!(has_program(&net, "rx0"));
    graph.kill("KILL");
    graph.child.wait().unwrap();
    assert!(!has_program(&net, "rx0"));
    Graph::start(&net, text, &[]).end();
}

#[test]
fn without_af_xdp_the_error_names_the_remedy() {
    let Some(net) = net() else { return };
    let refused = |text: &str| {
        let out = net.command(&flame()).args(["click", "-q", "-e", text]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{said}");
        said
    };
    for option in ["SNIFFER", "OUTBOUND"] {
        let said = refused(&format!("FromDevice(rx0, METHOD XDP, {option} true) -> Discard"));
        assert!(said.contains(&format!("{option} true: METHOD XDP takes")), "{said}");
    }
    let said = refused("FromDevice(rx0, METHOD DPDK) -> Discard");
    assert!(said.contains("DPDK is not available"), "{said}");
    let both = |text: &str| {
        [
            format!("FromDevice({text}, METHOD XDP) -> Discard"),
            format!("Idle -> ToDevice({text}, METHOD XDP)"),
        ]
    };
    for text in both("nosuch0") {
        assert!(refused(&text).contains("nosuch0: "), "{}", refused(&text));
    }
    net.shell("ip link set rx0 mtu 9000");
    for text in both("rx0") {
        let said = refused(&text);
        assert!(said.contains("AF_XDP has room for 3810"), "{said}");
    }
    net.shell("ip link set rx0 mtu 1500");
    net.shell("ip link add many0 numtxqueues 4 type veth peer name few0 && ip link set few0 up");
    let said = refused("FromDevice(few0, METHOD XDP) -> Discard");
    assert!(said.contains("needs as many receive queues"), "{said}");
    // Another process has it.
    let mut graph = Graph::start(&net, "FromDevice(rx0, METHOD XDP) -> Discard", &[]);
    for text in both("rx0") {
        let said = refused(&text);
        assert!(said.contains("another XDP program or socket has it"), "{said}");
    }
    graph.end();
    for text in both("rx0") {
        let mut command = net.command("setpriv");
        command.args(["--inh-caps=-all", "--bounding-set=-all", &flame(), "click", "-e", &text]);
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("interface rx0: socket: ") && said.contains("CAP_NET_RAW"), "{said}");
    }
    let mut command = net.command("setpriv");
    command.args(["--inh-caps=-all,+net_raw", "--bounding-set=-all,+net_raw", &flame()]);
    let out = command.args(["click", "-e", "FromDevice(rx0, METHOD XDP) -> Discard"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("AF_XDP: program: ") && said.contains("CAP_BPF"), "{said}");
}
