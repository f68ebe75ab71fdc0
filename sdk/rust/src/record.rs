//! Rows of tables as Rust structs, which [`crate::manifest!`] generates from `module.toml`.

use crate::Ip;

/// A row of one table of the manifest, written by [`crate::Out::write`].
pub trait Record<'a>: Sized {
    /// The table's number in the manifest.
    const TABLE: u16;
    /// The size of the longest row in bytes.
    const MAX_SIZE: usize;
    /// The largest number of bytes that a row takes in the output, for [`Out::reserve`].
    ///
    /// [`Out::reserve`]: crate::Out::reserve
    const SPACE: usize = flame_abi::output::FRAME + Self::MAX_SIZE;

    /// Returns the size of the row in bytes.
    fn size(&self) -> usize;

    /// Writes the row's columns in order into `to`, which holds [`Record::size`] bytes.
    fn put(&self, to: &mut [u8]);

    /// Returns the row that these bytes encode, or `None` if they do not encode one.
    fn read(from: &'a [u8]) -> Option<Self>;
}

/// The longest text of a column, in bytes; longer ones are cut at a character boundary.
const LONGEST: usize = u16::MAX as usize;

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// Returns the number of bytes of a text after its length.
#[doc(hidden)]
#[inline]
pub fn text_len(text: &str) -> usize {
    cut(text).len()
}

/// Writes a text at `at` and returns the offset after it.
#[doc(hidden)]
#[inline]
pub fn put_text(to: &mut [u8], at: usize, text: &str) -> usize {
    let text = cut(text);
    to[at..at + 2].copy_from_slice(&(text.len() as u16).to_le_bytes());
    let end = at + 2 + text.len();
    to[at + 2..end].copy_from_slice(text.as_bytes());
    end
}

/// Returns the text at `at` and the offset after it.
#[doc(hidden)]
pub fn text(from: &[u8], at: usize) -> Option<(&str, usize)> {
    let rest = from.get(at..)?;
    let (len, rest) = rest.split_first_chunk()?;
    let len = usize::from(u16::from_le_bytes(*len));
    Some((std::str::from_utf8(rest.get(..len)?).ok()?, at + 2 + len))
}

impl Ip {
    /// Returns the address that a row contains in this form.
    pub fn from_bytes(from: [u8; 17]) -> Self {
        let [family, bytes @ ..] = from;
        Self { family, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Out;

    crate::manifest!("src/example.toml");

    fn row(out: &mut Out) -> Vec<u8> {
        let (bytes, more) = out.hand();
        assert!(!more);
        bytes.to_vec()
    }

    #[test]
    fn a_struct_is_the_row_that_its_columns_make() {
        let mut out = Out::default();
        let (ip, mac) = (Ip::v6([9; 16]), [1, 2, 3, 4, 5, 6]);
        let kinds = AllKinds {
            bool: true,
            u8: 1,
            u16: 0x0203,
            u32: 4,
            u64: 5,
            i64: -6,
            f64: 0.5,
            time: 7,
            duration: -8,
            mac,
            ip,
            r#type: AllKindsType::B,
        };
        assert!(out.write(&kinds));
        let struct_row = row(&mut out);
        let columns = out.row(1).bool(true).u8(1).u16(0x0203).u32(4).u64(5).i64(-6).f64(0.5).time(7);
        assert!(columns.duration(-8).mac(mac).ip(ip).enumeration(1).finish());
        assert_eq!(struct_row, row(&mut out));
        assert_eq!((struct_row.len(), Texts::SPACE), (AllKinds::SPACE, 8 + 65_536));
        assert_eq!(AllKinds::read(&struct_row[8..]), Some(kinds));
        assert_eq!(AllKinds::read(&struct_row[8..struct_row.len() - 1]), None);

        let texts = Texts { before: 1, one: "one", between: Ip::v4([1, 2, 3, 4]), two: "", behind: 2 };
        assert!(out.write(&texts));
        let struct_row = row(&mut out);
        assert!(out.row(2).u8(1).text("one").ip(texts.between).text("").u32(2).finish());
        assert_eq!(struct_row, row(&mut out));
        assert_eq!(Texts::read(&struct_row[8..]), Some(texts));
    }

    #[test]
    fn a_text_is_cut_and_a_row_that_is_too_long_is_lost() {
        let mut out = Out::default();
        let long = "é".repeat(40_000);
        let texts = Texts { before: 1, one: &long, between: Ip::v4([0; 4]), two: "", behind: 2 };
        assert!(!out.write(&texts), "more than a frame holds");
        assert!(out.write(&Total { port: 1, packets: 2, end: TotalEnd::TheEnd, name: &long[..65_520] }));
        let bytes = row(&mut out);
        assert_eq!(bytes.len(), 8 + 13 + 65_520 + 16, "with the note of the row that was lost");
        assert_eq!(bytes[8 + 10], 1);
    }

    #[test]
    fn parameters_have_their_defaults() {
        assert_eq!(Params::DEFAULTS, [("name", &b"x"[..]), ("port", &[187, 1, 0, 0, 0, 0, 0, 0])]);
        let bytes =
            [&[0; flame_abi::InitHeader::SIZE][..], &[4, 0, 0, 0, 8, 0, 0, 0], b"port", &7u64.to_le_bytes()]
                .concat();
        let name = [&[4, 0, 0, 0, 2, 0, 0, 0][..], b"name", b"me"].concat();
        let all = [bytes, name].concat();
        assert_eq!(Params::from(&crate::Init::new(&all)), Params { port: 7, name: "me" });
    }
}
