//! Rewrites one function: its own bytes, with charges and replacements between them.

use crate::charge::Regions;
use crate::hoist::Hoist;
use crate::pieces::{self, Constant, PIECE};
use crate::poll::{self, PLACES};
use crate::unroll;
use flame_verify::cost::{DIVERGING, GROW};
use wasm_encoder::{BlockType, Encode, InstructionSink, ValType};
use wasmparser::{FunctionBody, Operator};

/// The indices of the rewriter's additions, and facts about the module.
pub(crate) struct Added {
    pub(crate) meter: bool,
    /// The functions that poll.
    pub(crate) poll: Poll,
    pub(crate) fuel: u32,
    pub(crate) packet_budget: u32,
    pub(crate) packet: u32,
    pub(crate) count: u32,
    /// The global with the offset on the polling page for the next function that takes its own, if any polls.
    pub(crate) page: Option<u32>,
    /// The global with the file offset of the loop whose iterations used up fuel.
    pub(crate) place: u32,
    /// The functions for `memory.copy`.
    pub(crate) copy: Replaced,
    /// The functions for a `memory.fill` that may be long.
    pub(crate) fill: Replaced,
    /// The function for a `memory.init` of each long data segment, in their order. It does not charge.
    pub(crate) inits: Vec<(u32, u32)>,
    /// The type of these functions.
    pub(crate) bulk: u32,
    /// The function that charges for a length, if the module needs it.
    pub(crate) charge: Option<u32>,
}

/// The functions that replace an instruction, if the module uses it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Replaced {
    /// The function that charges for the length.
    pub(crate) counted: Option<u32>,
    pub(crate) plain: Option<u32>,
}

impl Added {
    /// Returns the function that charges and replaces an instruction whose length may be long, and the
    /// function that replaces it in place.
    fn long(&self, operator: &Operator<'_>, length: Option<u32>) -> (Option<u32>, Option<u32>) {
        match operator {
            _ if !pieces::is_long(length) => (None, None),
            Operator::MemoryInit { data_index, .. } => {
                let at = self.inits.binary_search_by_key(data_index, |(segment, _)| *segment).ok();
                (None, at.and_then(|at| self.inits.get(at)).map(|(_, function)| *function))
            }
            _ => (self.fill.counted, self.fill.plain),
        }
    }
}

/// The functions that load from the polling page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    /// No function.
    Nothing,
    /// The functions that do not count.
    Uncounted,
    /// All functions except small ones.
    All,
}

/// The place where a function keeps fuel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// The function does not count.
    Nowhere,
    /// The global.
    Global,
    /// A local of the function.
    Local,
}

/// One function to rewrite.
pub(crate) struct Function<'a> {
    /// The whole module, for the bytes that are kept.
    pub(crate) wasm: &'a [u8],
    pub(crate) body: FunctionBody<'a>,
    pub(crate) params: u32,
    /// A block type without parameters and with the function's results.
    pub(crate) results: BlockType,
    pub(crate) regions: Regions,
    /// Whether its callers are charged for it.
    pub(crate) small: bool,
    /// Whether its cost is unknown before it runs.
    pub(crate) counts: bool,
    /// Whether it diverges: it traps where it would return.
    pub(crate) diverges: bool,
    /// Whether it is never called directly, so that its code is compiled once.
    pub(crate) alone: bool,
}

/// The target of a direct call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callee {
    /// A small function: its weight is part of the caller's charge.
    Small,
    /// A function that may change fuel.
    Counting,
    /// The import `flame.packet`.
    Marker,
    /// A hint for the analyser.
    Hint,
}

