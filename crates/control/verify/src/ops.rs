//! The effects of single instructions on a state.

use crate::abi;
use crate::cost::{BULK, BULK_SHIFT, COPY, GROW};
use crate::linear::{Linear, Upper};
use crate::observe::Event;
use crate::poly::Poly;
use crate::rules;
use crate::state::{State, choose};
use crate::value::{Choice, Condition, Known, Sum, Value, mask};
use crate::walk::Walk;
use flame_abi::layout;
use std::rc::Rc;
use wasmparser::{BlockType, ContType, FrameKind, FuncType, MemArg, ModuleArity, Operator, RefType, SubType};

/// The number of operands and results of an instruction, where nothing else is known.
struct Arity;

/// The largest mask whose result is related to the value that it masks: a remainder of a loop that is
/// unrolled at most as often.
const MAX_REMAINDER: u64 = 63;
/// The largest value for which that is done. Hashes are larger.
const MAX_DIVIDED: u64 = 1 << 30;

impl ModuleArity for Arity {
    fn sub_type_at(&self, _: u32) -> Option<&SubType> {
        None
    }
    fn tag_type_arity(&self, _: u32) -> Option<(u32, u32)> {
        None
    }
    fn type_index_of_function(&self, _: u32) -> Option<u32> {
        None
    }
    fn func_type_of_cont_type(&self, _: &ContType) -> Option<&FuncType> {
        None
    }
    fn sub_type_of_ref_type(&self, _: &RefType) -> Option<&SubType> {
        None
    }
    fn control_stack_height(&self) -> u32 {
        0
    }
    fn label_block(&self, _: u32) -> Option<(BlockType, FrameKind)> {
        None
    }
}

#[derive(Clone, Copy)]
enum Order {
    Equal,
    Different,
    Less,
    LessSigned,
}

impl Walk<'_, '_> {
    /// Pops a condition; an integer is the condition that it is not 0.
    pub fn condition(&mut self, s: &mut State) -> Option<Condition> {
        Some(match s.stack.pop()? {
            Value::Condition(condition) => (*condition).clone(),
            Value::Sum(sum) => {
                let zero = Rc::new(Sum::constant(sum.bits, 0));
                not(&self.equal(s, &sum, &zero))
            }
            Value::Any | Value::Copied(_) => Condition::default(),
        })
    }

