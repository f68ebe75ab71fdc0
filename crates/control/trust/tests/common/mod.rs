//! A world for tests: a node, its roots, a holder, and a module that requests a grant.

use flame_trust::{
    Challenge, Credential, Field, Grant, GrantRequest, Mint, ModuleRequest, Narrow, Place, Policy, Secret,
};

pub const NOW: u64 = 1_800_000_000;
pub const HASH: [u8; 32] = [7; 32];

pub struct World {
    pub root: Secret,
    pub other: Secret,
    pub privacy: Secret,
    pub alice: Secret,
    pub bob: Secret,
    pub node: String,
    /// The calls of the role `researcher`.
    pub calls: &'static str,
    pub manifest: String,
    pub asked_hash: [u8; 32],
    pub now: u64,
    pub place: Place,
    pub messages: bool,
    pub signers: Vec<flame_trust::PublicKey>,
}

impl World {
    pub fn new() -> Self {
        Self {
            root: Secret::generate(),
            other: Secret::generate(),
            privacy: Secret::generate(),
            alice: Secret::generate(),
            bob: Secret::generate(),
            node: String::new(),
            calls: "records",
            manifest: MANIFEST.to_owned(),
            asked_hash: HASH,
            now: NOW,
            place: eth0(),
            messages: false,
            signers: Vec::new(),
        }
    }

    /// Returns a policy with two roles and the text of `node`.
    pub fn policy_text(&self) -> String {
        format!(
            "[node]\nname = \"tap1\"\nkey = \"node.key\"\n\
             [roots]\noperator = \"{}\"\nguest = \"{}\"\n\
             [cosigners]\nprivacy = \"{}\"\n\
             [roles.researcher]\nroots = [\"operator\"]\nselect = \"ip or ip6\"\nexpose = \"payload:64\"\n\
             calls = \"{}\"\ncode = \"any\"\nmemory = \"64MiB\"\n\
             [roles.reader]\nselect = \"\"\nexpose = \"all\"\ncalls = \"records, messages\"\ncode = \"any\"\n\
             cosigned = [\"privacy\"]\n{}\n",
            self.root.public(),
            self.other.public(),
            self.privacy.public(),
            self.calls,
            self.node
        )
    }

    pub fn policy(&self) -> Result<Policy, String> {
        let policy = Policy::parse(self.policy_text().as_bytes()).map_err(|e| e.to_string())?;
        Ok(policy.with_secret(Secret::from_pem(NODE).unwrap()))
    }

    pub fn mint(&self, fields: &[(&str, &str)]) -> Credential {
        self.try_mint(fields).unwrap()
    }

    /// Mints a credential that names `holder`.
    pub fn mint_held(&self, fields: &[(&str, &str)], holder: &Secret) -> Credential {
        let mut narrow = narrow(fields).unwrap();
        narrow.fields.push((Field::Code, "any".to_owned()));
        narrow.holder = Some(holder.public());
        let mint = Mint { principal: "alice".to_owned(), role: "researcher".to_owned(), narrow };
        Credential::mint(&self.root, &mint).unwrap()
    }

    pub fn try_mint(&self, fields: &[(&str, &str)]) -> Result<Credential, String> {
        let mut narrow = narrow(fields)?;
        if !narrow.fields.iter().any(|(f, _)| *f == Field::Code) {
            narrow.fields.push((Field::Code, "any".to_owned()));
        }
        let mint = Mint { principal: "alice".to_owned(), role: "researcher".to_owned(), narrow };
        Credential::mint(&self.root, &mint).map_err(|e| e.to_string())
    }

    pub fn module_request(&self) -> Result<ModuleRequest, String> {
        let manifest = flame_abi::manifest::Manifest::parse(self.manifest.as_bytes());
        let manifest = manifest.map_err(|e| e.to_string())?;
        ModuleRequest::new(&manifest, self.asked_hash, self.messages, self.signers.clone())
    }

    pub fn grant(&self, credential: &Credential) -> Result<Grant, String> {
        self.grant_as(credential, None)
    }

    pub fn grant_as(&self, credential: &Credential, holder: Option<&Secret>) -> Result<Grant, String> {
        let challenge = Challenge::new().unwrap();
        let module = self.module_request()?;
        let answer = holder.map(|secret| challenge.answer(secret, credential, &module.hash));
        let request = GrantRequest {
            credential: Some(credential),
            module: &module,
            place: &self.place,
            now: self.now,
            possession: answer.as_ref().map(|a| (&challenge, a)),
        };
        self.policy()?.grant(&request).map_err(|e| e.operator())
    }
}

/// Returns the place of packets in these tests.
pub fn eth0() -> Place {
    Place::interface("eth0").unwrap()
}

pub fn narrow(fields: &[(&str, &str)]) -> Result<Narrow, String> {
    let field = |(name, value): &(&str, &str)| {
        Field::parse(name).map(|f| (f, (*value).to_owned())).ok_or_else(|| format!("no field {name}"))
    };
    Ok(Narrow { fields: fields.iter().map(field).collect::<Result<_, _>>()?, ..Narrow::default() })
}

pub const MANIFEST: &str = "abi = 1\nname = \"probe\"\nversion = \"1\"\ndescription = \"d\"\n\
    [needs]\nexpose = \"headers\"\n[[tables]]\nname = \"t\"\ncolumns = [{ name = \"n\", type = \"u64\" }]\n";

/// A key for these tests only.
const NODE: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n";
