#![allow(unsafe_code)] // The exports, and the imports.

use crate::{Batch, Init, Module, Out, Progress, Slow};
use flame_abi::output::MORE;

/// Informs the host that packet `index` begins. The host replaces the call with about a dozen instructions.
#[inline(always)]
pub fn begin_packet(index: u32) {
    #[cfg(target_family = "wasm")]
    {
        #[link(wasm_import_module = "flame")]
        unsafe extern "C" {
            #[link_name = "packet"]
            fn packet(index: u32);
        }
        // SAFETY: takes a number and does nothing that Rust could see.
        unsafe { packet(index) }
    }
    #[cfg(not(target_family = "wasm"))]
    let _ = index;
}

/// Returns a large text among the parameters, which the host maps for as long as the instance lives.
pub fn text_of_host<'a>(address: u32, len: u32) -> &'a [u8] {
    #[cfg(target_family = "wasm")]
    // SAFETY: the host wrote address and length, and keeps `len` bytes there that nobody writes.
    unsafe {
        std::slice::from_raw_parts(address as usize as *const u8, len as usize)
    }
    // Natively, tests pass every text in its place.
    #[cfg(not(target_family = "wasm"))]
    panic!("text at {address:#x} of {len} bytes: only a host maps one")
}

/// Marks the path from here on as cold, for example first packets, errors and full tables. Estimates of time,
/// and therefore admission, leave cold paths out. Bounds include them, and a module that takes them too often
/// is evicted when its batches exceed their time. The call costs nothing.
#[inline(always)]
pub fn cold() {
    #[cfg(target_family = "wasm")]
    {
        #[link(wasm_import_module = "flame")]
        unsafe extern "C" {
            #[link_name = "cold"]
            fn cold();
        }
        // SAFETY: takes nothing and does nothing that Rust could see.
        unsafe { cold() }
    }
}

/// The one instance of a module in its memory: fast or slow, as the host decides at init.
#[doc(hidden)]
pub struct Slot<F, S> {
    path: Path<F, S>,
    out: Option<Out>,
    /// The result of the call whose output is still being handed over.
    said: Option<Progress>,
}

enum Path<F, S> {
    None,
    Fast(F),
    Slow(S),
}

impl<F: Module, S: Slow> Slot<F, S> {
    pub const fn new() -> Self {
        Self { path: Path::None, out: None, said: None }
    }

    pub fn init(&mut self, bytes: &[u8]) {
        let init = Init::new(bytes);
        self.path = if init.is_slow() { Path::Slow(S::new(&init)) } else { Path::Fast(F::new(&init)) };
        // The area is allocated after the module's own memory, so it takes no more than is left.
        self.out = Some(Out::default());
    }

    pub fn batch(&mut self, batch: &Batch) -> u64 {
        pack(self.once(|path, out| {
            if let Path::Fast(fast) = path {
                fast.batch(batch, out);
            }
        }))
    }

    pub fn tick(&mut self, now_ns: u64) -> u64 {
        pack(self.call(|path, out| match path {
            Path::Fast(fast) => fast.tick(now_ns, out),
            Path::Slow(slow) => slow.tick(now_ns, out),
            Path::None => Progress::Done,
        }))
    }

    pub fn end(&mut self, now_ns: u64) -> u64 {
        pack(self.call(|path, out| {
            out.make_room(true);
            match path {
                Path::Fast(fast) => fast.end(now_ns, out),
                Path::Slow(slow) => slow.end(now_ns, out),
                Path::None => Progress::Done,
            }
        }))
    }

    pub fn message(&mut self, bytes: &[u8]) -> u64 {
        pack(self.once(|path, out| {
            if let Path::Slow(slow) = path {
                slow.message(bytes, out);
            }
        }))
    }

    /// Makes a call that the host does not repeat for more output: output that does not fit waits for the
    /// next call.
    #[inline]
    fn once(&mut self, call: impl FnOnce(&mut Path<F, S>, &mut Out)) -> (&[u8], bool) {
        let Some(out) = &mut self.out else { return (&[], false) };
        call(&mut self.path, out);
        (out.hand().0, false)
    }

    /// Makes a call that the host repeats. The module is called again only after all its output has been
    /// handed over.
    #[inline]
    fn call(&mut self, call: impl FnOnce(&mut Path<F, S>, &mut Out) -> Progress) -> (&[u8], bool) {
        let Some(out) = &mut self.out else { return (&[], false) };
        if self.said.is_none() {
            out.make_room(false);
        }
        let progress = match self.said.take() {
            Some(said) => said,
            None => call(&mut self.path, out),
        };
        let (bytes, pending) = out.hand();
        self.said = pending.then_some(progress);
        (bytes, pending || progress == Progress::More)
    }
}

