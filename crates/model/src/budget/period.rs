//! Periods of budgets: windows of the calendar in UTC.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// 1970-01-01 was a Thursday; weeks begin on Monday (ISO 8601).
const FIRST_MONDAY_MS: i64 = 4 * DAY_MS;

/// How often a budget begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// At every full hour.
    Hour,
    /// At midnight.
    Day,
    /// At midnight before Monday.
    Week,
    /// At midnight before the first of a month.
    Month,
}

impl Period {
    /// When the window began that `now` is in.
    pub fn start(self, now: Timestamp) -> Timestamp {
        let millis = now.millis();
        let floor = |window: i64, offset: i64| millis - (millis - offset).rem_euclid(window);
        Timestamp::from_millis(match self {
            Self::Hour => floor(HOUR_MS, 0),
            Self::Day => floor(DAY_MS, 0),
            Self::Week => floor(7 * DAY_MS, FIRST_MONDAY_MS),
            Self::Month => floor(DAY_MS, 0) - (now.day_of_month() - 1) * DAY_MS,
        })
    }

    /// How many windows begin after the one that `earlier` is in, up to the one that `now` is in.
    pub(crate) fn begun_between(self, earlier: Timestamp, now: Timestamp) -> i64 {
        self.number(now) - self.number(earlier)
    }

    /// The number of the window that `now` is in: that of the next window is one more.
    fn number(self, now: Timestamp) -> i64 {
        let millis = now.millis();
        match self {
            Self::Hour => millis.div_euclid(HOUR_MS),
            Self::Day => millis.div_euclid(DAY_MS),
            Self::Week => (millis - FIRST_MONDAY_MS).div_euclid(7 * DAY_MS),
            Self::Month => now.month_number(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(period: Period, now: &str) -> String {
        period.start(now.parse().unwrap()).to_string()
    }

    #[test]
    fn windows_are_those_of_the_calendar_in_utc() {
        let now = "2024-02-29T12:34:56.789Z";
        assert_eq!(start(Period::Hour, now), "2024-02-29T12:00:00.000Z");
        assert_eq!(start(Period::Day, now), "2024-02-29T00:00:00.000Z");
        assert_eq!(start(Period::Week, now), "2024-02-26T00:00:00.000Z");
        assert_eq!(start(Period::Month, now), "2024-02-01T00:00:00.000Z");
        assert_eq!(
            start(Period::Month, "2024-03-01T00:00:00.000Z"),
            "2024-03-01T00:00:00.000Z"
        );
        assert_eq!(
            start(Period::Week, "1970-01-04T23:59:59.999Z"),
            "1969-12-29T00:00:00.000Z"
        );
    }

    #[test]
    fn windows_are_counted_over_years() {
        let begun = |period: Period, [earlier, now]: [&str; 2]| {
            period.begun_between(earlier.parse().unwrap(), now.parse().unwrap())
        };
        let around_new_year = ["2023-12-31T23:59:59.999Z", "2024-01-01T00:00:00.000Z"];
        let leap_year = ["2024-01-01T00:00:00.000Z", "2025-01-01T00:00:00.000Z"];
        for (period, in_leap_year) in [
            (Period::Hour, 366 * 24),
            (Period::Day, 366),
            (Period::Week, 52),
            (Period::Month, 12),
        ] {
            assert_eq!(begun(period, around_new_year), 1, "{period:?}");
            assert_eq!(begun(period, leap_year), in_leap_year, "{period:?}");
        }
        let one_day = ["2024-02-01T00:00:00.000Z", "2024-02-01T23:59:59.999Z"];
        assert_eq!(begun(Period::Month, one_day), 0);
        let around_epoch = ["1969-12-28T23:59:59.999Z", "1970-01-05T00:00:00.000Z"];
        assert_eq!(begun(Period::Week, around_epoch), 2);
    }
}
