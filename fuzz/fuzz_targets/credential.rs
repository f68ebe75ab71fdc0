//! A credential of any bytes, and any Datalog after a good one: refused with a reason, or no wider than
//! before.
#![no_main]

use biscuit_auth::{BlockBuilder, UnverifiedBiscuit};
use flame_trust::{
    Credential, Field, Grant, GrantRequest, Mint, ModuleRequest, Narrow, Place, Policy, Secret,
};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const PEM: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
                   -----END PRIVATE KEY-----\n";

struct World {
    policy: Policy,
    good: Credential,
    granted: Grant,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let root = Secret::from_pem(PEM).unwrap();
    let policy = format!(
        "[node]\nname = \"n\"\nkey = \"k\"\n[roots]\no = \"{}\"\n[roles.r]\nselect = \"ip\"\nexpose = \"all\"\n\
         calls = \"records\"\ncode = \"any\"\n",
        root.public()
    );
    let policy = Policy::parse(policy.as_bytes()).unwrap().with_secret(Secret::from_pem(PEM).unwrap());
    let narrow = Narrow { fields: vec![(Field::Code, "any".into())], ..Narrow::default() };
    let good = Credential::mint(&root, &Mint { principal: "a".into(), role: "r".into(), narrow }).unwrap();
    let granted = grant(&policy, &good).unwrap();
    World { policy, good, granted }
});

fn grant(policy: &Policy, credential: &Credential) -> Result<Grant, String> {
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
        credential: Some(credential),
        module: &module,
        place: &Place::interface("eth0").expect("the name means nothing else"),
        now: 1_800_000_000,
        possession: None,
    };
    policy.grant(&request).map_err(|e| e.to_string())
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let world = &*WORLD;
    let check = |credential: &Credential| match grant(&world.policy, credential) {
        Ok(grant) => assert!(grant.rights.within(&world.granted.rights)),
        Err(reason) => assert!(!reason.is_empty()),
    };
    if let Ok(credential) = Credential::parse(text) {
        let _ = credential.blocks();
        check(&credential);
    }
    for field in Field::ALL {
        if let Ok(rights) = field.rights(text) {
            let shown = field.show(&rights);
            assert!(shown.is_none_or(|s| field.rights(&s).is_ok_and(|again| again == rights)));
        }
    }
    let token = UnverifiedBiscuit::from_base64(world.good.text()).unwrap();
    if let Ok(block) = BlockBuilder::new().code(text)
        && let Ok(token) = token.append(block)
        && let Ok(credential) = Credential::parse(&token.to_base64().unwrap())
    {
        check(&credential);
    }
});
