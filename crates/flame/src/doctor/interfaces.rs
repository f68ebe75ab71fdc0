use super::{Finding, Machine};
use crate::error::Error;
use flame_source::live::{Card, LiveOptions, Offload, RingSize, objection};

/// Types of hardware that live captures decode: Ethernet, PPP, loopback, tunnels and none (linux/if_arp.h).
const DECODED: [u32; 7] = [1, 512, 519, 768, 772, 776, 65534];
const LOOPBACK: u32 = 772;

/// Examines the interfaces named or, without names, all that are up.
pub fn examine(machine: &Machine, named: &[String]) -> Result<Vec<Finding>, Error> {
    let all = flame_source::live::interfaces();
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        return Err(
            format!("interface {unknown}: there is none of this name; there are {}", all.join(", ")).into()
        );
    }
    let is_up = |name: &String| flags(machine, name) & 1 == 1;
    let chosen: Vec<_> = match named {
        [] => all.iter().filter(|name| is_up(name)).collect(),
        named => named.iter().collect(),
    };
    if chosen.is_empty() {
        let remedy = format!("ip link set {} up", all.first().map_or("NAME", String::as_str));
        return Ok(vec![Finding::missing("interfaces", "none is up", remedy)]);
    }
    Ok(chosen.into_iter().flat_map(|name| of(machine, name)).collect())
}

fn flags(machine: &Machine, name: &str) -> u32 {
    let text = machine.read(&format!("sys/class/net/{name}/flags")).unwrap_or_default();
    u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
}

fn of(machine: &Machine, name: &str) -> Vec<Finding> {
    let subject = format!("interface {name}");
    let kind =
        machine.read(&format!("sys/class/net/{name}/type")).and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut findings = Vec::new();
    if flags(machine, name) & 1 == 0 {
        findings.push(Finding::missing(&subject, "it is down", format!("ip link set {name} up")));
    }
    if !DECODED.contains(&kind) {
        let found = format!("hardware type {kind} is not decoded live");
        findings.push(Finding::missing(
            &subject,
            found,
            "capture its packets with tcpdump -w, read the file",
        ));
        return findings;
    }
    let Ok(card) = Card::open(name) else { return findings };
    let on: Vec<_> = Offload::ALL.into_iter().filter(|o| card.is_on(*o).unwrap_or(false)).collect();
    findings.push(offloads(name, &on, kind == LOOPBACK));
    findings.extend(card.ring().ok().and_then(|size| ring(name, size)));
    findings.push(way(name, objection(name, &LiveOptions::default())));
    findings
}

/// Returns the way in which an interface is captured by default.
fn way(name: &str, objection: Option<String>) -> Finding {
    let found = match objection {
        Some(reason) => format!("is captured by AF_PACKET: {reason}"),
        None => "is captured by AF_XDP, with the rights for it: nobody else uses it".to_owned(),
    };
    Finding::good(&format!("interface {name}"), found)
}

fn offloads(name: &str, on: &[Offload], is_loopback: bool) -> Finding {
    let subject = format!("interface {name}");
    let names = |with: &str| on.iter().map(|o| format!("{}{with}", o.name())).collect::<Vec<_>>().join(" ");
    let found = format!("packets are merged: {}", names(" on,").trim_end_matches(','));
    match on {
        [] => Finding::good(&subject, "packets are shown as on the wire"),
        // Nothing is on a wire there.
        _ if is_loopback => Finding::good(&subject, found + " (a loopback interface has no wire)"),
        _ => Finding::warning(&subject, found, format!("ethtool -K {name} {}", names(" off"))),
    }
}

fn ring(name: &str, size: RingSize) -> Option<Finding> {
    let subject = format!("interface {name}");
    let RingSize { now, most } = size;
    match (now, most) {
        (_, 0) => None,
        _ if now < most => {
            let found = format!("the card's receive ring holds {now} of at most {most} packets");
            Some(Finding::warning(&subject, found, format!("ethtool -G {name} rx {most}")))
        }
        _ => Some(Finding::good(&subject, format!("the card's receive ring holds {now} packets, the most"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn offloads_that_merge_packets_are_named_with_the_command_that_ends_them() {
        let found = offloads("eth0", &[Offload::Gro, Offload::Tso], false);
        assert_eq!(
            (found.state, found.found.as_str()),
            (State::Warning, "packets are merged: gro on, tso on")
        );
        assert_eq!(found.remedy.as_deref(), Some("ethtool -K eth0 gro off tso off"));
        assert_eq!(offloads("eth0", &[], false).state, State::Good);
        assert_eq!(offloads("lo", &[Offload::Gro], true).state, State::Good);
    }

    #[test]
    fn a_ring_that_could_be_larger_is_named() {
        let found = ring("eth0", RingSize { now: 256, most: 4096 }).unwrap();
        assert_eq!(found.remedy.as_deref(), Some("ethtool -G eth0 rx 4096"));
        assert_eq!(ring("eth0", RingSize { now: 512, most: 512 }).unwrap().state, State::Good);
        assert_eq!(ring("eth0", RingSize { now: 0, most: 0 }), None);
    }

    #[test]
    fn the_way_of_capture_is_named_with_its_reason() {
        assert_eq!(way("eth0", Some("why".into())).found, "is captured by AF_PACKET: why");
        assert!(way("eth0", None).found.contains("AF_XDP"));
    }

    #[test]
    fn interfaces_that_are_down_or_unknown_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::at(folder.path());
        let card = folder.path().join("sys/class/net/x0");
        std::fs::create_dir_all(&card).unwrap();
        for (file, text) in [("flags", "0x1002\n"), ("type", "280\n")] {
            std::fs::write(card.join(file), text).unwrap();
        }
        let found = of(&machine, "x0");
        let text: Vec<_> = found.iter().map(|f| f.found.as_str()).collect();
        assert_eq!(text, ["it is down", "hardware type 280 is not decoded live"]);
        let error = examine(&machine, &["nosuch0".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("nosuch0") && error.contains("lo"), "{error}");
    }
}
