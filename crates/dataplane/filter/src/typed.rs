//! Filters bound to the form of packets on which they may be evaluated.
//!
//! A [`PacketFilter`] made from a [`TrustedFilter`] accepts a [`TruePacket`], one made from a [`ShownFilter`]
//! a [`ShownPacket`]. Neither converts to the other.
//!
//! ```compile_fail
//! use flame_filter::{PacketFilter, TruePacket};
//! let filter = flame_plan::ShownFilter::parse("port 53").unwrap().unwrap();
//! let filter = PacketFilter::compile(&filter, flame_abi::LinkType::ETHERNET).unwrap();
//! filter.matches(TruePacket { bytes: &[0; 60], wire_len: 60 });
//! ```
//!
//! ```
//! use flame_filter::{PacketFilter, ShownPacket};
//! let filter = flame_plan::ShownFilter::parse("port 53").unwrap().unwrap();
//! let filter = PacketFilter::compile(&filter, flame_abi::LinkType::ETHERNET).unwrap();
//! assert!(!filter.matches(ShownPacket { bytes: &[0; 60], wire_len: 60 }));
//! ```

use crate::{Filter, FilterError, Program, program::MAX_INSTRUCTIONS};
use flame_abi::LinkType;
use flame_plan::{ShownFilter, TrustedFilter};
use std::marker::PhantomData;

/// A packet as it was captured.
#[derive(Clone, Copy, Debug)]
pub struct TruePacket<'a> {
    pub bytes: &'a [u8],
    pub wire_len: u32,
}

/// A packet as a view shows it.
#[derive(Clone, Copy, Debug)]
pub struct ShownPacket<'a> {
    pub bytes: &'a [u8],
    pub wire_len: u32,
}

/// The maximum number of instructions of a [`ShownFilter`]. They are compiled within milliseconds.
pub const MAX_SHOWN_INSTRUCTIONS: usize = 3000;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::TrustedFilter {}
    impl Sealed for super::ShownFilter {}
}

/// The two types of filters.
pub trait FilterText: sealed::Sealed + Clone {
    type Packet<'a>: Copy;
    #[doc(hidden)]
    const MOST: usize;
    fn text(&self) -> &str;
    #[doc(hidden)]
    fn run(filter: &Filter, packet: Self::Packet<'_>) -> bool;
}

impl FilterText for TrustedFilter {
    type Packet<'a> = TruePacket<'a>;
    const MOST: usize = MAX_INSTRUCTIONS;

    fn text(&self) -> &str {
        self.as_str()
    }

    #[inline]
    fn run(filter: &Filter, packet: TruePacket<'_>) -> bool {
        filter.matches(packet.bytes, packet.wire_len)
    }
}

impl FilterText for ShownFilter {
    type Packet<'a> = ShownPacket<'a>;
    const MOST: usize = MAX_SHOWN_INSTRUCTIONS;

    fn text(&self) -> &str {
        self.as_str()
    }

    #[inline]
    fn run(filter: &Filter, packet: ShownPacket<'_>) -> bool {
        filter.matches(packet.bytes, packet.wire_len)
    }
}

/// A compiled filter for packets of one link type and one kind.
pub struct PacketFilter<F> {
    filter: Filter,
    reads_length: bool,
    kind: PhantomData<fn(F)>,
}

impl<F: FilterText> PacketFilter<F> {
    /// Compiles a filter for packets of `link`, within the limits of its kind.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Filter::compile`].
    pub fn compile(filter: &F, link: LinkType) -> Result<Self, FilterError> {
        let program = Program::compile_within(filter.text(), link, F::MOST)?;
        let reads_length = program.reads_length();
        Ok(Self { filter: Filter::of(&program, filter.text())?, reads_length, kind: PhantomData })
    }

    /// Returns whether a packet passes.
    #[inline]
    pub fn matches(&self, packet: F::Packet<'_>) -> bool {
        F::run(&self.filter, packet)
    }

    /// Returns whether every packet passes unread.
    pub fn accepts_all(&self) -> bool {
        self.filter.accepts_all()
    }

    /// Returns whether the filter reads the packet's length on the wire.
    pub fn reads_length(&self) -> bool {
        self.reads_length
    }
}
