//! The ancestry of runs: which run started which, so that a child counts against the budgets of those above it.
//!
//! A run that has once named its parent belongs to it, whatever it names later and whether it names one at all: otherwise a
//! child would get a fresh budget by saying less.

use crate::name::Name;

/// How many runs an ancestry has at most, the run itself among them. What stands above is not looked at.
pub const RUNS_MAX: usize = 16;

/// That one run started another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunLink {
    /// The run.
    pub run_id: Name,
    /// The run that started it.
    pub parent: Name,
}

/// A run and those that started it, the outermost first. `parent_of` says what is known of a run; where that is another parent
/// than the one `named` now, both count.
pub fn of<'k>(
    run_id: &Name,
    named: Option<&Name>,
    parent_of: impl Fn(&Name) -> Option<&'k Name>,
) -> Vec<Name> {
    let mut ancestry = vec![run_id.clone()];
    let mut above: Vec<&Name> = named.into_iter().chain(parent_of(run_id)).collect();
    while let Some(run) = above.pop() {
        if ancestry.len() == RUNS_MAX {
            break;
        }
        if ancestry.contains(run) {
            continue;
        }
        ancestry.push(run.clone());
        above.extend(parent_of(run));
    }
    ancestry.reverse();
    ancestry
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn ancestry_of(run: &str, named: Option<&str>, known: &[(&str, &str)]) -> Vec<String> {
        let known: HashMap<_, _> = known
            .iter()
            .map(|(run, parent)| (name(run), name(parent)))
            .collect();
        let ancestry = of(&name(run), named.map(name).as_ref(), |run| known.get(run));
        ancestry.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_run_stands_below_those_that_started_it() {
        assert_eq!(ancestry_of("a", None, &[]), ["a"]);
        assert_eq!(ancestry_of("c", Some("b"), &[("b", "a")]), ["a", "b", "c"]);
        assert_eq!(ancestry_of("c", None, &[("c", "b"), ("b", "a")]), ["a", "b", "c"]);
    }

    #[test]
    fn naming_another_parent_adds_one() {
        assert_eq!(ancestry_of("c", Some("x"), &[("c", "b")]), ["x", "b", "c"]);
    }

    #[test]
    fn circles_and_long_ancestries_end() {
        assert_eq!(ancestry_of("a", Some("b"), &[("b", "a"), ("a", "b")]), ["b", "a"]);
        let names: Vec<_> = (0..100).map(|number| number.to_string()).collect();
        let known: Vec<_> = names.windows(2).map(|pair| (&*pair[0], &*pair[1])).collect();
        assert_eq!(ancestry_of("0", None, &known).len(), RUNS_MAX);
    }
}
