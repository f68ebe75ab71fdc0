//! Areas of memory that modules share by name.

use super::check::{Checked, at_most, fault, name, one_line};
use super::{Manifest, Step};
use crate::layout::{MAX_SHARED, MAX_SHARED_BYTES, SHARED, SHARED_PAGE, SHARED_STRIDE};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// An area of memory that modules of a run share by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// The size in bytes. All modules that share the area state the same.
    pub bytes: u32,
    pub access: Access,
}

/// The access of a module to a shared area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    Read,
    /// The module reads and writes.
    Write,
}

impl Shared {
    /// Returns the number of bytes that are mapped: whole pages of [`SHARED_PAGE`].
    pub fn mapped(&self) -> u32 {
        self.bytes.next_multiple_of(SHARED_PAGE)
    }

    /// Returns the address of the area with this number in the window of a module.
    pub fn address(number: usize) -> u32 {
        SHARED + number as u32 * SHARED_STRIDE
    }
}

impl Manifest {
    /// Returns the names of the shared areas that the module accesses in this way.
    pub fn shares(&self, access: Access) -> impl Iterator<Item = &String> {
        self.shared.iter().filter(move |area| area.access == access).map(|area| &area.name)
    }

    pub(super) fn check_shared(&self) -> Checked<'_> {
        const KEY: &str = "shared";
        at_most(&[Step::Key(KEY)], KEY, self.shared.len(), MAX_SHARED as usize, "entries")?;
        let mut names = BTreeSet::new();
        for (index, area) in self.shared.iter().enumerate() {
            let path = |step| [Step::Key(KEY), Step::Index(index), Step::Key(step)];
            name(&path("name"), KEY, &area.name)?;
            let place = |step: &str| format!("{KEY}.{}.{step}", area.name);
            if !names.insert(&area.name) {
                return fault(&path("name"), place("name"), "appears twice: choose another name");
            }
            one_line(&path("description"), &place("description"), &area.description)?;
            if !(1..=MAX_SHARED_BYTES).contains(&area.bytes) {
                let reason = format!("{} is not in 1 to {MAX_SHARED_BYTES}", area.bytes);
                return fault(&path("bytes"), place("bytes"), reason);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_shared_area_is_named() {
        let head = "abi = 1\nname = \"m\"\nversion = \"1\"\ndescription = \"d\"\n";
        let parse = |text: &str| Manifest::parse(format!("{head}{text}").as_bytes());
        let area = "[[shared]]\nname = \"routes\"\nbytes = 65_537\naccess = \"write\"\n";
        let other = area.replace("routes", "more").replace("write", "read");
        let good = parse(&format!("{area}{other}")).unwrap();
        assert_eq!((good.shared[0].access, good.shared[0].mapped()), (Access::Write, 128 << 10));
        assert_eq!(good.shares(Access::Read).collect::<Vec<_>>(), ["more"]);
        assert_eq!(Manifest::from_toml(&good.to_toml().unwrap()).unwrap(), good);
        assert_eq!((Shared::address(0), Shared::address(3)), (0xf840_0000, 0xfcc0_0000));
        for (text, said) in [
            (format!("{area}{area}"), "line 10: shared.routes.name: appears twice"),
            (area.replace("\"routes\"", "\"Routes\""), "is not a name"),
            (area.replace("65_537", "0"), "line 7: shared.routes.bytes: 0 is not in 1 to 16777216"),
            (area.replace("65_537", "16777217"), "shared.routes.bytes: 16777217 is not in"),
            (area.replace("\"write\"", "\"both\""), "expected `read` or `write`"),
            (area.replace("bytes = 65_537\n", ""), "add it, for example bytes = 65_536"),
            (area.replace("access = \"write\"\n", ""), "add it, for example access = \"read\""),
            (area.replace("bytes", "size"), "unknown field"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{said}\n{error}");
        }
        let many: String = (0..5).map(|n| area.replace("routes", &format!("a{n}"))).collect();
        assert!(parse(&many).unwrap_err().to_string().contains("5 entries, at most 4"));
    }
}
