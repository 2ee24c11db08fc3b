//! A sorted run: which entries answered requests, in the order of their keys, cut into pages. It is written once, and
//! then only read, merged and forgotten from. Runs of agents, which have a table of that name, are something else.
//!
//! A page is the bytes of its [`Slot`]s, one after another. In memory a run is the first key of each page, and a
//! [`Filter`] unless that is in a file.

use super::filter::{Filter, FilterBuilder};
use std::io;
use std::ops::Range;

/// Slots a page: what fits into a page of SQLite of 4 KiB, or two of 2 KiB, with its row around it.
pub(crate) const PAGE_SLOTS: usize = 250;
/// The bytes of a slot: key and entry, the highest byte first.
const SLOT_BYTES: usize = 16;
/// Pages a run, as a power of two: the numbers of its pages are its own number with so many bits behind it.
const PAGE_BITS: u32 = 32;

/// That an entry answered the request with this key. Another request can have the same key; the entry's row says which it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    pub(crate) key: u64,
    pub(crate) entry: i64,
}

/// What memory knows of a run.
#[derive(Debug)]
pub(crate) struct SortedRun {
    pub(crate) number: i64,
    /// How often its slots were merged.
    pub(crate) level: i64,
    /// The first key of each page, as it was when it was read. What is forgotten leaves them where they are.
    first_keys: Vec<u64>,
    filter: Filter,
}

/// Bytes that no page has.
#[derive(Debug, thiserror::Error)]
#[error("page {page} of `request_pages` is {bytes} bytes, which are no whole slots")]
pub(crate) struct Torn {
    page: i64,
    bytes: usize,
}

/// The slots of a page.
pub(crate) fn slots(page: i64, bytes: &[u8]) -> Result<impl Iterator<Item = Slot>, Torn> {
    let (slots, rest) = bytes.as_chunks::<SLOT_BYTES>();
    if !rest.is_empty() {
        return Err(Torn {
            page,
            bytes: bytes.len(),
        });
    }
    Ok(slots.iter().map(|slot| Slot {
        key: u64::from_be_bytes(*slot.first_chunk().expect("a slot is eight bytes and eight")),
        entry: i64::from_be_bytes(*slot.last_chunk().expect("a slot is eight bytes and eight")),
    }))
}

/// The bytes of a page.
pub(crate) fn page(slots: impl IntoIterator<Item = Slot>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE_SLOTS * SLOT_BYTES);
    for slot in slots {
        bytes.extend_from_slice(&slot.key.to_be_bytes());
        bytes.extend_from_slice(&slot.entry.to_be_bytes());
    }
    bytes
}

impl SortedRun {
    /// The numbers of all its pages.
    pub(crate) fn pages(&self) -> Range<i64> {
        self.page(0)..self.page(self.first_keys.len())
    }

    /// The pages on which a key would stand, mostly one; none if it is certainly not here.
    pub(crate) fn pages_with(&self, key: u64) -> Range<i64> {
        if !self.filter.may_have(key) {
            return 0..0;
        }
        let end = self.first_keys.partition_point(|first| *first <= key);
        // The same key can stand at the end of a page and at the beginning of the next.
        let begin = self.first_keys.partition_point(|first| *first < key);
        self.page(begin.saturating_sub(1))..self.page(end)
    }

    /// The most slots that it can have.
    pub(crate) fn slots_max(&self) -> usize {
        self.first_keys.len() * PAGE_SLOTS
    }

    fn page(&self, place: usize) -> i64 {
        page_number(self.number, place)
    }
}

/// The number of the page at this place of a run.
pub(crate) fn page_number(run: i64, place: usize) -> i64 {
    run << PAGE_BITS | i64::from(u32::try_from(place).expect("a run has less than 2^32 pages"))
}

/// A run while it is written: slots go in, in order, and pages come out.
#[derive(Debug)]
pub(crate) struct Builder {
    number: i64,
    level: i64,
    first_keys: Vec<u64>,
    filter: FilterBuilder,
    /// The page that is being filled.
    page: Vec<Slot>,
    last: Option<Slot>,
    /// Pages that were read and have no first key yet.
    emptied: usize,
}

impl Builder {
    /// A run with room for so many slots, and this filter for them.
    pub(crate) fn new(number: i64, level: i64, slots: usize, filter: FilterBuilder) -> Self {
        Self {
            number,
            level,
            first_keys: Vec::with_capacity(slots.div_ceil(PAGE_SLOTS)),
            filter,
            page: Vec::with_capacity(PAGE_SLOTS),
            last: None,
            emptied: 0,
        }
    }

    /// Takes the next slot, and gives the page that is full with it. One that came before is left out.
    pub(crate) fn push(&mut self, slot: Slot) -> Option<Vec<u8>> {
        if self.last.replace(slot) == Some(slot) {
            return None;
        }
        if self.page.is_empty() {
            self.first_keys.push(slot.key);
        }
        self.filter.add(slot.key);
        self.page.push(slot);
        (self.page.len() == PAGE_SLOTS).then(|| self.take_page())
    }

