//! The sample tokens of the Biscuit specification, as shipped with the library. Each must be accepted or
//! refused as its expected result states.

use biscuit_auth::builder::{Algorithm, Term};
use biscuit_auth::datalog::RunLimits;
use biscuit_auth::error::Token;
use biscuit_auth::{AuthorizerBuilder, Biscuit, PublicKey};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Returns the folder of the library's samples.
fn folder() -> PathBuf {
    let metadata = cargo_metadata::MetadataCommand::new().exec().unwrap();
    let package = metadata.packages.iter().find(|p| p.name.as_str() == "biscuit-auth").unwrap();
    package.manifest_path.parent().unwrap().join("samples").into()
}

fn outcome(token: &Biscuit, code: &str) -> Result<u64, Token> {
    let limits = RunLimits { max_time: Duration::from_secs(10), ..RunLimits::default() };
    // The only foreign function of the samples.
    let same = |left: Term, right: Option<Term>| match (left, right) {
        (left, None) => Ok(left),
        (left, Some(right)) if left == right => Ok(Term::Str("equal strings".to_owned())),
        _ => Err("different".to_owned()),
    };
    let function = biscuit_auth::datalog::ExternFunc::new(std::sync::Arc::new(same));
    let builder = AuthorizerBuilder::new().register_extern_func("test".to_owned(), function);
    let mut authorizer = builder.code(code)?.set_limits(limits).build(token)?;
    authorizer.authorize().map(|policy| policy as u64)
}

#[test]
fn samples_verify_as_their_expected_results_say() {
    let folder = folder();
    let samples: Value =
        serde_json::from_slice(&std::fs::read(folder.join("samples.json")).unwrap()).unwrap();
    let root = samples["root_public_key"].as_str().unwrap();
    let root = PublicKey::from_bytes_hex(root, Algorithm::Ed25519).unwrap();
    let (mut accepted, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in samples["testcases"].as_array().unwrap() {
        let file = case["filename"].as_str().unwrap();
        let bytes = std::fs::read(folder.join(file)).unwrap();
        for (name, validation) in case["validations"].as_object().unwrap() {
            let code = validation["authorizer_code"].as_str().unwrap();
            let found = Biscuit::from(&bytes, root).and_then(|token| {
                let ids: Vec<String> = token
                    .revocation_identifiers()
                    .iter()
                    .map(|id| id.iter().map(|b| format!("{b:02x}")).collect())
                    .collect();
                assert_eq!(serde_json::to_value(ids).unwrap(), validation["revocation_ids"], "{file}");
                outcome(&token, code)
            });
            let expected = &validation["result"];
            match (&found, expected["Ok"].as_u64()) {
                (Ok(policy), Some(expected)) if *policy == expected => accepted += 1,
                (Err(_), None) if expected.get("Err").is_some() => refused += 1,
                _ => wrong.push(format!("{file} {name}: {found:?}, expected {expected}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(accepted >= 20 && refused >= 15, "{accepted} accepted, {refused} refused");
}
