//! Amounts and their units: whole numbers that JSON keeps exact, and never a fraction.
//!
//! An amount has no unit of its own; whatever holds one says in which unit. Sums that leave the range are errors, so nothing
//! wraps or rounds, and nothing saturates but where that is asked for.

use std::fmt;
use std::sync::Arc;

/// The largest amount: beyond 2^53 − 1 canonical JSON rounds, and what is held would not be what was asked.
pub const AMOUNT_MAX: i64 = (1 << 53) - 1;
/// The longest name of a unit, in bytes.
pub const UNIT_BYTES_MAX: usize = 64;

/// A whole number from 0 to [`AMOUNT_MAX`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "i64", into = "i64")]
pub struct Amount(i64);

/// A number that is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("should be from 0 to {AMOUNT_MAX}, the largest whole number that JSON keeps exact")]
pub struct InvalidAmount;

/// A sum beyond [`AMOUNT_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the sum would be more than {AMOUNT_MAX}, the largest whole number that JSON keeps exact")]
pub struct AmountOverflow;

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest.
    pub const MAX: Self = Self(AMOUNT_MAX);

    /// The amount of this number.
    pub const fn new(number: i64) -> Result<Self, InvalidAmount> {
        if 0 <= number && number <= AMOUNT_MAX {
            Ok(Self(number))
        } else {
            Err(InvalidAmount)
        }
    }

    /// The number.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Result<Self, AmountOverflow> {
        // Neither is more than 2^53 − 1, so the sum of two cannot leave 64 bits.
        Self::new(self.0 + other.0).map_err(|_| AmountOverflow)
    }

    /// The sum, or the largest amount where it would be more.
    #[must_use]
    pub(crate) fn plus_or_max(self, other: Self) -> Self {
        self.plus(other).unwrap_or(Self::MAX)
    }

    /// What is left when `other` is taken away; none if that is more than there is.
    pub fn minus(self, other: Self) -> Option<Self> {
        Self::new(self.0 - other.0).ok()
    }

    /// The difference, or zero where `other` is more.
    #[must_use]
    pub fn minus_or_zero(self, other: Self) -> Self {
        self.minus(other).unwrap_or_default()
    }

    /// A number brought into the range.
    #[must_use]
    pub fn clamped(number: i64) -> Self {
        Self(number.clamp(0, AMOUNT_MAX))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<i64> for Amount {
    type Error = InvalidAmount;
    fn try_from(number: i64) -> Result<Self, InvalidAmount> {
        Self::new(number)
    }
}

impl From<Amount> for i64 {
    fn from(amount: Amount) -> Self {
        amount.0
    }
}

/// What amounts are counted in: `USD_MICROCENTS`, `TOKENS`, `CREDITS`, `RISK_POINTS` or a tenant's own. Units are compared byte
/// for byte and never converted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit(Arc<str>);

/// A text that is no unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("should have 1 to {UNIT_BYTES_MAX} bytes and no control characters")]
pub struct InvalidUnit;

impl Unit {
    /// The unit with this name.
    pub fn new(text: &str) -> Result<Self, InvalidUnit> {
        if (1..=UNIT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control) {
            Ok(Self(Arc::from(text)))
        } else {
            Err(InvalidUnit)
        }
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for Unit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Unit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

/// An amount in a unit.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// How much.
    pub amount: Amount,
    /// In which unit, such as `USD_MICROCENTS`.
    pub unit: Unit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_whole_not_negative_and_exact_in_json() {
        for text in [
            "-1",
            "1.5",
            "9007199254740992",
            "9223372036854775808",
            "\"1\"",
            "null",
        ] {
            assert!(serde_json::from_str::<Amount>(text).is_err(), "{text}");
        }
        for text in ["0", "250000", "9007199254740991"] {
            let amount: Amount = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&amount).unwrap(), text);
        }
    }

    #[test]
    fn sums_that_leave_the_range_are_errors() {
        assert_eq!(Amount::MAX.plus(Amount(1)), Err(AmountOverflow));
        assert_eq!(Amount::MAX.plus(Amount::MAX), Err(AmountOverflow));
        assert_eq!(Amount::MAX.plus_or_max(Amount(1)), Amount::MAX);
        assert_eq!(Amount(2).plus_or_max(Amount(3)), Amount(5));
        assert_eq!(Amount(2).minus(Amount(3)), None);
        assert_eq!(Amount(2).minus_or_zero(Amount(3)), Amount::ZERO);
        assert_eq!(Amount(2).plus(Amount(3)), Ok(Amount(5)));
    }

    #[test]
    fn a_unit_is_short_and_can_be_printed() {
        assert!(Unit::new("USD_MICROCENTS").is_ok());
        for text in ["", "a\nb", &"x".repeat(65)] {
            assert_eq!(Unit::new(text), Err(InvalidUnit));
        }
    }
}
