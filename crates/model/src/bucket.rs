//! The size of a token bucket. The tokens in it are counted where asks are admitted, not here.

use serde::{Deserialize, Serialize};

/// The largest capacity and refill, so that arithmetic on them is exact in 64 bits.
const AMOUNT_MAX: f64 = 1_000_000_000.0;

/// A token bucket: an ask takes one token, and tokens come back at a steady rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Bucket {
    capacity: u32,
    refill_per_second: f64,
}

/// Why two numbers are not a bucket.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum InvalidBucket {
    /// No ask would ever pass.
    #[error("`capacity` is a whole number from 1 to 1000000000")]
    Capacity,
    /// Negative, not a number or absurdly large.
    #[error("`refill_per_second` is a number from 0 to 1000000000")]
    Refill,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    capacity: u32,
    refill_per_second: f64,
}

impl Bucket {
    /// A bucket that holds `capacity` tokens and refills at this rate.
    pub fn new(capacity: u32, refill_per_second: f64) -> Result<Self, InvalidBucket> {
        if capacity == 0 || f64::from(capacity) > AMOUNT_MAX {
            return Err(InvalidBucket::Capacity);
        }
        if !(0.0..=AMOUNT_MAX).contains(&refill_per_second) {
            return Err(InvalidBucket::Refill);
        }
        Ok(Self {
            capacity,
            refill_per_second,
        })
    }

    /// How many tokens it holds when full.
    pub const fn capacity(self) -> u32 {
        self.capacity
    }

    /// How many tokens come back in a second.
    pub const fn refill_per_second(self) -> f64 {
        self.refill_per_second
    }
}

impl TryFrom<Unchecked> for Bucket {
    type Error = InvalidBucket;
    fn try_from(unchecked: Unchecked) -> Result<Self, InvalidBucket> {
        Self::new(unchecked.capacity, unchecked.refill_per_second)
    }
}

impl From<Bucket> for Unchecked {
    fn from(bucket: Bucket) -> Self {
        Self {
            capacity: bucket.capacity,
            refill_per_second: bucket.refill_per_second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_could_never_admit_or_never_end_is_refused() {
        assert_eq!(Bucket::new(0, 1.0), Err(InvalidBucket::Capacity));
        assert_eq!(Bucket::new(u32::MAX, 1.0), Err(InvalidBucket::Capacity));
        for refill in [-1.0, f64::NAN, f64::INFINITY, 2e9] {
            assert_eq!(Bucket::new(1, refill), Err(InvalidBucket::Refill), "{refill}");
        }
        assert!(Bucket::new(1, 0.0).is_ok());
    }

    #[test]
    fn json_is_checked_like_everything_else() {
        let parse = serde_json::from_str::<Bucket>;
        assert!(parse(r#"{"capacity":10,"refill_per_second":0.5}"#).is_ok());
        assert!(parse(r#"{"capacity":0,"refill_per_second":1}"#).is_err());
        assert!(parse(r#"{"capacity":1,"refill_per_second":1,"burst":2}"#).is_err());
    }
}
