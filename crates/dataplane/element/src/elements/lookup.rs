//! RadixIPLookup, StaticIPLookup, LinearIPLookup, DirectIPLookup, RangeIPLookup, LookupIPRoute(PREFIX
//! [GATEWAY] OUTPUT, …): look the destination annotation up by its longest prefix, and set it to the gateway.
//! Expects: packets with a destination annotation.
//! Gives: packets on the output of their route; those without a route are dropped.
//! Handlers: table, lookup, nroutes, add (w), set (w), remove (w), ctrl (w), flush (w).
//! Example: `rt :: RadixIPLookup(18.26.4.24/32 0, 18.26.4/24 1, 0/0 18.26.4.1 1)`

use super::origin::Origin;
use crate::registry::Setup;
use crate::runtime::element::{Cx, Element};
use crate::runtime::packet::Batch;
use flame_click::addr::mask;
use flame_click::{Args, Ip, Prefix, Scope, Value, text};
use std::cell::RefCell;
use std::collections::HashMap;

const SOURCE: &str = include_str!("lookup.rs");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    net: Prefix,
    gateway: Option<Ip>,
    output: usize,
}

impl Route {
    fn parse(line: &str, scope: &Scope<'_>) -> Result<Self, String> {
        let words = text::words(line);
        let (net, gateway, output) = match &words[..] {
            [net, output] => (net, None, output),
            [net, gateway, output] if gateway == "-" => (net, None, output),
            [net, gateway, output] => {
                let gateway = Ip::read(gateway, scope)
                    .ok_or_else(|| format!("expected a gateway, found '{gateway}'"))?;
                (net, Some(gateway), output)
            }
            _ => return Err(format!("expected 'PREFIX [GATEWAY] OUTPUT', found '{line}'")),
        };
        let short = (net == "0/0").then(Prefix::default);
        let parsed = short.or_else(|| Prefix::read(net, scope));
        let parsed = parsed.or_else(|| Ip::read(net, scope).map(|ip| Prefix::new(ip, 32)));
        let net = parsed.ok_or_else(|| format!("expected a prefix, found '{net}'"))?;
        if net.bits().is_none() {
            return Err(format!("expected a mask with its ones in front, found '{net}'"));
        }
        let output = output.parse().map_err(|_| format!("expected an output, found '{output}'"))?;
        Ok(Self { net: net.network(), gateway: gateway.filter(|g| g.0 != 0), output })
    }

    fn unparse(&self) -> String {
        let gateway = self.gateway.map_or("-".into(), |g| g.to_string());
        format!("{}\t{gateway}\t{}", self.net, self.output)
    }
}

/// Routes by the length of their prefix. A lookup tries the lengths in use, the longest first.
#[derive(Clone, Default)]
struct Table {
    routes: HashMap<(u32, u32), Route>,
    /// Bit n: there are prefixes of n bits.
    lengths: u64,
    counts: HashMap<u32, u32>,
}

impl Table {
    fn key(net: Prefix) -> (u32, u32) {
        (net.bits().unwrap_or(32), net.ip.0)
    }

    fn get(&self, net: Prefix) -> Option<&Route> {
        self.routes.get(&Self::key(net))
    }

    fn insert(&mut self, route: Route) {
        let key = Self::key(route.net);
        if self.routes.insert(key, route).is_none() {
            *self.counts.entry(key.0).or_default() += 1;
            self.lengths |= 1 << key.0;
        }
    }

    fn remove(&mut self, net: Prefix) {
        let key = Self::key(net);
        if self.routes.remove(&key).is_some() {
            let count = self.counts.entry(key.0).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.lengths &= !(1 << key.0);
            }
        }
    }

    fn lookup(&self, ip: Ip) -> Option<&Route> {
        let mut lengths = self.lengths;
        while lengths != 0 {
            let bits = 63 - lengths.leading_zeros();
            if let Some(route) = self.routes.get(&(bits, ip.0 & mask(bits))) {
                return Some(route);
            }
            lengths &= !(1 << bits);
        }
        None
    }
}

struct Lookup {
    origin: Origin,
    table: RefCell<Table>,
    /// The order of the routes' lines, for the handler `table`.
    order: RefCell<Vec<Prefix>>,
}

impl Lookup {
    fn add(&self, route: Route, may_replace: bool) -> Result<(), String> {
        let mut table = self.table.borrow_mut();
        match table.get(route.net) {
            Some(old) if !may_replace => {
                return Err(format!("conflict with existing route '{}'", old.unparse().replace('\t', " ")));
            }
            Some(_) => {}
            None => self.order.borrow_mut().push(route.net),
        }
        table.insert(route);
        Ok(())
    }

    fn remove(&self, line: &str, scope: &Scope<'_>) -> Result<(), String> {
        let words = text::words(line);
        let given = if words.len() == 1 { None } else { Some(Route::parse(line, scope)?) };
        let net = match given {
            Some(route) => route.net,
            None => Prefix::read(line.trim(), scope)
                .ok_or_else(|| format!("expected a prefix, found '{line}'"))?
                .network(),
        };
        let mut table = self.table.borrow_mut();
        match table.get(net) {
            Some(old) if given.is_none_or(|g| g == *old) => {}
            _ => return Err(format!("route '{}' not found", line.trim())),
        }
        table.remove(net);
        self.order.borrow_mut().retain(|n| *n != net);
        Ok(())
    }

