//! Credentials: minted by a root, narrowed by anyone, handed on by their holders, countersigned by others.

use crate::datalog;
use crate::facts::{self, OWN};
use crate::field::Field;
use crate::hex::hex;
use crate::key::{PublicKey, Secret};
use crate::layer::{Layer, Origin};
use crate::raw;
use biscuit_auth::builder::{Fact, Term};
use biscuit_auth::{BiscuitBuilder, BlockBuilder, ThirdPartyRequest, UnverifiedBiscuit};
use std::sync::{Arc, OnceLock};

/// Maximum length of a credential's text, in bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// Maximum number of blocks.
pub const MAX_BLOCKS: usize = 16;
/// The largest number of fields in all blocks. Each is read whenever a running module is decided on.
pub const MAX_FIELDS: usize = 512;

/// The format of credentials. Their meaning changed with it: a filter is evaluated on the view of its block.
const FORMAT: i64 = 2;
/// The root's statement of the format.
const FORMAT_FACT: &str = "format";
/// Names of facts that are not fields.
const PRINCIPAL: &str = "principal";
/// The sessions of a node's accounts that are no principals.
const NOT_PRINCIPALS: [&str; 2] = ["operator", "system"];
const ROLE: &str = "role";
const HOLDER: &str = "holder";
const APPROVED: &str = "approved";

/// The reason why a credential cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("credential: {found} bytes, at most {MAX_BYTES} are read")]
    Large { found: usize },
    #[error("credential: {found} blocks, at most {MAX_BLOCKS} are read: ask its root for one with fewer")]
    Long { found: usize },
    #[error("credential: more than {MAX_FIELDS} fields: state each one once in a block")]
    Wide,
    #[error("credential: {0}; expected the text that `flame grant mint` or `narrow` wrote, whole")]
    Form(String),
    #[error("credential, block {block}: {reason}")]
    Block { block: usize, reason: String },
    #[error("{0}")]
    Make(String),
}

/// A credential with unverified signatures: its contents may be forged.
#[derive(Clone)]
pub struct Credential {
    token: UnverifiedBiscuit,
    known: Arc<Known>,
}

/// The parts of a credential that take long to find out, once they are known.
#[derive(Default)]
struct Known {
    blocks: OnceLock<Vec<Block>>,
    /// The root's key with which all signatures were verified.
    root: OnceLock<PublicKey>,
}

/// The signer of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    Root,
    /// A bearer of the credential.
    Bearer,
    /// The owner of this key.
    Key(PublicKey),
}

/// The contents of a block.
#[derive(Clone, Debug)]
pub struct Block {
    pub signer: Signer,
    /// The id by which lists of revocations name the block, in hexadecimal digits.
    pub id: String,
    pub fields: Vec<Layer>,
    /// The principal: in the root's block the one for whom it was minted, in others the one to whom it was
    /// handed on.
    pub principal: Option<String>,
    pub role: Option<String>,
    /// The key that its holder must prove to own.
    pub holder: Option<PublicKey>,
    /// The names under which this block is a second signature.
    pub approved: Vec<String>,
    /// The block as Datalog, including its checks.
    pub source: String,
    /// The block's own facts, rules and checks. Nothing else of the block is ever evaluated.
    pub(crate) checks: BlockBuilder,
}

/// The statements of a root.
#[derive(Clone, Debug, Default)]
pub struct Mint {
    pub principal: String,
    pub role: String,
    pub narrow: Narrow,
}

/// The statements by which any bearer can narrow a credential.
#[derive(Clone, Debug, Default)]
pub struct Narrow {
    pub fields: Vec<(Field, String)>,
    /// The name of the principal to whom it is handed on.
    pub principal: Option<String>,
    pub holder: Option<PublicKey>,
    /// Checks in Datalog.
    pub datalog: String,
}

