#![allow(unsafe_code)] // Reads and writes areas of the window, which other modules write as well.

use std::marker::PhantomData;

/// The access of a module that only reads a [`SharedArea`].
#[derive(Clone, Copy, Debug)]
pub struct Read;

/// The access of a module that reads and writes a [`SharedArea`].
#[derive(Clone, Copy, Debug)]
pub struct Write;

/// An area of memory that modules of a run share by its name: `[[shared]]` in the manifest. It begins as
/// zeros. [`manifest!`](crate::manifest) makes a constant for each, as `Shared::ROUTES`.
///
/// Its bytes are copied, never referred to, since another module may change them at any time. Two loads of
/// one place may differ, and what is found there is whatever that module has written: check it.
///
/// All offsets are in bytes. Numbers are little-endian, and lie at any offset.
///
/// ```
/// # use flame_module::*;
/// # mod tables {
/// #     flame_module::manifest!("src/example.toml");
/// # }
/// use tables::Shared;
///
/// assert!(Shared::OWN.set_u32(60, 7) && !Shared::OWN.set_u32(61, 7));
/// assert_eq!((Shared::OWN.u32(60), Shared::OWN.u32(61)), (Some(7), None));
/// assert_eq!(Shared::OTHERS.get(0), Some([0; 6]));
/// ```
///
/// An area with `access = "read"` cannot be written:
///
/// ```compile_fail,E0599
/// # use flame_module::*;
/// # mod tables {
/// #     flame_module::manifest!("src/example.toml");
/// # }
/// tables::Shared::OTHERS.set_u32(60, 7);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SharedArea<A> {
    name: &'static str,
    number: u32,
    bytes: u32,
    access: PhantomData<A>,
}

impl<A> SharedArea<A> {
    /// Describes the area with this number in the manifest.
    ///
    /// # Panics
    ///
    /// Panics if the number or the size exceeds the limits of a manifest.
    #[doc(hidden)]
    pub const fn of_manifest(name: &'static str, number: u32, bytes: u32) -> Self {
        // So that every place of the area lies in the window, apart from all that Rust knows.
        assert!(number < flame_abi::layout::MAX_SHARED && bytes <= flame_abi::layout::MAX_SHARED_BYTES);
        Self { name, number, bytes, access: PhantomData }
    }

    /// Returns the name of the area, by which modules share it.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the size of the area in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes as usize
    }

    /// Returns whether the area has no bytes, which no manifest can state.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns a copy of the `N` bytes at `offset`, or `None` if they do not lie in the area.
    #[inline]
    pub fn get<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let at = self.place(offset, N)?;
        let mut bytes = [0; N];
        for (n, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: the range lies in the area, which the host maps for as long as the instance lives.
            // Volatile, because other modules write it; nothing in Rust refers to it.
            *byte = unsafe { at.add(n).read_volatile() };
        }
        Some(bytes)
    }

    #[inline]
    pub fn u8(&self, offset: usize) -> Option<u8> {
        self.number(offset)
    }

    #[inline]
    pub fn u16(&self, offset: usize) -> Option<u16> {
        self.number(offset).map(u16::from_le)
    }

    #[inline]
    pub fn u32(&self, offset: usize) -> Option<u32> {
        self.number(offset).map(u32::from_le)
    }

    #[inline]
    pub fn u64(&self, offset: usize) -> Option<u64> {
        self.number(offset).map(u64::from_le)
    }

    /// Loads an integer.
    #[inline]
    fn number<T: Copy>(&self, offset: usize) -> Option<T> {
        let at = self.place(offset, size_of::<T>())?;
        // SAFETY: as in `get`; any bytes are an integer, and the packed type needs no alignment.
        let Packed(value) = unsafe { at.cast::<Packed<T>>().read_volatile() };
        Some(value)
    }

    /// Returns the area as the module that writes it has it, for tests.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn writable(&self) -> SharedArea<Write> {
        SharedArea::of_manifest(self.name, self.number, self.bytes)
    }

    /// Returns the address of `len` bytes at `offset` if they lie in the area.
    #[inline]
    fn place(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        inside.then(|| self.start().wrapping_add(offset))
    }

    #[cfg(target_family = "wasm")]
    #[inline]
    fn start(&self) -> *mut u8 {
        use flame_abi::layout::{SHARED, SHARED_STRIDE};
        (SHARED + self.number * SHARED_STRIDE) as usize as *mut u8
    }

    #[cfg(not(target_family = "wasm"))]
    fn start(&self) -> *mut u8 {
        native::start(self.name, self.len())
    }
}

