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
}
