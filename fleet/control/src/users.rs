//! The configuration of the server: its users, and which subjects each may use.
//!
//! Permissions are lists of what is allowed; all else is denied. A node publishes its own records and reads
//! the last message of its own subjects only: no call of JetStream is allowed to it that reads, lists or
//! makes streams or consumers. The fleet makes the streams.
//!
//! Each node has an account of its own, which imports its own subjects of the fleet's account. The server
//! sends a reply, an acknowledgement too, to the subject that a publisher names, without a look at
//! permissions; through an import it arrives in the account of the node.

use crate::state::State;
use flame_fleet_protocol::nkey::nkey;
use flame_fleet_protocol::talk::{LOOK, Subjects, TO_ALL, enrolment};
use flame_fleet_protocol::{Key, enrolment::Standing};
use std::path::Path;

/// The places of the server.
pub struct Places<'a> {
    /// The address and port to listen on.
    pub listen: &'a str,
    /// The folder of the fleet, with the certificate, and the server's own.
    pub folder: &'a Path,
    pub store: &'a Path,
}

/// The keys of the users that are no nodes.
pub struct Own {
    pub control: Key,
    pub archive: Key,
    /// The user that has the server read its configuration again.
    pub system: Key,
}

/// The subjects that accounts of nodes import: of messages that a node sends, and of those to it.
const SENT: [&str; 4] = ["flame.records.>", "flame.from.*", "flame.ask.*", "$JS.API.DIRECT.GET.>"];
const RECEIVED: &str = "flame.to.>";
/// The beginning of the subjects in the fleet's account on which an account of a node has its replies.
pub const IMPORTED: &str = "_R_";

/// What a user may publish on, and receive from.
struct Permissions {
    publish: Vec<String>,
    subscribe: Vec<String>,
}

fn all<const N: usize>(subjects: [&str; N]) -> Vec<String> {
    subjects.map(str::to_owned).to_vec()
}

fn of_node(node: &str) -> Permissions {
    let Subjects { to, report, ask, inbox } = Subjects::of(node);
    let last = [format!("*.flame.records.{node}.>"), format!("MARKS.flame.marks.{node}.>")];
    let last = last.map(|of| format!("$JS.API.DIRECT.GET.{of}"));
    let publish = [format!("flame.records.{node}.>"), report, ask].into_iter().chain(last).collect();
    Permissions { publish, subscribe: vec![TO_ALL.to_owned(), LOOK.to_owned(), to, format!("{inbox}.>")] }
}

fn of_applicant(id: &str) -> Permissions {
    let (subject, inbox) = enrolment(id);
    Permissions { publish: vec![subject], subscribe: vec![format!("{inbox}.>")] }
}

/// Reads all records, and removes what is archived.
fn of_archive() -> Permissions {
    let publish = all([
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.PURGE.*",
        "$JS.API.STREAM.MSG.GET.*",
        "$JS.API.DIRECT.GET.>",
        "$JS.API.CONSUMER.>",
        "$JS.ACK.>",
        "flame.marks.>",
    ]);
    Permissions { publish, subscribe: all(["flame.inbox.archive.>", "flame.records.>"]) }
}

/// States what runs, and makes streams.
fn of_control() -> Permissions {
    let publish = all([
        "$JS.API.INFO",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.CREATE.*",
        "flame.to.>",
        "_R_.>",
        "flame.inbox.token.>",
    ]);
    let subscribe = all(["flame.from.*", "flame.ask.*", "flame.enrol.*", "flame.inbox.control.>"]);
    Permissions { publish, subscribe }
}

fn of_system() -> Permissions {
    Permissions { publish: all(["$SYS.REQ.SERVER.*.RELOAD"]), subscribe: all(["flame.inbox.system.>"]) }
}

/// Appends the account of a node.
fn write_account(name: &str, key: &Key, into: &mut String) {
    let (node, mut user) = (of_node(name), String::new());
    node.write(key, &mut user);
    let import = |kind: &str, subject: &String| {
        format!("      {{ {kind}: {{ account: FLEET, subject: {subject:?} }} }}\n")
    };
    let sent = node.publish.iter().map(|subject| import("service", subject));
    // The others are subjects of replies, which do not leave the account.
    let received = node.subscribe.iter().filter(|subject| subject.starts_with("flame.to."));
    let imports: String = sent.chain(received.map(|subject| import("stream", subject))).collect();
    let account = format!("NODE_{name}");
    *into += &format!("  {account:?}: {{\n    users: [\n{user}    ]\n    imports: [\n{imports}    ]\n  }}\n");
}

impl Permissions {
    fn write(&self, key: &Key, into: &mut String) {
        let list = |subjects: &[String]| {
            let quoted: Vec<_> = subjects.iter().map(|subject| format!("{subject:?}")).collect();
            quoted.join(", ")
        };
        let (publish, subscribe) = (list(&self.publish), list(&self.subscribe));
        *into += &format!("      {{ nkey: {}, permissions: {{\n", nkey(key));
        *into += &format!("        publish: {{ allow: [{publish}] }}\n");
        *into += &format!("        subscribe: {{ allow: [{subscribe}] }}\n      }} }}\n");
    }
}

/// Returns the server's configuration.
pub fn configuration(places: &Places<'_>, own: &Own, state: &State, now: u64) -> String {
    let Places { listen, folder, store } = places;
    let file = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (file("server.pem"), file("server.key"));
    let mut users = String::new();
    of_control().write(&own.control, &mut users);
    of_archive().write(&own.archive, &mut users);
    let mut nodes = String::new();
    for (name, standing) in state.members.nodes() {
        if let Standing::Member(key) = standing {
            write_account(name, key, &mut nodes);
        }
    }
    let exports = SENT.map(|subject| format!("{{ service: {subject:?} }}")).join(", ");
    for applicant in state.applicants.iter().filter(|applicant| now < applicant.expires) {
        of_applicant(&applicant.id).write(&applicant.key, &mut users);
    }
    let mut system = String::new();
    of_system().write(&own.system, &mut system);
    format!(
        r#"# Made by flame fleet: changes here are lost.
listen: {listen:?}
max_payload: 2MB
tls {{
  cert_file: {certificate:?}
  key_file: {key:?}
  min_version: "1.3"
}}
jetstream {{
  store_dir: {store:?}
  sync_interval: always
}}
accounts {{
  FLEET: {{
    jetstream: enabled
    users: [
{users}    ]
    exports: [{exports}, {{ stream: {RECEIVED:?} }}]
  }}
{nodes}  SYS: {{
    users: [
{system}    ]
  }}
}}
system_account: SYS
"#
    )
}
