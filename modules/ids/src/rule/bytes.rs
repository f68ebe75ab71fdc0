//! `byte_test`, `byte_jump`, `byte_extract` and `byte_math`: numbers in the payload.

use super::fault::{Wrong, wrong};
use super::number::{Names, Num};
use super::text::Piece;

/// The bytes of a number, and how they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub len: Num,
    pub at: Num,
    pub relative: bool,
    pub little: bool,
    /// The base of digits (`string`); otherwise the number is binary.
    pub base: Option<u32>,
    /// A mask, and the number of bits to shift right by after it.
    pub mask: Option<(u64, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    And,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    pub field: Field,
    pub compare: Compare,
    pub not: bool,
    pub value: Num,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Here,
    Beginning,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    pub field: Field,
    pub multiplier: u64,
    pub align: u64,
    pub from: From,
    pub post: Num,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extract {
    pub field: Field,
    pub multiplier: u64,
    pub align: u64,
    pub var: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Left,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Math {
    pub field: Field,
    pub operator: Operator,
    pub right: Num,
    pub var: u8,
}

/// The result of parsing: a valid option that is not supported is `Ok(Err(reason))`.
pub type Parsed<T> = Result<Result<T, String>, Wrong>;

/// The values of all four options, as far as they appear.
struct Parts {
    field: Field,
    multiplier: u64,
    align: u64,
    from: From,
    post: Num,
    is_string: bool,
    unsupported: Option<String>,
}

const OFFSET: i64 = 65_535;

impl Parts {
    fn new(len: Num, at: Num) -> Self {
        let field = Field { len, at, relative: false, little: false, base: None, mask: None };
        Self {
            field,
            multiplier: 1,
            align: 1,
            from: From::Here,
            post: Num::Is(0),
            is_string: false,
            unsupported: None,
        }
    }

    /// Applies one word that several of the options share; returns whether it is one.
    #[inline(never)]
    fn word(&mut self, part: Piece<'_>) -> Result<bool, Wrong> {
        let (name, value) = part.word(&[' ']);
        let value = value.trim();
        match name.text {
            "relative" => self.field.relative = true,
            "big" => self.field.little = false,
            "little" => self.field.little = true,
            "endian" if value.text == "big" => self.field.little = false,
            "endian" if value.text == "little" => self.field.little = true,
            "string" => {
                self.is_string = true;
                if !value.is_empty() {
                    return self.word(value);
                }
            }
            "hex" => self.field.base = Some(16),
            "dec" => self.field.base = Some(10),
            "oct" => self.field.base = Some(8),
            "bitmask" => {
                let hex = value.text.trim_start_matches("0x").trim_start_matches("0X");
                match u64::from_str_radix(hex, 16) {
                    Ok(mask) if mask != 0 => self.field.mask = Some((mask, mask.trailing_zeros())),
                    _ => return wrong(value.at, "a mask in hexadecimal that is not 0"),
                }
            }
            "dce" => self.unsupported = Some("byte order of DCE/RPC".to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks the combination, after all words.
    fn finish<T>(mut self, at: usize, value: impl FnOnce(&Self) -> T) -> Parsed<T> {
        if self.is_string {
            self.field.base = self.field.base.or(Some(10));
        } else if self.field.base.is_some() {
            return wrong(at, "string with hex, dec or oct");
        }
        let most = if self.is_string { 23 } else { 8 };
        if self.field.len.stated().is_some_and(|n| n > most) {
            return wrong(at, format!("at most {most} bytes"));
        }
        match self.unsupported.take() {
            Some(reason) => Ok(Err(reason)),
            None => Ok(Ok(value(&self))),
        }
    }
}

/// Parses `BYTES, [!]OPERATOR, VALUE, OFFSET[, WORD …]`.
///
/// # Errors
///
/// Returns an error with its offset if a value is missing or not in its range, or if a word is unknown.
#[inline(never)]
pub fn test(piece: Piece<'_>, names: &Names) -> Parsed<Test> {
    let mut all = piece.parts(',');
    let (Some(len), Some(operator), Some(value), Some(at)) = (all.next(), all.next(), all.next(), all.next())
    else {
        return wrong(piece.at, "a number of bytes, an operator, a value and an offset");
    };
    let (not, compare) = operator.strip("!").map_or((false, operator), |rest| (true, rest.trim()));
    let compare = match compare.text {
        "<" => Compare::Less,
        "<=" => Compare::LessEqual,
        ">" => Compare::Greater,
        ">=" => Compare::GreaterEqual,
        "=" | "==" => Compare::Equal,
        "" if not => Compare::Equal,
        "&" => Compare::And,
        "^" => Compare::Xor,
        _ => return wrong(compare.at, "one of < <= > >= = & ^, with ! before it or not"),
    };
    let len = names.read(len, 1, 23)?;
    let value = names.read(value, 0, i64::MAX)?;
    let mut parts = Parts::new(len, names.read(at, -OFFSET, OFFSET)?);
    for part in all {
        if !parts.word(part)? {
            return wrong(part.at, "relative, big, little, string, hex, dec, oct or bitmask");
        }
    }
    parts.finish(piece.at, |p| Test { field: p.field, compare, not, value })
}

/// Parses `BYTES, OFFSET[, WORD …]`.
///
/// # Errors
///
/// Returns an error with its offset if a value is missing or not in its range, or if a word is unknown.
#[inline(never)]
pub fn jump(piece: Piece<'_>, names: &Names) -> Parsed<Jump> {
    let mut all = piece.parts(',');
    let (Some(len), Some(at)) = (all.next(), all.next()) else {
        return wrong(piece.at, "a number of bytes and an offset");
    };
    let mut parts = Parts::new(names.read(len, 0, 23)?, names.read(at, -OFFSET, OFFSET)?);
    for part in all {
        let (name, value) = part.word(&[' ']);
        match name.text {
            "align" => parts.align = 4,
            "from_beginning" => parts.from = From::Beginning,
            "from_end" => parts.from = From::End,
            "multiplier" => parts.multiplier = value.trim().number(1, OFFSET)? as u64,
            "post_offset" => parts.post = names.read(value.trim(), -OFFSET, OFFSET)?,
            _ if parts.word(part)? => {}
            _ => {
                return wrong(
                    part.at,
                    "relative, multiplier, post_offset, align, from_beginning, from_end or a byte order",
                );
            }
        }
    }
    let jump = |p: &Parts| Jump {
        field: p.field,
        multiplier: p.multiplier,
        align: p.align,
        from: p.from,
        post: p.post,
    };
    parts.finish(piece.at, jump)
}

/// Parses `BYTES, OFFSET, NAME[, WORD …]`.
///
/// # Errors
///
/// Returns an error with its offset if a value is missing or not in its range, if a word is unknown, or if
/// the rule has too many variables.
#[inline(never)]
pub fn extract(piece: Piece<'_>, names: &mut Names) -> Parsed<Extract> {
    let mut all = piece.parts(',');
    let (Some(len), Some(at), Some(name)) = (all.next(), all.next(), all.next()) else {
        return wrong(piece.at, "a number of bytes, an offset and the name of a variable");
    };
    let mut parts = Parts::new(names.read(len, 1, 23)?, names.read(at, -OFFSET, OFFSET)?);
    let var = names.define(name)?;
    for part in all {
        let (name, value) = part.word(&[' ']);
        match name.text {
            "align" => parts.align = value.trim().number(2, 4)? as u64,
            "multiplier" => parts.multiplier = value.trim().number(1, OFFSET)? as u64,
            _ if parts.word(part)? => {}
            _ => return wrong(part.at, "relative, multiplier, align, string or a byte order"),
        }
    }
    let extract = |p: &Parts| Extract { field: p.field, multiplier: p.multiplier, align: p.align, var };
    parts.finish(piece.at, extract)
}

/// Parses `bytes N, offset N, oper OPERATOR, rvalue N, result NAME[, WORD …]`.
///
/// # Errors
///
/// Returns an error with its offset if a value is missing or not in its range, if a word is unknown, or if
/// the rule has too many variables.
#[inline(never)]
pub fn math(piece: Piece<'_>, names: &mut Names) -> Parsed<Math> {
    let mut parts = Parts::new(Num::Is(0), Num::Is(0));
    let (mut operator, mut right, mut result) = (None, None, None);
    let (mut len, mut at) = (None, None);
    for part in piece.parts(',') {
        let (name, value) = part.word(&[' ']);
        let value = value.trim();
        match name.text {
            "bytes" => len = Some(names.read(value, 1, 10)?),
            "offset" => at = Some(names.read(value, -OFFSET, OFFSET)?),
            "rvalue" => right = Some(names.read(value, 0, u32::MAX.into())?),
            "result" => result = Some(value),
            "oper" => {
                operator = Some(match value.text {
                    "+" => Operator::Add,
                    "-" => Operator::Subtract,
                    "*" => Operator::Multiply,
                    "/" => Operator::Divide,
                    "<<" => Operator::Left,
                    ">>" => Operator::Right,
                    _ => return wrong(value.at, "one of + - * / << >>"),
                });
            }
            _ if parts.word(part)? => {}
            _ => return wrong(part.at, "bytes, offset, oper, rvalue, result, relative or a byte order"),
        }
    }
    let (Some(len), Some(at), Some(operator), Some(right), Some(result)) = (len, at, operator, right, result)
    else {
        return wrong(piece.at, "bytes, offset, oper, rvalue and result");
    };
    (parts.field.len, parts.field.at) = (len, at);
    let var = names.define(result)?;
    parts.finish(piece.at, |p| Math { field: p.field, operator, right, var })
}
