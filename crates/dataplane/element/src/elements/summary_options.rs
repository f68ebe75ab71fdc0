//! The options of IP and TCP in IP summary dumps: from text to bytes and back.

use super::util::{be16, be32};
use flame_click::Ip;

/// The bytes of options, of which a header holds at most 40.
#[derive(Default)]
struct OptionBytes(Vec<u8>);

impl OptionBytes {
    /// Adds bytes, or refuses what would be the 41st.
    fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.0.len() + bytes.len() > 40 {
            return Err("more than 40 bytes of options".into());
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Reads the bytes of IP options. `.` stands for no options.
pub fn parse_ip_options(word: &str) -> Result<Vec<u8>, String> {
    let mut out = OptionBytes::default();
    if word == "." {
        return Ok(out.0);
    }
    for option in word.split(';') {
        let (name, rest) = option.split_once('{').map_or((option, None), |(n, r)| (n, Some(r)));
        let kind = match name {
            "nop" => {
                out.add(&[1])?;
                continue;
            }
            "eol" => {
                out.add(&[0])?;
                continue;
            }
            "rr" => 7,
            "lsrr" => 131,
            "ssrr" => 137,
            _ => match name.split_once('=').map_or((name, ""), |(n, v)| (n, v)) {
                (number, value) if number.parse::<u8>().is_ok() => {
                    let bytes: Vec<u8> = value.split(':').filter_map(|v| v.parse().ok()).collect();
                    let length = u8::try_from(bytes.len() + 2).map_err(|_| "an option is too long")?;
                    out.add(&[number.parse().unwrap_or(1), length])?;
                    out.add(&bytes)?;
                    continue;
                }
                _ => return Err(format!("unknown IP option '{option}'")),
            },
        };
        let body = rest.ok_or_else(|| format!("expected '{{' in '{option}'"))?;
        let (list, spare) = body.split_once('}').ok_or_else(|| format!("expected '}}' in '{option}'"))?;
        let spare = match spare.strip_prefix('+') {
            None if spare.is_empty() => 0,
            text => {
                let text = text.unwrap_or(spare);
                let count = text.parse::<u8>().ok().filter(|n| *n <= 9);
                count.ok_or_else(|| format!("expected room for 0 to 9 addresses, found '{text}'"))?
            }
        };
        let (mut pointer, mut addresses) = (None, Vec::new());
        for (i, address) in list.split(',').filter(|a| !a.is_empty()).enumerate() {
            let plain = address.strip_prefix('^').inspect(|_| pointer = Some(i)).unwrap_or(address);
            if plain.is_empty() {
                continue;
            }
            addresses
                .push(Ip::parse(plain).ok_or_else(|| format!("expected an IP address, found '{plain}'"))?);
        }
        let pointer = pointer.unwrap_or(addresses.len());
        if addresses.len() > 9 || pointer > 9 {
            return Err("more than 40 bytes of options".into());
        }
        out.add(&[kind, ((addresses.len() + usize::from(spare)) * 4 + 3) as u8, (pointer * 4 + 4) as u8])?;
        addresses.iter().try_for_each(|a| out.add(&a.bytes()))?;
        (0..spare).try_for_each(|_| out.add(&[0; 4]))?;
    }
    Ok(out.0)
}

/// Takes the next option that is whole, without padding. Returns its kind and its bytes.
fn next_option<'a>(options: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    while let [1, rest @ ..] = options {
        *options = rest;
    }
    let [kind, length, ..] = **options else { return None };
    if kind == 0 {
        return None;
    }
    let body = options.get(2..usize::from(length))?;
    *options = &options[usize::from(length)..];
    Some((kind, body))
}

pub fn unparse_ip_options(mut o: &[u8]) -> String {
    let mut all = Vec::new();
    while let Some((kind, body)) = next_option(&mut o) {
        match (kind, body) {
            (7 | 131 | 137, [pointer, addresses @ ..]) => {
                let name = match kind {
                    7 => "rr",
                    131 => "lsrr",
                    _ => "ssrr",
                };
                let at = (usize::from(*pointer).saturating_sub(4)) / 4;
                let mut list = Vec::new();
                let mut spare = 0;
                for (i, a) in addresses.chunks_exact(4).enumerate() {
                    if kind == 7 && i >= at {
                        spare += 1;
                        continue;
                    }
                    list.push(format!("{}{}", if i == at { "^" } else { "" }, Ip(be32(a, 0))));
                }
                if kind != 7 && at >= addresses.len() / 4 {
                    list.push("^".into());
                }
                let spare = if spare > 0 { format!("+{spare}") } else { String::new() };
                all.push(format!("{name}{{{}}}{spare}", list.join(",")));
            }
            _ => {
                let values: Vec<_> = body.iter().map(u8::to_string).collect();
                all.push(format!("{kind}={}", values.join(":")));
            }
        }
    }
    if all.is_empty() { ".".into() } else { all.join(";") }
}

