//! FromDevice(DEVNAME, PROMISC, SNAPLEN, SNIFFER, BPF_FILTER, METHOD, BURST, OUTBOUND, FORCE_IP, HEADROOM,
//! TIMESTAMP, RING): the frames that an interface of this machine receives. PROMISC true (false) receives
//! those for other machines, too; OUTBOUND true those that this machine sends. BPF_FILTER is a filter as of
//! pcap-filter(7), evaluated here and not by the kernel. With SNIFFER false (true), the kernel does not
//! handle any packet of the interface while this element is there, not even ARP; it needs CAP_BPF,
//! CAP_NET_ADMIN and Linux 6.6. Frames are taken until there are BURST (64) packets. METHOD is LINUX: an
//! AF_PACKET ring (TPACKET_V3) of RING (128) blocks of 128 KiB, where a frame waits for at most 1 ms. PCAP is
//! another name for it. Frames that the card or the kernel joined are cut into the segments that were sent,
//! missing checksums are computed, and VLAN tags are put back, so that each packet is a whole frame. METHOD
//! XDP is AF_XDP: sockets on all receive queues, with as much memory, by a program in the driver, or in the
//! kernel's stack for a driver that runs none; which one is printed. It takes the frames away, so SNIFFER and
//! OUTBOUND are false, and needs CAP_BPF, CAP_NET_ADMIN and Linux 5.9. Frames are as the driver has them:
//! without tags that the card took out, and on a virtual interface without the checksums that the other end
//! left to its card (there: `ethtool -K NAME tx off`). NETMAP and DPDK are not there. SNAPLEN bytes of a
//! frame are kept (all). HEADROOM bytes (64) are free in front. With FORCE_IP true, packets that are not IPv4
//! or IPv6 are dropped. It needs CAP_NET_RAW.
//! Expects: nothing.
//! Gives: frames with their times, unless TIMESTAMP is false, and their types (broadcast, multicast, for
//! another host). IPv4 headers are marked.
//! Handlers: count, kernel_drops, encap, reset_counts (w).
//! Example: `FromDevice(eth0, SNIFFER false) -> Classifier(12/0800, -)`

use super::opened::Opened;
use super::watch::Watch;
use crate::runtime::account::add;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::{ANNO_EXTRA_LENGTH, Batch, HEADROOM, Kind, Packet, TAILROOM};
use crate::runtime::router::Router;
use flame_abi::LinkType;
use flame_click::{Args, Ip, Nanos};
use flame_filter::{Filter, FilterError};
use flame_source::live::{DeviceOptions, FrameIn, Receive, Receiver, Unfinishable, XdpReceiver};
use std::cell::{Cell, RefCell};

const SOURCE: &str = include_str!("from_device.rs");

/// An open interface, and the thread that waits for its frames.
struct Open {
    receiver: Box<dyn Receive>,
    /// The filter for the interface's link type.
    filter: Option<Filter>,
    watch: Watch,
}

/// The way to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// AF_PACKET.
    Linux,
    /// AF_XDP.
    Xdp,
}

/// The properties of packets, and of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    name: String,
    method: Method,
    options: DeviceOptions,
}

struct FromDevice {
    settings: Settings,
    filter: Option<String>,
    burst: usize,
    snaplen: usize,
    headroom: usize,
    force_ip: bool,
    has_times: bool,
    open: Opened<Open>,
    count: Cell<u64>,
    /// The drops of the interface that were there at the last reset, and those since then of one that was
    /// closed.
    drops_before: Cell<u64>,
    drops_closed: Cell<u64>,
    /// Whether the interface is to be looked at.
    is_due: Cell<bool>,
    /// Room for the headers of a frame that is cut.
    front: RefCell<Vec<u8>>,
}

impl FromDevice {
    fn open(&self, cx: &Cx<'_>) -> Result<Open, String> {
        let Settings { name, method, options } = &self.settings;
        let receiver = match method {
            Method::Linux => Receiver::open(name, options).map(|r| Box::new(r) as Box<dyn Receive>),
            Method::Xdp => XdpReceiver::open(name, options).map(|r| Box::new(r) as Box<dyn Receive>),
        };
        let receiver = receiver.map_err(|e| e.to_string())?;
        let filter = self.filter_for(receiver.link())?;
        let watch = self.watch(cx, &*receiver)?;
        cx.message(&format!("{}: interface {name} by {}", cx.declaration(), receiver.way()));
        Ok(Open { receiver, filter, watch })
    }

