//! Reads the records of a node's installed modules for the capsules of their principals, and asks the modules
//! that answer themselves.

use crate::client::{Client, NodeArgs, module_path, quoted};
use crate::console::complain;
use crate::error::Error;
use flame_active_server::{
    Asking, Config, Extensions, Inbox, Installed, ModuleQuestion, Replies, Value, payer_of,
};
use flame_api::{CURSOR, Cursor, Module, Modules, Question, Served};
use flame_capsule::Payer;
use flame_trust::PublicKey;
use http_body_util::BodyExt;
use hyper::Method;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// The time between two looks at a node.
const AGAIN: Duration = Duration::from_secs(1);
/// The most questions of one principal that wait for those before.
const WAITING: usize = 64;

/// A reader of records.
struct Reader {
    node: NodeArgs,
    roots: Vec<PublicKey>,
    extensions: Extensions,
    /// The connection, while it works.
    client: Option<Client>,
    /// For each module the place of its next row.
    next: BTreeMap<(Payer, String), Cursor>,
}

/// Returns the services of a configuration. A thread reads records while this process lasts, and others ask
/// modules.
pub fn begin(config: &Config) -> Result<Asking, Error> {
    let extensions = config.extensions();
    let (asking, inbox) = Asking::new(extensions.clone())?;
    if let Some(installed) = config.installed.clone() {
        let Installed { node, credential, identity, certificate } = installed;
        let node = NodeArgs { node: Some(node), credential, identity, certificate };
        let asked = node.clone();
        std::thread::Builder::new().name("questions".to_owned()).spawn(move || divide(&asked, &inbox))?;
        let mut reader = Reader {
            node,
            roots: config.policy.roots.values().copied().collect(),
            extensions: extensions.clone(),
            client: None,
            next: BTreeMap::new(),
        };
        std::thread::Builder::new().name("extensions".to_owned()).spawn(move || {
            let mut said = String::new();
            loop {
                let failed = reader.look().err().map_or_else(String::new, |error| error.to_string());
                if !failed.is_empty() {
                    reader.client = None;
                    if failed != said {
                        complain!(
                            "flame: records of installed modules: {failed}; they are asked for each second"
                        );
                    }
                }
                said = failed;
                std::thread::sleep(AGAIN);
            }
        })?;
    }
    Ok(asking)
}

/// Gives each principal's questions to a thread of its own, so that none waits for modules of another.
fn divide(node: &NodeArgs, inbox: &Inbox) {
    let mut of: BTreeMap<Payer, SyncSender<ModuleQuestion>> = BTreeMap::new();
    while let Some(question) = inbox.next() {
        let replies = inbox.replies();
        let thread = || {
            let (to, questions) = sync_channel(WAITING);
            let (node, replies) = (node.clone(), replies.clone());
            let thread = std::thread::Builder::new().name("asks".to_owned());
            thread.spawn(move || answer(&node, &questions, &replies)).ok()?;
            Some(to)
        };
        let to = match of.get(&question.payer).cloned() {
            Some(to) => Some(to),
            None => thread().inspect(|to| drop(of.insert(question.payer, to.clone()))),
        };
        if to.is_none_or(|to| to.try_send(question.clone()).is_err()) {
            replies.reply(&question, Vec::new());
        }
    }
}

/// Asks the modules of one principal.
fn answer(node: &NodeArgs, questions: &Receiver<ModuleQuestion>, replies: &Replies) {
    let mut client = None;
    for question in questions {
        let reply = ask(node, &mut client, &question);
        let reply = reply.inspect_err(|error| tracing::debug!("{} is asked: {error}", question.module));
        replies.reply(&question, reply.unwrap_or_default());
    }
}

/// Asks a module. A connection that works is kept.
fn ask(node: &NodeArgs, kept: &mut Option<Client>, question: &ModuleQuestion) -> Result<Vec<u8>, Error> {
    let mut client = match kept.take() {
        Some(client) => client,
        None => Client::open(node)?,
    };
    let ModuleQuestion { module, principal, service, request, .. } = question;
    let path = module_path(module, "/ask", principal.as_deref(), None);
    let body = Question { service: service.clone(), request: request.clone() };
    let Served { reply } = client.request(Method::POST, &path, Some(&body))?;
    *kept = Some(client);
    Ok(reply)
}

