//! Services, which one module offers and others call.

use super::check::{Checked, at_most, fault, name, one_line};
use super::{Manifest, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The maximum number of services that a module offers, and of those that it uses.
pub const MAX_SERVICES: usize = 16;

/// A service that a module offers or uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    pub name: String,
    #[serde(default)]
    pub description: String,
}

impl Manifest {
    /// Returns whether the module calls services or offers them.
    pub fn has_calls(&self) -> bool {
        !self.uses.is_empty() || !self.services.is_empty()
    }

    pub(super) fn check_services(&self) -> Checked<'_> {
        for (key, services) in [("services", &self.services), ("uses", &self.uses)] {
            let table = [Step::Key(key)];
            at_most(&table, key, services.len(), MAX_SERVICES, "entries")?;
            if self.ports.is_some() && !services.is_empty() {
                let reason = "a module with ports has nobody to call: remove it";
                return fault(&table, key, reason);
            }
            let mut names = BTreeSet::new();
            for (index, service) in services.iter().enumerate() {
                let path = |step| [Step::Key(key), Step::Index(index), Step::Key(step)];
                name(&path("name"), key, &service.name)?;
                let place = |step: &str| format!("{key}.{}.{step}", service.name);
                if !names.insert(&service.name) {
                    return fault(&path("name"), place("name"), "appears twice: choose another name");
                }
                one_line(&path("description"), &place("description"), &service.description)?;
            }
        }
        let own = self.uses.iter().position(|used| self.services.iter().any(|s| s.name == used.name));
        own.map_or(Ok(()), |index| {
            let path = [Step::Key("uses"), Step::Index(index), Step::Key("name")];
            let place = format!("uses.{}.name", self.uses[index].name);
            fault(&path, place, "is a service of this module: it needs no call")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_service_is_named() {
        let head = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n";
        let parse = |text: &str| Manifest::parse(format!("{head}{text}").as_bytes());
        let service = "[[services]]\nname = \"names\"\ndescription = \"of addresses\"\n";
        let used = "[[uses]]\nname = \"labels\"\n";
        let good = parse(&format!("{service}{used}")).unwrap();
        assert_eq!((&*good.services[0].name, &*good.uses[0].name), ("names", "labels"));
        assert_eq!(Manifest::from_toml(&good.to_toml().unwrap()).unwrap(), good);
        for (text, said) in [
            (format!("{service}{service}"), "line 9: services.names.name: appears twice"),
            (format!("{used}{used}"), "line 8: uses.labels.name: appears twice"),
            (
                format!("{service}{}", used.replace("labels", "names")),
                "line 9: uses.names.name: is a service",
            ),
            (service.replace("\"names\"", "\"Names\""), "is not a name"),
            (format!("[ports]\n{used}"), "line 6: uses: a module with ports"),
            (service.replace("description", "about"), "unknown field"),
            (service.replace("of addresses", "a\\nb"), "services.names.description: has control characters"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{said}\n{error}");
        }
        let many: String = (0..17).map(|n| used.replace("labels", &format!("a{n}"))).collect();
        assert!(parse(&many).unwrap_err().to_string().contains("17 entries, at most 16"));
    }
}
