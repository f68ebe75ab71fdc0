//! `-w` without a module that writes packets: the packets that pass the filter, as the view shows them.

use crate::error::Error;
use crate::signals::Packets;
use flame_abi::{Descriptor, LinkType};
use flame_plan::ViewSpec;
use flame_record::{Packet, SinkError};
use flame_source::{RawBlock, RawPacket, Source, SourceError};
use flame_transform::Key;
use flame_view::View;

/// The number of packets after which nothing more is written.
#[derive(Debug, Clone, Copy)]
pub enum Count {
    /// The number of packets to write, after which the source ends.
    Written(u64),
    /// The number of packets to read. The run ends the source after them.
    Read(u64),
}

/// A writer of the packets of a source.
pub struct Writer {
    view: View,
    count: Count,
    decode: flame_decode::Options,
    packets: Packets,
    /// Memory that is reused from block to block.
    descriptors: Vec<Descriptor>,
    shown: Vec<Descriptor>,
    bytes: Vec<u8>,
}

impl Writer {
    pub fn new(
        view: &ViewSpec,
        key: Option<&Key>,
        decapsulate: bool,
        count: Count,
        packets: Packets,
    ) -> Result<Self, Error> {
        let view = View::new(view, key)?;
        let decode = flame_decode::Options { decapsulate, ..Default::default() };
        Ok(Self {
            view,
            count,
            decode,
            packets,
            descriptors: Vec::new(),
            shown: Vec::new(),
            bytes: Vec::new(),
        })
    }

    /// Returns a source that writes its packets as they are read.
    pub fn tee(mut self, source: Box<dyn Source>) -> Box<dyn Source> {
        flame_source::each(source, move |block| self.block(block))
    }

    /// Writes the packets of a block, and returns whether there may be more.
    fn block(&mut self, block: &mut RawBlock) -> Result<bool, SourceError> {
        let packets = std::mem::take(&mut block.packets);
        let most = match self.count {
            Count::Read(left) => usize::try_from(left).unwrap_or(usize::MAX),
            Count::Written(_) => usize::MAX,
        };
        let mut result = Ok(());
        for same in packets[..packets.len().min(most)].chunk_by(|a, b| a.link == b.link) {
            result = result.and_then(|()| self.packets(same, &block.data));
        }
        if let Count::Read(left) = &mut self.count {
            *left = left.saturating_sub(packets.len() as u64);
        }
        block.packets = packets;
        result.map(|()| !matches!(self.count, Count::Written(0)))
    }

    /// Writes packets of one link type.
    fn packets(&mut self, packets: &[RawPacket], data: &[u8]) -> Result<(), SourceError> {
        let Some(link) = packets.first().map(|packet| packet.link) else { return Ok(()) };
        let decode = self.decode;
        let described = packets.iter().map(|p| {
            let bytes = &data[p.offset as usize..(p.offset + p.cap_len) as usize];
            let decoded = flame_decode::decode(p.link, bytes, p.wire_len, decode);
            Descriptor { ts_ns: p.ts_ns, addr: p.offset, ..decoded }
        });
        self.descriptors.clear();
        self.descriptors.extend(described);
        self.shown.resize(packets.len().max(self.shown.len()), Descriptor::default());
        let all = self.descriptors.iter().map(|d| d.cap_len as usize).sum::<usize>();
        let is_open = self.view.hides_nothing();
        if !is_open && self.bytes.len() < all + flame_abi::MAX_PACKET {
            self.bytes.resize(all + flame_abi::MAX_PACKET, 0);
        }
        let written = match is_open {
            true => self.view.select(&self.descriptors, |_| link, data, &mut self.shown, 0),
            false => self.view.copy(&self.descriptors, |_| link, data, &mut self.shown, &mut self.bytes, 0),
        };
        let written = written.map_err(|e| failed(link, e.to_string()))?;
        let bytes = if is_open { data } else { &self.bytes };
        for shown in &self.shown[..written.packets as usize] {
            match &mut self.count {
                Count::Written(0) => break,
                Count::Written(left) => *left -= 1,
                Count::Read(_) => {}
            }
            let at = shown.addr as usize;
            let bytes = &bytes[at..at + shown.cap_len as usize];
            let packet = Packet { ts_ns: shown.ts_ns, wire_len: shown.wire_len, link, bytes };
            self.packets.write(packet).map_err(of_sink)?;
        }
        Ok(())
    }
}

fn failed(link: LinkType, reason: String) -> SourceError {
    let place = format!("-w: packets of link type {}", link.0);
    SourceError::Io { place, error: std::io::Error::other(reason) }
}

fn of_sink(error: SinkError) -> SourceError {
    match error {
        SinkError::Io { path, source } => {
            SourceError::Io { place: path.display().to_string(), error: source }
        }
        other => SourceError::Io { place: "-w".to_owned(), error: std::io::Error::other(other.to_string()) },
    }
}
