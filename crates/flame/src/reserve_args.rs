//! Reservations on the command line.

use crate::error::Error;
use clap::Args;
use flame_api::Reservation;
use flame_daemon::{percent, size};

/// A reservation for a module.
#[derive(Args, Clone)]
pub struct ReserveArgs {
    /// Reserve an amount of each resource: `cpu=5%,memory=64MiB,blocks=4,records=1MiB` (of one processor;
    /// bytes; blocks of the buffer over all workers; bytes of records per second), or `none`
    #[arg(long, value_name = "RESOURCE=AMOUNT,…")]
    reserve: Option<String>,
}

impl ReserveArgs {
    /// Returns the reservation, or `None` if none is stated.
    ///
    /// # Errors
    ///
    /// Returns an error that names the wrong part.
    pub fn reservation(&self) -> Result<Option<Reservation>, Error> {
        self.reserve.as_deref().map(parse).transpose().map_err(Into::into)
    }
}

/// Returns a part of one processor, in millionths, as percent.
pub fn percent_text(ppm: u64) -> String {
    format!("{}.{:02} %", ppm / 10_000, ppm % 10_000 / 100)
}

fn parse(text: &str) -> Result<Reservation, String> {
    let mut reservation = Reservation::default();
    if text == "none" {
        return Ok(reservation);
    }
    let mut seen = Vec::new();
    for part in text.split(',') {
        let wrong = |expected: &str| format!("--reserve {part}: expected {expected}");
        let (name, amount) = part.split_once('=').ok_or_else(|| wrong("RESOURCE=AMOUNT, or none"))?;
        if seen.contains(&name) {
            return Err(format!("--reserve {text}: {name} is given twice"));
        }
        seen.push(name);
        match name {
            "cpu" => reservation.cpu_ppm = percent(amount).ok_or_else(|| wrong("percent, as in cpu=5%"))?,
            "memory" => {
                reservation.memory = size(amount).ok_or_else(|| wrong("a size, as in memory=64MiB"))?
            }
            "blocks" => reservation.blocks = amount.parse().map_err(|_| wrong("a number, as in blocks=4"))?,
            "records" => {
                reservation.record_bytes =
                    size(amount).ok_or_else(|| wrong("bytes per second, as in records=1MiB"))?;
            }
            _ => return Err(wrong("cpu, memory, blocks or records")),
        }
    }
    Ok(reservation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_read_and_errors_name_the_part() {
        let all = parse("cpu=2.5%,memory=64MiB,blocks=4,records=1KiB").unwrap();
        let expected = Reservation { cpu_ppm: 25_000, memory: 64 << 20, blocks: 4, record_bytes: 1024 };
        assert_eq!((all, parse("none")), (expected, Ok(Reservation::default())));
        for (wrong, names) in [
            ("", "RESOURCE=AMOUNT"),
            ("cpu=5", "cpu=5: expected percent"),
            ("memory=64MB", "memory=64MB: expected a size"),
            ("blocks=-1", "blocks=-1"),
            ("records=", "records="),
            ("disk=1", "cpu, memory, blocks or records"),
            ("cpu=1%,cpu=2%", "given twice"),
        ] {
            assert!(parse(wrong).unwrap_err().contains(names), "{wrong}");
        }
    }
}
