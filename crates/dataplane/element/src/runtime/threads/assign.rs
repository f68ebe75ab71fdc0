//! The thread of each element.
//!
//! Elements that call each other, and those that read each other's state, are in one thread. A queue parts
//! those that push to it from those that pull from it.

use crate::runtime::names::in_scope;
use crate::runtime::ports::{Mode, Modes};
use flame_click::{Graph, text};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The elements whose state an element reads or shares, so that one thread must have them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    None,
    /// Those that its arguments name.
    Named,
    /// The one that its MAPPING_CAPACITY names.
    Capacity,
    /// The nearest queues after it, or before it if it is pulled.
    Queues,
    /// Those of devices on the same interface.
    Device,
    /// None, but others may read its state as that of a queue.
    Queue,
}

/// Elements that form one group each, found by any of them.
struct Groups(Vec<usize>);

impl Groups {
    fn of(&mut self, mut element: usize) -> usize {
        while self.0[element] != element {
            self.0[element] = self.0[self.0[element]];
            element = self.0[element];
        }
        element
    }

    /// Joins the groups of two elements. That of the joined group is the first of its elements.
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// Reads an argument of StaticThreadSched: the name of an element, and its thread.
///
/// # Errors
///
/// Returns an error if the argument has another form.
pub fn binding(arg: &str) -> Result<(String, i64), String> {
    let words = text::words(arg);
    let thread = words.get(1).and_then(|t| t.parse().ok());
    match (words.as_slice(), thread) {
        ([name, _], Some(thread)) => Ok((name.clone(), thread)),
        _ => Err(format!("expected 'ELEMENT THREAD', found '{arg}'")),
    }
}

/// Returns whether an element of this name is in a compound element, or in one inside it.
pub fn is_inside(name: &str, compound: &str) -> bool {
    name.strip_prefix(compound).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the interface that the arguments of a device name: DEVNAME, or the first argument of one word.
fn interface(config: &str) -> String {
    let args: Vec<Vec<String>> = text::split(config).iter().map(|arg| text::words(arg)).collect();
    let stated = args.iter().find(|words| words.len() == 2 && words[0] == "DEVNAME").map(|words| &words[1]);
    let name = stated.or_else(|| args.iter().find(|words| words.len() == 1).map(|words| &words[0]));
    name.map_or_else(String::new, |name| text::unquote(name))
}

struct Assigning<'a> {
    graph: &'a Graph,
    ties: &'a [Ties],
    /// Whether an element is pulled and pushed to, and so parts threads.
    parts: Vec<bool>,
    by_name: HashMap<&'a str, usize>,
    /// The elements before each element, and those after it.
    beside: [Vec<Vec<usize>>; 2],
    groups: Groups,
}

impl Assigning<'_> {
    fn find(&self, from: &str, name: &str) -> Option<usize> {
        in_scope(from, name, |name| self.by_name.get(name).copied())
    }

    /// Joins elements between which packets pass by calls.
    fn join_calls(&mut self, modes: &Modes) {
        for c in &self.graph.connections {
            let is_push = modes.inputs[c.to.element][c.to.port] != Mode::Pull;
            if !(is_push && self.parts[c.to.element]) {
                self.groups.join(c.from.element, c.to.element);
            }
        }
    }

    /// Joins elements with those whose state they read or share.
    fn join_ties(&mut self, modes: &Modes) {
        let mut devices = HashMap::new();
        for (i, e) in self.graph.elements.iter().enumerate() {
            match self.ties[i] {
                Ties::None | Ties::Queue => {}
                Ties::Named => {
                    for word in text::split(&e.config).iter().flat_map(|arg| text::words(arg)) {
                        self.join_named(i, &word);
                    }
                }
                Ties::Capacity => {
                    for (key, name) in text::split(&e.config).iter().map(|arg| text::first_word(arg)) {
                        if key == "MAPPING_CAPACITY" {
                            self.join_named(i, &name);
                        }
                    }
                }
                Ties::Queues => self.join_queues(i, modes),
                Ties::Device => {
                    let first = *devices.entry(interface(&e.config)).or_insert(i);
                    self.groups.join(first, i);
                }
            }
        }
    }

    /// Joins an element with the one that a word in its arguments names, if it names one.
    fn join_named(&mut self, element: usize, word: &str) {
        if let Some(named) = self.find(&self.graph.elements[element].name, word) {
            self.groups.join(element, named);
        }
    }

    /// Joins an element with all up to the nearest queues after it, or before it if it is pulled.
    fn join_queues(&mut self, element: usize, modes: &Modes) {
        let is_push = modes.outputs[element].first().is_none_or(|m| *m != Mode::Pull);
        let (mut seen, mut work) = (HashSet::new(), vec![element]);
        while let Some(at) = work.pop() {
            if !seen.insert(at) {
                continue;
            }
            self.groups.join(element, at);
            if at == element || self.ties[at] != Ties::Queue {
                work.extend(&self.beside[usize::from(is_push)][at]);
            }
        }
    }

