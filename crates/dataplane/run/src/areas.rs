//! The areas of memory that modules share by name.

use flame_abi::manifest;
use flame_block::{AreaMemory, BlockError};
use flame_plan::ModulePlan;
use std::sync::{Arc, Weak};

/// The most bytes of all shared areas of a run together.
pub const MAX_AREAS: u64 = 64 << 20;

/// An area that modules of a run share. It exists as long as one of its clones does.
#[derive(Clone, Debug)]
pub struct Area(Arc<Named>);

#[derive(Debug)]
struct Named {
    name: String,
    /// The size that its modules state, in bytes.
    bytes: u32,
    memory: AreaMemory,
}

impl Area {
    pub(crate) fn memory(&self) -> &AreaMemory {
        &self.0.memory
    }
}

/// The reason why modules cannot share an area.
#[derive(Debug, thiserror::Error)]
pub enum AreaError {
    #[error(
        "{module} and {other} share the memory {name:?}, which has {bytes} bytes by the one and {other_bytes} by the other: state the same size in both"
    )]
    Size { name: String, module: String, bytes: u32, other: String, other_bytes: u32 },
    #[error(
        "{module} shares the memory {name:?}: with it the shared areas have {bytes} bytes together, at most {MAX_AREAS} are possible"
    )]
    Total { name: String, module: String, bytes: u64 },
    #[error(transparent)]
    Memory(#[from] BlockError),
}

/// The shared areas of a run, or of a graph whose configuration may be replaced.
#[derive(Debug, Default)]
pub struct Areas {
    /// The areas, each with the module that was the first to name it.
    now: Vec<(Weak<Named>, String)>,
    /// The areas of the configuration before.
    before: Vec<Weak<Named>>,
}

impl Areas {
    /// Returns the areas of a run that begins with `areas`.
    pub fn of(areas: &[Area]) -> Self {
        let now = areas.iter().map(|area| (Arc::downgrade(&area.0), "another module".to_owned()));
        Self { now: now.collect(), before: Vec::new() }
    }

    /// Begins another configuration: an area of the one before is kept if a module names it with the same
    /// size. A configuration that was given up leaves nothing.
    pub fn configure(&mut self) {
        let before = self.before.drain(..).chain(self.now.drain(..).map(|(area, _)| area));
        self.before = before.filter(|area| area.strong_count() > 0).collect();
    }

    /// Returns the areas that a module names, in the order of its manifest. Those that are not there yet are
    /// created.
    ///
    /// # Errors
    ///
    /// Returns an error if another module states another size for one of them, if all areas together are
    /// larger than [`MAX_AREAS`], or if the kernel refuses the memory.
    pub fn take(&mut self, plan: &ModulePlan) -> Result<Vec<Area>, AreaError> {
        plan.manifest.shared.iter().map(|area| self.area(area, &plan.name)).collect()
    }

    fn area(&mut self, wanted: &manifest::Shared, module: &str) -> Result<Area, AreaError> {
        let manifest::Shared { name, bytes, .. } = wanted;
        self.now.retain(|(area, _)| area.strong_count() > 0);
        let now = self.now.iter().filter_map(|(area, by)| Some((area.upgrade()?, &**by)));
        let now: Vec<(Arc<Named>, &str)> = now.collect();
        if let Some((area, by)) = now.iter().find(|(area, _)| area.name == *name) {
            if area.bytes == *bytes {
                return Ok(Area(area.clone()));
            }
            let (other, other_bytes) = ((*by).to_owned(), area.bytes);
            let (name, module) = (name.clone(), module.to_owned());
            return Err(AreaError::Size { name, module, bytes: *bytes, other, other_bytes });
        }
        let together = now.iter().map(|(area, _)| area.memory.bytes() as u64).sum::<u64>();
        let together = together + u64::from(wanted.mapped());
        if together > MAX_AREAS {
            let (name, module) = (name.clone(), module.to_owned());
            return Err(AreaError::Total { name, module, bytes: together });
        }
        // The newest one first.
        let mut before = self.before.iter().rev().filter_map(Weak::upgrade);
        let kept = before.find(|area| area.name == *name && area.bytes == *bytes);
        let area = match kept {
            Some(area) => area,
            None => {
                let memory = AreaMemory::new(wanted.mapped() as usize)?;
                Arc::new(Named { name: name.clone(), bytes: *bytes, memory })
            }
        };
        self.now.push((Arc::downgrade(&area), module.to_owned()));
        Ok(Area(area))
    }
}
