use crate::host;
use crate::random::Random;
use crate::text;
use flame_abi::{InitHeader, config, role};

/// The values that an instance receives at its start.
#[derive(Clone, Debug)]
pub struct Init<'a> {
    /// The number of this worker, from 0 to `workers` - 1.
    pub worker: u32,
    pub workers: u32,
    /// The time between ticks, in nanoseconds of packet time.
    pub tick_ns: u64,
    /// The value of `--interval` in nanoseconds; 0 if none was given.
    pub interval_ns: u64,
    /// The seed of this instance's random numbers; 0 unless the manifest has `random = true` in `[needs]`.
    pub seed: u64,
    role: u32,
    parameters: &'a [u8],
}

impl<'a> Init<'a> {
    /// Parses the host's input: `bytes` is an `InitHeader` and the parameters.
    pub fn new(bytes: &'a [u8]) -> Self {
        let word =
            |at: usize| bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Self {
            role: word(4),
            worker: word(8),
            workers: word(12),
            tick_ns: long(16),
            interval_ns: long(24),
            seed: long(32),
            parameters: bytes.get(InitHeader::SIZE..).unwrap_or(&[]),
        }
    }

    /// Returns whether this is the slow instance.
    pub fn is_slow(&self) -> bool {
        self.role == role::SLOW
    }

    /// Returns the random numbers of this instance.
    pub fn random(&self) -> Random {
        Random::new(self.seed)
    }

    /// Returns the parameter `name` of the manifest.
    ///
    /// # Panics
    /// Panics if the manifest has no parameter of that name and size.
    pub fn integer(&self, name: &str) -> i64 {
        i64::from_le_bytes(self.value(name))
    }

    /// Returns the parameter `name`, a number.
    ///
    /// # Panics
    ///
    /// Panics if the manifest has no parameter of that name and size.
    pub fn number(&self, name: &str) -> f64 {
        f64::from_le_bytes(self.value(name))
    }

    /// Returns the parameter `name`, a boolean.
    ///
    /// # Panics
    ///
    /// Panics if the manifest has no parameter of that name and size.
    pub fn boolean(&self, name: &str) -> bool {
        self.integer(name) != 0
    }

    /// Returns the parameter `name`, a duration, in nanoseconds.
    ///
    /// # Panics
    ///
    /// Panics if the manifest has no parameter of that name and size.
    pub fn duration_ns(&self, name: &str) -> u64 {
        self.integer(name) as u64
    }

    /// Returns the parameter `name`, a text without `max` in the manifest.
    ///
    /// # Panics
    ///
    /// Panics if the manifest has no parameter of that name.
    pub fn text(&self, name: &str) -> &'a str {
        let bytes = config::find(self.parameters, name).expect("parameter is in module.toml");
        text::from_utf8(bytes).expect("the host passes text as UTF-8")
    }

    /// Returns the parameter `name`, a text that has `max` in the manifest.
    ///
    /// # Panics
    ///
    /// Panics if the manifest has no text of that name.
    pub fn large_text(&self, name: &str) -> &'a str {
        let bytes = match config::find_text(self.parameters, name).expect("parameter is in module.toml") {
            config::Text::Here(bytes) => bytes,
            config::Text::Elsewhere { address, len } => host::text_of_host(address, len),
        };
        std::str::from_utf8(bytes).expect("the host passes text as UTF-8")
    }

    fn value(&self, name: &str) -> [u8; 8] {
        let bytes = config::find(self.parameters, name).expect("parameter is in module.toml");
        bytes.try_into().expect("parameter has this type in module.toml")
    }
}
