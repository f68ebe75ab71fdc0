//! The reference: what a program does, step by step.

use crate::program::{Call, Expression as E, Function, Operator, Send, Type};
use flame_capsule::{Host, MAX_LIST, Parts, Place, Target};

/// The most steps of the interpreter. A program ends by its form; this bounds the time of a test.
pub const MAX_STEPS: u64 = 2_000_000;

/// Why a program ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    #[error("the program has no function of this number")]
    NoFunction,
    #[error("the arguments do not fit the function")]
    Arguments,
    #[error("a division by 0, or of the least number by -1")]
    Division,
    #[error("a list has more than 32 elements")]
    List,
    #[error("the node refused a call")]
    Refused,
    #[error("more than 2,000,000 steps")]
    Steps,
}

#[derive(Clone, Debug)]
enum Value {
    Number(i64),
    List(Vec<i64>),
}

impl Value {
    fn number(&self) -> i64 {
        if let Self::Number(number) = self { *number } else { 0 }
    }

    fn list(self) -> Vec<i64> {
        if let Self::List(list) = self { list } else { Vec::new() }
    }

    fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::Number(number) => into.extend_from_slice(&number.to_le_bytes()),
            Self::List(list) => {
                into.extend_from_slice(&(list.len() as u64).to_le_bytes());
                list.iter().for_each(|number| into.extend_from_slice(&number.to_le_bytes()));
            }
        }
    }
}

struct Run<'a> {
    functions: &'a [Function],
    host: &'a mut dyn Host,
    steps: u64,
}

/// Runs a function, and returns its steps.
pub fn run(
    functions: &[Function],
    function: usize,
    arguments: &[u8],
    host: &mut dyn Host,
) -> Result<u64, Ended> {
    let of = functions.get(function).ok_or(Ended::NoFunction)?;
    let mut rest = arguments;
    let mut number = || {
        let (number, after) = rest.split_first_chunk().ok_or(Ended::Arguments)?;
        rest = after;
        Ok(i64::from_le_bytes(*number))
    };
    let mut values = Vec::new();
    for of in &of.parameters {
        let first = number()?;
        values.push(if of.is_list() {
            let count = usize::try_from(first).ok().filter(|count| *count <= MAX_LIST);
            let list: Result<Vec<i64>, Ended> =
                (0..count.ok_or(Ended::Arguments)?).map(|_| number()).collect();
            Value::List(list?)
        } else {
            Value::Number(first)
        });
    }
    if !rest.is_empty() {
        return Err(Ended::Arguments);
    }
    let mut run = Run { functions, host, steps: 0 };
    run.function(function, values)?;
    Ok(run.steps)
}

