//! The costs of elements on this machine, by measurement.

use super::names::Names;
use super::packet::{ANNO_PAINT, Batch, HEADROOM, Packet, TAILROOM};
use super::router::{Environment, Router};
use crate::registry::{self, Class};
use flame_click::{Connection, Element, Graph, Port};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Packets that are given at a time, and how often.
const BATCH: usize = 32;
const ROUNDS: usize = 15;

/// Returns packets of several kinds: Ethernet and IP, short and long.
fn kinds() -> Vec<Packet> {
    let make = |is_ethernet: bool, length: usize| {
        let mut p = Packet::with_room(HEADROOM, length, TAILROOM);
        p.data_mut().fill(0x5a);
        let at = if is_ethernet { 14 } else { 0 };
        let total = (length - at) as u16;
        let mut ip = [0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip[2..4].copy_from_slice(&total.to_be_bytes());
        let udp = [0x12, 0x34, 0, 53, (total - 20).to_be_bytes()[0], (total - 20).to_be_bytes()[1], 0, 0];
        if is_ethernet {
            p.data_mut()[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        }
        p.data_mut()[at..at + 20].copy_from_slice(&ip);
        p.data_mut()[at + 20..at + 28].copy_from_slice(&udp);
        p.set_network(at, 20);
        p
    };
    let mut copied = make(true, 1514);
    // `PaintSwitch` copies it to each output.
    copied.anno.bytes[ANNO_PAINT] = 255;
    vec![make(true, 64), make(true, 1514), make(false, 50), make(false, 1500), copied]
}

/// The cost of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// Nanoseconds for a packet: the most of several kinds of packets and inputs, each the median of some
    /// rounds.
    Measured(f64),
    /// It has no inputs: packets begin there.
    None,
    /// It was not measured, for this reason.
    Unknown(&'static str),
}

/// Longest time of all measurements of a graph.
const MEASURE_MAX: Duration = Duration::from_secs(10);

/// The properties on which the cost of an element depends: class, arguments, where names are looked up, and
/// the numbers of inputs and outputs.
type Properties = (String, String, String, (usize, usize));

/// Measures the elements of a graph, each in a graph of its own. Only elements of classes that are pure get
/// packets, those of the same class and arguments once, and there is one deadline for all.
pub struct Measurer<'a> {
    graph: &'a Graph,
    ports: Vec<(usize, usize)>,
    names: Names,
    known: HashMap<Properties, Cost>,
    until: Instant,
    interrupt: Arc<AtomicBool>,
}

impl<'a> Measurer<'a> {
    /// Begins to measure. `interrupt` ends it.
    pub fn new(graph: &'a Graph, interrupt: Arc<AtomicBool>) -> Self {
        let mut ports = vec![(0, 0); graph.elements.len()];
        for Connection { from, to, .. } in &graph.connections {
            ports[from.element].1 = ports[from.element].1.max(from.port + 1);
            ports[to.element].0 = ports[to.element].0.max(to.port + 1);
        }
        let names = Names::of(graph).0;
        let until = Instant::now() + MEASURE_MAX;
        Self { graph, ports, names, known: HashMap::new(), until, interrupt }
    }

    /// Returns the cost of an element.
    pub fn cost(&mut self, element: usize) -> Cost {
        let (Some(e), Some(ports)) = (self.graph.elements.get(element), self.ports.get(element)) else {
            return Cost::None;
        };
        if ports.0 == 0 {
            return Cost::None;
        }
        if !registry::find(&e.class).is_some_and(Class::is_pure) {
            return Cost::Unknown("what it does is not known beforehand");
        }
        let scope = e.name.rfind('/').map_or("", |at| &e.name[..at]);
        let properties = (e.class.clone(), e.config.clone(), scope.to_owned(), *ports);
        if let Some(known) = self.known.get(&properties) {
            return *known;
        }
        let cost = self.measure(e, *ports);
        self.known.insert(properties, cost);
        cost
    }

    fn is_over(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    fn measure(&mut self, element: &Element, ports: (usize, usize)) -> Cost {
        const LATE: Cost = Cost::Unknown("there was no time left");
        if self.is_over() {
            return LATE;
        }
        let env = Environment { interrupt: self.interrupt.clone(), ..Environment::silent(None) };
        let names = std::mem::take(&mut self.names);
        let Ok(mut router) = Router::connected(alone(element, ports), names, env) else {
            self.names = Names::of(self.graph).0;
            return Cost::Unknown("it does not work alone");
        };
        let mut most = None;
        for input in (0..ports.0).filter(|i| router.nodes[0].inputs[*i].is_push) {
            for kind in kinds() {
                let mut times = [0.0; ROUNDS];
                for time in &mut times {
                    if self.is_over() {
                        self.names = std::mem::take(&mut router.names);
                        return LATE;
                    }
                    *time = router.round(input, &kind);
                }
                times.sort_by(f64::total_cmp);
                most = Some(times[ROUNDS / 2].max(most.unwrap_or(0.0)));
            }
        }
        self.names = std::mem::take(&mut router.names);
        most.map_or(Cost::Unknown("it is pulled, or pulls in a task"), Cost::Measured)
    }
}

impl Router {
    /// Returns the nanoseconds that the first element takes for a packet of a batch.
    fn round(&self, input: usize, kind: &Packet) -> f64 {
        let mut batch = Batch::default();
        batch.extend((0..BATCH).map(|_| kind.clone()));
        let began = Instant::now();
        self.in_step(|| self.deliver(0, input, batch));
        began.elapsed().as_nanos() as f64 / BATCH as f64
    }
}

/// Returns a graph of the element alone, with sources and sinks at its ports.
fn alone(element: &Element, (inputs, outputs): (usize, usize)) -> Graph {
    let new = |name: String, class: &str| Element {
        name,
        class: class.into(),
        config: String::new(),
        landmark: element.landmark.clone(),
    };
    let mut alone = Graph { elements: vec![element.clone()], ..Graph::default() };
    for port in 0..inputs {
        alone.elements.push(new(format!("measure/in{port}"), "Idle"));
        let from = Port { element: alone.elements.len() - 1, port: 0 };
        alone.connections.push(Connection { from, to: Port { element: 0, port }, landmark: String::new() });
    }
    for port in 0..outputs {
        alone.elements.push(new(format!("measure/out{port}"), "Discard"));
        let to = Port { element: alone.elements.len() - 1, port: 0 };
        alone.connections.push(Connection { from: Port { element: 0, port }, to, landmark: String::new() });
    }
    alone
}