    fn filter_for(&self, link: LinkType) -> Result<Option<Filter>, String> {
        let compile = |text: &String| Filter::compile(text, link).map_err(|e| format!("BPF_FILTER: {e}"));
        self.filter.as_ref().map(compile).transpose()
    }

    /// Begins to wait for a receiver.
    fn watch(&self, cx: &Cx<'_>, receiver: &dyn Receive) -> Result<Watch, String> {
        let watch = receiver.watched().and_then(|fds| Watch::new(fds, false, cx.router.waker(cx.me)));
        watch.map_err(|e| format!("interface {}: {e}", self.settings.name))
    }

    /// Looks at the state of the interface, and reports a change.
    fn look(&self, cx: &Cx<'_>, open: &mut Open) -> Result<(), String> {
        if let Some(text) = open.receiver.look().map_err(|e| e.to_string())? {
            cx.error(&text);
            open.watch = self.watch(cx, &*open.receiver)?;
        }
        Ok(())
    }

    /// Returns the drops of the kernel since the last reset.
    fn drops(&self) -> u64 {
        let drops = self.open.with(|open| open.receiver.drops()).unwrap_or(0);
        self.drops_closed.get() + drops.saturating_sub(self.drops_before.get())
    }

    /// Returns the drops of the kernel, and begins to count again.
    fn take_drops(&self) -> u64 {
        let drops = self.drops();
        self.drops_closed.set(0);
        self.drops_before.set(self.open.with(|open| open.receiver.drops()).unwrap_or(0));
        drops
    }

    /// Adds the packets of a frame to a batch: one, or its segments. Returns how many were made.
    fn take(
        &self,
        cx: &Cx<'_>,
        frame: FrameIn<'_>,
        (link, filter): (LinkType, Option<&Filter>),
        batch: &mut Batch,
    ) -> usize {
        let cut_off = frame.wire_len as usize - frame.bytes.len().min(frame.wire_len as usize);
        let before = batch.len();
        let mut each = |front: &[u8], rest: &[u8]| {
            let mut packet = Packet::with_room(self.headroom, front.len() + rest.len(), TAILROOM);
            let (first, second) = packet.data_mut().split_at_mut(front.len());
            first.copy_from_slice(front);
            second.copy_from_slice(rest);
            batch.push(packet);
        };
        let finished = match cut_off > 0 && !frame.work.is_nothing() {
            true => Err(Unfinishable::CutOff),
            false => frame.work.finish(frame.bytes, &mut self.front.borrow_mut(), &mut each),
        };
        if let Err(why) = finished {
            each(&[], frame.bytes);
            cx.made(1);
            let cause = match why {
                Unfinishable::CutOff => "cut off",
                Unfinishable::Unknown => "joined segments of a kind that is not known",
                Unfinishable::TooMany => "too many joined segments",
            };
            batch.pop().into_iter().for_each(|p| cx.drop(cause, p));
            return 1;
        }
        let made = batch.len() - before;
        cx.made(made);
        let mut at = before;
        while at < batch.len() {
            let p = &mut batch[at];
            let whole = p.len() + cut_off;
            let wire = u32::try_from(whole).unwrap_or(u32::MAX);
            let completed = match filter.is_none_or(|filter| filter.matches(p.data(), wire)) {
                true => self.complete(p, &frame, link, whole),
                false => Err("filter"),
            };
            match completed {
                Ok(()) => at += 1,
                Err(cause) => cx.drop(cause, batch.remove(at)),
            }
        }
        made
    }

