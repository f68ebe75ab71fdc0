//! The link on which modules send frames: options of `flame run`.

use crate::caller::Caller;
use crate::error::Error;
use clap::Args;
use flame_abi::LinkType;
use flame_abi::manifest::bits_per_second;
use flame_plan::{ModulePlan, Plan};
use flame_record::{CaptureFormat, Packet, Sink};
use flame_worker::{Capture, Link};
use std::path::Path;
use std::sync::Arc;

#[derive(Args)]
pub struct SendArgs {
    /// Send the frames of the modules' channels on this interface; a name in .pcap or .pcapng is a capture
    /// file instead, which gets them with the packet times at which they would leave
    #[arg(long, value_name = "INTERFACE|FILE")]
    send: Option<String>,

    /// Bandwidth for all channels together, as `100 Mbit/s` [default: the sum of their rates]
    #[arg(long, value_name = "RATE", requires = "send", value_parser = bits_per_second)]
    send_rate: Option<u64>,
}

/// A capture file for frames.
struct ToFile(Box<dyn Sink>);

impl Capture for ToFile {
    fn frame(&mut self, ts_ns: u64, bytes: &[u8]) -> Result<(), String> {
        let packet = Packet { ts_ns, wire_len: bytes.len() as u32, link: LinkType::ETHERNET, bytes };
        self.0.packet(packet).map_err(|e| e.to_string())
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.0.finish().map_err(|e| e.to_string())
    }
}

impl SendArgs {
    /// Returns an error if the caller acts with the node's rights, which must not be used to send.
    pub fn check(&self, caller: Caller) -> Result<(), Error> {
        match self.send {
            Some(_) => caller.may_name("--send", "run without it: frames are counted, and not sent"),
            None => Ok(()),
        }
    }

    /// Returns a note if modules have channels and nothing takes their frames.
    pub fn note(&self, plan: &Plan) -> Option<String> {
        let module = sending(plan).next().filter(|_| self.send.is_none())?;
        Some(format!(
            "{} sends frames, which are counted and not sent: --send INTERFACE sends them",
            module.name
        ))
    }

    /// Returns the interface on which frames are sent, if they do not go to a file.
    pub fn interface(&self) -> Option<&str> {
        self.send.as_deref().filter(|target| !is_file(target))
    }

    /// Opens the link.
    pub fn link(&self, plan: &Plan) -> Result<Option<Arc<Link>>, Error> {
        let Some(target) = &self.send else { return Ok(None) };
        if sending(plan).next().is_none() {
            return Err("--send: no module here has [[channels]]".into());
        }
        let channels = sending(plan).flat_map(|module| &module.manifest.channels);
        let bandwidth = self.send_rate.unwrap_or_else(|| channels.map(|channel| channel.rate()).sum());
        let path = Path::new(target);
        if !is_file(target) {
            return Ok(Some(Link::interface(target, bandwidth)?));
        }
        if plan.workers > 1 {
            return Err("--send FILE: one worker alone keeps frames in order: --workers 1".into());
        }
        let sink = flame_record::packets(path, CaptureFormat::of(path, true))?;
        Ok(Some(Link::capture(Box::new(ToFile(sink)), bandwidth)))
    }
}

/// Returns whether frames go to a capture file, and not to an interface.
fn is_file(target: &str) -> bool {
    matches!(Path::new(target).extension().and_then(|e| e.to_str()), Some("pcap" | "pcapng"))
}

fn sending(plan: &Plan) -> impl Iterator<Item = &ModulePlan> {
    plan.modules.iter().filter(|module| !module.manifest.channels.is_empty())
}
