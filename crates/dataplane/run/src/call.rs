//! Calls of an instance, their budgets, and their results.
//!
//! All calls during a run begin with [`Instance::begin`]. [`Instance::call`] is for measurements and tests.

use crate::apart::Running;
use crate::fault::{Fault, FaultKind};
use crate::instance::{Instance, Output, Pending, Role};
use crate::quota::Quota;
use crate::watch::CallClock;
use flame_abi::{CALL_UNITS, LinkType};
use flame_plan::limits::SLICE;
use flame_plan::{CallName, ModuleClass};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wasmtime::{Store, TypedFunc};

/// A call of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// The first call, with the parameters.
    Init {
        role: Role,
        workers: usize,
        tick_ns: u64,
        interval_ns: u64,
    },
    /// A call with `count` packets of one link type, whose descriptors begin at `descriptors` in the window.
    Batch {
        descriptors: u32,
        count: u32,
        lost: u64,
        link: LinkType,
        /// The event queue of the packets, or 0.
        queue: u32,
    },
    /// A call of a module that forwards packets, with `count` packets from the input `port`.
    Push {
        port: u32,
        descriptors: u32,
        count: u32,
        lost: u64,
        link: LinkType,
    },
    Tick {
        now_ns: u64,
    },
    /// The last call.
    End {
        now_ns: u64,
    },
    /// A call with bytes that another instance of this module sent.
    Message(Vec<u8>),
    /// A call of one of the module's services, with its head.
    Serve(Vec<u8>),
    /// The outcome of a call of a service, with its head.
    Done(Vec<u8>),
    /// A call for the rest of the output of the call before it.
    Rest,
    /// A call for the state of the instance. Its output is one blob.
    Export,
    /// A call with the state that an earlier instance exported.
    Import(Arc<[u8]>),
    /// A call with the number of bytes by which the memory of the instance may still grow
    /// ([`Instance::pressure`]).
    Pressure {
        free: u64,
    },
}

impl Call {
    /// Returns the name of the call.
    pub fn name(&self) -> CallName {
        match self {
            Self::Init { .. } => CallName::Init,
            Self::Batch { .. } => CallName::Batch,
            Self::Push { .. } => CallName::Push,
            Self::Tick { .. } => CallName::Tick,
            Self::End { .. } => CallName::End,
            Self::Message(_) => CallName::Message,
            Self::Serve(_) => CallName::Serve,
            Self::Done(_) => CallName::Done,
            Self::Rest => CallName::Rest,
            Self::Export => CallName::Export,
            Self::Import(_) => CallName::Import,
            Self::Pressure { .. } => CallName::Pressure,
        }
    }

    /// Returns the number of packets of a call with a batch.
    pub fn packets(&self) -> Option<u32> {
        match self {
            Self::Batch { count, .. } | Self::Push { count, .. } => Some(*count),
            _ => None,
        }
    }
}

/// The units of work that calls other than batches may cost together (see
/// [`flame_plan::Limits::call_budget`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    limit: u64,
    left: u64,
    calls: u32,
    is_last: bool,
}

impl Allowance {
    /// Creates an allowance of `limit` units.
    pub fn new(limit: u64) -> Self {
        Self { limit, left: limit, calls: 0, is_last: false }
    }

    /// Creates the allowance of a call after the run was stopped.
    pub fn last(limit: u64) -> Self {
        Self { is_last: true, ..Self::new(limit) }
    }

    /// Returns whether this is the allowance of a call after the run was stopped.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Returns the reason why no further call may begin, or `None` if one may.
    pub fn refuses(&self) -> Option<FaultKind> {
        (self.left == 0).then(|| self.used_up(None))
    }

    pub(crate) fn used_up(&self, place: Option<u32>) -> FaultKind {
        let (limit, calls) = (self.limit, self.calls.saturating_add(u32::from(self.left > 0)));
        match self.is_last {
            true => FaultKind::StopBudget { limit, place, calls },
            false => FaultKind::Budget { limit, place, calls },
        }
    }

    /// Returns the units that were used since it was `before`.
    pub fn since(&self, before: &Self) -> u64 {
        before.left.saturating_sub(self.left)
    }

    fn charge(&mut self, units: u64) {
        self.spend(units);
        self.calls = self.calls.saturating_add(1);
    }

