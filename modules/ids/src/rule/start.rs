//! The work that a start may cost, and the memory that its rules may have.
//!
//! Lines, lists and expressions are charged about what they cost, in the units of `limits.call_budget` in
//! module.toml. What would exceed [`MOST`] is not used, and counted. The rest of the budget is for what is
//! charged too little. Memory is charged in the same way, and independently of the machine, so that a check
//! of rules elsewhere comes to the same result.

/// The work for a start.
pub const MOST: u64 = 22_000_000_000;
/// The reason for rules that are not in use because a start has no time for them.
pub const BEYOND: &str = "beyond what a start has time for";
/// The remedy for a user.
pub const REMEDY: &str = "give fewer or smaller files, or run ids several times with some of the files each";

/// The reason for rules that are not in use because an instance has no memory for them.
pub const BEYOND_MEMORY: &str = "beyond what memory holds";
/// The memory for rules, of the 256 MiB of an instance. The others are for texts, tables and indexes.
pub const MOST_KEPT: u64 = 200 << 20;
/// The memory of a rule, and of each of its parts, steps and further bytes, with that of the engine for them.
const KEPT_RULE: u64 = 900;
const KEPT_PART: u64 = 100;
const KEPT_STEP: u64 = 220;
const KEPT_BYTE: u64 = 1;

/// The costs of each line and each of its bytes: a comment, another line that is no rule, and a rule.
const COMMENT: Line = Line { each: 700, byte: 8 };
const OTHER: Line = Line { each: 65_000, byte: 300 };
const RULE: Line = Line { each: 30_000, byte: 80 };
/// The cost of each option of a rule.
const OPTION: u64 = 6000;
/// The cost of each of those that compares numbers.
const NUMBER: u64 = 6000;
/// The cost of each byte of a text with escaped characters.
const ESCAPED: u64 = 300;
/// The costs of each content, and of each of its bytes.
const CONTENT: u64 = 15_000;
const CONTENT_BYTE: u64 = 900;
/// The most that a line costs which is not yet read, and each byte of it, apart from variables and
/// expressions.
const UNREAD_LINE: u64 = 200_000;
const UNREAD: u64 = 6000;
/// The cost of each byte of the lines that are only counted.
const SKIPPED: u64 = 10;
/// The costs of each range of a list of addresses or ports, and of each prefix of an index of them.
const RANGE: u64 = 1900;
const PREFIX: u64 = 1800;
/// The costs of each prefix that is only counted, and of each range of which the addresses are counted.
const COUNTED: u64 = 200;
/// The most that a byte of an expression costs until its parts are known.
const UNREAD_PCRE: u64 = 25_000;
/// The costs of each expression, each byte of it, each of its parts, and of each state of its NFA.
const PCRE: u64 = 70_000;
const PCRE_BYTE: u64 = 6000;
const NODE: u64 = 5000;
const GROUP: u64 = 10_000;
const CLASS_RANGE: u64 = 5000;
/// The least for each byte, without and with `i`: some parts are merged once they are read.
const LEAST_BYTE: u64 = 8000;
const LEAST_BYTE_NOCASE: u64 = 16_000;
const NFA_STATE: u64 = 10_000;

/// The largest number of ranges in all lists, as `list::Kind::ranges` counts them.
pub const MOST_RANGES: u64 = 8 << 20;
/// The largest number of prefixes in the indexes, counted likewise.
const MOST_PREFIXES: u64 = 1 << 20;

struct Line {
    each: u64,
    byte: u64,
}

impl Line {
    fn cost(&self, bytes: usize) -> u64 {
        self.each + self.byte * bytes as u64
    }
}

/// The numbers of the parts of an expression.
#[derive(Default)]
pub struct Size {
    /// About how many states the NFA has: each repetition up to a number is written out.
    pub states: u64,
    /// The number of parts of the expression.
    pub nodes: u64,
    pub groups: u64,
    /// The number of ranges in classes of bytes.
    pub ranges: u64,
}

/// The work of a start so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    spent: u64,
    ranges: u64,
    prefixes: u64,
    kept: u64,
}

