//! A policy of any bytes: refused with a reason, or one under which a module without a credential gets no
//! more than what it states for those.
#![no_main]

use flame_trust::{GrantRequest, ModuleRequest, Place, Policy, Revoked, Rights, Secret};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static KEY: LazyLock<String> = LazyLock::new(|| {
    "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
     -----END PRIVATE KEY-----\n"
        .to_owned()
});

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Revoked::parse(text);
    }
    let policy = match Policy::parse(data) {
        Ok(policy) => policy.with_secret(Secret::from_pem(&KEY).unwrap()),
        Err(e) => {
            assert!(!e.to_string().is_empty());
            return;
        }
    };
    let stated = policy.best_effort.fields.iter().fold(Rights::all(), |all, l| all.meet(l.rights.clone()));
    let module = ModuleRequest {
        name: "m".into(),
        hash: [0; 32],
        signers: Vec::new(),
        fields: Vec::new(),
        calls: Default::default(),
        uses: Vec::new(),
        services: Vec::new(),
        reads: Vec::new(),
        writes: Vec::new(),
    };
    let request = GrantRequest {
        credential: None,
        module: &module,
        place: &Place::interface("eth0").expect("the name means nothing else"),
        now: 1_800_000_000,
        possession: None,
    };
    match policy.grant(&request) {
        Ok(grant) => {
            assert!(grant.rights.within(&stated));
            grant.explain();
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
});
