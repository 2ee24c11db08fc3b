//! Objects: members are written as they come, and put in order when the object closes if they were not. A member
//! knows where it stands in the output; nothing is parsed twice.

use std::cmp::Ordering;
use std::ops::Range;

use super::{Scanner, Step};
use crate::ErrorKind;
use crate::error::Fault;
use crate::order::{compare_prefixed, prefix};

/// A member of an object that is still open.
pub(super) struct Member {
    /// The key in the output, escaped, without its quotes.
    key: Range<usize>,
    /// Where the member ends in the output.
    end: usize,
    /// Where the key begins in the input.
    at: usize,
    /// The start of the key, if that can be compared as a number.
    prefix: Option<u64>,
}

impl Member {
    /// The member in the output, quotes of the key included.
    fn range(&self) -> Range<usize> {
        self.key.start - 1..self.end
    }

    fn compare_key<'o>(&'o self, other: &'o Self, out: &'o [u8]) -> Ordering {
        let key = |member: &'o Self| (member.prefix, &out[member.key.clone()]);
        compare_prefixed(key(self), key(other))
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

        let prefix = prefix(&self.out[key.clone()], escaped);
        let member = Member {
            key,
            end: 0,
            at,
            prefix,
        };
        let order = self.members[first..]
            .last()
            .map(|before| before.compare_key(&member, &self.out));
        if order == Some(Ordering::Equal) {
            return Err(self.duplicate(&member));
        }
        let key = member.key.clone();
        let index = self.members.len();
        self.members.push(member);
        self.value().map_err(|fault| fault.inside(self.key_text(key)))?;
        self.members[index].end = self.out.len();
        Ok(order != Some(Ordering::Greater))
    }

    /// Puts the members from `first` on, which stand in the output from `start` to its end, in order.
    fn sort(&mut self, first: usize, start: usize) -> Step<()> {
        let Self {
            members, out, spare, ..
        } = self;
        let members = &mut members[first..];
        // Equal keys keep the order of the input, so that the same one is always reported.
        members.sort_unstable_by(|a, b| a.compare_key(b, out).then(a.at.cmp(&b.at)));
        let equal = members
            .windows(2)
            .position(|pair| pair[0].compare_key(&pair[1], out).is_eq());

        spare.clear();
        spare.reserve(out.len() - start);
        for member in &*members {
            spare.extend_from_slice(&out[member.range()]);
            spare.push(b',');
        }
        if let Some(index) = equal {
            let again = self.members.swap_remove(first + index + 1);
            return Err(self.duplicate(&again));
        }
        // The last comma makes place for the brace, which stands in the output already.
        let close = out.len() - 1;
        out[start..close].copy_from_slice(&spare[..spare.len() - 1]);
        Ok(())
    }

    fn duplicate(&self, member: &Member) -> Fault {
        Fault::new(
            ErrorKind::DuplicateKey(self.key_text(member.key.clone())),
            member.at,
        )
    }

    /// A key as its author meant it.
    #[cold]
    fn key_text(&self, key: Range<usize>) -> String {
        let quoted = &self.out[key.start - 1..=key.end];
        serde_json::from_slice(quoted).expect("a key in the output is a JSON string")
    }
}
