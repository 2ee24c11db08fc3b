//! The lists in bodies with policies. They are read no further than some way beyond what a tenant may have in use: what
//! is read takes many times its length in memory, and is looked at and copied before it is counted what it comes to.

use super::{Draft, NamedDraft};
use model::{PolicyLink, SlashFreeName};
use policy::{NAMED_MAX, STATEMENTS_MAX};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// How many policies of a set are read. Of more than half as many the compiler says how many there are, and may be.
const NAMED_READ_MAX: usize = 2 * NAMED_MAX;
/// How many links of all of them are read, or of one policy.
const LINKS_READ_MAX: usize = 2 * STATEMENTS_MAX;

/// Reads the policies of a set.
pub(super) fn policies<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(SlashFreeName, Draft)>, D::Error> {
    let (mut named, mut links) = (0, 0);
    read(deserializer, |NamedDraft { name, draft }| {
        named += 1;
        links += draft.links.len();
        check(named, NAMED_READ_MAX, "policies")?;
        check(links, LINKS_READ_MAX, "links")?;
        Ok((name, draft))
    })
}

/// Reads the links of a policy.
pub(super) fn links<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PolicyLink>, D::Error> {
    let mut links = 0;
    read(deserializer, |link: PolicyLink| {
        links += 1;
        check(links, LINKS_READ_MAX, "links")?;
        Ok(link)
    })
}

fn check(count: usize, most: usize, what: &str) -> Result<(), String> {
    if count <= most {
        return Ok(());
    }
    Err(format!("no more than {most} {what} are read, and there are more"))
}

/// Reads a list as long as each of its items is taken.
fn read<'de, D: Deserializer<'de>, S: Deserialize<'de>, T>(
    deserializer: D,
    take: impl FnMut(S) -> Result<T, String>,
) -> Result<Vec<T>, D::Error> {
    let item = PhantomData;
    deserializer.deserialize_seq(List { take, item })
}

/// A list of which each item is taken like this.
struct List<S, T, F> {
    take: F,
    item: PhantomData<fn(S) -> T>,
}

impl<'de, S: Deserialize<'de>, T, F: FnMut(S) -> Result<T, String>> Visitor<'de> for List<S, T, F> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push((self.take)(item).map_err(A::Error::custom)?);
        }
        Ok(all)
    }
}
