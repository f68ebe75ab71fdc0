//! The general case: any field of one, two or four bytes.

use crate::tables::{FieldBase as Base, Params};
use flame_module::Packet;

/// A big-endian field and its required value under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The origin of the offset: the packet's first byte, the outermost IP header, its transport header
    /// (later fragments have none), or the payload after that.
    pub base: Base,
    pub offset: usize,
    /// The width in bytes: 1, 2 or 4.
    pub width: usize,
    pub mask: u32,
    pub value: u32,
}

const BASES: [(&str, Base); 4] = [
    ("link", Base::Link),
    ("network", Base::Network),
    ("transport", Base::Transport),
    ("payload", Base::Payload),
];

/// Returns the parameter `name`: 32 bits, decimal, or hexadecimal after 0x.
fn number(text: &str, name: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    digits.map_or_else(|| text.parse(), |d| u32::from_str_radix(d, 16)).map_err(|_| {
        format!("parameter {name}: expected a number up to 0xffffffff, as 80 or 0x50, found {text:?}")
    })
}

impl Field {
    /// Creates a field from the parameters, or `None` if `base` is empty.
    ///
    /// # Errors
    ///
    /// Returns an error that names the parameter and the expected value if `base` or `width` is none of the
    /// possible ones, `mask` or `value` is no number of 32 bits, or `value` has bits outside `mask`.
    pub fn new(params: &Params<'_>) -> Result<Option<Self>, String> {
        let base = match params.base {
            "" => return Ok(None),
            name => BASES.iter().find(|(n, _)| *n == name).map(|(_, base)| *base).ok_or_else(|| {
                format!(
                    "parameter base: expected link, network, transport, payload or nothing, found {name:?}"
                )
            })?,
        };
        let width = match params.width {
            n @ (1 | 2 | 4) => usize::from(n),
            n => return Err(format!("parameter width: expected 1, 2 or 4 bytes, found {n}")),
        };
        let whole = u32::MAX >> (32 - 8 * width);
        let (mask, value) = (number(params.mask, "mask")? & whole, number(params.value, "value")?);
        if value & !mask != 0 {
            return Err(format!(
                "parameter value: {value:#x} has bits outside the mask {mask:#x} of {width} bytes: none would match"
            ));
        }
        Ok(Some(Self { base, offset: params.offset.into(), width, mask, value }))
    }

    /// Returns whether the field has the required value, or `None` if it is absent or hidden.
    pub fn matches(&self, packet: &Packet<'_>) -> Option<bool> {
        let bytes = match self.base {
            Base::Link => packet.bytes(),
            Base::Network => packet.l3(),
            Base::Transport => packet.l4(),
            Base::Payload => packet.payload(),
        };
        let field = bytes.get(self.offset..)?;
        // There is no loop, because its trip count would be a value from memory.
        let found = match self.width {
            1 => u32::from(*field.first()?),
            2 => u32::from(u16::from_be_bytes(*field.first_chunk()?)),
            _ => u32::from_be_bytes(*field.first_chunk()?),
        };
        Some(found & self.mask == self.value)
    }
}