    /// Applies an instruction without control flow; returns `None` if the module is not valid.
    pub fn apply(&mut self, operator: &Operator<'_>, s: &mut State) -> Option<()> {
        use Operator as O;
        use Order::{Different, Equal, Less, LessSigned};
        match operator {
            O::I32Const { value } => s.stack.push(Value::constant(32, u64::from(*value as u32))),
            O::I64Const { value } => s.stack.push(Value::constant(64, *value as u64)),
            O::LocalGet { local_index } => s.stack.push(s.locals.get(*local_index as usize)?.clone()),
            O::LocalSet { local_index } => *s.locals.get_mut(*local_index as usize)? = s.stack.pop()?,
            O::LocalTee { local_index } => {
                *s.locals.get_mut(*local_index as usize)? = s.stack.last()?.clone();
            }
            O::GlobalGet { global_index } => s.stack.push(s.globals.get(*global_index as usize)?.clone()),
            O::GlobalSet { global_index } => *s.globals.get_mut(*global_index as usize)? = s.stack.pop()?,
            O::Drop => drop(s.stack.pop()?),
            O::Nop => {}
            O::Select | O::TypedSelect { .. } => self.select(s)?,

            O::I32Add => self.linear(s, 32, 1)?,
            O::I64Add => self.linear(s, 64, 1)?,
            O::I32Sub => self.linear(s, 32, u64::MAX)?,
            O::I64Sub => self.linear(s, 64, u64::MAX)?,
            O::I32Mul => self.multiply(s, 32)?,
            O::I64Mul => self.multiply(s, 64)?,
            O::I32Shl => self.shift_left(s, 32)?,
            O::I64Shl => self.shift_left(s, 64)?,
            O::I32ShrU => self.shift_right(s, 32)?,
            O::I64ShrU => self.shift_right(s, 64)?,
            O::I32DivU => self.divide(s, 32)?,
            O::I64DivU => self.divide(s, 64)?,
            O::I32RemU => self.remainder(s, 32)?,
            O::I64RemU => self.remainder(s, 64)?,
            O::I32And => self.and(s, 32)?,
            O::I64And => self.and(s, 64)?,
            O::I32Or => self.or(s, 32)?,
            O::I64Or => self.or(s, 64)?,
            O::I32Xor => self.xor(s, 32)?,
            O::I64Xor => self.xor(s, 64)?,
            O::I32Clz | O::I32Ctz | O::I32Popcnt => self.bits(s, 32)?,
            O::I64Clz | O::I64Ctz | O::I64Popcnt => self.bits(s, 64)?,

            O::I32Eqz => {
                let condition = self.condition(s)?;
                let not = Condition { yes: condition.no.clone(), no: condition.yes.clone() };
                s.stack.push(Value::Condition(Rc::new(not)));
            }
            O::I64Eqz => {
                s.stack.push(Value::constant(64, 0));
                self.compare(s, 64, Equal, false)?;
            }
            O::I32Eq => self.compare(s, 32, Equal, false)?,
            O::I64Eq => self.compare(s, 64, Equal, false)?,
            O::I32Ne => self.compare(s, 32, Different, false)?,
            O::I64Ne => self.compare(s, 64, Different, false)?,
            O::I32LtU => self.compare(s, 32, Less, false)?,
            O::I64LtU => self.compare(s, 64, Less, false)?,
            O::I32GtU => self.compare(s, 32, Less, true)?,
            O::I64GtU => self.compare(s, 64, Less, true)?,
            O::I32LeU => self.compare_not(s, 32, Less, true)?,
            O::I64LeU => self.compare_not(s, 64, Less, true)?,
            O::I32GeU => self.compare_not(s, 32, Less, false)?,
            O::I64GeU => self.compare_not(s, 64, Less, false)?,
            O::I32LtS => self.compare(s, 32, LessSigned, false)?,
            O::I64LtS => self.compare(s, 64, LessSigned, false)?,
            O::I32GtS => self.compare(s, 32, LessSigned, true)?,
            O::I64GtS => self.compare(s, 64, LessSigned, true)?,
            O::I32LeS => self.compare_not(s, 32, LessSigned, true)?,
            O::I64LeS => self.compare_not(s, 64, LessSigned, true)?,
            O::I32GeS => self.compare_not(s, 32, LessSigned, false)?,
            O::I64GeS => self.compare_not(s, 64, LessSigned, false)?,

            O::I32WrapI64 => {
                let sum = self.pop(s, 64)?;
                s.stack.push(Value::Sum(Rc::new(sum.wrapped(32))));
            }
            O::I64ExtendI32U => {
                let sum = self.pop(s, 32)?;
                let form = self.values.integer(&sum, &s.facts);
                s.stack.push(Value::Sum(Rc::new(Sum::from_linear(64, &form))));
            }
            O::I64ExtendI32S => self.sign_extend(s, 32, 32, 64)?,
            O::I32Extend8S => self.sign_extend(s, 8, 32, 32)?,
            O::I32Extend16S => self.sign_extend(s, 16, 32, 32)?,
            O::I64Extend8S => self.sign_extend(s, 8, 64, 64)?,
            O::I64Extend16S => self.sign_extend(s, 16, 64, 64)?,
            O::I64Extend32S => self.sign_extend(s, 32, 64, 64)?,

            O::V128Load { memarg } => self.load_whole(s, memarg)?,
            O::I64Load { memarg } if self.copies(s, memarg) => self.load_whole(s, memarg)?,
            O::I32Load { memarg } => self.load(s, memarg, 4, 32)?,
            O::I32Load8U { memarg } => self.load(s, memarg, 1, 32)?,
            O::I32Load16U { memarg } => self.load(s, memarg, 2, 32)?,
            O::I64Load { memarg } => self.load(s, memarg, 8, 64)?,
            O::I64Load8U { memarg } => self.load(s, memarg, 1, 64)?,
            O::I64Load16U { memarg } => self.load(s, memarg, 2, 64)?,
            O::I64Load32U { memarg } => self.load(s, memarg, 4, 64)?,
            O::I32Load8S { .. } | O::I32Load16S { .. } => self.any(s, 1, 32)?,
            O::I64Load8S { .. } | O::I64Load16S { .. } | O::I64Load32S { .. } => self.any(s, 1, 64)?,
            O::I32Store { memarg } => self.store(s, memarg, 4, true)?,
            O::I64Store { memarg } => self.store(s, memarg, 8, true)?,
            O::V128Store { memarg } => self.store(s, memarg, 16, true)?,
            O::I64Store32 { memarg } | O::F32Store { memarg } => self.store(s, memarg, 4, false)?,
            O::F64Store { memarg } => self.store(s, memarg, 8, false)?,
            O::I32Store8 { memarg } | O::I64Store8 { memarg } => self.store(s, memarg, 1, false)?,
            O::I32Store16 { memarg } | O::I64Store16 { memarg } => self.store(s, memarg, 2, false)?,
            O::MemorySize { .. } => {
                let pages = self.values.within(32, 0, 65_536);
                s.stack.push(Value::Sum(pages));
            }
            O::MemoryGrow { .. } => {
                s.stack.pop()?;
                s.cost = s.cost.and(Poly::constant(GROW));
                s.stack.push(Value::Any);
            }
            O::MemoryCopy { .. } | O::MemoryFill { .. } | O::MemoryInit { .. } => {
                s.memory.clear();
                let length = self.pop(s, 32)?;
                let at = s.stack.len().checked_sub(2)?;
                s.stack.truncate(at);
                let cost = self.bulk(s, &length, matches!(operator, O::MemoryCopy { .. }));
                s.cost = s.cost.and(cost);
            }
            // Their cost grows with an operand, and they change which functions calls through tables reach.
            O::TableGrow { .. } | O::TableFill { .. } | O::TableCopy { .. } | O::TableInit { .. } => {
                return None;
            }
            operator => {
                if !crate::mnemonic::keeps_memory(operator) {
                    s.memory.clear();
                }
                let (takes, gives) = operator.operator_arity(&Arity)?;
                let at = s.stack.len().checked_sub(takes as usize)?;
                s.stack.truncate(at);
                s.stack.extend((0..gives).map(|_| Value::Any));
            }
        }
        Some(())
    }

