//! Active extensions: services by which capsules find the modules that their principal has installed at the
//! node, ask for sums of their records, and ask the modules themselves.
//!
//! A [`Service`] names modules, and either the service of their manifests that serves it, or a table, the
//! column that is compared with a capsule's argument ([`key_of`]), and the columns whose sum is the answer.
//! The records of a module are seen by capsules of its principal alone: root and name are the same. Each
//! module and service has at most [`MAX_KEYS`] keys; the oldest is forgotten first.

use flame_base::lock;
use flame_capsule::{Payer, Place, name};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

/// The most keys of a service for each module.
pub const MAX_KEYS: usize = 4096;
/// The beginning of a Community ID of version 1.
const COMMUNITY: &str = "1:";

/// What capsules may ask of the records of installed modules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The names under which principals install the modules.
    pub modules: Vec<String>,
    /// The service of the modules' manifests that answers, in place of table, key and sum.
    pub serve: Option<String>,
    #[serde(default)]
    pub table: String,
    /// The column that the argument is compared with.
    #[serde(default)]
    pub key: String,
    /// The columns whose sum, over all records and modules, is the answer.
    #[serde(default)]
    pub sum: Vec<String>,
    /// For each module the neighbour whose packets it sees. If they are stated, the answer is the place of
    /// the neighbour with the largest sum.
    #[serde(default)]
    pub neighbours: Vec<String>,
}

/// A value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(i64),
    Text(String),
}

/// The sums of one module for one service, by key.
#[derive(Default)]
struct Sums {
    by_key: BTreeMap<i64, i64>,
    /// The keys in the order in which they were seen first.
    order: VecDeque<i64>,
}

/// A service, and the places of its neighbours.
struct Offered {
    service: Service,
    places: Vec<Place>,
}

type Known = BTreeMap<(Payer, u64, usize), Sums>;
/// The modules that are installed, with their principals as the node of modules names them.
type Installed = BTreeMap<(Payer, String), Option<String>>;

/// The services of a node: shared by the one who reads records, and the node that answers capsules. Capsules
/// that ask for no service do not touch them.
#[derive(Clone)]
pub struct Extensions {
    offered: Arc<BTreeMap<u64, Offered>>,
    known: Arc<Mutex<Known>>,
    installed: Arc<Mutex<Installed>>,
}

/// Returns the key that a text is: the number of an IPv4 address, and otherwise its first eight bytes as a
/// name, of a Community ID those behind `1:`.
#[must_use]
pub fn key_of(text: &str) -> i64 {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return address.to_bits().into();
    }
    let text = text.strip_prefix(COMMUNITY).unwrap_or(text).as_bytes();
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(text).for_each(|(byte, of_text)| *byte = *of_text);
    i64::from_le_bytes(bytes)
}

impl Service {
    /// Checks a service of this name.
    ///
    /// # Errors
    ///
    /// Returns what is wrong, with the remedy.
    pub fn check(&self, called: &str) -> Result<(), String> {
        let fail = |reason: String| Err(format!("[services.{called}] {reason}"));
        if name(called).is_none() || called == "time" {
            return fail("is no name: take one of at most eight bytes, and not `time`".to_owned());
        }
        if self.modules.is_empty() || (self.sum.is_empty() && self.serve.is_none()) {
            let remedy = "name them in `modules`, and in `serve` or `sum`";
            return fail(format!("states no modules, or neither a service nor columns: {remedy}"));
        }
        if self.serve.is_some() && !(self.sum.is_empty() && self.table.is_empty() && self.key.is_empty()) {
            return fail("is served, and is no sum: leave out `table`, `key` and `sum`".to_owned());
        }
        let (modules, neighbours) = (self.modules.len(), self.neighbours.len());
        if neighbours != 0 && neighbours != modules {
            return fail(format!("has {neighbours} neighbours, and {modules} modules: state one for each"));
        }
        Ok(())
    }
}

impl Extensions {
    /// Makes the services, of which no module has records yet. `place` gives the place of a neighbour.
    #[must_use]
    pub fn new(services: &BTreeMap<String, Service>, place: impl Fn(&str) -> Place) -> Self {
        let offer = |(called, service): (&String, &Service)| {
            let places = service.neighbours.iter().map(|name| place(name)).collect();
            Some((name(called)?, Offered { service: service.clone(), places }))
        };
        let offered = Arc::new(services.iter().filter_map(offer).collect());
        Self { offered, known: Arc::default(), installed: Arc::default() }
    }

