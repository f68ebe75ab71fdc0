//! Elements that wait for sockets: clients of a router that runs on another thread.

use crate::running::environment;
use flame_element::Router;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Runs a router on a thread while `test` works with it, whose argument is the value of the handler `of`.
/// Returns the values of the handlers at the end, and checks that all accounts add up.
fn beside(text: &str, of: &str, handlers: &[&str], test: impl FnOnce(&str)) -> Vec<String> {
    let (text, of) = (text.to_owned(), of.to_owned());
    let handlers: Vec<String> = handlers.iter().map(|h| (*h).to_owned()).collect();
    let interrupt = Arc::new(AtomicBool::new(false));
    let (started, has_started) = channel();
    let flag = interrupt.clone();
    let router = std::thread::spawn(move || {
        let mut env = environment(Rc::new(RefCell::new(std::io::stderr())));
        env.clock = Rc::new(flame_element::Clock::real());
        env.interrupt = flag;
        let graph = (crate::common::LANGUAGE.read)(text.as_bytes(), "f", &[]).unwrap();
        let router = Router::new(graph, &text, env).unwrap_or_else(|e| panic!("{e}"));
        started.send((std::thread::current(), router.read(None, &of, "").unwrap())).unwrap();
        router.run();
        let values = handlers.iter().map(|h| router.read(None, h, "").unwrap()).collect();
        router.cleanup();
        for i in 0..router.nodes_count() {
            let account = router.account(i);
            assert!(account.adds_up(), "{}: {account:?}", router.declaration(i));
        }
        values
    });
    let (thread, value) = has_started.recv().expect("the router starts");
    test(&value);
    interrupt.store(true, Ordering::Relaxed);
    thread.unpark();
    router.join().unwrap()
}