    /// Pops an integer of `bits` bits. An unknown value becomes a symbol.
    pub(crate) fn pop(&mut self, s: &mut State, bits: u8) -> Option<Rc<Sum>> {
        let value = s.stack.pop()?;
        if let Value::Condition(condition) = &value
            && let Some(holds) = self.decide(condition, s)
        {
            return Some(Rc::new(Sum::constant(bits, holds.into())));
        }
        Some(self.sum(&value, bits))
    }

    /// Returns whether a condition holds, if the facts decide it.
    fn decide(&self, condition: &Condition, s: &State) -> Option<bool> {
        let symbols = &self.values.symbols;
        let is_refuted =
            |known: &Known| known.facts.iter().any(|fact| symbols.refutes_at_once(fact, &s.facts));
        match (is_refuted(&condition.no), is_refuted(&condition.yes)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            (false, false) => None,
        }
    }

    pub(crate) fn sum(&mut self, value: &Value, bits: u8) -> Rc<Sum> {
        match value {
            Value::Sum(sum) if sum.bits == bits => sum.clone(),
            Value::Condition(_) => self.values.within(bits, 0, 1),
            _ => self.values.any(bits),
        }
    }

    fn pair(&mut self, s: &mut State, bits: u8) -> Option<(Rc<Sum>, Rc<Sum>)> {
        let (b, a) = (self.pop(s, bits)?, self.pop(s, bits)?);
        Some((a, b))
    }

    fn any(&mut self, s: &mut State, takes: usize, bits: u8) -> Option<()> {
        let at = s.stack.len().checked_sub(takes)?;
        s.stack.truncate(at);
        s.stack.push(Value::Sum(self.values.any(bits)));
        Some(())
    }

    fn linear(&mut self, s: &mut State, bits: u8, factor: u64) -> Option<()> {
        let (a, b) = self.pair(s, bits)?;
        let sum = a.add(&b, factor).map_or_else(|| self.values.any(bits), Rc::new);
        s.stack.push(Value::Sum(sum));
        Some(())
    }

