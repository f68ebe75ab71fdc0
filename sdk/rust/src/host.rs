#![allow(unsafe_code)] // The imports.

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
    // SAFETY: the host wrote address and length, and keeps `len` bytes there that are not written.
    unsafe {
        std::slice::from_raw_parts(address as usize as *const u8, len as usize)
    }
    // Natively, tests pass every text in its place.
    #[cfg(not(target_family = "wasm"))]
    panic!("text at {address:#x} of {len} bytes: only a host maps one")
}

/// Returns `n`, or `most` if that is less, as `n.min(most)` does, where the compiler might know that already:
/// it would leave the comparison out, and the analysis of bounds may not find what the compiler found. Costs
/// two accesses to memory.
///
/// ```
/// # let words = [1_u16, 2, 3];
/// let sum: u32 = words[..flame_module::limit(words.len(), 512)].iter().map(|word| u32::from(*word)).sum();
/// # assert_eq!(sum, 6);
/// ```
#[inline(always)]
pub fn limit(n: usize, most: usize) -> usize {
    std::hint::black_box(n).min(most)
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