    fn control(&self, line: &str, cx: &Cx<'_>) -> Result<(), String> {
        let scope = cx.scope();
        let (command, rest) = text::first_word(line);
        let check = |route: Route| match route.output < cx.outputs() {
            true => Ok(route),
            false => Err(format!("expected an output below {}, found {}", cx.outputs(), route.output)),
        };
        match command.as_str() {
            "add" => self.add(check(Route::parse(&rest, &scope)?)?, false),
            "set" => self.add(check(Route::parse(&rest, &scope)?)?, true),
            "remove" => self.remove(&rest, &scope),
            _ => Err(format!("expected add, set or remove, found '{command}'")),
        }
    }
}

impl Element for Lookup {
    fn push(&self, cx: &Cx<'_>, _: usize, mut batch: Batch) {
        // Packets in a row for the same output leave together.
        let mut run = Batch::default();
        let mut port = 0;
        for mut p in batch.drain(..) {
            let route = self.table.borrow().lookup(p.anno.dst_ip()).copied();
            let Some(route) = route.filter(|r| r.output < cx.outputs()) else {
                cx.drop("no route", p);
                continue;
            };
            if let Some(gateway) = route.gateway {
                p.anno.set_dst_ip(gateway);
            }
            if route.output != port {
                cx.push(port, std::mem::take(&mut run));
                port = route.output;
            }
            run.push(p);
        }
        cx.push(port, run);
    }

    fn read(&self, cx: &Cx<'_>, name: &str, argument: &str) -> Option<Result<String, String>> {
        Some(match name {
            "table" => {
                let table = self.table.borrow();
                let line = |net: &Prefix| {
                    let route = table.get(*net)?;
                    Some(format!("{}\n", route.unparse()))
                };
                Ok(self.order.borrow().iter().filter_map(line).collect())
            }
            "nroutes" => Ok(self.order.borrow().len().to_string()),
            "lookup" => match Ip::read(argument, &cx.scope()) {
                Some(ip) => Ok(match self.table.borrow().lookup(ip) {
                    Some(Route { gateway: Some(g), output, .. }) => format!("{output} {g}"),
                    Some(Route { output, .. }) => output.to_string(),
                    None => "-1".into(),
                }),
                None => Err(format!("expected an IP address, found '{argument}'")),
            },
            _ => return None,
        })
    }

    fn write(&self, cx: &Cx<'_>, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(match name {
            "add" | "set" | "remove" => self.control(&format!("{name} {value}"), cx),
            "ctrl" => value.lines().filter(|l| !l.trim().is_empty()).try_for_each(|l| self.control(l, cx)),
            "flush" => {
                *self.table.borrow_mut() = Table::default();
                self.order.borrow_mut().clear();
                Ok(())
            }
            _ => return None,
        })
    }

    fn take_state(&self, cx: &Cx<'_>, old: &dyn Element) {
        let Some(old) = (old as &dyn std::any::Any).downcast_ref::<Self>() else { return };
        if !self.origin.continues(&old.origin) {
            return;
        }
        // A copy, since the old element may still have packets.
        let (mut table, mut order) = (old.table.borrow().clone(), old.order.borrow().clone());
        order.retain(|net| {
            let stays = table.get(*net).is_some_and(|route| route.output < cx.outputs());
            if !stays {
                table.remove(*net);
            }
            stays
        });
        self.table.replace(table);
        self.order.replace(order);
    }

    fn handlers(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("table", "r"),
            ("nroutes", "r"),
            ("lookup", "r"),
            ("add", "w"),
            ("set", "w"),
            ("remove", "w"),
            ("ctrl", "w"),
            ("flush", "w"),
        ]
    }
}

fn lookup(args: &mut Args<'_>, setup: &Setup<'_>) -> Box<dyn Element> {
    let (table, order) = Default::default();
    let new = Lookup { origin: Origin::new(setup.config), table, order };
    let scope = args.scope();
    for line in args.rest() {
        match Route::parse(&line, &scope) {
            Ok(route) if route.output >= setup.outputs => {
                args.error(format!(
                    "'{line}': expected an output below {}, found {}",
                    setup.outputs, route.output
                ));
            }
            Ok(route) => {
                if let Err(e) = new.add(route, true) {
                    args.error(e);
                }
            }
            Err(e) => args.error(e),
        }
    }
    Box::new(new)
}

class!(RADIX_IP_LOOKUP, "RadixIPLookup", "1/-", "h/h", [], lookup);
class!(STATIC_IP_LOOKUP, "StaticIPLookup", "1/-", "h/h", [], lookup);
class!(LINEAR_IP_LOOKUP, "LinearIPLookup", "1/-", "h/h", [], lookup);
class!(DIRECT_IP_LOOKUP, "DirectIPLookup", "1/-", "h/h", [], lookup);
class!(RANGE_IP_LOOKUP, "RangeIPLookup", "1/-", "h/h", [], lookup);
class!(LOOKUP_IP_ROUTE, "LookupIPRoute", "1/-", "h/h", [], lookup);