    fn multiply(&mut self, s: &mut State, bits: u8) -> Option<()> {
        let (a, b) = self.pair(s, bits)?;
        let product = match (a.as_constant(), b.as_constant()) {
            (Some(n), _) => Rc::new(b.scaled(n)),
            (_, Some(n)) => Rc::new(a.scaled(n)),
            _ => {
                let (x, y) = (self.values.range(&a, &s.facts), self.values.range(&b, &s.facts));
                let (low, high) = rules::multiply(x, y, mask(bits)).unwrap_or((0, mask(bits)));
                self.values.within(bits, low, high)
            }
        };
        s.stack.push(Value::Sum(product));
        Some(())
    }

    fn shift_left(&mut self, s: &mut State, bits: u8) -> Option<()> {
        let (a, b) = self.pair(s, bits)?;
        let shifted = match b.as_constant() {
            Some(n) => Rc::new(a.scaled(1 << (n % u64::from(bits)))),
            None => self.values.any(bits),
        };
        s.stack.push(Value::Sum(shifted));
        Some(())
    }

    fn shift_right(&mut self, s: &mut State, bits: u8) -> Option<()> {
        let (a, b) = self.pair(s, bits)?;
        let shifted = match b.as_constant().map(|n| n % u64::from(bits)) {
            Some(n) => self.quotient(s, &a, 1 << n),
            None => {
                let (low, high) = rules::shift_right_any(self.values.range(&a, &s.facts));
                let result = self.values.within(bits, low, high);
                self.at_most(s, &result, &a);
                result
            }
        };
        s.stack.push(Value::Sum(shifted));
        Some(())
    }

    fn divide(&mut self, s: &mut State, bits: u8) -> Option<()> {
        let (a, b) = self.pair(s, bits)?;
        let divided = match b.as_constant() {
            Some(n) if n > 0 => self.quotient(s, &a, n),
            _ => {
                let (x, y) = (self.values.range(&a, &s.facts), self.values.range(&b, &s.facts));
                let (low, high) = rules::divide(x, y);
                let result = self.values.within(bits, low, high);
                self.at_most(s, &result, &a);
                result
            }
        };
        s.stack.push(Value::Sum(divided));
        Some(())
    }

    /// Returns `q` with `0 ≤ a − n × q ≤ n − 1`.
    fn quotient(&mut self, s: &mut State, a: &Rc<Sum>, n: u64) -> Rc<Sum> {
        if n == 1 {
            return a.clone();
        }
        let form = self.values.integer(a, &s.facts);
        let by = i128::from(n);
        if form.constant % by == 0 && form.terms.iter().all(|t| t.1 % by == 0) {
            let terms = form.terms.iter().map(|t| (t.0, t.1 / by)).collect();
            return Rc::new(Sum::from_linear(a.bits, &Linear { constant: form.constant / by, terms }));
        }
        let mut range = self.values.range(a, &s.facts);
        // Compilers divide the lengths of loops, which may be the difference of two values below a third.
        if range.1 > MAX_DIVIDED {
            let most = self.values.symbols.most_nearly(&form, &s.facts);
            range.1 = most.and_then(|n| u64::try_from(n).ok()).map_or(range.1, |n| n.clamp(range.0, range.1));
        }
        let (low, high) = rules::divide(range, (n, n));
        let result = self.values.within(a.bits, low, high);
        if let [(symbol, 1)] = result.terms[..] {
            let rest = form.combined(1, &Linear::symbol(symbol), -by);
            self.between(s, rest, by - 1);
        }
        result
    }

    /// Records that `rest` is the remainder of `a` divided by `n`: unrolled loops end with `rest`
    /// iterations.
    fn relate_remainder(&mut self, s: &mut State, a: &Rc<Sum>, n: u64, rest: &Sum) {
        let [(rest, 1)] = rest.terms[..] else { return };
        let form = self.values.integer(a, &s.facts);
        let quotient = self.quotient(s, a, n);
        let product = self.values.integer(&Rc::new(quotient.scaled(n)), &s.facts);
        let difference = form.minus(&product).and_then(|d| d.minus(&Linear::symbol(rest)));
        self.between(s, difference, 0);
    }

    /// Records that a form is between 0 and `most`.
    fn between(&mut self, s: &mut State, form: Option<Linear>, most: i128) {
        let Some(form) = form else { return };
        if let Some(room) = Linear::constant(most).minus(&form) {
            s.learn(Rc::new(room));
        }
        s.learn(Rc::new(form));
    }