/// Sends commands, and returns all that comes back.
fn talk(stream: &mut (impl Read + Write), commands: &[u8]) -> String {
    stream.write_all(commands).unwrap();
    let mut out = Vec::new();
    stream.read_to_end(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Two elements want the same port, and the second takes one of those that follow.
#[test]
fn a_port_in_use_is_passed_over_if_the_next_may_be_taken() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let text = format!("c :: ControlSocket(TCP, {port}+); Idle -> Discard");
    beside(&text, "c.port", &[], |found| {
        let found: u16 = found.parse().unwrap();
        assert!(found > port && found <= port + 50, "{found} after {port}");
        let said = talk(&mut TcpStream::connect(("127.0.0.1", found)).unwrap(), b"READ c.port\nQUIT\n");
        assert!(said.contains(&format!("DATA {}\r\n{found}", found.to_string().len())), "{said}");
    });
}

/// Functions of scripts that read files or send signals are not for clients.
#[test]
fn clients_use_functions_of_scripts_that_only_compute() {
    let text = "c :: ControlSocket(TCP, 0); s :: Script(TYPE PASSIVE, end); Idle -> Discard";
    beside(text, "c.port", &[], |port| {
        let mut client = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
        let said = talk(&mut client, b"READ s.add 1 2\nREAD s.cat /etc/hostname\nREAD s.kill 0 1\nQUIT\n");
        assert!(
            said.contains("200 Read handler 's.add' OK\r\nDATA 1\r\n3511 No handler named 's.cat'"),
            "{said}"
        );
        assert!(said.contains("511 No handler named 's.kill'"), "{said}");
    });
}

#[test]
fn clients_read_and_write_handlers() {
    let text = "c :: ControlSocket(TCP, 0); i :: Idle -> s :: Switch(0) -> Discard; s [1] -> Discard";
    beside(text, "c.port", &[], |port| {
        let connect = || TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
        // The three ends of lines, commands in any case, elements by number, data with line ends.
        let commands = b"READ s.switch\r\nwrite s.switch 1\nread 3.switch\rREAD list\r\n\
            WRITEDATA s.switch 2\r\n0\nREADUNTIL s.switch end\nx\nend\nCHECKREAD s.switch\nCHECKWRITE s.name\nQUIT\nREAD s.switch\n";
        let said = talk(&mut connect(), commands);
        let expected = "Click::ControlSocket/1.3\r\n200 Read handler 's.switch' OK\r\nDATA 1\r\n0\
            200 Write handler 's.switch' OK\r\n200 Read handler '3.switch' OK\r\nDATA 1\r\n1\
            200 Read handler 'list' OK\r\nDATA ";
        assert!(said.starts_with(expected), "{said}");
        let rest = "200 Write handler 's.switch' OK\r\n200 Read handler 's.switch' OK\r\nDATA 1\r\n0\
            200 Read handler 's.switch' OK\r\n511 Handler 's.name' not writable\r\n200 Goodbye!\r\n";
        assert!(said.ends_with(rest), "{said}");
        let said = talk(
            &mut connect(),
            b"READ\nREAD x.y\nREAD s.y\nWRITE s.switch x\nWRITE s.name x\nLLRPC s#0 3\nabcNONE\nREADDATA s.switch -1\n\
              HELP\nQUIT\n",
        );
        for line in [
            "500 Wrong number of arguments\r\n",
            "510 No element named 'x'\r\n",
            "511 No handler named 's.y'\r\n",
            "520-Write handler 's.switch' error:\r\n520 ",
            "530 Handler 's.name' read-only\r\n",
            "501 Cannot call LLRPC remotely\r\n",
            "501 Command 'NONE' unimplemented\r\n",
            "500 Syntax error in 'READDATA'\r\n",
            "200-Commands supported:\r\n",
            "200 HELP ",
        ] {
            assert!(said.contains(line), "{line}\n{said}");
        }
        // Clients that say nothing, half a command, too much, or no text at all keep no other client out.
        let silent: Vec<_> = (0..10).map(|_| connect()).collect();
        connect().write_all(b"READ s.swi").unwrap();
        let _ = connect().write_all(&[b'x'; 200_000]);
        connect().write_all(&[0xff, 0, 0x80, b'\n', 0xfe]).unwrap();
        assert!(talk(&mut connect(), b"READ s.switch\nQUIT\n").contains("DATA 1\r\n0200 Goodbye!"));
        drop(silent);
    });
}

#[test]
fn a_read_only_socket_of_the_file_system_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let file = folder.path().join("written");
    let text = format!(
        "c :: ControlSocket(UNIX, {}, READONLY true); Idle -> s :: Switch(0) -> Discard; s [1] -> Discard;
        x :: Script(print >{} 1, write s.switch 1, TYPE PASSIVE)",
        path.display(),
        file.display()
    );
    let values = beside(&text, "s.switch", &["s.switch", "c.requests"], |_| {
        let said =
            talk(&mut UnixStream::connect(&path).unwrap(), b"WRITE s.switch 1\nCHECKWRITE s.switch\nQUIT\n");
        assert_eq!(said.matches("530 Permission denied for 's.switch'\r\n").count(), 2, "{said}");
        // What a handler does decides, and not the verb: a script runs when it is read.
        let commands = b"READ x.run\nCHECKREAD x.run\nREAD x.shift v\nREAD x.random\nREAD x.add 1 2\nQUIT\n";
        let said = talk(&mut UnixStream::connect(&path).unwrap(), commands);
        assert_eq!(said.matches("530 Permission denied for 'x.").count(), 4, "{said}");
        assert!(said.contains("DATA 1\r\n3"), "{said}");
    });
    assert_eq!(values, ["0", "7"]);
    assert!(!file.exists(), "the script did not run");
    assert!(!path.exists(), "the file ends with the router");
}

