//! `--map FROM=TO`: which jobs of a trace belong to which class or queue of the simulated site.

use anyhow::{anyhow, bail};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use tutti_sim::{Field, MapRule, MapTo};
use tutti_trace::Header;
use tutti_types::{ClassName, QueueName};

const SHAPE: &str = "write FROM=TO, such as queue:3=queue:short, partition:1=class:standby, \
                     all=queue:batch, or queue=queue for the queues of the same name or number";

/// The rules of all words, in their order, each with the index of its word.
///
/// # Errors
/// What is wrong, and what would be right.
pub(super) fn rules(
    words: &[String],
    header: &Header,
    classes: &[ClassName],
    queues: &[QueueName],
) -> anyhow::Result<Vec<(usize, MapRule)>> {
    let classes: Vec<&str> = classes.iter().map(|class| &*class.0).collect();
    let queues: Vec<&str> = queues.iter().map(|queue| &*queue.0).collect();
    let mut rules = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let wrong = || anyhow!("{word:?} maps nothing; {SHAPE}");
        let (from, to) = word.split_once('=').ok_or_else(wrong)?;
        let (kind, name) = to.split_once(':').map_or((to, None), |(kind, name)| (kind, Some(name)));
        let (known, make): (&[&str], fn(u16) -> MapTo) = match kind {
            "class" => (&classes, MapTo::Class),
            "queue" => (&queues, MapTo::Queue),
            _ => return Err(wrong()),
        };
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| anyhow!("{word:?}: {text:?} is no number; {SHAPE}"))
        };
        let (field, value) = match from.split_once(':').unwrap_or((from, "")) {
            ("all", "") => (None, None),
            ("queue", "") => (Some(Field::Queue), None),
            ("partition", "") => (Some(Field::Partition), None),
            ("queue", text) => (Some(Field::Queue), Some(number(text)?)),
            ("partition", text) => (Some(Field::Partition), Some(number(text)?)),
            _ => return Err(wrong()),
        };
        match (field, value, name) {
            (None, _, Some(name)) => {
                let to = make(index(kind, name, known)?);
                rules.push((place, MapRule { from: None, to }));
            }
            (Some(field), Some(value), Some(name)) => {
                let to = make(index(kind, name, known)?);
                rules.push((place, MapRule { from: Some((field, value)), to }));
            }
            (Some(field), None, None) => {
                let alike = by_name(field, header, known, make);
                if alike.is_empty() {
                    bail!(
                        "{word:?} maps nothing: no {kind} here has the name or number of one of the \
                         trace; {SHAPE}"
                    );
                }
                rules.extend(alike.into_iter().map(|rule| (place, rule)));
            }
            _ => return Err(wrong()),
        }
    }
    Ok(rules)
}

/// The words that no job has fitted, of rules with the indices of their words.
pub(super) fn unfitted<'a>(
    words: &'a [String],
    places: &[usize],
    fitted: &[AtomicBool],
) -> Vec<&'a str> {
    let has_fitted = |&(_, fitted): &(&usize, &AtomicBool)| fitted.load(Ordering::Relaxed);
    let fitted: BTreeSet<usize> =
        places.iter().zip(fitted).filter(has_fitted).map(|(place, _)| *place).collect();
    let words = words.iter().enumerate().filter(|(place, _)| !fitted.contains(place));
    words.map(|(_, word)| word.as_str()).collect()
}

/// Those of the same name as in the header; names that are numbers stand for themselves.
fn by_name(field: Field, header: &Header, known: &[&str], make: fn(u16) -> MapTo) -> Vec<MapRule> {
    let named = match field {
        Field::Queue => header.queues(),
        Field::Partition => header.partitions(),
    };
    let mut rules = Vec::new();
    for (index, here) in (0..).zip(known) {
        let same = named.iter().filter(|(_, name)| name.eq_ignore_ascii_case(here));
        let values = same.map(|&(value, _)| value).chain(here.parse::<u64>().ok());
        rules.extend(values.map(|value| MapRule { from: Some((field, value)), to: make(index) }));
    }
    rules
}

fn index(kind: &str, name: &str, known: &[&str]) -> anyhow::Result<u16> {
    let place = known.iter().position(|other| *other == name);
    place.and_then(|place| u16::try_from(place).ok()).ok_or_else(|| match known {
        [] => anyhow!("there is no {kind} {name}, and no other; make it with --{kind} or --site"),
        _ => anyhow!("there is no {kind} {name}; there are {}", known.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::{rules, unfitted};
    use std::sync::atomic::AtomicBool;
    use tutti_sim::{Field, MapRule, MapTo};
    use tutti_trace::Header;
    use tutti_types::{ClassName, QueueName};

    fn of(words: &[&str]) -> anyhow::Result<Vec<MapRule>> {
        let header = Header::of(&[("Queue", "4 Short"), ("Partition", "2 short")]);
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let classes = ["interactive", "standby"].map(ClassName::new);
        let queues = ["7", "short"].map(QueueName::new);
        let rules = rules(&words, &header, &classes, &queues)?;
        Ok(rules.into_iter().map(|(_, rule)| rule).collect())
    }

    #[test]
    fn words_that_no_job_fits_are_found() {
        let words = ["queue=queue", "queue:3=queue:short", "all=queue:short"].map(str::to_owned);
        let fitted = [false, true, false, true].map(AtomicBool::new);
        assert_eq!(unfitted(&words, &[0, 0, 1, 2], &fitted), ["queue:3=queue:short"]);
    }

    #[test]
    fn words_become_rules_in_their_order() {
        let rule = |from, to| MapRule { from, to };
        let expected = [
            rule(Some((Field::Queue, 3)), MapTo::Queue(1)),
            rule(Some((Field::Partition, 1)), MapTo::Class(1)),
            rule(Some((Field::Queue, 7)), MapTo::Queue(0)),
            rule(Some((Field::Queue, 4)), MapTo::Queue(1)),
            rule(None, MapTo::Class(0)),
        ];
        let words = [
            "queue:3=queue:short",
            "partition:1=class:standby",
            "queue=queue",
            "all=class:interactive",
        ];
        assert_eq!(of(&words).unwrap(), expected);
        let by_name = of(&["partition=queue"]).unwrap();
        assert!(by_name.contains(&rule(Some((Field::Partition, 2)), MapTo::Queue(1))));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let says = |word: &str| of(&[word]).unwrap_err().to_string();
        for word in ["", "queue", "queue:3", "queue:3=queue", "all=queue", "site:3=queue:short"] {
            assert!(says(word).contains("write FROM=TO"), "{word}");
        }
        assert!(says("queue:x=queue:short").contains("\"x\" is no number"));
        assert!(says("queue:3=queue:long").contains("there are 7, short"));
        assert!(says("queue=class").contains("no class here has the name"));
    }
}