    /// Records that a result is at most one of its operands.
    fn at_most(&mut self, s: &mut State, result: &Sum, of: &Rc<Sum>) {
        if let [(symbol, 1)] = result.terms[..] {
            let of = self.values.integer(of, &s.facts);
            if !of.terms.is_empty()
                && let Some(fact) = of.minus(&Linear::symbol(symbol))
            {
                s.learn(Rc::new(fact));
            }
        }
    }

    fn remainder(&mut self, s: &mut State, bits: u8) -> Option<()> {
        let (a, b) = self.pair(s, bits)?;
        let (x, y) = (self.values.range(&a, &s.facts), self.values.range(&b, &s.facts));
        if x.1 < y.0 {
            s.stack.push(Value::Sum(a));
            return Some(());
        }
        let (low, high) = rules::remainder(x, y);
        let result = self.values.within(bits, low, high);
        self.at_most(s, &result, &a);
        if let ([(symbol, 1)], None) = (&result.terms[..], b.as_constant()) {
            // Below the divisor, which is not 0, or this traps: the fact may rule out all code after it.
            self.trap(s.cost, s.marked);
            let divisor = self.values.integer(&b, &s.facts);
            if let Some(fact) = divisor.minus(&Linear::symbol(*symbol)).and_then(|f| f.shifted(-1)) {
                s.learn(Rc::new(fact));
            }
        }
        s.stack.push(Value::Sum(result));
        Some(())
    }

    fn and(&mut self, s: &mut State, bits: u8) -> Option<()> {
        if let [.., Value::Condition(a), Value::Condition(b)] = &s.stack[..] {
            // Both are 0 or 1: if their conjunction is 1, both hold; if it is 0, one of them does not.
            let both = Condition { yes: a.yes.and(&b.yes), no: Known::default() };
            s.stack.truncate(s.stack.len() - 2);
            s.stack.push(Value::Condition(Rc::new(both)));
            return Some(());
        }
        let (a, b) = self.pair(s, bits)?;
        let (mut a, b) = if a.as_constant().is_some() { (b, a) } else { (a, b) };
        let (mut x, y) = (self.values.range(&a, &s.facts), self.values.range(&b, &s.facts));
        if let Some(n) = b.as_constant() {
            // Bits above the mask that are the same in every value are a constant, which can be subtracted:
            // compilers write (x - 8) & -8 as (x + 0x7ffffff8) & 0x7ffffff8.
            let above = x.0 & !rules::ones(n);
            if above > 0
                && x.1 & !rules::ones(n) == above
                && let Some(rest) = a.minus(&Sum::constant(bits, above))
            {
                (a, x) = (Rc::new(rest), (x.0 - above, x.1 - above));
            }
            // A mask of all low bits that may be set changes nothing.
            if n & n.wrapping_add(1) & mask(bits) == 0 && x.1 <= n {
                s.stack.push(Value::Sum(a));
                return Some(());
            }
            // A mask of all bits that may be set but the lowest ones leaves a multiple.
            let low = n.trailing_zeros();
            let all = if low < 64 { n | ((1 << low) - 1) } else { 0 };
            if low > 0 && low < 64 && all & all.wrapping_add(1) & mask(bits) == 0 && x.1 <= all {
                let q = self.quotient(s, &a, 1 << low);
                s.stack.push(Value::Sum(Rc::new(q.scaled(1 << low))));
                return Some(());
            }
        }
        let (low, high) = rules::and(x, y);
        let result = self.values.within(bits, low, high);
        self.at_most(s, &result, &a);
        self.at_most(s, &result, &b);
        if let Some(n) = b.as_constant()
            && n <= MAX_REMAINDER
            && (n + 1).is_power_of_two()
            && x.1 <= MAX_DIVIDED
        {
            self.relate_remainder(s, &a, n + 1, &result);
        }
        if let [(symbol, 1)] = result.terms[..] {
            let minus_one = |x: &Sum, y: &Sum| x.minus(y).and_then(|d| d.as_constant()) == Some(1);
            if minus_one(&a, &b) {
                self.values.cleared.insert(symbol, a.clone());
            } else if minus_one(&b, &a) {
                self.values.cleared.insert(symbol, b.clone());
            }
        }
        s.stack.push(Value::Sum(result));
        Some(())
    }