#[test]
fn datagrams_and_streams_go_both_ways() {
    // Each datagram goes back to its sender.
    let text = "s :: Socket(UDP, 127.0.0.1, 0) -> c :: Counter -> s";
    let values = beside(text, "s.port", &["s.received", "s.sent", "c.count"], |port| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", port.parse().unwrap())).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut buffer = [0; 100];
        for word in ["one", "", "three"] {
            socket.send(word.as_bytes()).unwrap();
            let count = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..count], word.as_bytes());
        }
    });
    assert_eq!(values, ["3", "3", "3"]);
    let text = "s :: Socket(TCP, 127.0.0.1, 0) -> s";
    beside(text, "s.port", &[], |port| {
        let mut stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
        for word in ["hello\n", "again\n"] {
            stream.write_all(word.as_bytes()).unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, word);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d").display().to_string();
    // Two elements of one router.
    let text = format!(
        "s :: Socket(UNIX_DGRAM, {path}) -> c :: Counter -> Discard;
         InfiniteSource(DATA abc, LIMIT 20) -> k :: Socket(UNIX_DGRAM, {path}, CLIENT true)"
    );
    let text = format!("{text}; x :: ControlSocket(TCP, 0)");
    let values = beside(&text, "x.port", &["c.count", "k.sent"], |port| {
        let port = port.parse().unwrap();
        let read = || talk(&mut TcpStream::connect(("127.0.0.1", port)).unwrap(), b"READ c.count\nQUIT\n");
        while !read().contains("DATA 2\r\n20") {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(values, ["20", "20"]);
}

/// An interface needs the right to administrate the network.
#[test]
fn the_kernel_sends_to_an_interface_of_the_router() {
    // A packet that the kernel sends to one address comes back from there.
    let pid = std::process::id();
    let (name, net) = (format!("ft{pid}"), format!("10.213.{}", pid % 250));
    let graph_on = |name: &str| {
        format!(
            "t :: KernelTun({net}.1/24, DEVNAME {name}) -> IPClassifier(udp port 5000)
             -> c :: Counter -> IPRewriter(pattern {net}.9 5000 {net}.1 50111 0 0) -> t"
        )
    };
    // The kernel removes an interface some time after its end, so the trial has another one.
    let text = graph_on(&format!("{name}a"));
    let mut env = environment(Rc::new(RefCell::new(std::io::sink())));
    env.clock = Rc::new(flame_element::Clock::real());
    let graph = (crate::common::LANGUAGE.read)(text.as_bytes(), "f", &[]).unwrap();
    match Router::new(graph, &text, env) {
        Err(e) => {
            assert!(e.contains("/dev/net/tun: "), "{e}");
            eprintln!("skipped: {e}");
            return;
        }
        Ok(router) => router.cleanup(),
    }
    let values = beside(&graph_on(&name), "t.dev_name", &["c.count"], |found| {
        assert_eq!(found, name);
        let socket = UdpSocket::bind(format!("{net}.1:50111")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut buffer = [0; 100];
        for word in ["one", "two"] {
            let other = format!("{net}.9:5000");
            socket.send_to(word.as_bytes(), &other).unwrap();
            let (count, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..count], from.to_string()), (word.as_bytes(), other));
        }
    });
    assert_eq!(values, ["2"]);
}

/// Clients that ask nothing do not keep others out.
#[test]
fn a_further_client_ends_the_one_that_is_idle_for_longest() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let text = format!("s :: ControlSocket(UNIX, {}); Idle -> Discard", socket.display());
    beside(&text, "s.requests", &[], |_| {
        let ask = |stream: &mut BufReader<UnixStream>| {
            let mut line = String::new();
            stream.get_mut().write_all(b"CHECKREAD s.requests\n").is_ok()
                && stream.read_line(&mut line).is_ok_and(|n| n > 0)
        };
        let mut clients = Vec::new();
        for n in 0..84 {
            let mut client = BufReader::new(UnixStream::connect(&socket).unwrap());
            let mut line = String::new();
            client.read_line(&mut line).unwrap();
            assert!(line.starts_with("Click::ControlSocket") && ask(&mut client), "client {n}: {line}");
            clients.push(client);
        }
        let ended: Vec<bool> = clients.iter_mut().map(|client| !ask(client)).collect();
        assert!(ended[..20].iter().all(|e| *e) && !ended[20..].iter().any(|e| *e), "{ended:?}");
    });
}
