//! The commands. Each has one file, and one line in each list here.

mod active;
mod audit;
mod build;
mod calibrate;
mod capsule;
mod check;
mod click;
mod click_modules;
mod completions;
mod doctor;
mod explain;
mod fleet;
mod grant;
mod help;
mod ids;
mod inspect;
mod install;
mod join;
mod key;
mod list;
mod logs;
mod modules;
mod new;
mod node;
mod ping;
mod policy;
mod profile;
mod query;
mod records;
mod remove;
mod renew;
mod run;
mod show;
mod stop;
mod top;
mod trace;
mod update;

use crate::error::Error;
use crate::exit::Status;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    Run(Box<run::Run>),
    New(new::New),
    Build(build::Build),
    Modules(modules::Modules),
    Inspect(inspect::Inspect),
    Join(join::Join),
    Key(key::Key),
    Grant(grant::Grant),
    Explain(explain::Explain),
    Check(check::Check),
    Calibrate(calibrate::Calibrate),
    Profile(profile::Profile),
    Audit(audit::Audit),
    Ids(ids::Ids),
    Node(node::Node),
    Install(install::Install),
    List(list::List),
    Show(show::Show),
    Records(records::Records),
    Logs(logs::Logs),
    Update(update::Update),
    Stop(stop::Stop),
    Remove(remove::Remove),
    Renew(renew::Renew),
    Top(top::Top),
    Fleet(fleet::Fleet),
    Query(query::Query),
    Click(click::Click),
    Policy(policy::PolicyCommand),
    Active(active::Active),
    Ping(ping::Ping),
    Trace(trace::Trace),
    Capsule(capsule::Capsule),
    Doctor(doctor::Doctor),
    Completions(completions::Completions),
    Help(help::Help),
}

impl Command {
    pub fn run(self) -> Result<Status, Error> {
        match self {
            Self::Run(c) => c.run(),
            Self::New(c) => c.run(),
            Self::Build(c) => c.run(),
            Self::Modules(c) => c.run(),
            Self::Inspect(c) => c.run(),
            Self::Join(c) => c.run(),
            Self::Key(c) => c.run(),
            Self::Grant(c) => c.run(),
            Self::Explain(c) => c.run(),
            Self::Check(c) => c.run(),
            Self::Calibrate(c) => c.run(),
            Self::Profile(c) => c.run(),
            Self::Audit(c) => c.run(),
            Self::Ids(c) => c.run(),
            Self::Node(c) => c.run(),
            Self::Install(c) => c.run(),
            Self::List(c) => c.run(),
            Self::Show(c) => c.run(),
            Self::Records(c) => c.run(),
            Self::Logs(c) => c.run(),
            Self::Update(c) => c.run(),
            Self::Stop(c) => c.run(),
            Self::Remove(c) => c.run(),
            Self::Renew(c) => c.run(),
            Self::Top(c) => c.run(),
            Self::Fleet(c) => c.run(),
            Self::Query(c) => c.run(),
            Self::Click(c) => c.run(),
            Self::Policy(c) => c.run(),
            Self::Active(c) => c.run(),
            Self::Ping(c) => c.run(),
            Self::Trace(c) => c.run(),
            Self::Capsule(c) => c.run(),
            Self::Doctor(c) => c.run(),
            Self::Completions(c) => c.run(),
            Self::Help(c) => c.run(),
        }
    }
}
