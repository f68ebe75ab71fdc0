//! The account of all elements of a router, by their handlers.

use flame_element::Router;
use std::collections::BTreeMap;

/// Asserts that the packets of all elements add up, and that none is lost between two.
pub fn adds_up(router: &Router) {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for node in &router.nodes {
        let text = router.read(None, &format!("{}.account", node.name), "").unwrap();
        let mut own: BTreeMap<&str, u64> = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            *own.entry(words[0]).or_default() += words[1].parse::<u64>().unwrap();
        }
        let of = |name: &str| own.get(name).copied().unwrap_or(0);
        let (came, went) = (of("taken") + of("made"), of("given") + of("dropped") + of("held"));
        assert_eq!(came, went, "{}: {text}\n{}", node.name, router.text);
        own.iter().for_each(|(name, n)| *sums.entry((*name).to_owned()).or_default() += n);
    }
    let sum = |name: &str| sums.get(name).copied().unwrap_or(0);
    assert_eq!(sum("given"), sum("taken"), "{}", router.text);
}
