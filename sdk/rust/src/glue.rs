#![allow(unsafe_code)] // The exports, and the imports.

use crate::{Batch, Forward, Init, Module, Out, Progress, Reply, Request, Slow};
use flame_abi::output::{MORE, REFUSED, REST, TAKEN};

/// The one instance of a module in its memory: fast or slow, as the host decides at init.
#[doc(hidden)]
pub struct Slot<F, S> {
    path: Path<F, S>,
    out: Option<Out>,
    /// The state that was exported last.
    state: Vec<u8>,
}

enum Path<F, S> {
    None,
    Fast(F),
    Slow(S),
}

impl<F: Module, S: Slow> Slot<F, S> {
    pub const fn new() -> Self {
        Self { path: Path::None, out: None, state: Vec::new() }
    }

    pub fn init(&mut self, bytes: &[u8]) -> u64 {
        let init = Init::new(bytes);
        self.path = if init.is_slow() { Path::Slow(S::new(&init)) } else { Path::Fast(F::new(&init)) };
        // The area is allocated after the module's own memory, so it takes no more than is left.
        self.out = Some(Out::default());
        self.call(|_, _| Progress::Done)
    }

    pub fn batch(&mut self, batch: &Batch) -> u64 {
        self.call(|path, out| {
            if let Path::Fast(fast) = path {
                fast.batch(batch, out);
            }
            Progress::Done
        })
    }

    pub fn tick(&mut self, now_ns: u64) -> u64 {
        self.call(|path, out| match path {
            Path::Fast(fast) => fast.tick(now_ns, out),
            Path::Slow(slow) => slow.tick(now_ns, out),
            Path::None => Progress::Done,
        })
    }

    pub fn end(&mut self, now_ns: u64) -> u64 {
        self.call(|path, out| match path {
            Path::Fast(fast) => fast.end(now_ns, out),
            Path::Slow(slow) => slow.end(now_ns, out),
            Path::None => Progress::Done,
        })
    }

    pub fn message(&mut self, bytes: &[u8]) -> u64 {
        self.call(|path, out| {
            if let Path::Slow(slow) = path {
                slow.message(bytes, out);
            }
            Progress::Done
        })
    }

    pub fn serve(&mut self, data: &[u8]) -> u64 {
        self.call(|path, out| {
            if let (Path::Slow(slow), Some(request)) = (path, Request::read(data)) {
                slow.serve(&request, out);
            }
            Progress::Done
        })
    }

    pub fn done(&mut self, data: &[u8]) -> u64 {
        self.call(|path, out| {
            if let (Path::Slow(slow), Some(reply)) = (path, Reply::read(data)) {
                slow.done(&reply, out);
            }
            Progress::Done
        })
    }

    pub fn pressure(&mut self, free: u64) -> u64 {
        self.call(|path, out| {
            match path {
                Path::Fast(fast) => fast.pressure(free, out),
                Path::Slow(slow) => slow.pressure(free, out),
                Path::None => {}
            }
            Progress::Done
        })
    }

    /// Returns the place of the state.
    pub fn export(&mut self) -> u64 {
        self.state.clear();
        match &mut self.path {
            Path::Fast(fast) => fast.export(&mut self.state),
            Path::Slow(slow) => slow.export(&mut self.state),
            Path::None => {}
        }
        pack((&self.state, false), Progress::Done)
    }

    pub fn import(&mut self, state: &[u8]) -> u64 {
        let is_taken = match &mut self.path {
            Path::Fast(fast) => fast.import(state),
            Path::Slow(slow) => slow.import(state),
            Path::None => false,
        };
        if is_taken { TAKEN } else { REFUSED }
    }

    /// Returns the rest of the output of the call before, which the host requests until there is no more.
    pub fn rest(&mut self) -> u64 {
        self.out.as_mut().map_or(0, |out| pack(out.hand(), Progress::Done))
    }

    #[inline]
    fn call(&mut self, call: impl FnOnce(&mut Path<F, S>, &mut Out) -> Progress) -> u64 {
        let Some(out) = &mut self.out else { return 0 };
        let progress = call(&mut self.path, out);
        crate::log::flush(out);
        pack(out.hand(), progress)
    }
}

/// Returns the address and length of output, whether more of it waits, and whether to call again.
#[inline]
fn pack((bytes, rest): (&[u8], bool), progress: Progress) -> u64 {
    let rest = if rest { REST } else { 0 };
    let more = if progress == Progress::More { MORE } else { 0 };
    if bytes.is_empty() {
        return more | rest;
    }
    bytes.as_ptr() as u64 | (bytes.len() as u64) << 32 | more | rest
}

/// A module that forwards packets instead of measuring them.
#[doc(hidden)]
pub struct Forwards<F>(F);

impl<F: Forward> Module for Forwards<F> {
    fn new(init: &Init) -> Self {
        Self(F::new(init))
    }

