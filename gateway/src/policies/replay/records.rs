//! The records that a thread of a replay has at hand.
//!
//! One may have 64 KiB and more, and a page of decisions may name thousands of them. So they are read a few at a time,
//! for as many decisions as take no more than that, and those are judged before others are read.

use canon::Digest;
use engine::facts::Record;
use model::directory::VALUE_BYTES;
use std::collections::{BTreeSet, HashMap};

/// How many are read at once, at most: some megabytes where all of them are as large as can be.
pub(super) const AT_ONCE: usize = 64;
/// With how many no others are read before these are forgotten.
const RECORDS_MAX: usize = 20_000;
/// With how many bytes. They are those of ten thousand ordinary agents without attributes.
const BYTES_MAX: usize = 4 << 20;

/// The records that were read lately.
#[derive(Default)]
pub(super) struct Records {
    /// `None` for what is not there or cannot be read.
    read: HashMap<Digest, Option<Record>>,
    /// How long they are together, and what those that are kept as values take beyond that.
    bytes: usize,
}

/// The decisions that are judged next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// How many they are: one at least.
    pub(super) decisions: usize,
    /// The records that have to be read before: as many as are read at once, and more only if one decision needs more.
    pub(super) missing: Vec<Digest>,
}

impl Records {
    /// The record with this digest, if it is at hand.
    pub(super) fn get(&self, digest: &Digest) -> Option<&Record> {
        self.read.get(digest)?.as_ref()
    }

    /// How many of these decisions are judged next, given the digests of each of them. All records are forgotten where
    /// others have to be read and there are too many.
    pub(super) fn next_part<D: Iterator<Item = Digest>>(
        &mut self,
        decisions: impl Iterator<Item = D> + Clone,
    ) -> Part {
        let part = self.part(decisions.clone());
        let is_full = self.read.len() >= RECORDS_MAX || self.bytes >= BYTES_MAX;
        if part.missing.is_empty() || !is_full {
            return part;
        }
        self.read.clear();
        self.bytes = 0;
        self.part(decisions)
    }

    /// The first of these decisions, with what is missing for them.
    fn part<D: Iterator<Item = Digest>>(&self, decisions: impl Iterator<Item = D>) -> Part {
        let mut missing = BTreeSet::new();
        let mut count = 0;
        for digests in decisions {
            let new = digests.filter(|digest| !self.read.contains_key(digest) && !missing.contains(digest));
            let new: Vec<_> = new.collect();
            if count > 0 && missing.len() + new.len() > AT_ONCE {
                break;
            }
            missing.extend(new);
            count += 1;
        }
        Part {
            decisions: count,
            missing: missing.into_iter().collect(),
        }
    }

