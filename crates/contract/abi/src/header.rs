//! What the host writes into the control area before a call.

/// Bits of [`BatchHeader::flags`].
pub mod batch_flags {
    /// The previous instance of this module was cut off or trapped; this one starts empty.
    pub const RESTARTED: u32 = 1 << 0;
}

/// Values of [`InitHeader::role`].
pub mod role {
    /// Gets packets. There is one per worker.
    pub const FAST: u32 = 0;
    /// Gets the messages of the fast instances. There is one.
    pub const SLOW: u32 = 1;
}

/// At `WINDOW + BATCH_OFFSET` during `flame_batch`; its address is the argument.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchHeader {
    /// Address of the first descriptor; the others follow, 32 bytes each.
    pub descriptors: u32,
    /// Descriptors, 1 to 256.
    pub count: u32,
    /// Packets lost to this module since its last batch (not those its filter left out).
    pub lost: u64,
    /// See [`batch_flags`].
    pub flags: u32,
    /// Link type of the packets (LINKTYPE_ number); all of a batch have the same.
    pub link: u32,
}

/// At `WINDOW + DATA_OFFSET` during `flame_init`, followed by the parameters ([`crate::config`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitHeader {
    pub abi: u32,
    /// See [`role`].
    pub role: u32,
    /// Number of this worker, 0 to `workers - 1`.
    pub worker: u32,
    pub workers: u32,
    /// Time between ticks in nanoseconds of packet time.
    pub tick_ns: u64,
    /// `--interval` in nanoseconds; 0 when none was asked for.
    pub interval_ns: u64,
}

const _: () = assert!(size_of::<BatchHeader>() == 24 && size_of::<InitHeader>() == 32);

impl BatchHeader {
    pub const SIZE: usize = 24;

    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[0..4].copy_from_slice(&self.descriptors.to_le_bytes());
        b[4..8].copy_from_slice(&self.count.to_le_bytes());
        b[8..16].copy_from_slice(&self.lost.to_le_bytes());
        b[16..20].copy_from_slice(&self.flags.to_le_bytes());
        b[20..24].copy_from_slice(&self.link.to_le_bytes());
        b
    }
}

impl InitHeader {
    pub const SIZE: usize = 32;

    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[0..4].copy_from_slice(&self.abi.to_le_bytes());
        b[4..8].copy_from_slice(&self.role.to_le_bytes());
        b[8..12].copy_from_slice(&self.worker.to_le_bytes());
        b[12..16].copy_from_slice(&self.workers.to_le_bytes());
        b[16..24].copy_from_slice(&self.tick_ns.to_le_bytes());
        b[24..32].copy_from_slice(&self.interval_ns.to_le_bytes());
        b
    }
}