/// A number as it lies in an area, at any offset.
#[repr(C, packed)]
struct Packed<T>(T);

impl SharedArea<Write> {
    /// Writes bytes at `offset`. Returns false, and writes nothing, if they do not lie in the area.
    #[inline]
    pub fn set(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(at) = self.place(offset, bytes.len()) else { return false };
        for (n, byte) in bytes.iter().enumerate() {
            // SAFETY: as in `get`; the manifest states that the module writes the area.
            unsafe { at.add(n).write_volatile(*byte) };
        }
        true
    }

    #[inline]
    pub fn set_u8(&self, offset: usize, value: u8) -> bool {
        self.set_number(offset, value)
    }

    #[inline]
    pub fn set_u16(&self, offset: usize, value: u16) -> bool {
        self.set_number(offset, value.to_le())
    }

    #[inline]
    pub fn set_u32(&self, offset: usize, value: u32) -> bool {
        self.set_number(offset, value.to_le())
    }

    #[inline]
    pub fn set_u64(&self, offset: usize, value: u64) -> bool {
        self.set_number(offset, value.to_le())
    }

    /// Stores an integer.
    #[inline]
    fn set_number<T: Copy>(&self, offset: usize, value: T) -> bool {
        let Some(at) = self.place(offset, size_of::<T>()) else { return false };
        // SAFETY: as in `set`; the packed type needs no alignment.
        unsafe { at.cast::<Packed<T>>().write_volatile(Packed(value)) };
        true
    }
}

/// The areas natively: memory of the test's thread, by name, so that several modules of a test share it.
#[cfg(not(target_family = "wasm"))]
pub(crate) mod native {
    use flame_abi::layout::MAX_SHARED_BYTES;
    use std::cell::{RefCell, UnsafeCell};
    use std::collections::HashMap;

    thread_local! {
        static AREAS: RefCell<HashMap<&'static str, Box<[UnsafeCell<u8>]>>> = RefCell::default();
    }

    /// Returns the address of an area, which stays until the thread ends or the areas are cleared.
    pub(crate) fn start(name: &'static str, bytes: usize) -> *mut u8 {
        AREAS.with_borrow_mut(|areas| {
            let zeros = || (0..MAX_SHARED_BYTES.min(bytes as u32)).map(|_| UnsafeCell::new(0)).collect();
            let area = areas.entry(name).or_insert_with(zeros);
            assert_eq!(area.len(), bytes, "the modules of a test state the same size of {name}");
            // Through a shared reference to cells, which permits writing.
            UnsafeCell::raw_get(area.as_ptr())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES: SharedArea<Write> = SharedArea::of_manifest("a", 0, 16);
    const READS: SharedArea<Read> = SharedArea::of_manifest("a", 3, 16);
    const OTHER: SharedArea<Read> = SharedArea::of_manifest("b", 0, 16);

    #[test]
    fn what_one_writes_others_read_by_its_name() {
        assert_eq!((READS.u64(0), READS.u64(8)), (Some(0), Some(0)));
        assert!(WRITES.set_u32(3, 0x0403_0201) && WRITES.set_u16(7, 0x0605) && WRITES.set_u8(9, 7));
        assert_eq!(READS.get(2), Some([0, 1, 2, 3, 4, 5, 6, 7, 0]));
        assert_eq!((READS.u16(3), READS.u32(4), READS.u8(9)), (Some(0x0201), Some(0x0504_0302), Some(7)));
        assert!(WRITES.set_u64(8, 9) && WRITES.set(0, b"flame"));
        assert_eq!((READS.u64(8), READS.get(0), OTHER.u64(8)), (Some(9), Some(*b"flame"), Some(0)));
        assert_eq!((READS.name(), READS.len(), READS.is_empty()), ("a", 16, false));
    }

    #[test]
    fn nothing_outside_of_the_area_is_accessed() {
        let before: [u8; 16] = READS.get(0).unwrap();
        for offset in [9, 16, 17, usize::MAX - 3, usize::MAX] {
            assert!(READS.u64(offset).is_none() && !WRITES.set_u64(offset, 1), "{offset}");
        }
        assert!(READS.get::<17>(0).is_none() && !WRITES.set(8, &[1; 9]) && WRITES.set(16, &[]));
        assert_eq!((READS.u8(16), READS.u16(15), READS.u32(13)), (None, None, None));
        assert!(!WRITES.set_u8(16, 1) && !WRITES.set_u16(15, 1) && !WRITES.set_u32(13, 1));
        assert_eq!(READS.get(0), Some(before));
    }
}
