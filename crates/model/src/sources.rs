//! Where single parameters of an ask came from, as its caller says.

use crate::trust::Trust;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The level of single parameters, by RFC 6901 pointer into the parameters; the empty one is all of them. What is not named has
/// the level of the call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sources(BTreeMap<String, Trust>);

impl Sources {
    /// The levels under these pointers.
    pub const fn new(levels: BTreeMap<String, Trust>) -> Self {
        Self(levels)
    }

    /// Whether no parameter is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pointers and what was said of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Trust)> {
        self.0.iter().map(|(pointer, level)| (pointer.as_str(), *level))
    }

    /// The least trusted of all that are named.
    pub fn worst(&self) -> Option<Trust> {
        self.0.values().copied().max()
    }

    /// The level of a parameter: the worst of what was said of it, of a part of it and of all parameters; none if nothing was.
    /// A claim to be signed counts as unsigned here, because no signature says what it is about.
    pub fn of(&self, parameter: &str) -> Option<Trust> {
        let own = format!("/{}", parameter.replace('~', "~0").replace('/', "~1"));
        let is_about = |pointer: &str| {
            pointer.is_empty()
                || pointer
                    .strip_prefix(&own)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let levels = self.iter().filter(|(pointer, _)| is_about(pointer));
        let worst = levels.map(|(_, level)| level).max()?;
        Some(worst.worse_of(Trust::TrustedInternalUnsigned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(levels: &[(&str, Trust)]) -> Sources {
        let levels = levels
            .iter()
            .map(|(pointer, level)| ((*pointer).to_owned(), *level));
        Sources::new(levels.collect())
    }

    #[test]
    fn a_parameter_has_the_worst_level_of_its_parts_and_of_the_whole() {
        let some = sources(&[
            ("/card/number", Trust::UntrustedExternal),
            ("/card", Trust::SemiTrustedCustomer),
            ("/cards", Trust::Unknown),
            ("/amount", Trust::TrustedInternalSigned),
        ]);
        assert_eq!(some.of("card"), Some(Trust::UntrustedExternal));
        assert_eq!(some.of("amount"), Some(Trust::TrustedInternalUnsigned));
        assert_eq!(some.of("recipient"), None);
        assert_eq!(some.worst(), Some(Trust::Unknown));
        let all = sources(&[("", Trust::SemiTrustedCustomer)]);
        assert_eq!(all.of("recipient"), Some(Trust::SemiTrustedCustomer));
    }

    #[test]
    fn a_name_with_the_signs_of_a_pointer_is_found() {
        let odd = sources(&[("/a~1b~0c", Trust::Unknown), ("/a", Trust::SemiTrustedCustomer)]);
        assert_eq!(odd.of("a/b~c"), Some(Trust::Unknown));
        assert_eq!(odd.of("a"), Some(Trust::SemiTrustedCustomer));
    }
}
