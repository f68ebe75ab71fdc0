//! KernelTun(ADDRESS/MASK, GATEWAY, DEVNAME, MTU): a network interface of this machine whose packets go
//! through the graph. It has the address; packets to the networks of the address reach the graph in any case,
//! so GATEWAY has no effect. The interface ends with the router. It needs the right to administrate the
//! network (CAP_NET_ADMIN).
//! Expects: IP packets, pushed, for the kernel. Others are dropped.
//! Gives: IP packets from the kernel, with the network header marked.
//! Handlers: dev_name, received, sent.
//! Example: `t :: KernelTun(10.0.0.1/24) -> ICMPPingResponder -> t`

use super::inbox::Inbox;
use super::stream::{PAUSE, wait_readable};
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Batch;
use flame_click::{Ip, Prefix};
use flame_source::live;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const SOURCE: &str = include_str!("kernel_tun.rs");

/// Packets that wait for the router.
const WAITING: usize = 1024;
/// Packets that one task takes.
const BURST: usize = 64;

/// The interface and its thread, which end with this value.
struct Tun {
    device: Arc<File>,
    name: String,
    inbox: Arc<Inbox<Vec<u8>>>,
    _stop: UnixStream,
}

impl Drop for Tun {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    address: Ip,
    mask: Ip,
    name: Option<String>,
    mtu: u16,
}

/// Runs `ip` of iproute2, which sets up interfaces.
fn ip(arguments: &[&str]) -> std::io::Result<()> {
    let out = std::process::Command::new("ip").args(arguments).output()?;
    match out.status.success() {
        true => Ok(()),
        false => Err(std::io::Error::other(String::from_utf8_lossy(&out.stderr).trim().to_owned())),
    }
}

impl Tun {
    fn open(settings: &Settings) -> std::io::Result<Self> {
        let (device, name) = live::open_tun(settings.name.as_deref().unwrap_or("tun%d"))?;
        let device = Arc::new(device);
        let address = std::net::Ipv4Addr::from(settings.address.0);
        let prefix = settings.mask.0.count_ones();
        ip(&["address", "add", &format!("{address}/{prefix}"), "dev", &name])?;
        ip(&["link", "set", "dev", &name, "mtu", &settings.mtu.to_string(), "up"])?;
        let inbox: Arc<Inbox<Vec<u8>>> = Arc::new(Inbox::new(WAITING));
        let (stop, stopped) = UnixStream::pair()?;
        let (source, to) = (device.clone(), inbox.clone());
        let most = usize::from(settings.mtu) + 64;
        let receive = move || {
            let mut buffer = vec![0; most];
            while wait_readable(source.as_fd(), &stopped) {
                let Ok(count) = (&*source).read(&mut buffer) else {
                    // An interface that somebody removed stays readable.
                    std::thread::sleep(PAUSE);
                    continue;
                };
                if !to.put(buffer[..count].to_vec()) {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("flame-tun".into()).spawn(receive)?;
        Ok(Self { device, name, inbox, _stop: stop })
    }
}

struct KernelTun {
    settings: Settings,
    tun: RefCell<Option<Tun>>,
    received: Cell<u64>,
    sent: Cell<u64>,
}

impl Element for KernelTun {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        // With hot swapping, the element that this one replaces hands its interface over before tasks run.
        if cx.router.parse.is_some() {
            cx.reschedule();
            return Ok(());
        }
        self.open(cx)
    }

    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        let tun = self.tun.borrow();
        for packet in batch.drain(..) {
            let is_ip = packet.data().first().is_some_and(|b| matches!(b >> 4, 4 | 6));
            match tun.as_ref().filter(|_| is_ip).map(|tun| (&*tun.device).write(packet.data())) {
                Some(Ok(_)) => {
                    add(&self.sent, 1);
                    cx.drop("sent", packet);
                }
                Some(Err(_)) => cx.drop("refused by the kernel", packet),
                None if is_ip => cx.drop("closed", packet),
                None => cx.drop("no IP packet", packet),
            }
        }
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        if self.tun.borrow().is_none()
            && let Err(e) = self.open(cx)
        {
            cx.error(&e);
            return false;
        }
        let Some(inbox) = self.tun.borrow().as_ref().map(|tun| tun.inbox.clone()) else { return false };
        let mut batch = inbox.receive(cx, BURST);
        for packet in batch.iter_mut() {
            if super::util::be16(packet.data(), 0) >> 12 == 4 && packet.len() >= 20 {
                super::util::mark_ip(packet, 0);
                let dst = Ip(super::util::be32(packet.data(), 16));
                packet.anno.set_dst_ip(dst);
            }
        }
        let count = batch.len();
        add(&self.received, count);
        cx.made(count);
        cx.push(0, batch);
        count > 0
    }

    fn cleanup(&self, _: &Cx<'_>) {
        *self.tun.borrow_mut() = None;
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.received, &self.sent]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        if old.settings != self.settings {
            return;
        }
        if let Some(tun) = old.tun.borrow_mut().take() {
            tun.inbox.adopt(cx.router.waker(cx.me));
            *self.tun.borrow_mut() = Some(tun);
        }
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "received" => self.received.get().to_string(),
            "sent" => self.sent.get().to_string(),
            "dev_name" => self.tun.borrow().as_ref().map_or(String::new(), |tun| tun.name.clone()),
            _ => return None,
        }))
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("dev_name", "r"), ("received", "r"), ("sent", "r")]
    }
}

impl KernelTun {
    fn open(&self, cx: &Cx<'_>) -> Result<(), String> {
        let tun = Tun::open(&self.settings).map_err(|e| format!("/dev/net/tun: {e}"))?;
        tun.inbox.adopt(cx.router.waker(cx.me));
        *self.tun.borrow_mut() = Some(tun);
        Ok(())
    }
}

class!(KERNEL_TUN, "KernelTun", "0-1/1", "h/h", ["ADDR", "GATEWAY", "DEVNAME", "MTU"], |args, _| {
    let prefix: Prefix = args.req("ADDR");
    args.opt::<Ip>("GATEWAY");
    let mtu = args.key("MTU").unwrap_or(1500_u16);
    if mtu < 68 {
        args.error(format!("MTU: expected 68 to 65535, found {mtu}"));
    }
    Box::new(KernelTun {
        settings: Settings { address: prefix.ip, mask: prefix.mask, name: args.key("DEVNAME"), mtu },
        tun: RefCell::default(),
        received: Cell::new(0),
        sent: Cell::new(0),
    })
});