    fn or(&mut self, s: &mut State, bits: u8) -> Option<()> {
        if let [.., Value::Condition(a), Value::Condition(b)] = &s.stack[..] {
            let neither = Condition { yes: Known::default(), no: a.no.and(&b.no) };
            s.stack.truncate(s.stack.len() - 2);
            s.stack.push(Value::Condition(Rc::new(neither)));
            return Some(());
        }
        let (a, b) = self.pair(s, bits)?;
        let (x, y) = (self.values.range(&a, &s.facts), self.values.range(&b, &s.facts));
        // If no bit is set in both, the result is the sum.
        for (a, b, high) in [(&a, &b, y.1), (&b, &a, x.1)] {
            if high < 1 << 62
                && a.is_multiple_of((high + 1).next_power_of_two())
                && let Some(sum) = a.add(b, 1)
            {
                s.stack.push(Value::Sum(Rc::new(sum)));
                return Some(());
            }
        }
        let (low, high) = rules::or(x, y);
        s.stack.push(Value::Sum(self.values.within(bits, low, high)));
        Some(())
    }

    fn xor(&mut self, s: &mut State, bits: u8) -> Option<()> {
        if let [.., Value::Condition(c), Value::Sum(one)] | [.., Value::Sum(one), Value::Condition(c)] =
            &s.stack[..]
            && one.as_constant() == Some(1)
            && bits == 32
        {
            let not = Condition { yes: c.no.clone(), no: c.yes.clone() };
            s.stack.truncate(s.stack.len() - 2);
            s.stack.push(Value::Condition(Rc::new(not)));
            return Some(());
        }
        let (a, b) = self.pair(s, bits)?;
        let (low, high) = rules::xor(self.values.range(&a, &s.facts), self.values.range(&b, &s.facts));
        s.stack.push(Value::Sum(self.values.within(bits, low, high)));
        Some(())
    }

    fn bits(&mut self, s: &mut State, bits: u8) -> Option<()> {
        s.stack.pop()?;
        let (low, high) = rules::count_bits(bits);
        s.stack.push(Value::Sum(self.values.within(bits, low, high)));
        Some(())
    }

    fn sign_extend(&mut self, s: &mut State, from: u8, of: u8, to: u8) -> Option<()> {
        let sum = self.pop(s, of)?;
        let range = self.values.range(&sum, &s.facts);
        let value = match rules::sign_extend(range, from) {
            Some(_) if of == to => sum,
            Some(_) => {
                let form = self.values.integer(&sum, &s.facts);
                Rc::new(Sum::from_linear(to, &form))
            }
            None => self.values.any(to),
        };
        s.stack.push(Value::Sum(value));
        Some(())
    }

    /// Compares the two values on the stack; `swapped` compares the second with the first.
    fn compare(&mut self, s: &mut State, bits: u8, order: Order, swapped: bool) -> Option<()> {
        let (a, b) = self.pair(s, bits)?;
        let (a, b) = if swapped { (b, a) } else { (a, b) };
        let condition = match order {
            Order::Equal => self.equal(s, &a, &b),
            Order::Different => not(&self.equal(s, &a, &b)),
            Order::Less => {
                let (a, b) = (self.values.integer(&a, &s.facts), self.values.integer(&b, &s.facts));
                less(&a, &b)
            }
            Order::LessSigned => self.less_signed(s, &a, &b),
        };
        s.stack.push(Value::Condition(Rc::new(condition)));
        Some(())
    }

    fn compare_not(&mut self, s: &mut State, bits: u8, order: Order, swapped: bool) -> Option<()> {
        self.compare(s, bits, order, swapped)?;
        if let Some(Value::Condition(condition)) = s.stack.pop() {
            s.stack.push(Value::Condition(Rc::new(not(&condition))));
        }
        Some(())
    }

    fn equal(&mut self, s: &State, a: &Rc<Sum>, b: &Rc<Sum>) -> Condition {
        let (x, y) = (self.values.integer(a, &s.facts), self.values.integer(b, &s.facts));
        let mut yes = Known::default();
        for difference in [x.minus(&y), y.minus(&x)].into_iter().flatten() {
            yes.facts.push(Rc::new(difference));
        }
        let mut no = Known::default();
        no.nonzero.extend(a.minus(b).map(Rc::new));
        // As integers as well: a sum that may wrap is compared by its name.
        let named = x.minus(&y).map(|d| Sum::from_linear(a.bits, &d));
        no.nonzero.extend(named.filter(|d| no.nonzero.first().is_none_or(|n| **n != *d)).map(Rc::new));
        Condition { yes, no }
    }

