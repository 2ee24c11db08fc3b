//! Where a ledger ends, chain and tree together, and how it grows by an entry. Whoever writes a tenant's ledger holds its
//! tip; nothing has to be read to append.

use canon::Digest;

use crate::merkle::{Completed, Frontier};
use crate::{EntryHeader, Head};

/// The end of a tenant's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tip {
    head: Head,
    /// INVARIANT: it has as many leaves as the head says there are entries.
    tree: Frontier,
}

/// An entry that has no place yet.
#[derive(Debug, Clone, Copy)]
pub struct NewEntry<'a> {
    /// Whose ledger it is for.
    pub tenant: &'a str,
    /// What kind of thing happened.
    pub kind: &'a str,
    /// When: RFC 3339, UTC, with milliseconds.
    pub at: &'a str,
    /// SHA-256 of the canonical body.
    pub body: Digest,
}

/// What an entry got when it was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Its place and its hash.
    pub head: Head,
    /// The hash of the entry before.
    pub prev: Digest,
    /// What it adds to the tree: to be stored with it.
    pub completed: Completed,
}

impl Tip {
    /// The end of a ledger without entries.
    pub const GENESIS: Self = Self {
        head: Head::GENESIS,
        tree: Frontier::EMPTY,
    };

    /// The end of a ledger that was stored; `None` if tree and chain are not equally long.
    pub fn new(head: Head, tree: Frontier) -> Option<Self> {
        (head.seq == tree.size()).then_some(Self { head, tree })
    }

    /// Where the chain ends.
    pub const fn head(&self) -> Head {
        self.head
    }

    /// The edge of the tree.
    pub const fn tree(&self) -> &Frontier {
        &self.tree
    }

    /// Appends an entry. `scratch` is memory to write its header in.
    pub fn append(&mut self, entry: &NewEntry<'_>, scratch: &mut String) -> Appended {
        let prev = self.head.hash;
        let header = EntryHeader {
            tenant: entry.tenant,
            seq: self.head.seq + 1,
            kind: entry.kind,
            at: entry.at,
            prev,
            body: entry.body,
        };
        let (hash, leaf) = header.hash_and_leaf(scratch);
        self.head = Head {
            seq: header.seq,
            hash,
        };
        Appended {
            head: self.head,
            prev,
            completed: self.tree.append(leaf),
        }
    }
}

#[cfg(test)]
mod tests {
    use canon::Digest;

    use super::{NewEntry, Tip};
    use crate::merkle::{Frontier, leaf_hash};
    use crate::{Head, link};

    #[test]
    fn chain_and_tree_grow_together() {
        let mut tip = Tip::GENESIS;
        let (mut head, mut tree) = (Head::GENESIS, Frontier::EMPTY);
        let (mut scratch, mut header) = (String::new(), String::new());
        for number in 0..20_u8 {
            let entry = NewEntry {
                tenant: "tnt_1",
                kind: "decision",
                at: "2026-07-01T12:00:00.000Z",
                body: Digest::of(&[number]),
            };
            let prev = head.hash;
            head = link(&head, "tnt_1", "decision", entry.at, &entry.body, &mut header);
            let completed = tree.append(leaf_hash(header.as_bytes()));
            let appended = tip.append(&entry, &mut scratch);
            assert_eq!(
                (appended.head, appended.prev, appended.completed),
                (head, prev, completed)
            );
        }
        assert_eq!((tip.head(), tip.tree()), (head, &tree));
        assert_eq!(Tip::new(head, tree), Some(tip));
    }

    #[test]
    fn a_tree_of_another_length_is_not_that_of_the_chain() {
        let head = Head {
            seq: 1,
            hash: Digest::ZERO,
        };
        assert_eq!(Tip::new(head, Frontier::EMPTY), None);
        assert_eq!(Tip::new(Head::GENESIS, Frontier::EMPTY), Some(Tip::GENESIS));
    }
}
