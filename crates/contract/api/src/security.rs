use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The rights of a node's processes, as the kernel reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Security {
    pub processes: Vec<Process>,
}

/// A process of the node: its own, a compiler, or a runner of modules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Its name in the kernel.
    pub name: String,
    /// The modules in it, if it is a runner: their principal and source.
    #[serde(default)]
    pub runs: Option<Runs>,
    /// Whether it has a user namespace other than the node's. Missing if the kernel does not report it.
    pub own_user_namespace: Option<bool>,
    /// Its threads, grouped by their rights, which the kernel keeps for each.
    pub threads: Vec<Threads>,
}

/// The modules of one principal in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Runs {
    pub principal: String,
    pub source: String,
    /// The number of modules.
    pub modules: u64,
    /// The processor time that the kernel guarantees to it, in millionths of one processor.
    #[serde(default)]
    pub guaranteed_ppm: u64,
    /// The number of times that such a process ended by itself in the last ten minutes.
    pub ended: u64,
}

/// Threads of a process with the same rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Threads {
    pub count: u64,
    /// The effective user and group.
    pub user: u32,
    pub group: u32,
    /// Capabilities in effect.
    pub effective: Vec<String>,
    /// Capabilities that it can take.
    pub permitted: Vec<String>,
    /// Capabilities that a program which it executes can have.
    pub bounding: Vec<String>,
    /// Whether a program that it executes can have no more rights than it.
    pub no_new_privileges: Option<bool>,
    /// The filter of its system calls: `none`, `strict` or `filter`.
    pub seccomp: Option<String>,
}
