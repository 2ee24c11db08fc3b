//! How many nouns there are under each of some names, so that nobody has to look through all of them to know it.

use crate::name::Name;
use imbl::OrdMap;

/// How often each name was added and not taken again. Those of which there are none are not in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally(OrdMap<Name, usize>);

impl Tally {
    /// How many there are under this name.
    pub(super) fn of(&self, name: &Name) -> usize {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// One more under each of these.
    pub(super) fn add<'n>(&mut self, names: impl IntoIterator<Item = &'n Name>) {
        for name in names {
            self.0.insert(name.clone(), self.of(name) + 1);
        }
    }

    /// One less under each of these.
    pub(super) fn take<'n>(&mut self, names: impl IntoIterator<Item = &'n Name>) {
        for name in names {
            match self.of(name) {
                0 | 1 => self.0.remove(name),
                more => self.0.insert(name.clone(), more - 1),
            };
        }
    }
}
