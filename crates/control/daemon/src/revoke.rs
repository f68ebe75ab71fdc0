//! Revocations that are made through the node. They are in force whether or not the policy's list has them,
//! until they are withdrawn: a list that was restored from a backup grants nothing again.

use crate::engine::Engine;
use flame_api::{Code, Problem, RevokeRequest};
use flame_base::lock;
use flame_node::Node;
use flame_trust::{Credential, PublicKey, Revoked, RevokedError, time};
use std::path::Path;
use std::sync::Arc;

/// Returns the node under its policy with further revocations, given as lines of the list.
///
/// # Errors
///
/// Returns an error if a line cannot be read.
pub(crate) fn with_all(node: Node, lines: &[String]) -> Result<Node, RevokedError> {
    let policy = node.policy().with_revocations(&lines.join("\n"))?;
    Ok(node.under(Arc::new(policy)))
}

fn invalid(reason: String) -> Problem {
    Problem::new(Code::Invalid, reason, "give one credential, one key or one id")
}

/// Returns the line of the list for a revocation, and the principals whom it concerns.
fn line_of(request: &RevokeRequest) -> Result<(String, String), Problem> {
    match (&request.credential, &request.key, &request.id) {
        (Some(text), None, None) => {
            let blocks =
                Credential::parse(text).and_then(|c| c.blocks()).map_err(|e| invalid(e.to_string()))?;
            let last = blocks.last().ok_or_else(|| invalid("the credential has no block".to_owned()))?;
            let names: Vec<_> = blocks.iter().filter_map(|b| b.principal.as_deref()).collect();
            Ok((format!("id {}", last.id), names.join("/")))
        }
        (None, Some(key), None) => {
            let key = PublicKey::parse(key).map_err(|e| invalid(e.to_string()))?;
            Ok((format!("key {key}"), key.to_string()))
        }
        (None, None, Some(id)) if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            let id = id.to_ascii_lowercase();
            Ok((format!("id {id}"), id))
        }
        (None, None, Some(id)) => Err(invalid(format!("the id {id:?}: expected hexadecimal digits"))),
        _ => Err(invalid("expected one of credential, key and id".to_owned())),
    }
}

impl Engine {
    /// Revokes a credential or a key, and evicts the modules under it. It is in force when this returns, also
    /// if the policy's file cannot be read at the moment, and after a restart.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy has no list. If the list, the storage or the audit log cannot be
    /// written, the error states so, and whether the revocation ends with the node.
    pub fn revoke(&self, request: &RevokeRequest) -> Result<(), Problem> {
        let (line, whom) = line_of(request)?;
        let (node, list) = {
            let mut revocations = lock(&self.revocations);
            let node = self.present_node();
            let node = node.and_then(|node| node.policy().revocations.clone().map(|list| (node, list)));
            let (node, list) = node.ok_or_else(|| {
                Problem::new(
                    Code::Unavailable,
                    "the policy names no list of revocations",
                    "add revocations = \"revoked\" to [node] of the policy, and create the file",
                )
            })?;
            let policy = node.policy().with_revocations(&line).map_err(|e| invalid(e.to_string()))?;
            let node = node.under(Arc::new(policy));
            *lock(&self.node) = Some(node.clone());
            self.end_decisions();
            if !revocations.contains(&line) {
                revocations.push(line.clone());
            }
            (node, list)
        };
        // Before the disk, which may take its time. Checks know of no revocations.
        self.evict_lost();
        let recorded = self.record_revocation(&node, &list, (&line, &whom));
        self.review_all();
        self.wait_for_lost();
        recorded
    }

    /// Writes a revocation that is in force to the list, to the storage and to the audit log, unless it was
    /// withdrawn meanwhile.
    fn record_revocation(&self, node: &Node, list: &Path, (line, whom): (&str, &str)) -> Result<(), Problem> {
        // Only for those who record: whatever the disk does, another revocation comes into force.
        let _recording = lock(&self.recording);
        if !lock(&self.revocations).iter().any(|known| known == line) {
            return Ok(());
        }
        let noted = node.note_revocation(whom, line).map_err(|e| (e.to_string(), None));
        let listed = Revoked::append(list, line).map_err(|e| (e.to_string(), None));
        let stored = self.store.revoked(line, time::now());
        self.fault("storage", stored.as_ref().err().map(ToString::to_string));
        let stored = stored.map_err(|e| (e.to_string(), Some(e.remedy())));
        let until = match listed.is_ok() || stored.is_ok() {
            true => "",
            false => ", but only until the node ends",
        };
        let Some((reason, remedy)) = [stored, listed, noted].into_iter().find_map(Result::err) else {
            return Ok(());
        };
        let remedy = remedy.unwrap_or("make the list and the audit log writable");
        Err(Problem::new(
            Code::Storage,
            format!("the revocation is in force{until}: {reason}"),
            format!("{remedy}; then repeat it ({line})"),
        ))
    }

    /// Withdraws a revocation that was made through the node. It is not in force any more when this returns.
    /// Modules that it has evicted do not run again.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such revocation, if the policy's list has it as well, or if policy and
    /// list cannot be read, or the storage or the audit log not be written. Then it stays in force.
    pub fn withdraw(&self, request: &RevokeRequest) -> Result<(), Problem> {
        let (line, whom) = line_of(request)?;
        let _recording = lock(&self.recording);
        if !lock(&self.revocations).contains(&line) {
            let cause = format!("the node has no such revocation ({line})");
            let remedy = "one that only the policy's list has is removed there";
            return Err(Problem::new(Code::NotFound, cause, remedy));
        }
        // The policy in force has the revocation, and its list may have it as well. Nothing can fail once the
        // withdrawal is stored.
        let node = self.present_node();
        if let Some(node) = &node {
            allows(node, &line)?;
            node.note_withdrawal(&whom, &line).map_err(|e| {
                Problem::new(Code::Storage, e.to_string(), "make the audit log writable, and repeat it")
            })?;
        }
        if let Err(problem) = self.stored(self.store.withdrawn(&line)) {
            // The log states that it is in force. If the log cannot be written, its end states the same.
            let _ = node.map(|node| node.note_revocation(&whom, &line));
            return Err(problem);
        }
        {
            // The disk is not waited for with this lock, so another policy may be in force by now.
            let mut revocations = lock(&self.revocations);
            revocations.retain(|known| *known != line);
            if let Some(node) = self.present_node() {
                let policy = Arc::new(node.policy().without_revocation(&line));
                *lock(&self.node) = Some(node.under(policy));
                self.end_decisions();
            }
        }
        // Its list may have the revocation.
        self.reload_policy(None);
        self.review_all();
        Ok(())
    }
}

/// Checks that the policy and its list can be read, and that the list does not have a revocation.
fn allows(node: &Node, line: &str) -> Result<(), Problem> {
    let unreadable = |reason: String| {
        let cause = format!("the revocation stays in force: {reason}");
        Problem::new(Code::Storage, cause, "restore the policy and its list, and repeat it")
    };
    let node = node.reopened(node.files()[0]).map_err(|e| unreadable(e.to_string()))?;
    if node.policy().revoked.has_line(line) {
        let list = node.policy().revocations.as_ref().map(|list| list.display().to_string());
        return Err(Problem::new(
            Code::Conflict,
            format!("the policy's list {} has the revocation as well", list.unwrap_or_default()),
            format!("remove its line first: {line}"),
        ));
    }
    Ok(())
}
