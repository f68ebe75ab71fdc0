//! The headers that the host writes into the control area before a call.

/// The bits of [`BatchHeader::flags`].
pub mod batch_flags {
    /// The previous instance of this module trapped or was stopped at its budget. This instance starts empty.
    pub const RESTARTED: u32 = 1 << 0;
}

/// The values of [`InitHeader::role`].
pub mod role {
    /// The instance receives packets. There is one such instance per worker.
    pub const FAST: u32 = 0;
    /// The instance receives the messages of the fast instances. There is one such instance.
    pub const SLOW: u32 = 1;
}

/// The header of a batch, at `WINDOW + BATCH_OFFSET` during `flame_batch`, whose argument is this address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchHeader {
    /// The address of the first descriptor. The others follow, 32 bytes each.
    pub descriptors: u32,
    /// The number of descriptors, 1 to 256.
    pub count: u32,
    /// The number of packets that were lost to this module since its last batch, without those that its
    /// filter left out. With event queues, those of this queue since its last batch; what is lost before it
    /// has a queue is in the next batch of any.
    pub lost: u64,
    /// The bits of [`batch_flags`].
    pub flags: u32,
    /// The link type (LINKTYPE_ number) of all packets in the batch.
    pub link: u32,
    /// The number of the event queue of all packets in the batch, in the order of the manifest, or 0.
    pub queue: u32,
    /// Zero.
    pub reserved: u32,
}

/// The header of `flame_init`, at `WINDOW + DATA_OFFSET`, followed by the parameters ([`crate::config`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitHeader {
    pub abi: u32,
    /// One of the values of [`role`].
    pub role: u32,
    /// The number of this worker, 0 to `workers - 1`.
    pub worker: u32,
    pub workers: u32,
    /// The time between ticks in nanoseconds of packet time.
    pub tick_ns: u64,
    /// The value of `--interval` in nanoseconds, or 0 if it was not given.
    pub interval_ns: u64,
    /// The seed of this instance's random numbers, or 0 unless the manifest asks for one (`needs.random`).
    pub seed: u64,
}

const _: () = assert!(size_of::<BatchHeader>() == 32 && size_of::<InitHeader>() == 40);

impl BatchHeader {
    pub const SIZE: usize = 32;

    /// Returns the header as it lies in memory.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[0..4].copy_from_slice(&self.descriptors.to_le_bytes());
        b[4..8].copy_from_slice(&self.count.to_le_bytes());
        b[8..16].copy_from_slice(&self.lost.to_le_bytes());
        b[16..20].copy_from_slice(&self.flags.to_le_bytes());
        b[20..24].copy_from_slice(&self.link.to_le_bytes());
        b[24..28].copy_from_slice(&self.queue.to_le_bytes());
        b[28..32].copy_from_slice(&self.reserved.to_le_bytes());
        b
    }
}

impl InitHeader {
    pub const SIZE: usize = 40;

    /// Returns the header as it lies in memory.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[0..4].copy_from_slice(&self.abi.to_le_bytes());
        b[4..8].copy_from_slice(&self.role.to_le_bytes());
        b[8..12].copy_from_slice(&self.worker.to_le_bytes());
        b[12..16].copy_from_slice(&self.workers.to_le_bytes());
        b[16..24].copy_from_slice(&self.tick_ns.to_le_bytes());
        b[24..32].copy_from_slice(&self.interval_ns.to_le_bytes());
        b[32..40].copy_from_slice(&self.seed.to_le_bytes());
        b
    }
}