    /// Charges the output of a call.
    pub fn spend(&mut self, units: u64) {
        self.left = self.left.saturating_sub(units);
    }
}

/// The export that is called with batches.
pub(crate) enum Batches {
    Measure(TypedFunc<i32, i64>),
    Forward(TypedFunc<(i32, i32), i64>),
}

/// An exported function and its arguments.
pub(crate) enum Function {
    /// The one for batches, which is not copied for each of them: [`Batches`] has it. The input is that of a
    /// module that forwards packets.
    Batch {
        input: u32,
        at: i32,
    },
    Data(TypedFunc<(i32, i32), i64>, (i32, i32)),
    Number(TypedFunc<i64, i64>, i64),
    None(TypedFunc<(), i64>),
}

impl Function {
    fn call(self, batches: &Batches, store: &mut Store<Quota>) -> wasmtime::Result<i64> {
        match self {
            Self::Batch { input, at } => match batches {
                Batches::Measure(function) => function.call(store, at),
                Batches::Forward(function) => function.call(store, (input as i32, at)),
            },
            Self::Data(function, place) => function.call(store, place),
            Self::Number(function, number) => function.call(store, number),
            Self::None(function) => function.call(store, ()),
        }
    }

    async fn call_async(self, batches: &Batches, store: &mut Store<Quota>) -> wasmtime::Result<i64> {
        match self {
            Self::Batch { input, at } => match batches {
                Batches::Measure(function) => function.call_async(store, at).await,
                Batches::Forward(function) => function.call_async(store, (input as i32, at)).await,
            },
            Self::Data(function, place) => function.call_async(store, place).await,
            Self::Number(function, number) => function.call_async(store, number).await,
            Self::None(function) => function.call_async(store, ()).await,
        }
    }
}

/// The way in which a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Nothing waits for it, or it is short. A metered module yields nevertheless, and continues.
    ToEnd,
    /// It yields at the end of each slice. Another thread calls a bounded module, whose code does not yield.
    InSlices,
}

/// A call that has not ended.
pub struct Suspended(Kind);

enum Kind {
    /// A call of a metered module on a stack of its own.
    Stack(Pin<Box<dyn Future<Output = (Box<Instance>, CallReturn)> + Send>>),
    /// A call that another thread makes, and the clock of that thread since the call began.
    Apart(Running<(Box<Instance>, CallReturn)>, Arc<OnceLock<CallClock>>),
}

/// A call that has returned, whose result is not yet checked ([`Instance::returned`] begins that).
pub struct CallReturn {
    call: CallName,
    allowance: Allowance,
    result: Result<wasmtime::Result<i64>, Fault>,
    /// The processor time of another thread.
    apart: Duration,
}

impl CallReturn {
    /// Returns the processor time that another thread took for the call.
    pub fn time_apart(&self) -> Duration {
        self.apart
    }
}

/// The state of a call after one slice.
pub enum Slice {
    Yielded(Suspended),
    Done(Box<Instance>, CallReturn),
}

/// The result of a call.
#[derive(Debug)]
pub struct Returned<'a> {
    pub output: Output<'a>,
    /// Whether the module requests the same call again.
    pub more: bool,
    /// Whether the module requests [`Call::Rest`], before any other call.
    pub rest: bool,
    /// Whether the module refuses the state that it was given.
    pub refused: bool,
    /// The allowance of the call, reduced by its cost.
    pub allowance: Allowance,
}

impl Suspended {
    /// Continues until the call ends or its slice does ([`crate::Engines::end_slice`] ends it).
    pub fn resume(self) -> Slice {
        match self.0 {
            Kind::Stack(mut call) => match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready((instance, called)) => Slice::Done(instance, called),
                Poll::Pending => Slice::Yielded(Self(Kind::Stack(call))),
            },
            Kind::Apart(running, clock) => match running.wait(SLICE) {
                Ok((instance, called)) => Slice::Done(instance, called),
                Err(running) => Slice::Yielded(Self(Kind::Apart(running, clock))),
            },
        }
    }

    /// Returns the processor time so far, if another thread makes the call.
    pub fn time_apart(&self) -> Option<Duration> {
        match &self.0 {
            Kind::Stack(_) => None,
            Kind::Apart(_, clock) => Some(clock.get().map_or(Duration::ZERO, CallClock::elapsed)),
        }
    }
}