impl Narrow {
    fn block(&self) -> Result<BlockBuilder, CredentialError> {
        let wrong = CredentialError::Make;
        datalog::readable(&self.datalog).map_err(wrong)?;
        let mut block =
            BlockBuilder::new().code(&self.datalog).map_err(|e| wrong(format!("datalog: {e}")))?;
        if let Some(fact) = block.facts.iter().find(|f| !f.predicate.name.starts_with(OWN)) {
            return Err(wrong(format!("datalog: {fact}: facts of your own begin with {OWN}")));
        }
        facts::known(&block).map_err(|e| wrong(format!("datalog: {e}")))?;
        for (field, value) in &self.fields {
            field.rights(value).map_err(wrong)?;
            block.facts.push(fact(field.name(), value));
        }
        if let Some(name) = &self.principal {
            block.facts.push(fact(PRINCIPAL, plain(name).map_err(wrong)?));
        }
        if let Some(holder) = &self.holder {
            block.facts.push(fact(HOLDER, &holder.to_string()));
        }
        Ok(block)
    }
}

fn fact(name: &str, value: &str) -> Fact {
    Fact::new(name.to_owned(), vec![Term::Str(value.to_owned())])
}

/// Returns the name if it is plain. Names of people and roles are used in paths, logs and Datalog.
pub(crate) fn plain(name: &str) -> Result<&str, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(format!("{name:?} is no name: expected up to 64 letters, digits, and . _ @ -"));
    }
    Ok(name)
}

impl Credential {
    /// Parses the text of a credential. White space around it is ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is too long, is no Biscuit token, or has too many blocks or a block
    /// that could mislead its reader. Signatures are not verified.
    pub fn parse(text: &str) -> Result<Self, CredentialError> {
        if text.len() > MAX_BYTES {
            return Err(CredentialError::Large { found: text.len() });
        }
        let form = |e: biscuit_auth::error::Token| CredentialError::Form(e.to_string());
        let token = UnverifiedBiscuit::from_base64(text.trim()).map_err(form)?;
        match token.block_count() {
            n if n > MAX_BLOCKS => Err(CredentialError::Long { found: n }),
            _ => match raw::look_through(&token) {
                Ok(()) => Ok(Self::of(token)),
                Err((block, reason)) => Err(CredentialError::Block { block, reason }),
            },
        }
    }

    /// Creates a credential, signed by `root`.
    ///
    /// # Errors
    ///
    /// Returns an error if a field is invalid, if no field states the code that the credential is for, or
    /// if the result is too large.
    pub fn mint(root: &Secret, mint: &Mint) -> Result<Self, CredentialError> {
        let mut block = mint.narrow.block()?;
        block.facts.push(Fact::new(FORMAT_FACT.to_owned(), vec![Term::Integer(FORMAT)]));
        for (name, value) in [(PRINCIPAL, &mint.principal), (ROLE, &mint.role)] {
            block.facts.push(fact(name, plain(value).map_err(CredentialError::Make)?));
        }
        if !mint.narrow.fields.iter().any(|(field, _)| *field == Field::Code) {
            let reason = "state the code that it is for: code = any, sha256:HASH or a signer's key";
            return Err(CredentialError::Make(reason.to_owned()));
        }
        let token = BiscuitBuilder::new().merge(block).root_key_id(root.public().id()).build(root.biscuit());
        let token = token.and_then(|t| UnverifiedBiscuit::from(t.to_vec()?)).map_err(make)?;
        Self::of(token).checked()
    }

    /// Returns the credential narrowed. If it is bound to a holder and receives another, the key of the
    /// present holder must sign.
    ///
    /// # Errors
    ///
    /// Returns an error if a field is invalid, if the result is too large, or if it changes the holder
    /// without the present holder's key.
    pub fn narrow(&self, narrow: &Narrow, holder: Option<&Secret>) -> Result<Self, CredentialError> {
        let block = narrow.block()?;
        let bound = self.blocks()?.iter().rev().find_map(|b| b.holder);
        match (bound, narrow.holder, holder) {
            (Some(bound), Some(_), Some(secret)) if secret.public() == bound => self.signed(secret, block),
            (Some(bound), Some(_), _) => Err(CredentialError::Make(format!(
                "only its holder can hand it on: sign with the key of {bound}"
            ))),
            _ => Self::of(self.token.append(block).map_err(make)?).checked(),
        }
    }

