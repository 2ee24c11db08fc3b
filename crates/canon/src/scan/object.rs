//! Objects: members are written as they come, and put in order when the object closes if they were not, or at the end of
//! the text. A member knows where it stands in the output; nothing is parsed twice.

use std::cmp::Ordering;
use std::ops::Range;

use super::{Scanner, Step};
use crate::ErrorKind;
use crate::error::Fault;
use crate::order::{compare, prefix, prefix_in_text};

/// How the reserved keys begin, by which `serde_json` reads an object as something else: as the number that it writes,
/// or the JSON that is in a text.
const RESERVED: &[u8] = b"$serde_json::private::";
/// The prefix of such a key.
const RESERVED_PREFIX: u64 = u64::from_be_bytes(*b"$serde_j");

/// A member of an object that is still open.
pub(super) struct Member {
    /// The key in the output, escaped, without its quotes.
    key: Range<usize>,
    /// Where the member ends in the output. While it is open that is not known, and this is the first member of its
    /// object, by which the member that the object is in is found.
    end: usize,
    /// Where the key begins in the input.
    at: usize,
    /// The start of the key, as a number to compare first.
    prefix: u64,
}

impl Member {
    /// The member in the output, quotes of the key included.
    fn range(&self) -> Range<usize> {
        self.key.start - 1..self.end
    }

    fn compare_key(&self, prefix: u64, key: &[u8], out: &[u8]) -> Ordering {
        let by_prefix = self.prefix.cmp(&prefix);
        by_prefix.then_with(|| compare(&out[self.key.clone()], key))
    }
}

impl Scanner<'_> {
    /// What follows the `{`.
    pub(super) fn object(&mut self) -> Step<()> {
        if self.peek() == Some(b'}') {
            self.copy_byte();
            return Ok(());
        }
        let first = self.members.len();
        let start = self.out.len();
        let mut sorted = true;
        loop {
            sorted &= self.member(first)?;
            if self.is_last(b'}', "`,` or `}`")? {
                break;
            }
        }
        if !sorted {
            self.sort(first, start)?;
        }
        self.members.truncate(first);
        Ok(())
    }

    /// One member. Says whether it comes after the member before it; `first` is the first of this object.
    fn member(&mut self, first: usize) -> Step<bool> {
        let at = self.at;
        let start = self.out.len() + 1;
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a key in double quotes"));
        }
        let escaped = self.string()?;
        let key = start..self.out.len() - 1;
        self.skip_whitespace();
        if self.peek() != Some(b':') {
            return Err(self.unexpected("`:`"));
        }
        self.copy_byte();
        self.skip_whitespace();

        let prefix = if escaped {
            prefix(&self.out[key.clone()])
        } else {
            prefix_in_text(&self.bytes[at + 1..], key.len())
        };
        if prefix == RESERVED_PREFIX
            && self.rules.refuses_reserved_keys
            && self.out[key.clone()].starts_with(RESERVED)
        {
            return Err(Fault::new(ErrorKind::ReservedKey(self.key_text(key)), at));
        }
        let before = self.members[first..].last();
        let order = before.map(|before| before.compare_key(prefix, &self.out[key.clone()], &self.out));
        if order == Some(Ordering::Equal) {
            return Err(self.duplicate(key, at));
        }
        let index = self.members.len();
        self.members.push(Member {
            key: key.clone(),
            end: first,
            at,
            prefix,
        });
        self.value().map_err(|fault| fault.inside(self.key_text(key)))?;
        self.members[index].end = self.out.len();
        Ok(order != Some(Ordering::Greater))
    }

    /// The keys of the members that are open, outermost first, escaped, where the last member is open. Nothing else is
    /// looked at: beside each of them there may be thousands that are closed.
    pub(super) fn open_keys(&self) -> Vec<&[u8]> {
        let mut keys = Vec::new();
        let mut open = self.members.last();
        while let Some(member) = open {
            keys.push(&self.out[member.key.clone()]);
            // INVARIANT: before the first member of an object stands the member that the object is in, and it is open.
            open = self.members[..member.end].last();
        }
        keys.reverse();
        keys
    }

    /// Puts the members from `first` on, which stand in the output from `start` to its end, in order, or notes that they are not.
    fn sort(&mut self, first: usize, start: usize) -> Step<()> {
        let Self {
            members,
            out,
            spare,
            ordered_left,
            deferred,
            ..
        } = self;
        let members = &mut members[first..];
        let compare = |a: &Member, b: &Member| a.compare_key(b.prefix, &out[b.key.clone()], out);
        // Equal keys keep the order of the input, so that the same one is always reported.
        members.sort_unstable_by(|a, b| compare(a, b).then(a.at.cmp(&b.at)));
        let mut pairs = members.windows(2);
        if let Some(pair) = pairs.find(|pair| compare(&pair[0], &pair[1]).is_eq()) {
            let (key, at) = (pair[1].key.clone(), pair[1].at);
            return Err(self.duplicate(key, at));
        }

        // The last comma makes place for the brace, which stands in the output already.
        let close = out.len() - 1;
        let Some(left) = ordered_left.checked_sub(out.len() - start) else {
            deferred.note(start..close, members.iter().map(Member::range));
            return Ok(());
        };
        *ordered_left = left;
        spare.clear();
        spare.reserve(out.len() - start);
        for member in &*members {
            spare.extend_from_slice(&out[member.range()]);
            spare.push(b',');
        }
        out[start..close].copy_from_slice(&spare[..spare.len() - 1]);
        Ok(())
    }

    fn duplicate(&self, key: Range<usize>, at: usize) -> Fault {
        Fault::new(ErrorKind::DuplicateKey(self.key_text(key)), at)
    }

    /// A key as its author meant it.
    #[cold]
    fn key_text(&self, key: Range<usize>) -> String {
        let quoted = &self.out[key.start - 1..=key.end];
        serde_json::from_slice(quoted).expect("a key in the output is a JSON string")
    }
}