impl Instance {
    /// Begins a call. It has ended when this returns, or has yielded.
    pub fn begin(mut self: Box<Self>, call: &Call, allowance: Allowance, pace: Pace) -> Slice {
        if self.loaded.class() == ModuleClass::Bounded {
            let is_apart = pace == Pace::InSlices && self.has(call);
            let thread = if is_apart { self.loaded.thread() } else { None };
            let Some(thread) = thread else {
                let called = self.call_now(call, allowance);
                return Slice::Done(self, called);
            };
            let (call, clock) = (call.clone(), Arc::<OnceLock<CallClock>>::default());
            let of_call = clock.clone();
            let running = thread.run(move || {
                let clock = of_call.get_or_init(CallClock::begin);
                let called = self.call_now(&call, allowance);
                (self, CallReturn { apart: clock.elapsed(), ..called })
            });
            return Suspended(Kind::Apart(running, clock)).resume();
        }
        let prepared = self.prepare(call, allowance.left);
        let call = call.name();
        let running = async move {
            let result = match prepared {
                Ok(Some(function)) => {
                    let Self { batch, store, .. } = &mut *self;
                    Ok(function.call_async(batch, store).await)
                }
                Ok(None) => Ok(Ok(0)),
                Err(fault) => Err(fault),
            };
            (self, CallReturn { call, allowance, result, apart: Duration::ZERO })
        };
        Suspended(Kind::Stack(Box::pin(running))).resume()
    }

    /// Charges a call to its allowance, and locates its output, which may cost `limit` units.
    ///
    /// # Errors
    ///
    /// Returns the fault that ended the call. The instance must then be dropped.
    pub fn returned(&mut self, called: CallReturn, limit: u64) -> Result<(Pending, Allowance), Fault> {
        let CallReturn { call, mut allowance, result, .. } = called;
        let result = result?;
        let units = if call.is_batch() { 0 } else { self.counted(call, allowance.left) };
        if call == CallName::Pressure {
            self.note_pressure();
        }
        let pending = self.locate(call, result, &allowance, limit)?;
        if !call.is_batch() {
            allowance.charge(units.max(CALL_UNITS));
        }
        Ok((pending, allowance))
    }

    /// Charges a call and its output to its allowance, and checks all of it.
    ///
    /// # Errors
    ///
    /// Returns the fault that ended the call, or the one in its output. The instance must then be dropped.
    pub fn finish(&mut self, called: CallReturn) -> Result<Returned<'_>, Fault> {
        let is_batch = called.call.is_batch();
        let (mut pending, mut allowance) = self.returned(called, u64::MAX)?;
        while !self.check(&mut pending, usize::MAX)? {}
        if !is_batch {
            allowance.spend(pending.call_units());
        }
        let Pending { more, rest, refused, .. } = pending;
        let nothing = Output { bytes: &[], counts: Default::default() };
        let output = self.next_piece(&mut pending, usize::MAX).unwrap_or(nothing);
        Ok(Returned { output, more, rest, refused, allowance })
    }

    fn call_now(&mut self, call: &Call, allowance: Allowance) -> CallReturn {
        let result = match self.prepare(call, allowance.left) {
            Ok(Some(function)) => Ok(self.execute(call.name(), function)),
            Ok(None) => Ok(Ok(0)),
            Err(fault) => Err(fault),
        };
        CallReturn { call: call.name(), allowance, result, apart: Duration::ZERO }
    }

    fn execute(&mut self, call: CallName, function: Function) -> wasmtime::Result<i64> {
        let Self { batch, store, watch, loaded, .. } = self;
        if loaded.class() != ModuleClass::Bounded {
            return block_on(function.call_async(batch, store));
        }
        if let Some(watch) = watch {
            watch.0.begin(loaded.deadline_ns(call));
        }
        let returned = function.call(batch, store);
        if let Some(watch) = watch {
            watch.0.end();
        }
        returned
    }

    /// Makes a call to its end, with a separate allowance: for measuring and testing modules, where nothing
    /// else waits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Instance::finish`].
    pub fn call(&mut self, call: &Call) -> Result<Returned<'_>, Fault> {
        let allowance = Allowance::new(self.loaded.limits().call_budget);
        let called = self.call_now(call, allowance);
        self.finish(called)
    }
}

/// Polls a future until it is done. The future only waits for its next slice.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}
