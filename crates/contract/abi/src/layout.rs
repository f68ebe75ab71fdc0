//! Addresses of a module's linear memory.
//!
//! ```text
//! 0                 memory the module owns (data, stack, heap), at most MAX_MEMORY
//! WINDOW            control area: the host's side of every call, CONTROL_BYTES; its last page is POLL
//! VIEW              view blocks, then (zero copy) the source's own ring
//! 4 GiB             end
//! ```
//!
//! All from `WINDOW` on is mapped read-only and lies beyond what `memory.size` reports: a load
//! works, a store traps. Gaps between mappings trap either way.

/// First byte of the window.
pub const WINDOW: u32 = 0x8000_0000;
/// Size of the control area that starts at [`WINDOW`].
pub const CONTROL_BYTES: u32 = 1 << 20;
/// First byte of the view blocks.
pub const VIEW: u32 = WINDOW + CONTROL_BYTES;
/// Bytes a view may map behind [`VIEW`].
pub const VIEW_BYTES: u32 = 0x7000_0000;
/// Largest memory a module can own, in bytes.
pub const MAX_MEMORY: u32 = 0x4000_0000;

/// Offset of the batch header in the control area.
pub const BATCH_OFFSET: u32 = 0;
/// Offset in the control area of what `flame_init` and `flame_message` are given.
pub const DATA_OFFSET: u32 = 4096;
/// Largest configuration or message in bytes.
pub const MAX_DATA: u32 = POLL_OFFSET - DATA_OFFSET;

/// Offset of the polling page in the control area.
pub const POLL_OFFSET: u32 = CONTROL_BYTES - POLL_BYTES;
/// Address of the polling page. Code that has no counters loads from it in every loop; the host revokes
/// access to it to end a call that ran past its deadline. It holds nothing.
pub const POLL: u32 = WINDOW + POLL_OFFSET;
/// Size of the polling page.
pub const POLL_BYTES: u32 = 4096;

/// Names of exports and imports.
pub mod names {
    pub const MEMORY: &str = "memory";
    /// `(config: i32, len: i32) -> i64`, optional.
    pub const INIT: &str = "flame_init";
    /// `(batch: i32) -> i64`, required.
    pub const BATCH: &str = "flame_batch";
    /// `(now_ns: i64) -> i64`, optional.
    pub const TICK: &str = "flame_tick";
    /// `(now_ns: i64) -> i64`, optional: the last call an instance gets.
    pub const END: &str = "flame_end";
    /// `(ptr: i32, len: i32) -> i64`, optional: makes the module have a slow path.
    pub const MESSAGE: &str = "flame_message";
    /// Address of a NUL-terminated text that explains a trap, optional (`() -> i32` is not called:
    /// this is an immutable exported global).
    pub const PANIC: &str = "flame_panic_text";

    /// What the rewriter's export begins with that names an exported function without counters.
    pub const POLLED: &str = "flame:polled:";

    /// Module name of every import.
    pub const IMPORTS: &str = "flame";
    /// `(index: i32)`: packet `index` of this batch begins. Indices must increase. The budget of
    /// one packet starts anew. Costs two instructions: the host replaces the call by them.
    pub const PACKET: &str = "packet";

    /// The other import, `cold()`: the path from here on is seldom taken. It costs nothing; estimates leave
    /// cold paths out, bounds do not.
    pub const COLD: &str = "cold";

    /// Custom section that holds the manifest (the text of `module.toml`).
    pub const MANIFEST_SECTION: &str = "flame.manifest";
}
