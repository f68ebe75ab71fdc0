//! Names of addresses and ports that `AddressInfo` and `PortInfo` declare, by scope.

use flame_click::{Graph, Ip, Mac, Prefix, Resolver, text};
use std::collections::HashMap;

#[derive(Default)]
pub struct Names {
    ip: HashMap<String, Ip>,
    prefix: HashMap<String, Prefix>,
    mac: HashMap<String, Mac>,
    port: HashMap<String, u16>,
}

/// Ports that every configuration knows.
pub const SERVICES: &[(&str, u16)] = &[
    ("echo", 7),
    ("discard", 9),
    ("daytime", 13),
    ("chargen", 19),
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("dns", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("finger", 79),
    ("www", 80),
    ("http", 80),
    ("pop3", 110),
    ("sunrpc", 111),
    ("auth", 113),
    ("nntp", 119),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("netbios-ssn", 139),
    ("imap", 143),
    ("imap2", 143),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("irc", 194),
    ("https", 443),
    ("imap3", 220),
    ("rip", 520),
    ("route", 520),
    ("imaps", 993),
    ("pop3s", 995),
];

/// Looks a name up as it is seen from the element `from`: in its compound element, then in those around it.
pub fn in_scope<T>(from: &str, name: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut prefix = from;
    loop {
        let cut = prefix.rfind('/').map_or(0, |at| at + 1);
        if let Some(found) = find(&format!("{}{name}", &prefix[..cut])) {
            return Some(found);
        }
        if cut == 0 {
            return None;
        }
        prefix = &prefix[..cut - 1];
    }
}

impl Names {
    /// Collects the names of a graph. Returns errors with the element they are in.
    pub fn of(graph: &Graph) -> (Self, Vec<(usize, String)>) {
        let (mut new, mut errors) = (Self::default(), Vec::new());
        for (i, element) in graph.elements.iter().enumerate() {
            let prefix = element.name.rfind('/').map_or("", |at| &element.name[..=at]);
            for arg in text::split(&element.config) {
                // A comment of an old form: `name value # comment`.
                let words = text::words(&arg);
                let Some((name, values)) = words.split_first() else { continue };
                let mut values = values.iter().take_while(|w| !w.starts_with('#'));
                let result = match element.class.as_str() {
                    "AddressInfo" => values.try_for_each(|v| new.address(prefix, name, v)),
                    "PortInfo" if name.starts_with('#') => Ok(()),
                    // `NAME PORT/PROTOCOL ALIAS…`
                    "PortInfo" => values.next().map_or(Ok(()), |v| {
                        std::iter::once(name).chain(values).try_for_each(|n| new.service(prefix, n, v))
                    }),
                    _ => break,
                };
                if let Err(text) = result {
                    errors.push((i, text));
                }
            }
        }
        (new, errors)
    }

    fn address(&mut self, prefix: &str, name: &str, value: &str) -> Result<(), String> {
        let key = format!("{prefix}{name}");
        if let Some(ip) = Ip::parse(value) {
            self.ip.insert(key, ip);
        } else if let Some(net) = Prefix::parse(value) {
            // `10.0.0.1/8` is an address and a network, `10.0.0.0/8` a network alone.
            if net.ip.0 & !net.mask.0 != 0 || net.mask.0 == u32::MAX {
                self.ip.entry(key.clone()).or_insert(net.ip);
            }
            self.prefix.insert(key, net);
        } else if let Some(mac) = Mac::parse(value) {
            self.mac.insert(key, mac);
        } else {
            return Err(format!("{name}: expected an IP or Ethernet address or a prefix, found '{value}'"));
        }
        Ok(())
    }

    fn service(&mut self, prefix: &str, name: &str, value: &str) -> Result<(), String> {
        let number = value.split_once('/').map_or(value, |(n, _)| n);
        let scope = flame_click::Scope { names: &*self, element: prefix };
        let port = number.parse().ok().or_else(|| self.port(scope.element, number));
        let port = port.ok_or_else(|| format!("{name}: expected a port, found '{value}'"))?;
        self.port.insert(format!("{prefix}{name}"), port);
        Ok(())
    }

    /// Looks a name up in the compound of an element, then in those around it.
    fn lookup<T: Copy>(map: &HashMap<String, T>, element: &str, name: &str) -> Option<T> {
        let mut prefix = element;
        loop {
            prefix = prefix.rfind('/').map_or("", |at| &prefix[..at]);
            let key = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
            if let Some(value) = map.get(&key) {
                return Some(*value);
            }
            if prefix.is_empty() {
                return None;
            }
        }
    }
}

impl Resolver for Names {
    fn ip(&self, element: &str, name: &str) -> Option<Ip> {
        let (base, part) = name.split_once(':').unwrap_or((name, ""));
        let net = || Self::lookup(&self.prefix, element, base);
        match part {
            "" | "ip" => Self::lookup(&self.ip, element, base),
            "bcast" => net().map(|net| Ip(net.ip.0 | !net.mask.0)),
            "gw" => net().map(|net| Ip(net.ip.0 & net.mask.0 | 1)),
            _ => None,
        }
    }

    fn prefix(&self, element: &str, name: &str) -> Option<Prefix> {
        let net = |base: &str| Self::lookup(&self.prefix, element, base);
        let declared = match name.split_once(':') {
            None => net(name),
            Some((base, "ipnet")) => net(base).map(Prefix::network),
            Some(_) => None,
        };
        declared.or_else(|| self.ip(element, name).map(|ip| Prefix::new(ip, 32)))
    }

    fn mac(&self, element: &str, name: &str) -> Option<Mac> {
        let base = name.strip_suffix(":eth");
        let declared = Self::lookup(&self.mac, element, base.unwrap_or(name));
        // `NAME:eth` of an interface of this machine is its address.
        declared.or_else(|| flame_source::live::Card::open(base?).ok()?.address().ok().map(Mac))
    }

    fn port(&self, element: &str, name: &str) -> Option<u16> {
        let declared = Self::lookup(&self.port, &format!("{element}x"), name);
        declared.or_else(|| SERVICES.iter().find(|(n, _)| *n == name).map(|(_, p)| *p))
    }
}