/// Reads the bytes of TCP options. `.` stands for no options.
pub fn parse_tcp_options(word: &str) -> Result<Vec<u8>, String> {
    let mut out = OptionBytes::default();
    if word == "." {
        return Ok(out.0);
    }
    let number = |t: &str| t.parse::<u32>().map_err(|_| format!("expected a number, found '{t}'"));
    let mut sack = None;
    // Numbers of a timestamp are aligned in memory if that comes first, and there is room.
    let is_padded = word.starts_with("ts");
    for part in word.split_inclusive([';', ',']) {
        let option = part.trim_end_matches([';', ',']);
        if let Some(rest) = option.strip_prefix("sack").filter(|r| *r != "ok") {
            let (a, b) = rest.split_once(['-', ':']).ok_or_else(|| format!("bad option '{option}'"))?;
            // Blocks between which there are commas are one option.
            let at = match sack {
                Some(at) => at,
                None => {
                    out.add(&[5, 2])?;
                    out.0.len() - 1
                }
            };
            out.add(&number(a)?.to_be_bytes())?;
            out.add(&number(b)?.to_be_bytes())?;
            out.0[at] += 8;
            sack = part.ends_with(',').then_some(at);
            continue;
        }
        sack = None;
        match option {
            "nop" => out.add(&[1])?,
            "eol" => out.add(&[0])?,
            "sackok" => out.add(&[4, 2])?,
            _ if option.starts_with("mss") => {
                out.add(&[2, 4])?;
                out.add(&(number(&option[3..])? as u16).to_be_bytes())?;
            }
            _ if option.starts_with("wscale") => out.add(&[3, 3, number(&option[6..])? as u8])?,
            _ if option.starts_with("ts") => {
                let (a, b) = option[2..].split_once(':').ok_or_else(|| format!("bad option '{option}'"))?;
                out.add(&[8, 10])?;
                out.add(&number(a)?.to_be_bytes())?;
                out.add(&number(b)?.to_be_bytes())?;
            }
            _ => return Err(format!("unknown TCP option '{option}'")),
        }
    }
    if is_padded && out.0.len() <= 38 {
        out.0.splice(0..0, [1, 1]);
    }
    Ok(out.0)
}

pub fn unparse_tcp_options(mut o: &[u8]) -> String {
    let mut all = Vec::new();
    while let Some((kind, body)) = next_option(&mut o) {
        match (kind, body.len()) {
            (2, 2) => all.push(format!("mss{}", be16(body, 0))),
            (3, 1) => all.push(format!("wscale{}", body[0])),
            (4, 0) => all.push("sackok".into()),
            (5, n) if n % 8 == 0 => {
                all.extend(body.chunks(8).map(|b| format!("sack{}-{}", be32(b, 0), be32(b, 4))));
            }
            (8, 8) => all.push(format!("ts{}:{}", be32(body, 0), be32(body, 4))),
            _ => {
                let values: Vec<_> = body.iter().map(u8::to_string).collect();
                all.push(format!("{kind}={}", values.join(":")));
            }
        }
    }
    if all.is_empty() { ".".into() } else { all.join(";") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_at_most_40_bytes() {
        for word in [
            "rr{}+4611686018427387903",
            "rr{}+30000000000",
            "rr{}+10",
            "rr{}+x",
            "rr{}1x",
            &format!("rr{{{}}}", "1.0.0.1,".repeat(10)),
            &format!("rr{{{}^}}", "^,".repeat(300)),
            "nop;".repeat(41).trim_end_matches(';'),
            &format!("nop;7={}", "1:".repeat(250)),
            "130=1;rr{}+9",
        ] {
            assert!(parse_ip_options(word).is_err(), "{word}");
        }
        assert_eq!(parse_ip_options("rr{1.0.0.1}+8;nop").unwrap().len(), 40);
        assert_eq!(parse_ip_options("nop;".repeat(40).trim_end_matches(';')).unwrap().len(), 40);
        for word in [["sack1-2"; 9].join(";"), ["nop"; 41].join(","), ["ts1:2"; 5].join(";")] {
            assert!(parse_tcp_options(&word).is_err(), "{word}");
        }
        assert_eq!(parse_tcp_options("sack1-2,sack3-4;mss1460;ts1:2").unwrap().len(), 2 + 16 + 4 + 10);
    }

    #[test]
    fn blocks_between_commas_are_one_option() {
        let length = |word: &str| parse_tcp_options(word).unwrap().len();
        let words = ["sack1-2;sack3-4", "sack1-2,sack3-4", "sack1-2,nop,sack3-4"];
        assert_eq!(words.map(length), [20, 18, 21]);
        for word in ["sack1-2;sack3-4", "sack1-2;sackok;sack3-4;wscale7", "ts1:2;sack3-4;sack5-6;sack7-8"] {
            assert_eq!(unparse_tcp_options(&parse_tcp_options(word).unwrap()), word);
        }
        // Two bytes before a timestamp, if that comes first and there is room.
        assert_eq!((length("ts1:2"), length("mss9;ts1:2"), length("ts1:2;ts1:2;ts1:2;ts1:2")), (12, 14, 40));
    }
}
