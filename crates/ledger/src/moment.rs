//! A point in time as the ledger writes it. Which time it is, others say: there is no clock here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `2026-07-01T12:00:00.000Z`, with `0` for each digit.
const LAYOUT: &[u8; 24] = b"0000-00-00T00:00:00.000Z";

/// RFC 3339, UTC, with milliseconds: always in this one layout, so that the order of texts is that of times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment([u8; LAYOUT.len()]);

/// A text that is not a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a time is written like `2026-07-01T12:00:00.000Z`")]
pub struct MalformedMoment;

impl Moment {
    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a moment is ASCII")
    }
}

impl FromStr for Moment {
    type Err = MalformedMoment;

    fn from_str(text: &str) -> Result<Self, MalformedMoment> {
        let bytes: [u8; LAYOUT.len()] = text.as_bytes().try_into().map_err(|_| MalformedMoment)?;
        let fits = bytes.iter().zip(LAYOUT).all(|(byte, layout)| match layout {
            b'0' => byte.is_ascii_digit(),
            _ => byte == layout,
        });
        let pair = |at: usize| (bytes[at] & 15) * 10 + (bytes[at + 1] & 15);
        let is_a_time = fits
            && (1..=12).contains(&pair(5))
            && (1..=31).contains(&pair(8))
            && pair(11) < 24
            && pair(14) < 60
            && pair(17) < 60;
        is_a_time.then_some(Self(bytes)).ok_or(MalformedMoment)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{MalformedMoment, Moment};

    #[test]
    fn moments_have_one_layout_and_are_in_order() {
        let parse = str::parse::<Moment>;
        let first = parse("2026-07-01T12:00:00.999Z").unwrap();
        let second = parse("2026-07-01T12:00:01.000Z").unwrap();
        assert!(first < second);
        assert_eq!(first.to_string(), "2026-07-01T12:00:00.999Z");
        let json = serde_json::to_string(&first).unwrap();
        assert_eq!(json, "\"2026-07-01T12:00:00.999Z\"");
        assert_eq!(serde_json::from_str::<Moment>(&json).unwrap(), first);
        for text in [
            "",
            "2026-07-01T12:00:00Z",
            "2026-07-01T12:00:00.000+00:00",
            "2026-07-01 12:00:00.000Z",
            "2026-07-01t12:00:00.000z",
            "2026-13-01T12:00:00.000Z",
            "2026-00-01T12:00:00.000Z",
            "2026-07-00T12:00:00.000Z",
            "2026-07-32T12:00:00.000Z",
            "2026-07-01T24:00:00.000Z",
            "2026-07-01T12:60:00.000Z",
            "2026-07-01T12:00:60.000Z",
            "202é-07-01T12:00:00.000Z",
        ] {
            assert_eq!(parse(text), Err(MalformedMoment), "{text}");
        }
    }
}
