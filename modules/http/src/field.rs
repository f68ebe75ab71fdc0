//! The general case: any field of one, two or four bytes.

use flame_module::{Init, Packet};

/// Where a field's offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The first byte of the packet.
    Link,
    /// The outermost IP header.
    Network,
    /// Its transport header; later fragments have none.
    Transport,
    /// What follows that.
    Payload,
}

/// A big-endian field, and what it must be under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub base: Base,
    pub offset: usize,
    /// In bytes: 1, 2 or 4.
    pub width: usize,
    pub mask: u32,
    pub value: u32,
}

impl Base {
    const NAMES: [(&str, Self); 4] = [
        ("link", Self::Link),
        ("network", Self::Network),
        ("transport", Self::Transport),
        ("payload", Self::Payload),
    ];
}

/// Parameter `name`: 32 bits, decimal or after 0x hexadecimal.
fn number(init: &Init, name: &str) -> Result<u32, String> {
    let text = init.text(name);
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    digits.map_or_else(|| text.parse(), |d| u32::from_str_radix(d, 16)).map_err(|_| {
        format!("parameter {name}: expected a number up to 0xffffffff, as 80 or 0x50, found {text:?}")
    })
}

impl Field {
    /// Of the parameters; none if `base` is empty. The error names the parameter and what was expected.
    pub fn new(init: &Init) -> Result<Option<Self>, String> {
        let base = match init.text("base") {
            "" => return Ok(None),
            name => Base::NAMES.iter().find(|(n, _)| *n == name).map(|(_, base)| *base).ok_or_else(|| {
                format!(
                    "parameter base: expected link, network, transport, payload or nothing, found {name:?}"
                )
            })?,
        };
        let width = match init.integer("width") {
            n @ (1 | 2 | 4) => n as usize,
            n => return Err(format!("parameter width: expected 1, 2 or 4 bytes, found {n}")),
        };
        let whole = u32::MAX >> (32 - 8 * width);
        let (mask, value) = (number(init, "mask")? & whole, number(init, "value")?);
        if value & !mask != 0 {
            return Err(format!(
                "parameter value: {value:#x} has bits outside the mask {mask:#x} of {width} bytes: none would match"
            ));
        }
        Ok(Some(Self { base, offset: init.integer("offset") as usize, width, mask, value }))
    }

    /// Whether the field is as it must be; none if it is not there, or not to be seen.
    pub fn matches(&self, packet: &Packet<'_>) -> Option<bool> {
        let bytes = match self.base {
            Base::Link => packet.bytes(),
            Base::Network => packet.l3(),
            Base::Transport => packet.l4(),
            Base::Payload => packet.payload(),
        };
        let field = bytes.get(self.offset..)?;
        // Without a loop: how long one takes would depend on what lies in memory.
        let found = match self.width {
            1 => u32::from(*field.first()?),
            2 => u32::from(u16::from_be_bytes(*field.first_chunk()?)),
            _ => u32::from_be_bytes(*field.first_chunk()?),
        };
        Some(found & self.mask == self.value)
    }

    /// The base's place in the table's enum.
    pub fn base_number(&self) -> u8 {
        self.base as u8
    }
}
