use crate::error::NodeError;
use crate::node::{AdmittedModule, Node, check_viewable};
use crate::presented::Presented;
use flame_compile::{Compiler, ModuleInfo, Start};
use flame_trust::{
    Answer, Challenge, Event, Grant, Layer, ModuleRequest, Payer, PayerRequest, PublicKey, Quotas, time,
};
use std::sync::Arc;

/// A node, and what is presented to it.
#[derive(Clone)]
pub struct Applicant {
    pub node: Node,
    pub presented: Arc<Presented>,
}

/// A module's request, and the decision on it.
struct Decision {
    request: ModuleRequest,
    possession: Option<(Challenge, Answer)>,
    decided: Result<Grant, NodeError>,
}

impl Applicant {
    /// Decides on a module. `more` narrows its grant further.
    fn evaluate(
        &self,
        module: &ModuleInfo,
        signers: &[PublicKey],
        more: &[Layer],
    ) -> Result<Decision, NodeError> {
        let request = ModuleRequest::new(&module.manifest, module.hash, module.messages, signers.to_vec());
        let mut request = request.map_err(NodeError::Manifest)?;
        request.fields.extend(more.iter().cloned());
        let possession = self.presented.prove(&request.hash)?;
        let decided = self.node.policy.grant(&self.presented.request(&request, possession.as_ref()));
        let decided = decided.map_err(NodeError::from).and_then(|grant| {
            grant.layers.iter().try_for_each(check_viewable)?;
            Ok(grant)
        });
        Ok(Decision { request, possession, decided })
    }

    /// Returns a compiler for the module with this hash, for whose work the principal of the credential pays.
    ///
    /// # Errors
    ///
    /// Returns an error if the credential is not valid, or not its holder's, or if its allowance cannot be
    /// read.
    pub fn compiler<'c>(
        &'c self,
        compiler: &'c Compiler<'_>,
        hash: &[u8; 32],
    ) -> Result<Compiler<'c>, NodeError> {
        let Self { node, presented } = self;
        let possession = presented.prove(hash)?;
        let Payer { tenant, principal, links } = node.policy.payer(&PayerRequest {
            credential: presented.credential.as_ref(),
            hash,
            place: &presented.place,
            now: time::now(),
            possession: possession.as_ref().map(|(challenge, answer)| (challenge, answer)),
        })?;
        let secret = node.policy.shared_secret().ok_or(NodeError::NoKey)?;
        let allowance = Quotas::open(&node.policy.quotas(), secret)?.allowance(&links)?;
        Ok(compiler.of(&tenant, &principal, allowance))
    }

    /// Records in the audit log each start of an examination, analysis or compilation. The module's name is
    /// not known then.
    pub fn noting<'a>(&'a self, compiler: Compiler<'a>) -> Compiler<'a> {
        compiler.noted_by(|Start { step, hash, bytes }| {
            let text = format!("{step}, {bytes} bytes");
            self.note(Event::Begin, hash, &text).map_err(|e| e.to_string())
        })
    }

    /// Records in the audit log that no work is done on the module with this hash, and returns the reason.
    pub(crate) fn refused(&self, hash: &[u8; 32], denied: NodeError) -> NodeError {
        let NodeError::Denied(_) = &denied else { return denied };
        self.note(Event::Refuse, hash, &denied.operator()).err().unwrap_or(denied)
    }

    /// Writes an entry about a module that was not examined to the audit log.
    fn note(&self, event: Event, hash: &[u8; 32], text: &str) -> Result<(), NodeError> {
        let Some(log) = self.node.log() else { return Ok(()) };
        log.write(event, &self.presented.claimed(), &flame_trust::hash_text(hash), text)
    }

    /// Admits a module, or returns the reason why not. Each refusal is recorded in the audit log.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy denies the module, or if the audit log cannot be written.
    pub fn admit(
        &self,
        module: &ModuleInfo,
        signers: &[PublicKey],
        more: &[Layer],
    ) -> Result<AdmittedModule, NodeError> {
        let Decision { request, possession, decided } = self.evaluate(module, signers, more)?;
        match decided {
            Ok(grant) => {
                let (presented, (id, passed)) = (self.presented.clone(), Default::default());
                Ok(AdmittedModule { presented, request, possession, grant, id, passed })
            }
            Err(denied) => {
                self.node.audit(Event::Refuse, &self.presented.claimed(), &request, &denied.operator())?;
                Err(denied)
            }
        }
    }

    /// Returns the grant that a module would get.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy denies the module.
    pub fn explain(&self, module: &ModuleInfo, signers: &[PublicKey]) -> Result<Grant, NodeError> {
        self.evaluate(module, signers, &[])?.decided
    }
}