impl Start {
    /// Returns the work so far.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Returns whether there is time for a line that is not yet read, and then to count those after it.
    pub fn has_time_for(&self, line: usize, all: usize) -> bool {
        self.spent + UNREAD_LINE + UNREAD * line as u64 + SKIPPED * all as u64 <= MOST
    }

    /// Returns whether there is time for comments, and then to count the lines after them.
    pub fn has_time_to_skip(&self, all: usize) -> bool {
        self.spent + SKIPPED * all as u64 <= MOST
    }

    /// Charges lines that are comments or empty.
    pub fn comments(&mut self, bytes: usize, lines: u32) {
        self.spent += COMMENT.each * u64::from(lines) + COMMENT.byte * bytes as u64;
    }

    /// Charges a line that is neither a comment nor a rule in use.
    pub fn other(&mut self, bytes: usize) {
        self.spent += OTHER.cost(bytes);
    }

    /// Charges the line of a rule in use, apart from its options.
    pub fn rule(&mut self, bytes: usize) {
        self.spent += RULE.cost(bytes);
    }

    /// Charges an option of a rule.
    pub fn option(&mut self) {
        self.spent += OPTION;
    }

    /// Charges an option that compares numbers.
    pub fn number(&mut self) {
        self.spent += NUMBER;
    }

    /// Charges a text with escaped characters.
    pub fn escaped(&mut self, bytes: usize) {
        self.spent += ESCAPED * bytes as u64;
    }

    /// Charges a content or the like.
    pub fn content(&mut self, bytes: usize) {
        self.spent += CONTENT + CONTENT_BYTE * bytes as u64;
    }

    /// Returns whether there is time for a list of `count` ranges.
    pub fn has_time_for_ranges(&self, count: u64) -> bool {
        self.spent + RANGE * count <= MOST
    }

    /// Charges the ranges of a list that was read.
    pub fn ranges(&mut self, count: u64) {
        self.ranges += count;
        self.spent += RANGE * count;
    }

    /// Returns whether there is memory for more lists.
    pub fn has_room_for_lists(&self) -> bool {
        self.ranges <= MOST_RANGES
    }

    /// Charges the counting of ranges or prefixes, unless there is no time for it.
    pub fn counting(&mut self, count: u64) -> bool {
        self.spend(COUNTED * count)
    }

    /// Charges prefixes of an index, unless there is no time or memory for them.
    pub fn prefixes(&mut self, count: u64) -> bool {
        if self.prefixes.saturating_add(count) > MOST_PREFIXES || !self.spend(PREFIX * count) {
            self.spent = self.spent.saturating_add(COUNTED * count).min(MOST);
            return false;
        }
        self.prefixes += count;
        true
    }

    /// Charges the most that the reading of an expression of `bytes` may cost, unless there is no time for
    /// it.
    pub fn pcre(&mut self, bytes: usize) -> bool {
        self.spend(PCRE + UNREAD_PCRE * bytes as u64)
    }

    /// Takes back the part of that charge that was not needed.
    pub fn pcre_read(&mut self, bytes: usize, nocase: bool, size: &Size) {
        let bytes = bytes as u64;
        let cost = PCRE_BYTE * bytes + NODE * size.nodes + GROUP * size.groups + CLASS_RANGE * size.ranges;
        let least = if nocase { LEAST_BYTE_NOCASE } else { LEAST_BYTE };
        let cost = cost.max(least * bytes);
        self.spent -= (UNREAD_PCRE * bytes).saturating_sub(cost);
    }

    /// Charges the states of an NFA, unless there is no time for them.
    pub fn nfa(&mut self, states: u64) -> bool {
        self.spend(NFA_STATE * states)
    }

    /// Charges the memory of a rule whose line has so many bytes, unless there is none left.
    pub fn keep(&mut self, bytes: usize, parts: usize, steps: usize) -> bool {
        let of = |count: usize, each: u64| each * count as u64;
        let after =
            self.kept + KEPT_RULE + of(bytes, KEPT_BYTE) + of(parts, KEPT_PART) + of(steps, KEPT_STEP);
        let has_room = after <= MOST_KEPT;
        if has_room {
            self.kept = after;
        }
        has_room
    }

    fn spend(&mut self, cost: u64) -> bool {
        let after = self.spent.saturating_add(cost);
        if after > MOST {
            return false;
        }
        self.spent = after;
        true
    }
}