impl Function<'_> {
    /// Writes the new body, without its length.
    pub(crate) fn write(
        &self,
        added: &Added,
        callee: impl Fn(u32) -> Callee,
    ) -> Result<Vec<u8>, wasmparser::Error> {
        let keep = match () {
            // Its block collects all paths that would return.
            () if self.diverges => Keep::Local,
            () if self.small => Keep::Nowhere,
            () if !added.meter || !self.counts => Keep::Nowhere,
            () if self.regions.loops.is_empty() => Keep::Global,
            () => Keep::Local,
        };
        // Without loops, a small function runs for at most a constant time.
        let has_polls = match added.poll {
            Poll::Nothing => false,
            Poll::Uncounted => keep == Keep::Nowhere && !self.small,
            Poll::All => !self.small || self.diverges,
        };
        let (alone, bytes) = (self.alone, Vec::new());
        let mut out =
            Writer { bytes, added, keep, has_polls, alone, polls: 0, fuel: 0, page: 0, temporary: 0 };
        self.locals(&mut out)?;
        if self.diverges {
            out.begin_end();
        }
        if keep == Keep::Local {
            out.sink().block(BlockType::Result(ValType::I32)).block(self.results);
            out.reload();
        }
        out.charge(self.regions.entry, 0, 0);
        out.poll(true);

        let mut loops = self.regions.loops.iter();
        // The number of open frames of the original function, without its own.
        let mut depth = 0_u32;
        let mut constant = Constant::default();
        let mut reader = self.body.get_operators_reader()?;
        // The start of the bytes that are not written yet.
        let mut kept = reader.original_position();
        // The offset of the last instruction that was written with its loop.
        let mut written_to = 0;
        while !reader.eof() {
            let (operator, start) = reader.read_with_offset()?;
            let end = reader.original_position();
            let length = constant.before(&operator);
            if start <= written_to {
                // Its last byte is the `end` of a loop that was written as a whole.
                kept = end;
                continue;
            }
            let mut keep_to = |out: &mut Writer<'_>, to: usize| {
                out.bytes.extend_from_slice(self.wasm.get(kept..to).unwrap_or_default());
                kept = end;
            };
            match operator {
                Operator::Block { .. } | Operator::If { .. } => depth += 1,
                Operator::Loop { .. } => {
                    let found = loops.next();
                    let charge = found.map_or(1, |l| l.charge);
                    if let (Keep::Local, Some(hoist)) = (keep, found.and_then(|l| l.hoist)) {
                        keep_to(&mut out, start);
                        out.charge_all(hoist, charge, (depth, start));
                        out.bytes.extend_from_slice(self.wasm.get(start..end).unwrap_or_default());
                        out.poll(false);
                        depth += 1;
                        continue;
                    }
                    match found.and_then(|l| l.tight) {
                        Some(tight) if keep == Keep::Local => {
                            keep_to(&mut out, start);
                            out.sink().block(tight.results).loop_(tight.results);
                            out.charge(charge.saturating_mul(unroll::TIMES), depth + 2, start);
                            out.poll(false);
                            unroll::copies(self.wasm, tight, depth + 1, &mut out.bytes)?;
                            out.sink().end().end();
                            written_to = tight.end;
                        }
                        _ => {
                            depth += 1;
                            keep_to(&mut out, end);
                            out.charge(charge, depth, start);
                            out.poll(false);
                        }
                    }
                }
                Operator::End if depth > 0 => depth -= 1,
                // The function's own end.
                Operator::End => {
                    keep_to(&mut out, start);
                    self.finish(&mut out);
                }
                Operator::Return if keep == Keep::Local => {
                    keep_to(&mut out, start);
                    out.sink().br(depth);
                }
                Operator::Call { function_index } => match callee(function_index) {
                    Callee::Small => {}
                    Callee::Marker => {
                        keep_to(&mut out, start);
                        out.mark(self.counts);
                    }
                    Callee::Hint => keep_to(&mut out, start),
                    Callee::Counting => {
                        keep_to(&mut out, start);
                        out.flush();
                        out.sink().call(function_index);
                        out.reload();
                    }
                },
                Operator::CallIndirect { type_index, table_index } => {
                    keep_to(&mut out, start);
                    out.flush();
                    out.sink().call_indirect(table_index, type_index);
                    out.reload();
                }
                Operator::MemoryCopy { .. } => {
                    keep_to(&mut out, start);
                    if let Some(copy) = added.copy.counted.filter(|_| self.counts).or(added.copy.plain) {
                        out.replace(copy);
                    }
                }
                Operator::MemoryFill { .. } | Operator::MemoryInit { .. } => {
                    keep_to(&mut out, start);
                    let (counted, long) = added.long(&operator, length);
                    if let Some(counted) = counted.filter(|_| self.counts) {
                        out.replace(counted);
                        continue;
                    }
                    if let Some(charge) = added.charge.filter(|_| self.counts) {
                        out.flush();
                        out.sink().call(charge);
                        out.reload();
                    }
                    out.poll(false);
                    out.whole_or_pieces(self.wasm.get(start..end).unwrap_or_default(), long);
                }
                Operator::TableCopy { .. }
                | Operator::TableFill { .. }
                | Operator::TableInit { .. }
                | Operator::TableGrow { .. } => {
                    keep_to(&mut out, start);
                    out.poll(false);
                    out.bytes.extend_from_slice(self.wasm.get(start..end).unwrap_or_default());
                }
                Operator::MemoryGrow { .. } => {
                    keep_to(&mut out, start);
                    out.charge(GROW, depth, start);
                    out.poll(false);
                    out.bytes.extend_from_slice(self.wasm.get(start..end).unwrap_or_default());
                }
                _ => {}
            }
        }
        Ok(out.bytes)
    }

    /// Writes the declared locals and the added ones after them.
    fn locals(&self, out: &mut Writer<'_>) -> Result<(), wasmparser::Error> {
        let mut reader = self.body.get_locals_reader()?;
        let groups = reader.get_count();
        let start = reader.original_position();
        let mut next = self.params;
        for _ in 0..groups {
            next = next.saturating_add(reader.read()?.0);
        }
        let declared = self.wasm.get(start..reader.original_position()).unwrap_or_default();
        let fuel = matches!(out.keep, Keep::Global | Keep::Local);
        let page = out.has_polls;
        let temporary = self.regions.marks
            || self.regions.long
            || (fuel && self.regions.loops.iter().any(|l| l.hoist.is_some()));
        (groups + u32::from(fuel) + u32::from(page) + u32::from(temporary)).encode(&mut out.bytes);
        out.bytes.extend_from_slice(declared);
        if fuel {
            1_u32.encode(&mut out.bytes);
            ValType::I64.encode(&mut out.bytes);
            out.fuel = next;
            next += 1;
        }
        if page {
            1_u32.encode(&mut out.bytes);
            ValType::I32.encode(&mut out.bytes);
            out.page = next;
            next += 1;
        }
        if temporary {
            1_u32.encode(&mut out.bytes);
            ValType::I32.encode(&mut out.bytes);
            out.temporary = next;
        }
        Ok(())
    }

    /// Writes the code that replaces the last `end`. All exits but traps lead to the end of the inner block;
    /// all exhausted loops lead to the end of the outer one, far from the loops' own code.
    fn finish(&self, out: &mut Writer<'_>) {
        if out.keep == Keep::Local {
            out.sink().end();
            if self.diverges {
                out.sink().unreachable();
            } else {
                out.flush();
                out.sink().return_();
            }
            out.sink().end();
            let Added { fuel, place, .. } = *out.added;
            out.sink().global_set(place).i64_const(-1).global_set(fuel).unreachable();
        }
        out.sink().end();
    }
}

