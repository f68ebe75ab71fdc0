use crate::console::say;
use crate::error::Error;
use crate::exit::Status;
use clap::{Args, Subcommand};
use flame_trust::{Policy, PublicKey, verify_audit};
use std::path::PathBuf;

/// Check and read a node's audit log
#[derive(Args)]
pub struct Audit {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Verify that no entry was changed, removed or moved
    Verify {
        #[command(flatten)]
        of: Of,
    },
    /// Print the entries after verifying the log
    Show {
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Args)]
struct Of {
    /// The log file [default: the policy's]
    #[arg(required_unless_present = "policy")]
    log: Option<PathBuf>,
    /// The node's policy
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The node's public key, if its policy is not available
    #[arg(long, value_name = "PUBLIC KEY", required_unless_present = "policy")]
    key: Option<String>,
}

impl Audit {
    pub fn run(self) -> Result<Status, Error> {
        let (of, show) = match self.what {
            What::Verify { of } => (of, false),
            What::Show { of } => (of, true),
        };
        let policy = of.policy.as_deref().map(Policy::open).transpose()?;
        let key = match (&of.key, policy.as_ref().and_then(Policy::secret)) {
            (Some(key), _) => PublicKey::parse(key)?,
            (None, Some(secret)) => secret.public(),
            (None, None) => return Err("give the node's public key: --key".into()),
        };
        // A log named on the command line may be a copy from another node, so this node's counter does not
        // apply to it.
        let counter = policy.as_ref().filter(|_| of.log.is_none()).map(Policy::counter);
        let log = of.log.or_else(|| policy.and_then(|p| p.audit));
        let log = log.ok_or("the policy names no audit log: add audit = \"audit.log\" to [node]")?;
        let mut lines = Vec::new();
        let entries = verify_audit(&log, counter.as_deref(), &key, |e| {
            if show {
                let event = format!("{:?}", e.event).to_lowercase();
                let all = format!("{} {event:<8} {:<20} {} {}", e.time, e.principal, e.module, e.text);
                // An entry is printed as one line, whatever its text contains.
                lines.push(flame_record::escape::line(&all).into_owned());
            }
        })?;
        if show {
            lines.iter().for_each(|line| say!("{line}"));
        } else {
            let counted = if counter.is_some() { ", counted apart" } else { "" };
            say!("{}: {entries} entries, whole, signed by {key}{counted}", log.display());
        }
        Ok(Status::Done)
    }
}
