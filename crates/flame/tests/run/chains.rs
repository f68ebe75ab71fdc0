//! Tests of chains of credentials: a narrowed one shows a part of what the wider one shows, whatever its
//! blocks state.
//!
//! Random chains of blocks (filters, negations, transforms, exposures, new holders, cosigners) become grants
//! and views, as on a node. Their packets are compared, not their rights.

use flame_abi::manifest::Manifest;
use flame_abi::{Descriptor, LinkType};
use flame_decode::{Options, decode};
use flame_plan::ViewSpec;
use flame_trust::{
    Credential, Field, Grant, GrantRequest, Mint, ModuleRequest, Narrow, Place, Policy, Secret,
};
use flame_view::View;

/// A generator of pseudorandom numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let a = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        b ^ b >> 31
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[(self.next() % all.len() as u64) as usize]
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }
}

const FILTERS: [&str; 14] = [
    "not host 10.1.2.3",
    "host 10.1.2.3",
    "not net 10.1.0.0/16",
    "src host 10.1.2.4",
    "not port 53",
    "port 53",
    "not ether host 02:00:00:00:00:03",
    "ether src 02:00:00:00:00:04",
    "not udp",
    "udp [ 8 ] & 1 = 0",
    "not ip [ 15 ] & 1 = 1",
    "greater 50",
    "not host 0.0.0.0",
    "not tcp",
];
const TRANSFORMS: [&str; 11] = [
    "ip=zero",
    "ip=hash",
    "ip=prefix",
    "ip.src=truncate:16",
    "ip.dst=prefix",
    "port=zero",
    "port.dst=hash",
    "mac=zero",
    "mac.src=hash",
    "ip=zero,port=zero,mac=zero",
    "ip=truncate:8",
];
const EXPOSES: [&str; 5] = ["all", "payload:2", "headers", "none", "count"];
const RESOLUTIONS: [&str; 3] = ["10ns", "50ns", "1us"];

/// The keys of root, cosigner and node, for these tests only, so that pseudonyms are the same in each run.
const KEYS: [&str; 3] = [
    "-----BEGIN PRIVATE KEY-----\n\
     MFECAQEwBQYDK2VwBCIEIN9Qma5YrJ+tYTT7nF2y7QEMoWtIuzeiQrmRmtcjvaJp\n\
     gSEApWAyF0pDvYZ5PpztqXvqeRFlQZZpiNEDjgvpMuVe2io=\n-----END PRIVATE KEY-----\n",
    "-----BEGIN PRIVATE KEY-----\n\
     MFECAQEwBQYDK2VwBCIEIC0BNepdlG2R7iSCWfnIEOOarhAa/9RnUwno1olHV03P\n\
     gSEACmhTvqHxdey7MXI03cqzclOtjgiE9eNUycoOnAzZsO8=\n-----END PRIVATE KEY-----\n",
    "-----BEGIN PRIVATE KEY-----\n\
     MFECAQEwBQYDK2VwBCIEIMvIeweazMbann3Y/jx/9QdOo9izb8tp8kAiYCBtOZS4\n\
     gSEAnHEFDvQnMdLRaXmFrlm23Hwb1P+YPmqLHRk/4PF6Oic=\n-----END PRIVATE KEY-----\n",
];

/// Keys and the policy of a node.
struct World {
    root: Secret,
    cosigner: Secret,
    policy: Policy,
    module: ModuleRequest,
}

impl World {
    fn new() -> Self {
        let [root, cosigner, node] = KEYS.map(|pem| Secret::from_pem(pem).unwrap());
        let role = |name: &str, more: &str| {
            let fields = "select = \"\"\nexpose = \"all\"\ncalls = \"records\"\ncode = \"any\"";
            format!("[roles.{name}]\n{fields}\n{more}\n")
        };
        let policy = format!(
            "[node]\nname = \"tap\"\nkey = \"node.key\"\n[roots]\n\
             operator = \"{}\"\n[cosigners]\nprivacy = \"{}\"\n{}{}{}",
            root.public(),
            cosigner.public(),
            role("all", ""),
            role("pseudonyms", "transform = \"ip=prefix\""),
            role("sample", "sample = 3\ntransform = \"mac=zero\"\nresolution = \"10ns\""),
        );
        let policy = Policy::parse(policy.as_bytes()).unwrap().with_secret(node);
        let manifest =
            "abi = 1\nname = \"probe\"\nversion = \"1\"\ndescription = \"d\"\n[needs]\nexpose = \"all\"\n";
        let manifest = Manifest::parse(manifest.as_bytes()).unwrap();
        let module = ModuleRequest::new(&manifest, [7; 32], false, Vec::new()).unwrap();
        Self { root, cosigner, policy, module }
    }

    fn grant(&self, credential: &Credential) -> Result<Grant, String> {
        let (module, place, now) = (&self.module, &Place::captures(), 1_800_000_000);
        let credential = Some(credential);
        let request = GrantRequest { credential, module, place, now, possession: None };
        self.policy.grant(&request).map_err(|e| e.to_string())
    }