    /// The run, and the page that was not full.
    pub(crate) fn finish(mut self) -> io::Result<(SortedRun, Option<Vec<u8>>)> {
        let rest = (!self.page.is_empty()).then(|| self.take_page());
        self.first_keys
            .extend(std::iter::repeat_n(u64::MAX, self.emptied));
        let run = SortedRun {
            number: self.number,
            level: self.level,
            first_keys: self.first_keys,
            filter: self.filter.finish()?,
        };
        Ok((run, rest))
    }

    /// Takes a page as it was read, which may have lost slots since it was written.
    pub(crate) fn read(&mut self, slots: impl Iterator<Item = Slot>) {
        self.emptied += 1;
        for slot in slots {
            // A page that has lost all its slots is as good as the beginning of the next.
            let unnamed = std::mem::take(&mut self.emptied);
            self.first_keys.extend(std::iter::repeat_n(slot.key, unnamed));
            self.filter.add(slot.key);
        }
    }

    fn take_page(&mut self) -> Vec<u8> {
        page(self.page.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(key: u64, entry: i64) -> Slot {
        Slot { key, entry }
    }

    fn builder(slots: usize) -> Builder {
        Builder::new(7, 0, slots, FilterBuilder::in_memory(slots))
    }

    fn built(slots: &[Slot]) -> (SortedRun, Vec<Vec<u8>>) {
        let mut builder = builder(slots.len());
        let mut pages: Vec<_> = slots.iter().filter_map(|slot| builder.push(*slot)).collect();
        let (run, rest) = builder.finish().unwrap();
        pages.extend(rest);
        (run, pages)
    }

    fn found(run: &SortedRun, pages: &[Vec<u8>], key: u64) -> Vec<i64> {
        let first = run.pages().start;
        let on_page = |page: i64| {
            let bytes = &pages[usize::try_from(page - first).unwrap()];
            let slots = slots(page, bytes).unwrap().filter(|slot| slot.key == key);
            slots.map(|slot| slot.entry).collect::<Vec<_>>()
        };
        run.pages_with(key).flat_map(on_page).collect()
    }

    #[test]
    fn every_slot_is_found_and_nothing_else() {
        let slots: Vec<_> = (1..2_000).map(|number| slot(3 * number, 7)).collect();
        let (run, pages) = built(&slots);
        assert_eq!(pages.len(), slots.len().div_ceil(PAGE_SLOTS));
        assert_eq!(run.pages(), 7 << 32..(7 << 32) + 8);
        for key in 0..6_010 {
            let expected: Vec<_> = slots
                .iter()
                .filter(|slot| slot.key == key)
                .map(|slot| slot.entry)
                .collect();
            assert_eq!(found(&run, &pages, key), expected, "{key}");
        }
    }

    #[test]
    fn one_key_can_run_over_several_pages() {
        let same = (0..600).map(|entry| slot(5, entry));
        let slots: Vec<_> = [slot(4, 1)].into_iter().chain(same).chain([slot(6, 1)]).collect();
        let (run, pages) = built(&slots);
        assert_eq!(found(&run, &pages, 5), (0..600).collect::<Vec<_>>());
        assert_eq!(found(&run, &pages, 4), [1]);
        assert_eq!(found(&run, &pages, 6), [1]);
    }

    #[test]
    fn a_slot_that_came_twice_is_there_once() {
        let (run, pages) = built(&[slot(1, 1), slot(1, 1), slot(1, 2)]);
        assert_eq!(found(&run, &pages, 1), [1, 2]);
    }

    #[test]
    fn the_ends_of_all_numbers_are_keys_and_entries_too() {
        let slots = [slot(0, i64::MIN), slot(u64::MAX, -1), slot(u64::MAX, i64::MAX)];
        let (run, pages) = built(&slots);
        assert_eq!(found(&run, &pages, 0), [i64::MIN]);
        assert_eq!(found(&run, &pages, u64::MAX), [-1, i64::MAX]);
    }

    #[test]
    fn a_run_that_is_read_again_finds_the_same_also_after_pages_were_emptied() {
        let slots: Vec<_> = (0..1_000).map(|number| slot(number, 1)).collect();
        let (_, mut pages) = built(&slots);
        pages[1].clear();
        pages[2].drain(..SLOT_BYTES * 100);
        let mut builder = builder(slots.len());
        for bytes in &pages {
            builder.read(super::slots(0, bytes).unwrap());
        }
        let (run, rest) = builder.finish().unwrap();
        assert_eq!(rest, None);
        for key in 0..1_000 {
            let is_left = !(250..600).contains(&key);
            assert_eq!(found(&run, &pages, key).len(), usize::from(is_left), "{key}");
        }
    }

    #[test]
    fn a_page_that_was_torn_is_named() {
        let error = slots(9, &[0; 17]).err().unwrap().to_string();
        assert_eq!(
            error,
            "page 9 of `request_pages` is 17 bytes, which are no whole slots"
        );
    }
}