    /// Returns the elements that a name stands for, seen from an element, and the length of the whole name if
    /// that is the name of the compound element around them.
    fn named(&self, from: &str, name: &str) -> (Vec<usize>, Option<usize>) {
        if let Some(element) = self.find(from, name) {
            return (vec![element], None);
        }
        let inside = in_scope(from, name, |name| {
            let all = self.graph.elements.iter().enumerate();
            let inside: Vec<_> = all.filter(|(_, e)| is_inside(&e.name, name)).map(|(i, _)| i).collect();
            (!inside.is_empty()).then_some((inside, Some(name.len())))
        });
        inside.unwrap_or_default()
    }

    /// Returns the thread that each element is bound to, of `threads`: by its name, or that of the innermost
    /// compound element around it.
    fn bindings(&self, threads: usize, warnings: &mut Vec<String>) -> [BTreeMap<usize, usize>; 2] {
        let (mut bound, mut around) = (BTreeMap::new(), BTreeMap::new());
        for e in self.graph.elements.iter().filter(|e| e.class == "StaticThreadSched") {
            for (name, thread) in text::split(&e.config).iter().filter_map(|arg| binding(arg).ok()) {
                let (elements, compound) = self.named(&e.name, &name);
                if elements.is_empty() {
                    continue;
                }
                let count = threads as i64;
                let thread = match thread {
                    0.. if thread < count => thread,
                    ..0 if -thread <= count => count + thread,
                    _ => {
                        warnings.push(format!(
                            "{}: warning: thread {thread} of '{name}' is out of range, thread 0 has it (-j \
                             {threads} starts {threads})",
                            e.landmark
                        ));
                        0
                    }
                };
                let thread = thread as usize;
                for element in elements {
                    // The longer the name, the further inside it is.
                    let Some(length) = compound else {
                        bound.insert(element, thread);
                        continue;
                    };
                    let inner = around.entry(element).or_insert((length, thread));
                    if length >= inner.0 {
                        *inner = (length, thread);
                    }
                }
            }
        }
        [bound, around.into_iter().map(|(element, (_, thread))| (element, thread)).collect()]
    }
}

/// Returns the thread of each element, and warnings.
pub fn assign(graph: &Graph, ties: &[Ties], modes: &Modes, threads: usize) -> (Vec<usize>, Vec<String>) {
    let is_some = |side: &[Mode], pull: bool| side.iter().any(|m| (*m == Mode::Pull) == pull);
    let sides = modes.inputs.iter().zip(&modes.outputs);
    let mut beside = [(); 2].map(|()| vec![Vec::new(); graph.elements.len()]);
    for c in &graph.connections {
        beside[0][c.to.element].push(c.from.element);
        beside[1][c.from.element].push(c.to.element);
    }
    let mut a = Assigning {
        graph,
        ties,
        parts: sides.map(|(i, o)| is_some(i, false) && is_some(o, true)).collect(),
        by_name: graph.elements.iter().enumerate().map(|(i, e)| (e.name.as_str(), i)).collect(),
        beside,
        groups: Groups((0..graph.elements.len()).collect()),
    };
    a.join_calls(modes);
    a.join_ties(modes);
    let mut warnings = Vec::new();
    let [bound, around] = a.bindings(threads, &mut warnings);
    // The first element of a group that is bound decides.
    let mut deciding = HashMap::new();
    for (element, thread) in &bound {
        let (first, decided) = *deciding.entry(a.groups.of(*element)).or_insert((*element, *thread));
        if decided != *thread {
            let (e, first) = (&graph.elements[*element], &graph.elements[first].name);
            warnings.push(format!(
                "{}: warning: '{}' runs in thread {decided} with '{first}', since no queue is between them",
                e.landmark, e.name
            ));
        }
    }
    // The name of a compound element decides for those inside that have no thread by their own.
    for (element, thread) in &around {
        deciding.entry(a.groups.of(*element)).or_insert((*element, *thread));
    }
    let thread = |element| deciding.get(&a.groups.of(element)).map_or(0, |(_, thread)| *thread);
    ((0..graph.elements.len()).map(thread).collect(), warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_in_all_forms_of_arguments() {
        for config in ["a0", "a0, METHOD XDP", "METHOD XDP, a0", "DEVNAME a0, PROMISC true", "\"a0\""] {
            assert_eq!(interface(config), "a0", "{config}");
        }
    }

    #[test]
    fn bindings_have_an_element_and_a_thread() {
        assert_eq!(binding("a/b  -1"), Ok(("a/b".to_owned(), -1)));
        for bad in ["", "a", "a b", "a 1 2", "a 1.5"] {
            assert!(binding(bad).is_err(), "{bad}");
        }
    }
}