    /// Returns a credential of a random role, and each by which it is narrowed further.
    fn chain(&self, numbers: &mut Numbers) -> Vec<Credential> {
        let mut narrow = fields(numbers);
        narrow.fields.push((Field::Code, "any".to_owned()));
        let role = numbers.of(&["all", "pseudonyms", "sample"]).to_owned();
        let mint = Mint { principal: "alice".to_owned(), role, narrow };
        let mut chain = vec![Credential::mint(&self.root, &mint).unwrap()];
        for n in 0..1 + numbers.next() % 3 {
            let narrow = fields(numbers);
            let last = chain.last().unwrap();
            chain.push(match numbers.one_in(4) {
                true => last.cosign(&self.cosigner, "privacy", &narrow).unwrap(),
                false => {
                    let principal = numbers.one_in(2).then(|| format!("holder{n}"));
                    last.narrow(&Narrow { principal, ..narrow }, None).unwrap()
                }
            });
        }
        chain
    }
}

/// Returns a random block.
fn fields(numbers: &mut Numbers) -> Narrow {
    let mut fields = Vec::new();
    let mut maybe = |field, one_in, values: &[&str], numbers: &mut Numbers| {
        if numbers.one_in(one_in) {
            fields.push((field, numbers.of(values).to_owned()));
        }
    };
    maybe(Field::Select, 2, &FILTERS, numbers);
    maybe(Field::Transform, 2, &TRANSFORMS, numbers);
    maybe(Field::Expose, 4, &EXPOSES, numbers);
    maybe(Field::Resolution, 5, &RESOLUTIONS, numbers);
    Narrow { fields, ..Narrow::default() }
}

/// Returns an Ethernet frame with few different values in each field.
fn frame(numbers: &mut Numbers) -> Vec<u8> {
    let last = |numbers: &mut Numbers| (numbers.next() % 4) as u8 + 1;
    let mut frame = vec![2, 0, 0, 0, 0, last(numbers), 2, 0, 0, 0, 0, last(numbers), 8, 0];
    let is_tcp = numbers.one_in(2);
    let length = if is_tcp { 40 } else { 28 } + 4;
    frame.extend([0x45, 0, 0, length, 0, 1, 0, 0, 64, if is_tcp { 6 } else { 17 }, 0, 0]);
    for _ in 0..2 {
        let net = numbers.of(&[&[10u8, 1, 2], &[10, 2, 2]]);
        frame.extend([net[0], net[1], net[2], last(numbers)]);
    }
    for _ in 0..2 {
        frame.extend([0, numbers.of(&[&[53u8], &[80]])[0]]);
    }
    match is_tcp {
        true => frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]),
        false => frame.extend([0, 12, 0, 0]),
    }
    frame.extend([last(numbers), 0, 0, last(numbers)]);
    frame
}

fn described(frames: &[Vec<u8>], times: &[u64]) -> (Vec<Descriptor>, Vec<u8>) {
    let (mut descriptors, mut data) = (Vec::new(), Vec::new());
    for (frame, time) in frames.iter().zip(times) {
        let d = decode(LinkType::ETHERNET, frame, frame.len() as u32, Options::default());
        descriptors.push(Descriptor { ts_ns: *time, addr: data.len() as u32, ..d });
        data.extend(frame);
    }
    (descriptors, data)
}

/// A packet as a view shows it: descriptor and bytes; `None` if it does not.
type Shown = Option<Vec<u8>>;

/// Returns what a view shows of each packet: descriptor and bytes, or nothing. A view that cannot be made,
/// since a filter asks for what its author did not see, shows nothing.
fn shown(
    view: &mut Result<View, flame_view::ViewError>,
    (descriptors, data): &(Vec<Descriptor>, Vec<u8>),
) -> Vec<Shown> {
    let Ok(view) = view else { return vec![None; descriptors.len()] };
    let (mut out, mut bytes) = (vec![Descriptor::default(); descriptors.len()], vec![0; data.len()]);
    let mut listed = Vec::new();
    let place = (&mut out[..], &mut bytes[..]);
    view.copy_listed(descriptors, LinkType::ETHERNET, &data[..], place, 0, &mut listed).unwrap();
    let mut shown = vec![None; descriptors.len()];
    for (d, i) in out.iter().zip(listed) {
        let content = &bytes[d.addr as usize..][..d.cap_len as usize];
        shown[i] = Some([&Descriptor { addr: 0, ..*d }.to_bytes()[..], content].concat());
    }
    shown
}

/// The view of a grant.
type Viewed = fn(&Grant) -> ViewSpec;

fn in_force(grant: &Grant) -> ViewSpec {
    grant.view()
}

/// Views as they once were: the filters of all blocks on the packet as it is finally shown.
fn all_on_the_last(grant: &Grant) -> ViewSpec {
    let mut view = grant.view();
    view.select_shown.extend(view.stages.drain(..).map(|stage| stage.filter));
    view
}