    /// Takes in what was found of those that were missing.
    pub(super) fn put(&mut self, missing: &[Digest], found: Vec<(Digest, Vec<u8>)>) {
        self.read.extend(missing.iter().map(|digest| (*digest, None)));
        // What stands under a digest that is not its own is another noun than the one that was looked at.
        let is_itself = |(digest, bytes): &(Digest, Vec<u8>)| Digest::of(bytes) == *digest;
        for (digest, bytes) in found.into_iter().filter(is_itself) {
            let length = bytes.len();
            let record = Record::read(bytes);
            let values = record.as_ref().map_or(0, Record::values);
            self.bytes += length + VALUE_BYTES * values;
            self.read.insert(digest, record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As long as a schema may be.
    const LARGE: usize = 64 << 10;

    /// A record of an action with a schema of so many bytes and a few more.
    fn record(number: usize, bytes: usize) -> (Digest, Vec<u8>) {
        let schema = json!({"description": "x".repeat(bytes)});
        let record = json!({"type": "countersign.tool_action/1", "tool": "bulk", "action": format!("a{number}"),
            "mutates_state": false, "risk": "low", "input_schema": schema});
        let text = record.to_string().into_bytes();
        (Digest::of(&text), text)
    }

    /// Goes through decisions with these digests as a thread does. Says how many records were read.
    fn go_through(
        records: &mut Records,
        stored: &HashMap<Digest, Vec<u8>>,
        decisions: &[Vec<Digest>],
    ) -> usize {
        let (mut rest, mut read) = (decisions, 0);
        while !rest.is_empty() {
            let part = records.next_part(rest.iter().map(|digests| digests.iter().copied()));
            assert!(part.missing.len() <= AT_ONCE || part.decisions == 1);
            read += part.missing.len();
            let found = part
                .missing
                .iter()
                .map(|digest| (*digest, stored[digest].clone()));
            let found: Vec<_> = found.collect();
            records.put(&part.missing, found);
            let at_hand = records.read.keys().map(|digest| stored[digest].len());
            assert_eq!(records.bytes, at_hand.sum::<usize>());
            assert!(records.bytes < BYTES_MAX + AT_ONCE * (LARGE + 1_000));
            let (judged, later) = rest.split_at(part.decisions);
            assert!(
                judged
                    .iter()
                    .flatten()
                    .all(|digest| records.get(digest).is_some())
            );
            rest = later;
        }
        read
    }

    #[test]
    fn of_large_records_no_more_are_kept_than_there_is_room_for_and_the_others_are_read_again() {
        let stored: HashMap<_, _> = (0..200).map(|number| record(number, LARGE)).collect();
        let agent = record(200, 10);
        let decisions: Vec<_> = stored.keys().map(|digest| vec![*digest, agent.0]).collect();
        let stored: HashMap<_, _> = stored.into_iter().chain([agent]).collect();
        let mut records = Records::default();
        // The agent is forgotten with the others, and read again with those that come then.
        assert!(go_through(&mut records, &stored, &decisions) > stored.len());
        assert!(go_through(&mut records, &stored, &decisions) > stored.len() / 2);
        // What is at hand is not forgotten, however much it is, as long as nothing else has to be read.
        let at_hand = |digests: &&Vec<Digest>| digests.iter().all(|digest| records.get(digest).is_some());
        let last: Vec<_> = decisions.iter().filter(at_hand).cloned().collect();
        assert_eq!(go_through(&mut records, &stored, &last), 0);
    }

    #[test]
    fn small_records_are_read_once_and_a_decision_that_needs_many_stands_alone() {
        let stored: HashMap<_, _> = (0..400).map(|number| record(number, 10)).collect();
        let digests: Vec<_> = stored.keys().copied().collect();
        let many = AT_ONCE * 2;
        let mut decisions = vec![digests[..many].to_vec()];
        decisions.extend(digests.iter().map(|digest| vec![*digest]));
        let mut records = Records::default();
        let first = records.next_part(decisions.iter().map(|digests| digests.iter().copied()));
        assert_eq!((first.decisions, first.missing.len()), (1, many));
        assert_eq!(go_through(&mut records, &stored, &decisions), stored.len());
        assert_eq!(go_through(&mut records, &stored, &decisions), 0);
    }

    #[test]
    fn attributes_and_teams_count_for_more_than_their_text() {
        let (team, user) = ("countersign.team/1", "countersign.user/1");
        for (record, values) in [
            (json!({"type": team, "name": "a"}), 0),
            (
                json!({"type": team, "name": "a", "attributes": {"tier": "gold", "level": 3}}),
                2,
            ),
            (
                json!({"type": user, "name": "ada", "teams": ["a", "b"], "attributes": {"level": 3}}),
                3,
            ),
        ] {
            let text = record.to_string().into_bytes();
            let (digest, length) = (Digest::of(&text), text.len());
            let mut records = Records::default();
            records.put(&[digest], vec![(digest, text)]);
            assert!(records.get(&digest).is_some());
            assert_eq!(records.bytes, length + values * VALUE_BYTES);
        }
    }

    #[test]
    fn what_is_not_there_or_not_itself_is_looked_for_once() {
        let (one, other) = (record(0, 10), record(1, 10));
        let missing = [one.0, other.0];
        let mut records = Records::default();
        records.put(&missing, vec![(one.0, other.1)]);
        assert!(missing.iter().all(|digest| records.get(digest).is_none()));
        let part = records.next_part([missing].into_iter().map(IntoIterator::into_iter));
        let nothing_missing = Part {
            decisions: 1,
            missing: Vec::new(),
        };
        assert_eq!((part, records.bytes), (nothing_missing, 0));
    }
}
