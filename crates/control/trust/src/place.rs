//! The place from which packets come.

/// The name of captures in policies and checks.
const CAPTURES: &str = "file";
/// The name of all interfaces.
const ALL: &str = "any";
/// The name of graphs.
const GRAPH: &str = "click";

/// The place from which packets come, as the node vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Captures,
    Interface(String),
    All,
    Graph,
}

impl Place {
    /// Returns the place of captures: files that the caller gives.
    pub fn captures() -> Self {
        Self(Kind::Captures)
    }

    /// Returns the place of a graph, whose packets may come from anywhere.
    pub fn graph() -> Self {
        Self(Kind::Graph)
    }

    /// Returns the place of all interfaces of the machine.
    pub fn all_interfaces() -> Self {
        Self(Kind::All)
    }

    /// Returns the place that policies mean by a word, if it is not the name of one interface.
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::captures(), Self::all_interfaces(), Self::graph()]
            .into_iter()
            .find(|place| place.name() == word)
    }

    /// Returns the place of one interface. `name` is the kernel's own name, not one of its alternative names.
    ///
    /// # Errors
    ///
    /// Returns an error if policies mean something else by the name.
    pub fn interface(name: &str) -> Result<Self, String> {
        if Self::of_word(name).is_some() {
            return Err(format!(
                "an interface is called {name:?}, by which policies mean something else: rename it (ip link set \
                 {name} name NAME)"
            ));
        }
        Ok(Self(Kind::Interface(name.to_owned())))
    }

    /// Returns the name by which policies, credentials and checks mean the place.
    pub fn name(&self) -> &str {
        match &self.0 {
            Kind::Captures => CAPTURES,
            Kind::Interface(name) => name,
            Kind::All => ALL,
            Kind::Graph => GRAPH,
        }
    }

    /// Returns whether packets may come from any interface, so that a check that excludes one cannot hold.
    pub(crate) fn is_anywhere(&self) -> bool {
        matches!(self.0, Kind::All | Kind::Graph)
    }
}
