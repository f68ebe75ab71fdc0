//! The event queues of a module, as its manifest and its grant state them.

use crate::error::RunError;
use flame_block::Depths;
use flame_plan::{ModulePlan, ShownFilter};
use flame_view::{Key, Queues, View};

/// Returns the filters of a module's event queues on the packets of `view`, or `None` if it has none.
pub(crate) fn queues(plan: &ModulePlan, view: &View) -> Result<Option<Queues>, RunError> {
    let parse = |queue: &flame_abi::manifest::Queue| {
        let wrong = |reason| RunError::Queue { module: plan.name.clone(), queue: queue.name.clone(), reason };
        ShownFilter::parse(&queue.select).map_err(wrong)
    };
    let filters: Vec<_> = plan.manifest.queues.iter().map(parse).collect::<Result<_, _>>()?;
    Ok(if filters.is_empty() { None } else { Some(Queues::new(&filters, view)?) })
}

/// Returns the numbers of blocks that may wait in the module's event queues.
pub(crate) fn depths(plan: &ModulePlan) -> Result<Depths, RunError> {
    let blocks = plan.queue_blocks();
    let blocks = blocks.map_err(|reason| RunError::Queues { module: plan.name.clone(), reason })?;
    Ok(Depths::new(&blocks))
}

/// Checks that the view of a module and its queues can be created.
pub(crate) fn check(plan: &ModulePlan, key: Option<&Key>) -> Result<(), RunError> {
    let view = View::new(&plan.view, key)?;
    if queues(plan, &view)?.is_some() {
        depths(plan)?;
    }
    Ok(())
}