/// Returns the address and length of the output, and whether there is more.
#[inline]
fn pack((bytes, more): (&[u8], bool)) -> u64 {
    let more = if more { MORE } else { 0 };
    if bytes.is_empty() {
        return more;
    }
    bytes.as_ptr() as u64 | (bytes.len() as u64) << 32 | more
}

impl<F: Module, S: Slow> Default for Slot<F, S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Exports a module: `export!(Fast)` or `export!(Fast, slow = Merge)`. It has no effect natively.
#[macro_export]
macro_rules! export {
    ($fast:ty) => { $crate::export!(@all $fast, $crate::NoSlow); };
    ($fast:ty, slow = $slow:ty) => {
        $crate::export!(@all $fast, $slow);
        #[cfg(target_family = "wasm")]
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn flame_message(at: u32, len: u32) -> u64 {
                // SAFETY: see `flame_init`.
                let bytes = unsafe { ::std::slice::from_raw_parts(at as usize as *const u8, len as usize) };
                slot().message(bytes)
            }
        };
    };
    (@all $fast:ty, $slow:ty) => {
        #[cfg(target_family = "wasm")]
        fn slot() -> &'static mut $crate::Slot<$fast, $slow> {
            static mut SLOT: $crate::Slot<$fast, $slow> = $crate::Slot::new();
            // SAFETY: one thread, and the host never calls an export from within another.
            unsafe { &mut *&raw mut SLOT }
        }

        #[cfg(target_family = "wasm")]
        const _: () = {
            #[unsafe(no_mangle)]
            pub static mut flame_panic_text: [u8; 512] = [0; 512];

            #[unsafe(no_mangle)]
            extern "C" fn flame_init(at: u32, len: u32) -> u64 {
                ::std::panic::set_hook(::std::boxed::Box::new(|info| {
                    let text = ::std::string::ToString::to_string(info);
                    let len = text.len().min(511);
                    // SAFETY: one thread, and the module ends with this panic.
                    let place = unsafe { &mut *&raw mut flame_panic_text };
                    place[..len].copy_from_slice(&text.as_bytes()[..len]);
                }));
                // SAFETY: the host passes `len` readable bytes at `at` for the time of this call.
                let bytes = unsafe { ::std::slice::from_raw_parts(at as usize as *const u8, len as usize) };
                slot().init(bytes);
                0
            }

            #[unsafe(no_mangle)]
            extern "C" fn flame_batch(header: u32) -> u64 {
                // SAFETY: this is the host's call of `flame_batch`.
                slot().batch(&unsafe { $crate::Batch::from_host(header) })
            }

            #[unsafe(no_mangle)]
            extern "C" fn flame_tick(now_ns: u64) -> u64 {
                slot().tick(now_ns)
            }

            #[unsafe(no_mangle)]
            extern "C" fn flame_end(now_ns: u64) -> u64 {
                slot().end(now_ns)
            }
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoSlow;
    use flame_abi::BatchHeader;

    /// A module that sends more messages than a host takes from one call, without ever asking for room.
    struct Many(u32);

    impl Module for Many {
        fn new(_: &Init) -> Self {
            Self(0)
        }

        fn batch(&mut self, _: &Batch, out: &mut Out) {
            (0..5000u64).for_each(|n| out.message(&n.to_le_bytes()));
        }

        fn end(&mut self, _: u64, out: &mut Out) -> Progress {
            self.0 += 1;
            (0..5000u64).for_each(|n| out.message(&n.to_le_bytes()));
            if self.0 < 3 { Progress::More } else { Progress::Done }
        }
    }

    #[test]
    fn the_rest_comes_with_the_calls_that_the_host_repeats() {
        let mut slot = Slot::<Many, NoSlow>::new();
        slot.init(&[0; 32]);
        let batch = Batch::new(&[], &[], 0, &BatchHeader::default());
        let (bytes, more) = slot.once(|path, out| {
            if let Path::Fast(fast) = path {
                fast.batch(&batch, out);
            }
        });
        assert_eq!((bytes.len() / 16, more), (4096, false), "no batch is repeated");
        let mut ended = 0;
        let mut calls = Vec::new();
        while calls.last().is_none_or(|(_, more)| *more) {
            let (bytes, more) = slot.call(|path, out| match path {
                Path::Fast(fast) => {
                    ended += 1;
                    fast.end(0, out)
                }
                _ => Progress::Done,
            });
            calls.push((bytes.len() / 16, more));
        }
        // This includes the output of the batch. The module is called again only when all of it is handed
        // over.
        let expected = [(4096, true), (1808, true), (4096, true), (904, true), (4096, true), (904, false)];
        assert_eq!((calls, ended), (expected.to_vec(), 3));
    }
}