    /// Sets marks and annotations of a packet that had `whole` bytes on the wire. Returns the cause if it is
    /// dropped.
    fn complete(
        &self,
        p: &mut Packet,
        frame: &FrameIn<'_>,
        link: LinkType,
        whole: usize,
    ) -> Result<(), &'static str> {
        if self.has_times {
            p.anno.time = Nanos(i64::try_from(frame.ts_ns).unwrap_or(i64::MAX));
        }
        p.anno.kind = match frame.kind {
            1 => Kind::Broadcast,
            2 => Kind::Multicast,
            3 => Kind::OtherHost,
            4 => Kind::Outgoing,
            _ => Kind::Host,
        };
        let mut at = 0;
        let mut version = p.data().first().map_or(0, |b| b >> 4);
        if link == LinkType::ETHERNET {
            p.set_link(0);
            at = 14;
            while matches!(super::util::be16(p.data(), at - 2), 0x8100 | 0x88a8) && at < 22 {
                at += 4;
            }
            version = match super::util::be16(p.data(), at - 2) {
                0x0800 if p.data().get(at).is_some_and(|b| b >> 4 == 4) => 4,
                0x86dd => 6,
                _ => 0,
            };
        }
        if version == 4 {
            super::util::mark_ip(p, at);
            let dst = Ip(super::util::be32(p.data(), at + 16));
            p.anno.set_dst_ip(dst);
        } else if self.force_ip && version != 6 {
            return Err("no IP packet");
        }
        p.truncate(self.snaplen);
        let missing = u32::try_from(whole - p.len()).unwrap_or(u32::MAX);
        p.anno.set_u32(ANNO_EXTRA_LENGTH, missing);
        Ok(())
    }
}

impl Element for FromDevice {
    fn initialize(&self, cx: &Cx<'_>) -> Result<(), String> {
        cx.reschedule();
        self.open.initialize(cx, &self.settings.name, || self.open(cx))
    }

    fn run_task(&self, cx: &Cx<'_>) -> bool {
        if !self.open.ensure(cx, || self.open(cx)) {
            return false;
        }
        let mut batch = Batch::default();
        let mut error = None;
        let taken = self.open.with(|open| {
            let of = (open.receiver.link(), open.filter.as_ref());
            let taken = open.receiver.take(self.burst, &mut |frame| self.take(cx, frame, of, &mut batch));
            let is_ready = open.receiver.is_ready();
            if self.is_due.take() || !is_ready {
                error = self.look(cx, open).err();
            }
            match is_ready {
                true => cx.reschedule(),
                false => open.watch.arm(),
            }
            if let Some(after) = open.receiver.look_after().filter(|_| !cx.is_timer_set(0)) {
                cx.timer_after(0, Nanos(after.as_nanos() as i64));
            }
            taken
        });
        if let Some(error) = error {
            self.drops_closed.set(self.take_drops());
            self.drops_before.set(0);
            self.open.fail(cx, &error);
        }
        let Some(taken) = taken else { return false };
        add(&self.count, batch.len());
        cx.push(0, batch);
        taken > 0
    }

    /// Looks at the interface, or opens one that was removed.
    fn run_timer(&self, cx: &Cx<'_>, _: usize) {
        self.is_due.set(true);
        cx.reschedule();
    }

    fn cleanup(&self, _: &Cx<'_>) {
        self.open.take();
    }

    fn counts(&self) -> Vec<&Cell<u64>> {
        vec![&self.count, &self.drops_closed]
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        let Settings { name, method, options } = &self.settings;
        let is_same = (&old.settings.name, &old.settings.method) == (name, method);
        let goes_on = |open: &mut Open| {
            let filter = self.filter_for(open.receiver.link());
            let goes_on = filter.is_ok() && open.receiver.has_its_name() && open.receiver.adopt(options);
            open.filter = filter.ok().flatten();
            goes_on
        };
        if is_same
            && !self.open.is_open()
            && old.open.with(goes_on) == Some(true)
            && let Some(open) = old.open.take()
        {
            open.watch.adopt(cx.router.waker(cx.me));
            self.drops_before.set(old.drops_before.take());
            self.open.set(open);
        }
        // Those of an interface that is not taken over.
        add(&self.drops_closed, old.take_drops() as usize);
    }

