//! The principal for whom a module is examined, analysed and compiled, before anything of it is known but its
//! hash.

use crate::credential::Credential;
use crate::denied::Denied;
use crate::grant::{Answer, Challenge, Link, when_and_where};
use crate::identity::name_of;
use crate::layer::meet;
use crate::place::Place;
use crate::policy::Policy;

/// A principal that proved to hold its credential, and that pays for the work on its modules.
#[derive(Clone, Debug)]
pub struct Payer {
    /// The principal that a root named, with the root.
    pub tenant: String,
    /// The principal with all to whom the credential was handed on. No two principals have one name.
    pub principal: String,
    /// The links of its chain, each with an allowance of its own.
    pub links: Vec<Link>,
}

impl Payer {
    fn new(root: &str, principal: &str, links: Vec<Link>) -> Self {
        // Names contain neither of the two.
        let named = principal.split(['/', '#']).next().unwrap_or_default();
        Self { tenant: format!("{root} {named}"), principal: format!("{root} {principal}"), links }
    }
}

/// A request for work on the module with the SHA-256 `hash`.
#[derive(Clone, Copy)]
pub struct PayerRequest<'a> {
    /// The credential. Without one, all who have none pay together.
    pub credential: Option<&'a Credential>,
    pub hash: &'a [u8; 32],
    /// The place from which packets come.
    pub place: &'a Place,
    /// The present time in seconds since 1970.
    pub now: u64,
    /// The node's challenge and the holder's answer.
    pub possession: Option<(&'a Challenge, &'a Answer)>,
}

impl Policy {
    /// Returns the principal that pays for work on a module. Whether it may run the module is decided when
    /// the module is known ([`Policy::grant`]).
    ///
    /// # Errors
    ///
    /// Returns an error if the credential is not valid here and now, or not its holder's.
    pub fn payer(&self, request: &PayerRequest<'_>) -> Result<Payer, Denied> {
        let Some(credential) = request.credential else {
            return Ok(Payer::new("", "anyone", vec![self.best_effort_link()]));
        };
        let chain = self.chain(credential, request.hash, request.possession)?;
        when_and_where(self, (request.now, request.place.name()), &chain.layers, &meet(&chain.layers))?;
        Ok(Payer::new(&chain.root.to_string(), &name_of(&chain.blocks), chain.links))
    }
}