    /// Does nothing, and is never called: the module exports no `flame_batch`.
    fn batch(&mut self, _: &Batch, _: &mut Out) {}

    fn tick(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.0.tick(now_ns, out)
    }

    fn pressure(&mut self, free: u64, out: &mut Out) {
        self.0.pressure(free, out);
    }

    fn end(&mut self, now_ns: u64, out: &mut Out) -> Progress {
        self.0.end(now_ns, out)
    }
}

impl<F: Forward, S: Slow> Slot<Forwards<F>, S> {
    pub fn push(&mut self, port: u32, batch: &Batch) -> u64 {
        self.call(|path, out| {
            if let Path::Fast(fast) = path {
                fast.0.push(port, batch, out);
            }
            Progress::Done
        })
    }
}

impl<F: Module, S: Slow> Default for Slot<F, S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Exports a module: `export!(Fast)` or `export!(Fast, slow = Merge)`; one that forwards packets as
/// `export!(forward = Fast)` or `export!(forward = Fast, slow = Merge)`. At its end follow `, state` for a
/// module that keeps state (`[state]` in its manifest; none that forwards packets), `, serve` for one with
/// `[[services]]` and `, done` for one with `[[uses]]`, both with a slow path, and `, pressure` for one with
/// [`Module::pressure`]. It has no effect natively.
#[macro_export]
macro_rules! export {
    (forward = $fast:ty) => { $crate::export!(@forward $fast, $crate::NoSlow); };
    (forward = $fast:ty, pressure) => {
        $crate::export!(@forward $fast, $crate::NoSlow);
        $crate::export!(@option pressure);
    };
    (forward = $fast:ty, slow = $slow:ty) => {
        $crate::export!(@forward $fast, $slow);
        $crate::export!(@slow);
    };
    (forward = $fast:ty, slow = $slow:ty, pressure) => {
        $crate::export!(@forward $fast, $slow);
        $crate::export!(@slow);
        $crate::export!(@option pressure);
    };
    ($fast:ty, slow = $slow:ty $(, $option:ident)*) => {
        $crate::export!(@measure $fast, $slow);
        $crate::export!(@slow);
        $($crate::export!(@option $option);)*
    };
    ($fast:ty $(, $option:ident)*) => {
        $crate::export!(@measure $fast, $crate::NoSlow);
        $($crate::export!(@option $option);)*
    };
    (@option state) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn flame_export() -> u64 {
                slot().export()
            }
        };
        $crate::export!(@data flame_import, import);
    };
    (@option serve) => { $crate::export!(@data flame_serve, serve); };
    (@option done) => { $crate::export!(@data flame_done, done); };
    (@option pressure) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn flame_pressure(free: u64) -> u64 {
                slot().pressure(free)
            }
        };
    };
    (@measure $fast:ty, $slow:ty) => {
        $crate::export!(@all $fast, $slow);
        #[cfg(target_family = "wasm")]
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn flame_batch(header: u32) -> u64 {
                // SAFETY: this is the host's call of `flame_batch`.
                slot().batch(&unsafe { $crate::Batch::from_host(header) })
            }
        };
    };
    (@forward $fast:ty, $slow:ty) => {
        $crate::export!(@all $crate::Forwards<$fast>, $slow);
        #[cfg(target_family = "wasm")]
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn flame_push(port: u32, header: u32) -> u64 {
                // SAFETY: this is the host's call of `flame_push`.
                slot().push(port, &unsafe { $crate::Batch::from_host(header) })
            }
        };
    };
    (@slow) => { $crate::export!(@data flame_message, message); };
    (@data $export:ident, $method:ident) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn $export(at: u32, len: u32) -> u64 {
                // SAFETY: see `flame_init`.
                let bytes = unsafe { ::std::slice::from_raw_parts(at as usize as *const u8, len as usize) };
                slot().$method(bytes)
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
                slot().init(bytes)
            }

            #[unsafe(no_mangle)]
            extern "C" fn flame_tick(now_ns: u64) -> u64 {
                slot().tick(now_ns)
            }

            #[unsafe(no_mangle)]
            extern "C" fn flame_end(now_ns: u64) -> u64 {
                slot().end(now_ns)
            }

            #[unsafe(no_mangle)]
            extern "C" fn flame_rest() -> u64 {
                slot().rest()
            }
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_says_where_output_is_and_what_follows() {
        let bytes = &[0; 5][..];
        // The address has more bits natively.
        let at = bytes.as_ptr() as u64 & 0x3fff_ffff;
        let packed = |bytes, rest, progress| pack((bytes, rest), progress);
        let flags = |value: u64| (value & MORE != 0, value & REST != 0);
        assert_eq!(packed(&[], false, Progress::Done), 0);
        assert_eq!(flags(packed(&[], true, Progress::More)), (true, true));
        assert_eq!(packed(bytes, false, Progress::Done) & 0x3fff_ffff, at);
    }
}
