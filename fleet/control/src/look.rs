//! A look at the modules of the fleet on a node, for the view of the fleet's operator.

use crate::node::Session;
use flame_fleet_protocol::talk::{Listed, MAX_LISTED};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The least time between two lists, however often they are asked for: each is a call of the node.
const LEAST: Duration = Duration::from_millis(500);

/// A thread that lists the modules. What follows the fleet does not wait for it, nor it for an install.
pub struct Look {
    asks: SyncSender<()>,
    listed: Arc<Mutex<Option<Listed>>>,
}

impl Look {
    /// Begins a thread for a node and the folder of its membership.
    pub fn begin(node: &str, member: &Path) -> Self {
        let (asks, asked) = sync_channel(1);
        let listed = Arc::new(Mutex::new(None));
        let (to, node, member) = (listed.clone(), node.to_owned(), member.to_owned());
        std::thread::spawn(move || serve(&asked, &node, &member, &to));
        Self { asks, listed }
    }

    /// Has the modules listed. Requests that come meanwhile are one.
    pub fn ask(&self) {
        // A full channel has one already.
        let _ = self.asks.try_send(());
    }

    /// Returns the list that was made since the last call.
    pub fn take(&self) -> Option<Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn serve(asked: &Receiver<()>, node: &str, member: &Path, to: &Mutex<Option<Listed>>) {
    let begun = Instant::now();
    while asked.recv().is_ok() {
        let mut listed = list(node, member);
        listed.ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(listed);
        std::thread::sleep(LEAST);
    }
}

/// Lists the modules under the credential of the fleet, which a node without an install does not have yet.
fn list(node: &str, member: &Path) -> Listed {
    let (credential, identity) = (member.join("credential"), member.join("node.key"));
    if !credential.exists() {
        return Listed::default();
    }
    match (Session { node, credential: &credential, identity: &identity }).list() {
        Ok(all) => {
            let modules = all.into_iter().take(MAX_LISTED).map(|(name, of)| (name, of.counters()));
            Listed { modules: modules.collect(), ..Listed::default() }
        }
        Err(fault) => Listed { fault: Some(fault.into_text()), ..Listed::default() },
    }
}