#[derive(Debug, Default)]
struct Compared {
    narrowed: usize,
    shown: usize,
    hidden: usize,
    equal: usize,
}

/// Compares what `chains` random chains show, step by step. Returns the first break.
fn search(chains: usize, view: Viewed) -> Result<Compared, String> {
    let world = World::new();
    let mut numbers = Numbers(5);
    let mut compared = Compared::default();
    for _ in 0..chains {
        let chain = world.chain(&mut numbers);
        let frames: Vec<_> = (0..40).map(|_| frame(&mut numbers)).collect();
        let times: Vec<u64> = (0..40).map(|i| 1_000_000 + i * 7).collect();
        // Another capture, in which some fields of each packet differ.
        let mix = |frame: &Vec<u8>, numbers: &mut Numbers| {
            let other = self::frame(numbers);
            let fields = [0..6, 6..12, 26..30, 30..34, 34..36, 36..38, frame.len() - 4..frame.len()];
            let mut mixed = frame.clone();
            for field in fields.into_iter().filter(|_| numbers.one_in(3)) {
                mixed[field.clone()]
                    .copy_from_slice(&other[field.start.min(other.len() - field.len())..][..field.len()]);
            }
            mixed
        };
        let others: Vec<_> = frames.iter().map(|frame| mix(frame, &mut numbers)).collect();
        let (one, other) = (described(&frames, &times), described(&others, &times));
        let mut wider: Option<(Grant, [Vec<Shown>; 2])> = None;
        for credential in &chain {
            // A filter of a cosigner on a pseudonym is refused.
            let Ok(grant) = world.grant(credential) else { break };
            let mut made = View::new(&view(&grant), None);
            let seen = [&one, &other].map(|capture| shown(&mut made, capture));
            if let Some((before, of_before)) = &wider {
                let fail = |what: &str, i: usize| {
                    let fields = |grant: &Grant| format!("{:?}", grant.explain());
                    Err(format!(
                        "packet {i} {:02x?} {what}:\n{}\n{}",
                        frames[i],
                        fields(before),
                        fields(&grant)
                    ))
                };
                if !grant.rights.within(&before.rights) {
                    return fail("is not within", 0);
                }
                for i in 0..frames.len() {
                    if seen[0][i].is_some() && of_before[0][i].is_none() {
                        return fail("is shown by the narrower alone", i);
                    }
                    // A sample is a keyed function of what policy and root show, so it may differ for packets
                    // that are equal afterwards.
                    let is_equal = before.rights.sample == 1 && of_before[0][i] == of_before[1][i];
                    if is_equal && seen[0][i] != seen[1][i] {
                        return fail("is the same to the wider, and two to the narrower", i);
                    }
                    compared.narrowed += 1;
                    compared.shown += usize::from(seen[0][i].is_some());
                    compared.hidden += usize::from(seen[0][i].is_none() && of_before[0][i].is_some());
                    compared.equal += usize::from(is_equal && one.1 != other.1);
                }
            }
            wider = Some((grant, seen));
        }
    }
    Ok(compared)
}

#[test]
fn a_narrowed_credential_shows_a_part_of_what_the_wider_one_shows() {
    let compared = search(400, in_force).unwrap();
    let Compared { narrowed, shown, hidden, equal } = compared;
    assert!(narrowed > 10_000 && shown > 3_000 && hidden > 1_000 && equal > 2_000, "{compared:?}");
}

/// The search finds the fault for which it was made.
#[test]
fn filters_on_the_packet_as_it_is_finally_shown_are_found_to_widen() {
    let found = search(1500, all_on_the_last).unwrap_err();
    assert!(found.contains("is shown by the narrower alone"), "{found}");
}

/// Rights that are within others show no other packet, also if they come from another chain.
#[test]
fn rights_within_others_show_no_other_packet() {
    let world = World::new();
    let mut numbers = Numbers(9);
    let grants: Vec<Grant> = (0..150)
        .flat_map(|_| world.chain(&mut numbers))
        .filter_map(|credential| world.grant(&credential).ok())
        .collect();
    let frames: Vec<_> = (0..60).map(|_| frame(&mut numbers)).collect();
    let capture = described(&frames, &(0..60).map(|i| 1_000_000 + i * 7).collect::<Vec<_>>());
    let seen: Vec<_> =
        grants.iter().map(|grant| shown(&mut View::new(&grant.view(), None), &capture)).collect();
    let mut related = 0;
    for (i, one) in grants.iter().enumerate() {
        for (j, other) in grants.iter().enumerate() {
            if i != j && one.rights.within(&other.rights) {
                related += 1;
                let more = (0..frames.len()).find(|p| seen[i][*p].is_some() && seen[j][*p].is_none());
                assert_eq!(more, None, "{:?}\n{:?}", one.explain(), other.explain());
            }
        }
    }
    assert!(related > 100, "{related} related pairs");
}