    fn read(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<String, String>> {
        Some(Ok(match name {
            "count" => self.count.get().to_string(),
            "kernel_drops" | "kernel-drops" => self.drops().to_string(),
            "encap" => match self.open.with(|open| open.receiver.link()) {
                Some(LinkType::RAW) => "IP".to_owned(),
                _ => "ETHER".to_owned(),
            },
            _ => return None,
        }))
    }

    fn write(&self, _: &Cx<'_>, name: &str, _: &str) -> Option<Result<(), String>> {
        (name == "reset_counts").then(|| {
            self.count.set(0);
            self.take_drops();
            Ok(())
        })
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[("count", "r"), ("kernel_drops", "r"), ("kernel-drops", "r"), ("encap", "r"), ("reset_counts", "w")]
    }
}

/// Returns whether an element of a router receives from this interface by AF_XDP.
pub fn is_received_by_xdp(router: &Router, name: &str) -> bool {
    (0..router.nodes.len()).any(|i| {
        let element = router.element(i);
        let device = (&*element as &dyn std::any::Any).downcast_ref::<FromDevice>();
        device.is_some_and(|d| d.settings.method == Method::Xdp && d.settings.name == name)
    })
}

/// Reads the METHOD of an element for devices.
pub fn method(args: &mut Args<'_>) -> Method {
    match args.key::<String>("METHOD").as_deref() {
        None | Some("LINUX" | "PCAP") => {}
        Some("XDP") => return Method::Xdp,
        Some(other @ ("NETMAP" | "DPDK")) => {
            args.error(format!("METHOD {other} is not available: LINUX is AF_PACKET, XDP is AF_XDP"));
        }
        Some(other) => args.error(format!("METHOD: expected LINUX, PCAP or XDP, found '{other}'")),
    }
    Method::Linux
}

class!(
    FROM_DEVICE,
    "FromDevice",
    "0/1",
    "/h",
    [
        "DEVNAME",
        "PROMISC",
        "SNAPLEN",
        "SNIFFER",
        "BPF_FILTER",
        "METHOD",
        "BURST",
        "OUTBOUND",
        "FORCE_IP",
        "HEADROOM",
        "TIMESTAMP",
        "RING"
    ],
    |args, _| {
        let name: String = args.req("DEVNAME");
        let is_promiscuous = args.opt("PROMISC").unwrap_or(false);
        let snaplen = args.opt::<u32>("SNAPLEN").unwrap_or(u32::MAX);
        let blocks = args.key("RING").unwrap_or(128_u16);
        if !(2..=4096).contains(&blocks) {
            args.error(format!("RING: expected 2 to 4096 blocks, found {blocks}"));
        }
        let burst = args.key("BURST").unwrap_or(64_u16);
        if !(1..=1024).contains(&burst) {
            args.error(format!("BURST: expected 1 to 1024, found {burst}"));
        }
        let method = method(args);
        let (sniffer, outbound) = (args.key("SNIFFER"), args.key("OUTBOUND").unwrap_or(false));
        if method == Method::Xdp {
            for (name, is_true) in [("SNIFFER", sniffer == Some(true)), ("OUTBOUND", outbound)] {
                if is_true {
                    args.error(format!(
                        "{name} true: METHOD XDP takes received frames from the kernel; METHOD LINUX copies"
                    ));
                }
            }
        }
        let filter = args.key::<String>("BPF_FILTER");
        // A filter that Ethernet does not have is compiled when the interface is opened.
        if let Some(Err(e)) = filter.as_ref().map(|text| Filter::compile(text, LinkType::ETHERNET))
            && !matches!(e, FilterError::Link { .. })
        {
            args.error(format!("BPF_FILTER: {e}"));
        }
        let options = DeviceOptions {
            is_promiscuous,
            is_outgoing: outbound,
            is_sniffer: sniffer.unwrap_or(true),
            blocks: usize::from(blocks),
        };
        Box::new(FromDevice {
            settings: Settings { name, method, options },
            filter,
            burst: usize::from(burst),
            snaplen: snaplen as usize,
            headroom: usize::from(args.key("HEADROOM").unwrap_or(HEADROOM as u16)),
            force_ip: args.key("FORCE_IP").unwrap_or(false),
            has_times: args.key("TIMESTAMP").unwrap_or(true),
            open: Opened::default(),
            count: Cell::new(0),
            drops_before: Cell::new(0),
            drops_closed: Cell::new(0),
            is_due: Cell::new(false),
            front: RefCell::default(),
        })
    }
);
