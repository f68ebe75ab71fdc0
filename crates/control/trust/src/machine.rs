//! Options of commands that act on the machine.

use std::str::FromStr;

/// An option of a command that acts on the machine, or on the packets of others, and not only on the module
/// of the caller. Under a policy it is permitted by name: `options = ["xdp"]` in `[node]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineOption {
    /// `--capture xdp`, `xdp-generic` and `auto`: packets do not reach the machine's own stack.
    Xdp,
    /// Promiscuous mode of an interface, the default of `-i`.
    Promiscuous,
    /// `--send`: frames leave by an interface.
    Send,
    /// `flame click`: elements open devices, take packets away and send them.
    Click,
}

impl MachineOption {
    const ALL: [Self; 4] = [Self::Xdp, Self::Promiscuous, Self::Send, Self::Click];

    /// Returns the name that policies use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Promiscuous => "promiscuous",
            Self::Send => "send",
            Self::Click => "click",
        }
    }

    /// Returns the effect on the machine, in words that follow the option's name.
    fn effect(self) -> &'static str {
        match self {
            Self::Xdp => "takes packets away from this machine's own stack",
            Self::Promiscuous => "changes the mode of an interface",
            Self::Send => "sends frames on an interface of this machine",
            Self::Click => "opens devices of this machine",
        }
    }

    /// Returns the refusal of an option, `stated` as on the command line.
    pub(crate) fn refusal(self, stated: &str) -> String {
        format!(
            "{stated} {}, and the policy does not let it: options = [{:?}] in [node] does",
            self.effect(),
            self.name()
        )
    }
}

impl FromStr for MachineOption {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|option| option.name() == name);
        found.ok_or_else(|| format!("{name:?}: no such option: expected {}", all()))
    }
}
