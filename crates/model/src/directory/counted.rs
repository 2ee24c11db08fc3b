//! How many bytes the nouns have of which a directory may hold any number.
//!
//! They are counted as storage keeps them; in memory they take some times that. Counting makes no text of them.

use imbl::OrdMap;
use serde::Serialize;
use std::sync::Arc;

/// The bytes of the nouns in maps that are changed through this and in no other way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted(usize);

impl Counted {
    /// All of them together.
    pub(super) const fn bytes(self) -> usize {
        self.0
    }

    /// Puts a noun in place of the one with its id.
    pub(super) fn put<K: Ord + Clone, N: Serialize>(
        &mut self,
        nouns: &mut OrdMap<K, Arc<N>>,
        id: K,
        noun: Arc<N>,
    ) {
        self.0 += bytes_of(&*noun);
        if let Some(before) = nouns.insert(id, noun) {
            self.0 -= bytes_of(&*before);
        }
    }

    /// Takes the noun with this id out, if it is there.
    pub(super) fn delete<K: Ord + Clone, N: Serialize>(&mut self, nouns: &mut OrdMap<K, Arc<N>>, id: &K) {
        if let Some(before) = nouns.remove(id) {
            self.0 -= bytes_of(&*before);
        }
    }
}

/// How long a noun is as storage keeps it.
fn bytes_of<N: Serialize>(noun: &N) -> usize {
    canon::length(noun).expect("nouns have string keys and no fallible serializers")
}