impl Run<'_> {
    fn function(&mut self, function: usize, mut values: Vec<Value>) -> Result<Value, Ended> {
        let functions = self.functions;
        let of = functions.get(function).ok_or(Ended::NoFunction)?;
        values.resize(of.variables, Value::Number(0));
        self.value(&of.body, &mut values)
    }

    fn number(&mut self, of: &E, values: &mut Vec<Value>) -> Result<i64, Ended> {
        Ok(self.value(of, values)?.number())
    }

    fn value(&mut self, of: &E, values: &mut Vec<Value>) -> Result<Value, Ended> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(Ended::Steps);
        }
        let number = match of {
            E::Constant(number) => *number,
            E::Variable(variable) => return Ok(values[*variable].clone()),
            E::Let(variable, value, body) => {
                values[*variable] = self.value(value, values)?;
                return self.value(body, values);
            }
            E::If(condition, yes, no) => {
                let branch = if self.number(condition, values)? != 0 { yes } else { no };
                return self.value(branch, values);
            }
            E::Then(first, second) => {
                self.value(first, values)?;
                return self.value(second, values);
            }
            E::Fold(fold) => {
                let list = self.value(&fold.list, values)?.list();
                let mut value = self.value(&fold.first, values)?;
                for item in list.into_iter().take(fold.most as usize) {
                    values[fold.item] = Value::Number(item);
                    values[fold.value] = value;
                    value = self.value(&fold.body, values)?;
                }
                return Ok(value);
            }
            E::Binary(operator, left, right) => {
                let (left, right) = (self.number(left, values)?, self.number(right, values)?);
                match operator {
                    Operator::Add => left.wrapping_add(right),
                    Operator::Subtract => left.wrapping_sub(right),
                    Operator::Multiply => left.wrapping_mul(right),
                    Operator::Divide => left.checked_div(right).ok_or(Ended::Division)?,
                    Operator::Remainder if right == 0 => return Err(Ended::Division),
                    Operator::Remainder => left.wrapping_rem(right),
                    Operator::Equal => (left == right).into(),
                    Operator::Differ => (left != right).into(),
                    Operator::Less => (left < right).into(),
                    Operator::LessOrEqual => (left <= right).into(),
                    Operator::Greater => (left > right).into(),
                    Operator::GreaterOrEqual => (left >= right).into(),
                }
            }
            E::Function(function, arguments) => {
                let arguments: Result<Vec<Value>, Ended> =
                    arguments.iter().map(|argument| self.value(argument, values)).collect();
                return self.function(*function, arguments?);
            }
            E::Call(Call::Neighbours, _) => {
                let all = self.host.neighbours().iter().take(MAX_LIST);
                return Ok(Value::List(all.map(|place| place.0.cast_signed()).collect()));
            }
            E::Call(call, arguments) => {
                let mut numbers = [0; 3];
                for (number, argument) in numbers.iter_mut().zip(arguments) {
                    *number = self.number(argument, values)?;
                }
                self.call(*call, numbers)?
            }
            E::Send(send) => return self.send(send, values),
            E::Deliver(all) => {
                let bytes = self.bytes(all, values)?;
                self.host.deliver(&bytes).map_err(|_| Ended::Refused)?;
                0
            }
            E::List(all) => {
                let all: Result<Vec<i64>, Ended> = all.iter().map(|one| self.number(one, values)).collect();
                return Ok(Value::List(all?));
            }
            E::Push(list, value) => {
                let mut list = self.value(list, values)?.list();
                list.push(self.number(value, values)?);
                return if list.len() > MAX_LIST { Err(Ended::List) } else { Ok(Value::List(list)) };
            }
            E::Length(list) => i64::try_from(self.value(list, values)?.list().len()).unwrap_or(0),
        };
        Ok(Value::Number(number))
    }

    fn bytes(&mut self, all: &[(Type, E)], values: &mut Vec<Value>) -> Result<Vec<u8>, Ended> {
        let all: Result<Vec<Value>, Ended> = all.iter().map(|(_, value)| self.value(value, values)).collect();
        let mut bytes = Vec::new();
        all?.iter().for_each(|value| value.write(&mut bytes));
        Ok(bytes)
    }

    fn send(&mut self, send: &Send, values: &mut Vec<Value>) -> Result<Value, Ended> {
        let arguments = self.bytes(&send.arguments, values)?;
        let place = Place(self.number(&send.place, values)?.cast_unsigned());
        let parts = Parts::thousandths(self.number(&send.parts, values)?);
        let target = if send.is_remote { Target::Remote(place) } else { Target::Neighbour(place) };
        let function = u8::try_from(send.function).unwrap_or(u8::MAX);
        self.host.send(function, &arguments, target, parts).map_err(|_| Ended::Refused)?;
        Ok(Value::Number(0))
    }

    fn call(&mut self, call: Call, [first, second, third]: [i64; 3]) -> Result<i64, Ended> {
        let place = |place: Place| place.0.cast_signed();
        Ok(match call {
            Call::Here => place(self.host.here()),
            Call::Origin => place(self.host.origin()),
            Call::From => place(self.host.from()),
            Call::Now => self.host.now().cast_signed(),
            Call::Hops => self.host.hops().into(),
            Call::Next => place(self.host.next(Place(first.cast_unsigned()))),
            Call::Find => self.host.find(first.cast_unsigned()),
            Call::Service => self.host.service(first.cast_unsigned(), second).map_err(|_| Ended::Refused)?,
            Call::Leave => {
                let seconds = u64::try_from(third).unwrap_or(0);
                self.host.leave(first.cast_unsigned(), second, seconds).map_err(|_| Ended::Refused)?;
                0
            }
            Call::Neighbours | Call::Send | Call::Deliver => 0,
        })
    }
}
