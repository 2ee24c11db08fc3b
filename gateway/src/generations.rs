//! What was put in lately, found by a key: in two generations, so that nobody notes what was asked for when.

use std::collections::HashMap;
use std::hash::Hash;

/// As many as `MAX` in each of two generations. When the young one is full it becomes the old one, which is dropped.
#[derive(Debug)]
pub(crate) struct Generations<K, V, const MAX: usize> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V, const MAX: usize> Default for Generations<K, V, MAX> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }
}

impl<K: Eq + Hash, V, const MAX: usize> Generations<K, V, MAX> {
    /// What was put in last under this key, unless it was dropped since.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Puts something in.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_lately_is_there_and_no_more_than_two_generations_are() {
        let mut known: Generations<u8, &str, 2> = Generations::default();
        for key in 0..5 {
            known.insert(key, "first");
        }
        let there: Vec<_> = (0..5).filter(|key| known.get(key).is_some()).collect();
        assert_eq!(there, [2, 3, 4]);
        known.insert(3, "second");
        assert_eq!(known.get(&3), Some(&"second"));
    }
}
