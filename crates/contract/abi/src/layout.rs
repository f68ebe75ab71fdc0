//! The addresses of a module's linear memory.
//!
//! ```text
//! 0                 memory the module owns (data, stack, heap), at most MAX_MEMORY
//! WINDOW            control area: the host's side of every call, CONTROL_BYTES; its last page is POLL
//! VIEW              view blocks, then (zero copy) the source's own ring
//! TEXTS             large texts among the parameters, MAX_TEXTS
//! SHARED            shared areas, one every SHARED_STRIDE bytes, MAX_SHARED of them
//! 4 GiB             end
//! ```
//!
//! All mappings from `WINDOW` on lie beyond the size that `memory.size` reports. All of them are read-only:
//! loads succeed, stores trap. Only shared areas that the module writes are not. Loads and stores in the gaps
//! between mappings trap.

/// The address of the first byte of the window.
pub const WINDOW: u32 = 0x8000_0000;
/// The size in bytes of the control area, which starts at [`WINDOW`].
pub const CONTROL_BYTES: u32 = 1 << 20;
/// The address of the first byte of the view blocks.
pub const VIEW: u32 = WINDOW + CONTROL_BYTES;
/// The number of bytes from [`VIEW`] on that a view may map.
pub const VIEW_BYTES: u32 = 0x7000_0000;
/// The address of the large texts among the parameters (see [`crate::config`]). The gap after the view is
/// more than the length of a packet.
pub const TEXTS: u32 = VIEW + VIEW_BYTES + (1 << 20);
/// The largest size of all of them together, in bytes.
pub const MAX_TEXTS: u32 = 128 << 20;
/// The address of the first area that the module shares with others, in the order of its manifest.
pub const SHARED: u32 = TEXTS + MAX_TEXTS + (2 << 20);
const _: () = assert!(SHARED == 0xf840_0000);
/// The distance between two shared areas in bytes. The gap after an area traps.
pub const SHARED_STRIDE: u32 = 24 << 20;
/// The maximum number of shared areas of a module.
pub const MAX_SHARED: u32 = 4;
/// The largest shared area in bytes.
pub const MAX_SHARED_BYTES: u32 = 16 << 20;
/// The unit in which shared areas are sized, in bytes.
pub const SHARED_PAGE: u32 = 64 << 10;
const _: () = assert!(MAX_SHARED_BYTES < SHARED_STRIDE);
const _: () = assert!(SHARED as u64 + (SHARED_STRIDE * MAX_SHARED) as u64 <= 1 << 32);
/// The largest memory that a module can own, in bytes.
pub const MAX_MEMORY: u32 = 0x4000_0000;

/// The offset of the batch header in the control area.
pub const BATCH_OFFSET: u32 = 0;
/// The offset in the control area of the data for `flame_init`, `flame_message`, `flame_import`,
/// `flame_serve` and `flame_done`.
pub const DATA_OFFSET: u32 = 4096;
/// The largest configuration, message or state in bytes.
pub const MAX_DATA: u32 = POLL_OFFSET - DATA_OFFSET;

/// The offset of the polling page in the control area.
pub const POLL_OFFSET: u32 = CONTROL_BYTES - POLL_BYTES;
/// The address of the polling page. Code without counters loads from it in every loop, and the host revokes
/// access to it to end a call that has passed its deadline. The page holds no data.
pub const POLL: u32 = WINDOW + POLL_OFFSET;
/// The size of the polling page in bytes.
pub const POLL_BYTES: u32 = 4096;

/// The names of exports, imports and custom sections.
pub mod names {
    pub const MEMORY: &str = "memory";
    /// `(config: i32, len: i32) -> i64`, optional.
    pub const INIT: &str = "flame_init";
    /// `(batch: i32) -> i64`, required of a module that does not forward packets.
    pub const BATCH: &str = "flame_batch";
    /// `(port: i32, batch: i32) -> i64`, of a module that forwards packets, instead of `flame_batch`.
    pub const PUSH: &str = "flame_push";
    /// `(now_ns: i64) -> i64`, optional.
    pub const TICK: &str = "flame_tick";
    /// `(now_ns: i64) -> i64`, optional: the last call of an instance.
    pub const END: &str = "flame_end";
    /// `(ptr: i32, len: i32) -> i64`, optional: a module that exports it has a slow instance.
    pub const MESSAGE: &str = "flame_message";
    /// `() -> i64`, optional: returns the rest of the output of the call before it.
    pub const REST: &str = "flame_rest";
    /// `() -> i64`, of a module that keeps state: returns its state as one blob in its own memory.
    pub const EXPORT: &str = "flame_export";
    /// `(ptr: i32, len: i32) -> i64`, of a module that keeps state: takes or refuses a blob of an earlier
    /// instance, once after `flame_init`.
    pub const IMPORT: &str = "flame_import";
    /// `(free: i64) -> i64`, optional: the instance has little memory left, or was refused more.
    pub const PRESSURE: &str = "flame_pressure";
    /// `(ptr: i32, len: i32) -> i64`, of a module that offers services: a call of one of them.
    pub const SERVE: &str = "flame_serve";
    /// `(ptr: i32, len: i32) -> i64`, of a module that uses services: the outcome of a call.
    pub const DONE: &str = "flame_done";
    /// An immutable exported global with the address of a NUL-terminated text that explains a trap, optional.
    pub const PANIC: &str = "flame_panic_text";

    /// Returns whether an export is called with a batch. A module has one of the two.
    pub fn is_batch(name: &str) -> bool {
        name == BATCH || name == PUSH
    }

    /// The prefix of all names that the rewriter adds. A module must not export such a name.
    pub const RESERVED: &str = "flame:";
    /// The exported global with the fuel of the call: instructions that it may still execute.
    pub const FUEL: &str = "flame:fuel";
    /// The exported global with the fuel that a packet begins with.
    pub const PACKET_BUDGET: &str = "flame:packet_budget";
    /// The exported global with the index of the current packet.
    pub const PACKET_INDEX: &str = "flame:packet";
    /// The exported global with the number of packets in the batch.
    pub const PACKET_COUNT: &str = "flame:count";
    /// The exported global with the place of the loop that was cut off.
    pub const CUT_OFF_LOOP: &str = "flame:loop";

    /// The module name of every import.
    pub const IMPORTS: &str = "flame";
    /// `(index: i32)`: marks the beginning of packet `index` of this batch, with a new budget. Indices must
    /// increase. The host replaces the call by a few instructions.
    pub const PACKET: &str = "packet";

    /// `()`: marks the path from here on as cold. The call costs nothing. Estimates leave cold paths out;
    /// bounds do not.
    pub const COLD: &str = "cold";

    /// The custom section that holds the manifest (the text of `module.toml`).
    pub const MANIFEST_SECTION: &str = "flame.manifest";
}