struct Writer<'a> {
    bytes: Vec<u8>,
    added: &'a Added,
    keep: Keep,
    /// Whether the function polls.
    has_polls: bool,
    alone: bool,
    /// The number of polls so far.
    polls: u32,
    /// The local that holds fuel, or a free one.
    fuel: u32,
    /// The local with the function's offset on the polling page, in functions that poll.
    page: u32,
    /// A free i32 local, in functions that mark packets, charge for loops in advance, or contain bulk
    /// instructions that may be long.
    temporary: u32,
}

impl Writer<'_> {
    fn sink(&mut self) -> InstructionSink<'_> {
        InstructionSink::new(&mut self.bytes)
    }

    /// Subtracts `charge` from fuel and traps if that makes it negative. `depth` frames are open; `place` is
    /// the file offset of the charged loop or function.
    fn charge(&mut self, charge: u64, depth: u32, place: usize) {
        if charge == 0 {
            return;
        }
        let charge = i64::try_from(charge).unwrap_or(i64::MAX);
        let (global, local) = (self.added.fuel, self.fuel);
        match self.keep {
            Keep::Nowhere => {}
            Keep::Global => {
                self.sink()
                    .global_get(global)
                    .i64_const(charge)
                    .i64_sub()
                    .local_tee(local)
                    .global_set(global);
                self.sink().local_get(local).i64_const(0).i64_lt_s();
                self.sink().if_(BlockType::Empty).unreachable().end();
            }
            Keep::Local => {
                self.sink().i32_const(place as i32);
                self.sink().local_get(local).i64_const(charge).i64_sub().local_tee(local);
                // Label `depth` is the block to which all exits lead, the next one is the trap.
                self.sink().i64_const(0).i64_lt_s().br_if(depth + 1).drop();
            }
        }
    }

    /// Charges all iterations of the loop at `place` before the loop. `depth` frames are open.
    fn charge_all(&mut self, hoist: Hoist, charge: u64, (depth, place): (u32, usize)) {
        let (fuel, left) = (self.fuel, self.temporary);
        let Hoist { counter, end, log_step, down } = hoist;
        let mut sink = self.sink();
        let (from, to) = if down { (end, Some(counter)) } else { (Some(counter), end) };
        for local in [to, from] {
            match local {
                Some(local) => sink.local_get(local),
                None => sink.i32_const(0),
            };
        }
        sink.i32_sub().local_set(left);
        let place = place as i32;
        if log_step > 0 {
            // The counter never equals its end.
            sink.i32_const(place).local_get(left).i32_const((1 << log_step) - 1).i32_and();
            sink.br_if(depth + 1).drop();
        }
        sink.i32_const(place).local_get(fuel).local_get(left);
        // (d - 1) / step + 1, which also holds for d = 0.
        sink.i32_const(1).i32_sub().i64_extend_i32_u();
        sink.i64_const(log_step.into()).i64_shr_u().i64_const(1).i64_add();
        sink.i64_const(charge as i64).i64_mul().i64_sub().local_tee(fuel);
        sink.i64_const(0).i64_lt_s().br_if(depth + 1).drop();
    }

    /// Loads from the polling page. A load that may trap is kept although its result is unused, but Cranelift
    /// merges two loads of one address without a store between them: a loop after another, or after the
    /// module's own load, would lose its poll. So no two polls use an address that a compiler can prove
    /// equal: all are relative to a global that the module cannot read, and each poll of a function has a
    /// different offset. A function that may be inlined, and therefore occur twice, advances the global. No
    /// poll waits for the load of another.
    ///
    /// The function's offset is read at its entry, on every path. Polls beyond the page's offsets take one
    /// each.
    fn poll(&mut self, first: bool) {
        let Some(places) = self.added.page.filter(|_| self.has_polls) else { return };
        let page = self.page;
        let is_placed = !first && self.polls < PLACES;
        let offset = if is_placed { u64::from(4 * self.polls) } else { 0 };
        let mut sink = InstructionSink::new(&mut self.bytes);
        match (first, is_placed) {
            (false, true) => sink.local_get(page),
            (true, _) if self.alone => sink.global_get(places).local_tee(page),
            _ => {
                poll::next(&mut sink, places);
                match first {
                    true => sink.local_tee(page).global_set(places).local_get(page),
                    false => sink.global_set(places).global_get(places),
                }
            }
        };
        poll::load(&mut sink, offset);
        self.polls += 1;
    }

    /// Writes the call that replaces an instruction.
    fn replace(&mut self, function: u32) {
        self.poll(false);
        self.flush();
        self.sink().call(function);
        self.reload();
    }

    /// Writes the bulk instruction `own` for one piece at most, and a call of `long`, if there is one, for
    /// more. The bound of the instruction has no room for a call that it could do without.
    fn whole_or_pieces(&mut self, own: &[u8], long: Option<u32>) {
        let (ty, length) = (self.added.bulk, self.temporary);
        if long.is_some() {
            self.sink().local_tee(length).local_get(length).i32_const(PIECE as i32).i32_le_u();
            self.sink().if_(BlockType::FunctionType(ty));
        }
        self.bytes.extend_from_slice(own);
        if let Some(long) = long {
            self.sink().else_().call(long).end();
        }
    }

    /// Writes the begin of a function that diverges, and therefore of the end of the call: what is left of
    /// the fuel, but no more than the bound contains for it, and none for further packets.
    fn begin_end(&mut self) {
        let Added { fuel, packet_budget, .. } = *self.added;
        let most = DIVERGING as i64;
        let mut sink = self.sink();
        sink.i64_const(-1).global_set(packet_budget);
        sink.global_get(fuel).i64_const(most).i64_gt_s();
        sink.if_(BlockType::Empty).i64_const(most).global_set(fuel).end();
    }

    fn flush(&mut self) {
        let (global, local) = (self.added.fuel, self.fuel);
        if self.keep == Keep::Local {
            self.sink().local_get(local).global_set(global);
        }
    }

    fn reload(&mut self) {
        let (global, local) = (self.added.fuel, self.fuel);
        if self.keep == Keep::Local {
            self.sink().global_get(global).local_set(local);
        }
    }

    /// Writes the begin of a packet, whose index is on the stack. Even if nothing is counted here, callees
    /// may count.
    fn mark(&mut self, counts: bool) {
        let (added, index) = (self.added, self.temporary);
        self.sink().local_tee(index).global_get(added.packet).i32_le_s();
        self.sink().local_get(index).global_get(added.count).i32_ge_u().i32_or();
        self.sink().if_(BlockType::Empty).unreachable().end();
        self.sink().local_get(index).global_set(added.packet);
        let fuel = self.fuel;
        match self.keep {
            Keep::Nowhere if counts || !added.meter => {}
            Keep::Nowhere | Keep::Global => {
                self.sink().global_get(added.packet_budget).global_set(added.fuel);
            }
            Keep::Local => {
                self.sink().global_get(added.packet_budget).local_set(fuel);
            }
        }
    }
}