impl Reader {
    /// Reads what the modules have recorded since the last look.
    fn look(&mut self) -> Result<(), Error> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::open(&self.node)?,
        };
        let Modules { modules } = client.get("/v1/modules")?;
        let wanted = self.extensions.modules();
        let is_wanted = |module: &&Module| wanted.contains(module.name.as_str());
        let found: Vec<_> =
            modules.iter().filter(is_wanted).filter_map(|m| Some((self.owner(m)?, m))).collect();
        let is_installed =
            |payer, name: &str| found.iter().any(|(owner, module)| *owner == payer && module.name == name);
        self.extensions.retain(is_installed);
        let named = |(payer, m): &(Payer, &Module)| ((*payer, m.name.clone()), m.principal.clone());
        self.extensions.set_installed(found.iter().map(named).collect());
        self.next.retain(|(payer, name), _| is_installed(*payer, name));
        for (payer, module) in found.iter().filter(|(_, module)| self.extensions.reads(&module.name)) {
            let of = (*payer, module.name.clone());
            let latest: Cursor = module.spool.next.parse()?;
            let known = self.next.get(&of).filter(|next| next.epoch == latest.epoch).copied();
            if known.is_none() {
                // Another spool: the node was started again, or the module was installed again.
                self.extensions.retain(|payer, name| of != (payer, name.to_owned()));
            }
            if known == Some(latest) {
                continue;
            }
            if let Some(next) = self.records(&mut client, *payer, module, known, latest.epoch)? {
                self.next.insert(of, next);
            }
        }
        self.client = Some(client);
        Ok(())
    }

    /// Returns the account of a module's principal, if one of this node's roots named it.
    fn owner(&self, module: &Module) -> Option<Payer> {
        let root = self.roots.iter().find(|root| Some(root.to_string()) == module.root)?;
        Some(payer_of(root, module.principal.as_deref()?))
    }

    /// Reads a module's records from a place on, and returns the place behind them.
    fn records(
        &self,
        client: &mut Client,
        payer: Payer,
        module: &Module,
        from: Option<Cursor>,
        epoch: u64,
    ) -> Result<Option<Cursor>, Error> {
        let mut path = module_path(&module.name, "/records", module.principal.as_deref(), None);
        path += "&format=json";
        if let Some(from) = from {
            path += &format!("&cursor={}", quoted(&from.to_string()));
        }
        let reply = client.stream(&path)?;
        let first = reply.headers().get(CURSOR).and_then(|value| value.to_str().ok());
        let mut next: Cursor = first.ok_or("the node's reply has no cursor")?.parse()?;
        let bytes = client.runtime.block_on(reply.into_body().collect())?.to_bytes();
        // The name may stand for another module since it was listed.
        if next.epoch != epoch {
            return Ok(None);
        }
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let row: Row = serde_json::from_slice(line)?;
            let table = row.get("table").and_then(|table| table.as_str()).unwrap_or_default();
            let column = |name: &str| match row.get(name) {
                Some(stated) => value(stated),
                // A node's rows have the columns of the module alone.
                None if name == "community_id" => Some(Value::Text(community_id(&row)?)),
                None => None,
            };
            self.extensions.add(payer, &module.name, table, column);
            next.row += 1;
        }
        Ok(Some(next))
    }
}

/// A record as JSON.
type Row = serde_json::Map<String, serde_json::Value>;

/// Returns the Community ID of a record of a flow, if it has its parts.
fn community_id(row: &Row) -> Option<String> {
    let number = |name: &str| row.get(name)?.as_u64();
    let address = |name: &str| row.get(name)?.as_str()?.parse().ok();
    if row.get("unknown_ports").and_then(serde_json::Value::as_bool) == Some(true) {
        return None;
    }
    let proto = u8::try_from(number("proto")?).ok()?;
    let of_icmp = matches!(proto, 1 | 58).then(|| number("icmp_type").zip(number("icmp_code"))).flatten();
    let (one, other) = of_icmp.or_else(|| number("sport").zip(number("dport")))?;
    let ports = (u16::try_from(one).ok()?, u16::try_from(other).ok()?);
    Some(flame_record::community::id(proto, address("src")?, address("dst")?, ports).as_str().to_owned())
}

/// Returns a column as a number or text.
fn value(value: &serde_json::Value) -> Option<Value> {
    match value {
        serde_json::Value::String(text) => Some(Value::Text(text.clone())),
        serde_json::Value::Number(number) => {
            let large = || number.as_u64().map(|_| i64::MAX);
            number.as_i64().or_else(large).map(Value::Number)
        }
        _ => None,
    }
}
