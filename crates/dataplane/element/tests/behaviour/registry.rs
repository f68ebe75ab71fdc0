//! The registry of classes of elements: its order, manuals, and what it states of each.

use flame_element::{CLASSES, Class, find};

#[test]
fn keywords_without_an_effect_are_documented() {
    let page = include_str!("../../../../../docs/click.md");
    let listed = |class: &str, key: &str| {
        let rows = page.lines().filter(|l| l.starts_with("| `") && l.contains(&format!("`{class}`")));
        rows.filter_map(|row| row.split(" | ").nth(1)).any(|keys| keys.contains(&format!("`{key}`")))
    };
    for class in CLASSES {
        let ignored = class.source.split("args.ignore::<").skip(1);
        let ignored = ignored.filter_map(|t| t.split('"').nth(1));
        for key in ignored.filter(|k| class.keywords.contains(k)) {
            // A file has several classes; what one of them ignores, others may read.
            let is_shared = CLASSES.iter().any(|c| c.source == class.source && listed(c.name, key));
            assert!(listed(class.name, key) || is_shared, "docs/click.md: {} ignores {key}", class.name);
        }
    }
    assert!(listed("Pad", "ZERO") && !listed("ARPQuerier", "CAPACITY"));
}

#[test]
fn classes_that_act_outside_of_the_graph_are_not_pure() {
    for name in ["Script", "DriverManager", "ControlSocket", "Socket", "KernelTun", "ToDump", "Module"] {
        assert!(!find(name).unwrap().is_pure(), "{name}");
    }
    for class in CLASSES {
        let acts = ["std::fs", "File::", "std::net", "UnixStream", "super::output", "std::process"];
        let found = acts.iter().find(|text| class.source.contains(**text));
        assert!(!class.is_pure() || found.is_none(), "{} is pure, and its file uses {found:?}", class.name);
    }
    assert!(find("Queue").unwrap().is_pure() && find("CheckIPHeader").unwrap().is_pure());
}

#[test]
fn each_class_of_elements_has_a_class_of_cost() {
    for class in CLASSES {
        let cost = class.cost_class();
        assert_eq!(cost.is_none(), class.name == "Module", "{}", class.name);
        assert!(cost.is_none_or(|c| ["E1", "E2", "E3", "E4", "E5"].contains(&c)), "{}", class.name);
    }
    let of = |name| find(name).and_then(Class::cost_class);
    assert_eq!((of("Queue"), of("ARPQuerier"), of("ToDevice")), (Some("E1"), Some("E5"), Some("E2")));
}

#[test]
fn classes_are_sorted_and_have_manuals() {
    assert!(CLASSES.windows(2).all(|w| w[0].name < w[1].name), "sort the list");
    for class in CLASSES {
        let manual = class.manual();
        for part in ["Expects:", "Gives:", "Handlers:", "Example:"] {
            assert!(manual.contains(part), "the manual of {} lacks {part}", class.name);
        }
        let is_number = |part: &str| part.split('-').all(|n| n.is_empty() || n.parse::<u8>().is_ok());
        let is_valid = class.ports.split('/').all(|part| ["-", "=", "=+"].contains(&part) || is_number(part));
        assert!(is_valid && class.ports.split('/').count() <= 2, "{}: {}", class.name, class.ports);
    }
}
