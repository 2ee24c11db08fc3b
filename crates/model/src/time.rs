//! Time: a point in UTC with millisecond precision, and the clock it comes from.
//!
//! It knows RFC 3339, months, and nothing of calendars beyond that.

use std::fmt;

const DAY_MILLIS: i64 = 86_400_000;

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// Why a text is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an RFC 3339 time between the years 0000 and 9999, such as `2026-01-31T09:30:00.000Z`")]
pub struct InvalidTime(String);

impl Timestamp {
    /// This many milliseconds after the epoch. Times outside the years 0 to 9999 are brought to that range, because
    /// RFC 3339 can write no others.
    pub const fn from_millis(millis: i64) -> Self {
        const FIRST: i64 = -62_167_219_200_000;
        const LAST: i64 = 253_402_300_799_999;
        if millis < FIRST {
            Self(FIRST)
        } else if millis > LAST {
            Self(LAST)
        } else {
            Self(millis)
        }
    }

    /// Milliseconds after the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The day of the month in UTC, from 1.
    pub(crate) fn day_of_month(self) -> i64 {
        let (_, _, day) = date_of(self.0.div_euclid(86_400_000));
        day
    }

    /// The number of its month in UTC: that of the next month is one more.
    pub(crate) fn month_number(self) -> i64 {
        let (year, month, _) = date_of(self.0.div_euclid(DAY_MILLIS));
        year * 12 + month
    }

    /// This point, later by so many milliseconds.
    #[must_use]
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self::from_millis(self.0.saturating_add(millis))
    }

    /// Where the month of the calendar that holds this point begins, and where the next one does, in UTC.
    pub fn month(self) -> (Self, Self) {
        let days = self.0.div_euclid(DAY_MILLIS);
        let (year, month, day) = date_of(days);
        let first = days - (day - 1);
        let start_of = |days: i64| Self::from_millis(days * DAY_MILLIS);
        (start_of(first), start_of(first + days_in(year, month)))
    }
}

/// How many days a month has.
const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since the epoch as a date of the proleptic Gregorian calendar: year, month, day.
fn date_of(days: i64) -> (i64, i64, i64) {
    // The calendar in eras of 400 years (146,097 days) that begin on the first of March of year 0.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// `2026-01-31T09:30:00.000Z`: always UTC, always milliseconds, always 24 bytes.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0.div_euclid(DAY_MILLIS));
        let in_day = self.0.rem_euclid(DAY_MILLIS);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let mut put = |at: usize, width: usize, mut value: i64| {
            for place in (at..at + width).rev() {
                text[place] = b'0' + u8::try_from(value % 10).unwrap_or(0);
                value /= 10;
            }
        };
        put(0, 4, year);
        put(5, 2, month);
        put(8, 2, day);
        put(11, 2, in_day / 3_600_000);
        put(14, 2, in_day / 60_000 % 60);
        put(17, 2, in_day / 1_000 % 60);
        put(20, 3, in_day % 1_000);
        f.write_str(std::str::from_utf8(&text).expect("digits and punctuation are ASCII"))
    }
}

impl std::str::FromStr for Timestamp {
    type Err = InvalidTime;
    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let invalid = || InvalidTime(text.chars().take(64).collect());
        let parsed = chrono::DateTime::parse_from_rfc3339(text).map_err(|_| invalid())?;
        let millis = parsed.timestamp_millis();
        if Self::from_millis(millis).0 == millis {
            Ok(Self(millis))
        } else {
            Err(invalid())
        }
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one place that reads the clock"
        )]
        let now = std::time::SystemTime::now();
        let since_epoch = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A clock that stands until it is told to move: for tests and simulations.
#[derive(Debug)]
pub struct ManualClock(std::sync::atomic::AtomicI64);

impl ManualClock {
    /// A clock that shows this time.
    pub const fn at(now: Timestamp) -> Self {
        Self(std::sync::atomic::AtomicI64::new(now.millis()))
    }

    /// Moves the clock on.
    pub fn advance_millis(&self, millis: i64) {
        self.0.fetch_add(millis, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_827_696_789, "2000-02-29T12:34:56.789Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (-62_167_219_200_000, "0000-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp::from_millis(millis)));
        }
    }

    #[test]
    fn every_day_of_four_centuries_agrees_with_the_calendar_of_chrono() {
        for day in -146_097..146_097 {
            let ours = Timestamp::from_millis(day * 86_400_000).to_string();
            let theirs = chrono::DateTime::from_timestamp_millis(day * 86_400_000).unwrap();
            assert_eq!(ours, theirs.to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
        }
    }

    #[test]
    fn months_follow_each_other_for_four_centuries() {
        let mut at = Timestamp::from_millis(-146_097 / 2 * DAY_MILLIS).month().0;
        for _ in 0..4_800 {
            let (start, end) = at.month();
            assert_eq!(start, at);
            assert_eq!(end.plus_millis(-1).month(), (start, end));
            assert_eq!(&end.to_string()[8..], "01T00:00:00.000Z");
            at = end;
        }
    }

    #[test]
    fn an_offset_is_turned_into_utc() {
        let time: Timestamp = "2026-01-31T10:30:00.5+01:00".parse().unwrap();
        assert_eq!(time.to_string(), "2026-01-31T09:30:00.500Z");
    }

    #[test]
    fn a_text_that_is_no_time_is_named_in_the_error() {
        let error = "tomorrow".parse::<Timestamp>().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("`tomorrow` is not an RFC 3339 time")
        );
    }

    #[test]
    fn a_time_beyond_what_can_be_written_stops_at_the_last_one() {
        assert_eq!(
            Timestamp::from_millis(i64::MAX).plus_millis(1).to_string(),
            "9999-12-31T23:59:59.999Z"
        );
    }
}