    /// Adds a second signature, under the name by which policies require it. It may also narrow the
    /// credential.
    ///
    /// # Errors
    ///
    /// Returns an error if `name` or a field is invalid, or if the result is too large.
    pub fn cosign(&self, secret: &Secret, name: &str, narrow: &Narrow) -> Result<Self, CredentialError> {
        let mut block = narrow.block()?;
        block.facts.push(fact(APPROVED, plain(name).map_err(CredentialError::Make)?));
        self.signed(secret, block)
    }

    fn signed(&self, secret: &Secret, block: BlockBuilder) -> Result<Self, CredentialError> {
        let request =
            self.token.third_party_request().and_then(|r| ThirdPartyRequest::deserialize(&r.serialize()?));
        let signed =
            request.and_then(|r| r.create_block(&secret.biscuit().private(), block)).map_err(make)?;
        let token =
            signed.serialize().and_then(|bytes| self.token.append_third_party(&bytes)).map_err(make)?;
        Self::of(token).checked()
    }

    /// Returns the credential if it can be read back: no credential is created that cannot be read.
    fn checked(self) -> Result<Self, CredentialError> {
        let made = Self::parse(&self.text())?;
        made.blocks()?;
        Ok(made)
    }

    /// Returns the text that [`Credential::parse`] parses.
    pub fn text(&self) -> String {
        self.token.to_base64().unwrap_or_default()
    }

    fn of(token: UnverifiedBiscuit) -> Self {
        Self { token, known: Arc::default() }
    }

    /// Returns the contents of the blocks, the root's first.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first block which has another form than those that are created here.
    pub fn blocks(&self) -> Result<Vec<Block>, CredentialError> {
        // To read them takes long, and a running module is decided on each second.
        if let Some(blocks) = self.known.blocks.get() {
            return Ok(blocks.clone());
        }
        let blocks = self.read_blocks()?;
        Ok(self.known.blocks.get_or_init(|| blocks).clone())
    }

    /// Returns the blocks if they were read before.
    pub(crate) fn known_blocks(&self) -> Option<&[Block]> {
        self.known.blocks.get().map(Vec::as_slice)
    }