    /// Compares `a < b` as signed numbers, where at least one is known not to be negative.
    fn less_signed(&mut self, s: &State, a: &Rc<Sum>, b: &Rc<Sum>) -> Condition {
        let half = i128::from(mask(a.bits) >> 1);
        let (ra, rb) = (self.values.range(a, &s.facts), self.values.range(b, &s.facts));
        let (x, y) = (self.values.integer(a, &s.facts), self.values.integer(b, &s.facts));
        let (pa, pb) = (rules::is_nonnegative(ra, a.bits), rules::is_nonnegative(rb, b.bits));
        let below_half = |form: &Linear| Linear::constant(half).minus(form).map(Rc::new);
        let order = less(&x, &y);
        let mut condition = Condition::default();
        if pa {
            // 0 <= a < b: b is not negative either, and the order is the unsigned one.
            condition.yes = order.yes.clone();
            condition.yes.facts.extend(below_half(&y));
        }
        if pb {
            // a >= b >= 0: likewise the unsigned order.
            condition.no = order.no.clone();
            condition.no.facts.extend(below_half(&x));
        }
        if pa && pb {
            condition = order;
        }
        condition
    }

    fn select(&mut self, s: &mut State) -> Option<()> {
        let condition = self.condition(s)?;
        let (b, a) = (s.stack.pop()?, s.stack.pop()?);
        let bits = match (&a, &b) {
            (Value::Sum(x), Value::Sum(y)) if x.bits == y.bits => x.bits,
            (Value::Sum(x), Value::Condition(_)) | (Value::Condition(_), Value::Sum(x)) => x.bits,
            (Value::Condition(_), Value::Condition(_)) => 32,
            _ => {
                s.stack.push(Value::Any);
                return Some(());
            }
        };
        let (x, y) = (self.sum(&a, bits), self.sum(&b, bits));
        if x == y {
            s.stack.push(Value::Sum(x));
            return Some(());
        }
        // On either side, the facts of the condition hold, and nothing else is used.
        let (mut yes, mut no) = (s.facts_only(), s.facts_only());
        if !yes.assume(&condition.yes, &self.values) {
            s.stack.push(Value::Sum(y));
            return Some(());
        }
        if !no.assume(&condition.no, &self.values) {
            s.stack.push(Value::Sum(x));
            return Some(());
        }
        let (p, q) = (self.values.integer(&x, &yes.facts), self.values.integer(&y, &no.facts));
        let mut facts = Vec::new();
        let chosen = choose(bits, (&p, &yes.facts), (&q, &no.facts), true, &mut facts, &mut self.values);
        facts.into_iter().for_each(|fact| s.learn(fact));
        if let Some(value) = self.values.exact(&chosen, &s.facts)
            && !value.terms.is_empty()
        {
            let (yes, no) = (condition.yes.facts.clone(), condition.no.facts.clone());
            s.add_choice(Choice { value, first: p, second: q, yes, no });
        }
        s.stack.push(Value::Sum(chosen));
        Some(())
    }

    /// Returns the address of an access, modulo 2^32.
    fn place(&mut self, s: &mut State, at: &MemArg) -> Option<Option<Sum>> {
        let address = self.pop(s, 32)?;
        // An address beyond 2^32 traps; an address that wraps is not accessed.
        let place = address.add(&Sum::constant(32, at.offset), 1);
        self.emit(Event::Access(place.as_ref()));
        Some(place)
    }

    fn load(&mut self, s: &mut State, at: &MemArg, bytes: u8, bits: u8) -> Option<()> {
        let high = mask(bytes * 8);
        let place = self.place(s, at)?;
        let known = place.and_then(|place| {
            if let Some(sum) = abi::load(&mut self.host, &mut self.values, s, &place, bytes) {
                return Some(sum);
            }
            self.stored(s, &place, bytes, bits)
        });
        let value = match known {
            Some(sum) if sum.bits == bits => sum,
            Some(sum) => {
                // A value of the host, as 32 bits: its symbols are integers.
                let form = self.values.integer(&sum, &s.facts);
                Rc::new(Sum::from_linear(bits, &form))
            }
            None => self.values.within(bits, 0, high),
        };
        s.stack.push(Value::Sum(value));
        Some(())
    }

