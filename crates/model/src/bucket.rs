//! The size of a token bucket. The tokens in it are counted where asks are admitted, not here.

use serde::{Deserialize, Serialize};

/// The largest capacity and refill, so that arithmetic on them is exact in 64 bits.
const AMOUNT_MAX: f64 = 1_000_000_000.0;
/// The slowest refill: a token in thirty years. What is slower counts as none, because products with it may be too
/// small for the arithmetic of a database.
const REFILL_MIN: f64 = 1e-9;

/// A token bucket: an ask takes one token, or as many as it was set to cost, and tokens come back at a steady rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Bucket {
    capacity: u32,
    refill_per_second: f64,
    cost: u32,
}

/// Why numbers are not a bucket.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum InvalidBucket {
    /// No ask would ever pass.
    #[error("`capacity` is a whole number from 1 to 1000000000")]
    Capacity,
    /// Negative, not a number or absurdly large.
    #[error("`refill_per_second` is a number from 0 to 1000000000")]
    Refill,
    /// No ask would cost anything, or more than there ever is.
    #[error("`cost` is a whole number from 1 to `capacity`")]
    Cost,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    capacity: u32,
    refill_per_second: f64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    cost: u32,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(cost: &u32) -> bool {
    *cost == 1
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
            refill_per_second: if refill_per_second < REFILL_MIN {
                0.0
            } else {
                refill_per_second
            },
            cost: 1,
        })
    }

    /// The bucket, with so many tokens for an ask.
    fn with_cost(self, cost: u32) -> Result<Self, InvalidBucket> {
        if (1..=self.capacity).contains(&cost) {
            Ok(Self { cost, ..self })
        } else {
            Err(InvalidBucket::Cost)
        }
    }

    /// How many tokens it holds when full.
    pub const fn capacity(self) -> u32 {
        self.capacity
    }

    /// How many tokens an ask takes.
    pub const fn cost(self) -> u32 {
        self.cost
    }

    /// How many tokens come back in a second.
    pub const fn refill_per_second(self) -> f64 {
        self.refill_per_second
    }
}

impl TryFrom<Unchecked> for Bucket {
    type Error = InvalidBucket;
    fn try_from(unchecked: Unchecked) -> Result<Self, InvalidBucket> {
        Self::new(unchecked.capacity, unchecked.refill_per_second)?.with_cost(unchecked.cost)
    }
}

impl From<Bucket> for Unchecked {
    fn from(bucket: Bucket) -> Self {
        Self {
            capacity: bucket.capacity,
            refill_per_second: bucket.refill_per_second,
            cost: bucket.cost,
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
        let bucket = Bucket::new(2, 0.0).unwrap();
        assert_eq!(bucket.with_cost(0), Err(InvalidBucket::Cost));
        assert_eq!(bucket.with_cost(3), Err(InvalidBucket::Cost));
        assert_eq!(bucket.with_cost(2).map(Bucket::cost), Ok(2));
    }

    #[test]
    fn a_refill_that_nobody_lives_to_see_is_none() {
        let refill = |per_second: f64| Bucket::new(1, per_second).unwrap().refill_per_second();
        let refills = [5e-324, 9e-10, 1e-9].map(refill);
        assert_eq!(refills.map(f64::to_bits), [0.0, 0.0, 1e-9].map(f64::to_bits));
    }

    #[test]
    fn json_is_checked_like_everything_else() {
        let parse = serde_json::from_str::<Bucket>;
        assert!(parse(r#"{"capacity":10,"refill_per_second":0.5}"#).is_ok());
        let costly = parse(r#"{"capacity":10,"refill_per_second":0.5,"cost":3}"#).unwrap();
        assert_eq!(costly.cost(), 3);
        assert_eq!(
            serde_json::to_string(&costly).unwrap(),
            r#"{"capacity":10,"refill_per_second":0.5,"cost":3}"#
        );
        assert!(parse(r#"{"capacity":0,"refill_per_second":1}"#).is_err());
        assert!(parse(r#"{"capacity":1,"refill_per_second":1,"burst":2}"#).is_err());
    }
}