    /// Returns the names of the modules that are asked for.
    #[must_use]
    pub fn modules(&self) -> BTreeSet<&str> {
        self.offered.values().flat_map(|offered| &offered.service.modules).map(String::as_str).collect()
    }

    /// Returns whether records of a module are summed.
    #[must_use]
    pub fn reads(&self, module: &str) -> bool {
        let of_records = self.offered.values().filter(|offered| offered.service.serve.is_none());
        of_records.flat_map(|offered| &offered.service.modules).any(|name| name == module)
    }

    /// Records which modules are installed.
    pub fn set_installed(&self, installed: Installed) {
        *lock(&self.installed) = installed;
    }

    /// Returns the service of modules that answers this one.
    #[must_use]
    pub fn served(&self, name: u64) -> Option<&str> {
        self.offered.get(&name)?.service.serve.as_deref()
    }

    /// Returns the modules of a service that the principal has installed: place, name, and the principal as
    /// their node names it.
    #[must_use]
    pub fn installed(&self, payer: Payer, name: u64) -> Vec<(usize, &str, Option<String>)> {
        let Some(offered) = self.offered.get(&name) else { return Vec::new() };
        let installed = lock(&self.installed);
        let modules = offered.service.modules.iter().enumerate();
        let of =
            |(at, module): (usize, &String)| Some((at, installed.get(&(payer, module.clone()))?.clone()));
        let found: Vec<_> = modules.filter_map(of).collect();
        found.into_iter().map(|(at, by)| (at, &*offered.service.modules[at], by)).collect()
    }

    /// Returns the places of the neighbours of a service's modules.
    #[must_use]
    pub fn places(&self, name: u64) -> &[Place] {
        self.offered.get(&name).map_or(&[], |offered| &offered.places)
    }

    /// Adds a record of a principal's module. `column` gives the value of a column.
    pub fn add(&self, payer: Payer, module: &str, table: &str, column: impl Fn(&str) -> Option<Value>) {
        for (called, Offered { service, .. }) in self.offered.iter().filter(|(_, o)| o.service.table == table)
        {
            let Some(at) = service.modules.iter().position(|name| name == module) else { continue };
            let key = match column(&service.key) {
                Some(Value::Number(number)) => number,
                Some(Value::Text(text)) => key_of(&text),
                None => continue,
            };
            let number = |name: &String| match column(name) {
                Some(Value::Number(number)) => number,
                _ => 0,
            };
            let sum = service.sum.iter().map(number).fold(0, i64::saturating_add);
            lock(&self.known).entry((payer, *called, at)).or_default().add(key, sum);
        }
    }

    /// Forgets the records of modules that are installed no more.
    pub fn retain(&self, is_installed: impl Fn(Payer, &str) -> bool) {
        let module = |called: u64, at: usize| self.offered.get(&called)?.service.modules.get(at);
        lock(&self.known).retain(|(payer, called, at), _| {
            module(*called, *at).is_some_and(|name| is_installed(*payer, name))
        });
    }
}

impl Sums {
    fn add(&mut self, key: i64, value: i64) {
        if let Some(sum) = self.by_key.get_mut(&key) {
            *sum = sum.saturating_add(value);
            return;
        }
        if self.order.len() >= MAX_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
        self.order.push_back(key);
        self.by_key.insert(key, value);
    }
}

impl Extensions {
    /// Returns the sum of a service for an argument.
    #[must_use]
    pub fn sum(&self, account: Payer, name: u64, argument: i64) -> Option<i64> {
        let offered = self.offered.get(&name)?;
        let known = lock(&self.known);
        let of_module = |at: usize| Some(*known.get(&(account, name, at))?.by_key.get(&argument)?);
        let sums = (0..offered.service.modules.len()).filter_map(|at| Some((at, of_module(at)?)));
        if offered.places.is_empty() {
            return sums.map(|(_, sum)| sum).reduce(i64::saturating_add);
        }
        let most = sums.max_by_key(|(at, sum)| (*sum, std::cmp::Reverse(*at)));
        most.and_then(|(at, _)| Some(offered.places.get(at)?.0.cast_signed()))
    }
}