    /// Returns the value that the module itself stored at a place, or copied there.
    fn stored(&mut self, s: &mut State, place: &Sum, bytes: u8, bits: u8) -> Option<Rc<Sum>> {
        let (value, from, whole) = s.memory.iter().rev().find_map(|stored| {
            let from = place.minus(&stored.at)?.as_constant()?;
            let inside = from.checked_add(bytes.into())? <= u64::from(stored.bytes);
            inside.then(|| (stored.value.clone(), from, from == 0 && bytes == stored.bytes))
        })?;
        match value {
            Value::Copied(source) => {
                let source = source.add(&Sum::constant(32, from), 1)?;
                abi::load(&mut self.host, &mut self.values, s, &source, bytes)
            }
            Value::Sum(sum) if whole && sum.bits == bits => Some(sum),
            _ => None,
        }
    }

    /// Returns whether a load takes more than one of the host's values at once.
    fn copies(&self, s: &State, at: &MemArg) -> bool {
        let Some(Value::Sum(address)) = s.stack.last() else { return false };
        let place = address.add(&Sum::constant(32, at.offset), 1);
        address.bits == 32 && place.is_some_and(|p| abi::is_hosts(&self.host, &p))
    }

    fn load_whole(&mut self, s: &mut State, at: &MemArg) -> Option<()> {
        let copies = self.copies(s, at);
        let place = self.place(s, at)?.filter(|_| copies);
        s.stack.push(place.map_or(Value::Any, |p| Value::Copied(Rc::new(p))));
        Some(())
    }

    fn store(&mut self, s: &mut State, at: &MemArg, bytes: u8, whole: bool) -> Option<()> {
        let value = s.stack.pop()?;
        match self.place(s, at)? {
            Some(place) => {
                let place = Rc::new(place);
                let is_kept = whole && self.is_own(&place, bytes, s);
                s.store(place, bytes, if is_kept { value } else { Value::Any });
            }
            None => s.memory.clear(),
        }
        Some(())
    }

    /// Returns whether only the module itself can change what it stores at a place. A store elsewhere in the
    /// window traps, but one into a shared area does not, and another module may change the value before it
    /// is loaded again. Nothing else rests on two loads of one place that are the same, but for the fields of
    /// batch header and descriptors, which lie apart from these areas.
    fn is_own(&mut self, place: &Rc<Sum>, bytes: u8, s: &State) -> bool {
        !self.module.shares
            || self.values.range(place, &s.facts).1 < u64::from(layout::WINDOW) - u64::from(bytes)
    }

    /// Returns the cost of moving `length` bytes with one instruction.
    fn bulk(&mut self, s: &State, length: &Rc<Sum>, is_copy: bool) -> Poly {
        let form = self.values.integer(length, &s.facts);
        // A range that does not fit in memory traps before anything is moved.
        let all = Upper { constant: layout::MAX_MEMORY.into(), slope: 0, divisor: 1 };
        let found = self.values.symbols.upper(&form, &s.facts);
        let fits = |u: &Upper| all.constant.checked_mul(u.divisor).is_none_or(|most| u.constant <= most);
        let most = found.filter(|u| u.slope > 0 || fits(u)).unwrap_or(all);
        let bytes = Poly::from_upper(most);
        self.emit(Event::Bulk(bytes));
        match is_copy {
            true => bytes.times(Poly::constant(COPY.1)).over(COPY.2).plus(Poly::constant(COPY.0)),
            false => bytes.over(1 << BULK_SHIFT).plus(Poly::constant(BULK)),
        }
    }
}

fn not(condition: &Condition) -> Condition {
    Condition { yes: condition.no.clone(), no: condition.yes.clone() }
}

/// Returns `a < b` of integers: `b − a − 1 ≥ 0`; its negation: `a − b ≥ 0`.
fn less(a: &Linear, b: &Linear) -> Condition {
    let known =
        |form: Option<Linear>| Known { facts: form.map(Rc::new).into_iter().collect(), nonzero: Vec::new() };
    Condition { yes: known(b.minus(a).and_then(|d| d.shifted(-1))), no: known(a.minus(b)) }
}