    fn read_blocks(&self) -> Result<Vec<Block>, CredentialError> {
        let ids = self.token.revocation_identifiers();
        let keys = self.token.external_public_keys();
        let block = |n: usize| {
            let signer = match keys.get(n).copied().flatten() {
                Some(key) => {
                    Signer::Key(PublicKey::of(key).ok_or("signed by a key of another kind than Ed25519")?)
                }
                None if n == 0 => Signer::Root,
                None => Signer::Bearer,
            };
            let source = self.token.print_block_source(n).map_err(|e| e.to_string())?;
            let id = ids.get(n).map(|id| hex(id)).unwrap_or_default();
            read(n, signer, id, source)
        };
        let mut blocks = Vec::new();
        let mut fields = 0;
        for n in 0..self.token.block_count() {
            let block = block(n).map_err(|reason| CredentialError::Block { block: n, reason })?;
            fields += block.fields.len();
            if fields > MAX_FIELDS {
                return Err(CredentialError::Wide);
            }
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// Returns whether the signatures of all blocks are sound, in the first block by `root`. They are
    /// verified once.
    pub(crate) fn is_of(&self, root: &PublicKey) -> bool {
        let verifies = || Some(self.token.clone().verify(root.biscuit()?).is_ok());
        let is_of = self.known.root.get() == Some(root) || verifies() == Some(true);
        if is_of {
            // A root's signature does not verify under another root's key.
            let _ = self.known.root.set(*root);
        }
        is_of
    }

    pub(crate) fn root_id(&self) -> Option<u32> {
        self.token.root_key_id()
    }

    /// Returns the id of the last block, which differs between credentials. A holder signs it in answer to a
    /// challenge.
    pub(crate) fn last_id(&self) -> Vec<u8> {
        self.token.revocation_identifiers().pop().unwrap_or_default()
    }
}

fn make(e: biscuit_auth::error::Token) -> CredentialError {
    CredentialError::Make(e.to_string())
}

/// Checks the format that a root's block states. Those of format 1 stated none.
fn readable_format(root: &BlockBuilder) -> Result<(), String> {
    let mut stated = root.facts.iter().filter(|fact| fact.predicate.name == FORMAT_FACT);
    let found = match stated.next().map(|fact| fact.predicate.terms.as_slice()) {
        None => 1,
        Some([Term::Integer(found)]) if stated.next().is_none() => *found,
        Some(_) => return Err(format!("{FORMAT_FACT}: expected one number, once")),
    };
    match found {
        FORMAT => Ok(()),
        found => Err(format!("format {found}; this program reads {FORMAT}: mint it again")),
    }
}

/// Reads a block in the form that the library prints.
fn read(n: usize, signer: Signer, id: String, source: String) -> Result<Block, String> {
    datalog::readable(&source)?;
    let block = BlockBuilder::new().code(&source).map_err(|e| format!("cannot be read back: {e}"))?;
    // The block as read must print as the source, so that nothing in it was skipped.
    if block.to_string() != source {
        return Err("it does not read as it is written".to_owned());
    }
    if n == 0 {
        readable_format(&block)?;
    }
    if let Some(rule) = block.rules.iter().find(|r| !r.head.name.starts_with(OWN)) {
        return Err(format!("{}: rights are stated as facts; rules of your own begin with {OWN}", rule.head));
    }
    let (mut fields, mut principal, mut role, mut holder, mut approved) =
        (Vec::new(), None, None, None, Vec::new());
    for fact in &block.facts {
        let name = fact.predicate.name.as_str();
        if name.starts_with(OWN) || n == 0 && name == FORMAT_FACT {
            continue;
        }
        let [Term::Str(value)] = fact.predicate.terms.as_slice() else {
            return Err(format!("{fact}: expected one text"));
        };
        let once = |taken: bool| if taken { Err(format!("{name} is stated twice")) } else { Ok(()) };
        match (name, Field::parse(name)) {
            (_, Some(field)) => fields.push(Layer::new(Origin::Block(n), field, value.clone())?),
            (PRINCIPAL, _) => {
                once(principal.is_some())?;
                let name = plain(value)?;
                if n == 0 && NOT_PRINCIPALS.contains(&name) {
                    return Err(format!("{name} is not the name of a principal: a node's accounts use it"));
                }
                principal = Some(name.to_owned());
            }
            (ROLE, _) if n == 0 => {
                once(role.is_some())?;
                role = Some(plain(value)?.to_owned());
            }
            (ROLE, _) => return Err("a role is given by the root alone".to_owned()),
            (HOLDER, _) => {
                once(holder.is_some())?;
                holder = Some(PublicKey::parse(value).map_err(|e| e.to_string())?);
            }
            (APPROVED, _) => approved.push(plain(value)?.to_owned()),
            _ => {
                let known: Vec<_> = Field::ALL.iter().map(|f| f.name()).collect();
                return Err(format!(
                    "{fact}: no such field: expected {}; facts of your own begin with {OWN}",
                    known.join(", ")
                ));
            }
        }
    }
    let mut checks = block;
    // Fields are read above. As facts, they could be mistaken for facts of the node.
    checks.facts.retain(|fact| fact.predicate.name.starts_with(OWN));
    facts::known(&checks)?;
    Ok(Block { signer, id, fields, principal, role, holder, approved, source, checks })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All decisions on a credential, by whichever copy, use what was read first.
    #[test]
    fn blocks_are_read_once() {
        let narrow = Narrow { fields: vec![(Field::Code, "any".to_owned())], ..Narrow::default() };
        let mint = Mint { principal: "alice".to_owned(), role: "all".to_owned(), narrow };
        let credential = Credential::mint(&Secret::generate(), &mint).unwrap();
        let read = credential.blocks().unwrap();
        assert_eq!(credential.known.blocks.get().map(Vec::len), Some(read.len()));
        // What is known is not read again, which shows where it is not what the token has.
        let other = Credential::of(credential.token.clone());
        let known = Block { role: Some("known".to_owned()), ..read[0].clone() };
        other.clone().known.blocks.set(vec![known]).unwrap();
        for copy in [&other, &other.clone()] {
            assert_eq!(copy.blocks().unwrap()[0].role.as_deref(), Some("known"));
        }
    }
}
