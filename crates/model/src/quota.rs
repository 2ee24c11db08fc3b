//! Limits on how often agents are allowed to act: what was set, and how much of it is used.
//!
//! A token bucket limits the rate of asks and is counted in memory. A quota limits how many calls are *allowed* in a minute, an
//! hour, a day or a month of the calendar (UTC), or in a run; it is counted in the commit of the decision, exactly.

use crate::bucket::Bucket;
use crate::name::SlashFreeName;
use crate::time::Timestamp;
use crate::tool::Risk;
use canon::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most quotas that one agent, team or tenant may have: each that covers an ask is a row in its commit.
pub const QUOTAS_MAX: usize = 16;
/// The most tools that one agent or tenant may have buckets for.
pub const TOOL_BUCKETS_MAX: usize = 256;
/// The largest limit of a quota.
const LIMIT_MAX: u64 = 1_000_000_000_000;

/// What is counted from when to when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// From second 0 to second 0.
    Minute,
    /// From minute 0 to minute 0.
    Hour,
    /// From midnight to midnight, UTC.
    Day,
    /// From the first of a month to the first of the next, UTC.
    Month,
    /// As long as a run lasts: it does not begin anew.
    Run,
}

impl Window {
    /// Every window, the shortest first.
    pub const ALL: [Self; 5] = [Self::Minute, Self::Hour, Self::Day, Self::Month, Self::Run];

    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
            Self::Run => "run",
        }
    }

    /// Where the window that holds this time begins, and where the next one does; of a run there is no next one.
    pub fn around(self, now: Timestamp) -> (Timestamp, Option<Timestamp>) {
        let every = |millis: i64| {
            let start = now.millis().div_euclid(millis) * millis;
            (
                Timestamp::from_millis(start),
                Some(Timestamp::from_millis(start + millis)),
            )
        };
        match self {
            Self::Minute => every(60_000),
            Self::Hour => every(3_600_000),
            Self::Day => every(86_400_000),
            Self::Month => {
                let (start, end) = now.month();
                (start, Some(end))
            }
            Self::Run => (Timestamp::from_millis(0), None),
        }
    }

    /// How long the window is that ends here, in seconds: what the IETF draft on rate limit headers calls the window `w`.
    pub fn seconds_before(self, end: Timestamp) -> Option<u64> {
        let (start, end) = self.around(end.plus_millis(-1));
        let millis = end?.millis() - start.millis();
        u64::try_from(millis / 1_000).ok()
    }
}

/// The two groups of actions: those that change something, and the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionGroup {
    /// Actions that change nothing.
    Read,
    /// Actions that do.
    Mutate,
}

impl ActionGroup {
    /// The group of an action.
    pub const fn of(mutates: bool) -> Self {
        if mutates { Self::Mutate } else { Self::Read }
    }

    /// The word of API and policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Mutate => "mutate",
        }
    }
}

/// How many calls are allowed in a window: all of them, or those of one tool, one group, one class of risk, or of what these have
/// in common. None of these is ever `null`: what was meant for some calls would hold for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// From when to when.
    pub window: Window,
    /// How many; at least one. To allow none, take the grant away.
    #[serde(deserialize_with = "limit")]
    pub limit: u64,
    /// Only calls of this tool.
    #[serde(
        default,
        deserialize_with = "canon::sent",
        skip_serializing_if = "Option::is_none"
    )]
    pub tool: Option<SlashFreeName>,
    /// Only calls of this group.
    #[serde(
        default,
        deserialize_with = "canon::sent",
        skip_serializing_if = "Option::is_none"
    )]
    pub group: Option<ActionGroup>,
    /// Only calls of this class of risk, as it is registered.
    #[serde(
        default,
        deserialize_with = "canon::sent",
        skip_serializing_if = "Option::is_none"
    )]
    pub risk: Option<Risk>,
}

fn limit<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let limit = u64::deserialize(deserializer)?;
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(serde::de::Error::custom(format!(
        "`limit` is a whole number from 1 to {LIMIT_MAX}; to allow no calls at all, take the grant away"
    )))
}

/// What a quota looks at in a call.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The tool.
    pub tool: &'a str,
    /// Whether it changes something.
    pub group: ActionGroup,
    /// How much harm the action can do, as it is registered.
    pub risk: Risk,
}

impl Quota {
    /// Whether a call counts towards it.
    pub fn covers(&self, call: &Call<'_>) -> bool {
        self.tool.as_ref().is_none_or(|tool| tool.as_str() == call.tool)
            && self.group.is_none_or(|group| group == call.group)
            && self.risk.is_none_or(|risk| risk == call.risk)
    }

    /// Whether both count the same calls in the same windows, so that one of them is one too many.
    fn counts_like(&self, other: &Self) -> bool {
        let counted = |quota: &Self| (quota.window, quota.tool.clone(), quota.group, quota.risk);
        counted(self) == counted(other)
    }
}

/// All limits of an agent or a tenant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LimitTerms {
    /// The bucket that every ask takes from.
    #[serde(default)]
    pub bucket: Option<Bucket>,
    /// The buckets that asks for one tool take from, too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tool_buckets: BTreeMap<SlashFreeName, Bucket>,
    /// How many calls are allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<Quota>,
}

/// Why limits cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLimits {
    /// More quotas than there may be.
    #[error("there are at most {QUOTAS_MAX} quotas, these are {0}")]
    TooManyQuotas(usize),
    /// More buckets than there may be.
    #[error("there are buckets for at most {TOOL_BUCKETS_MAX} tools, these are {0}")]
    TooManyBuckets(usize),
    /// Two that would count the same.
    #[error("two quotas count the same calls in every {0}; leave one of them out")]
    Twice(&'static str),
}

/// Checks that quotas can stand beside each other.
pub fn check_quotas(quotas: &[Quota]) -> Result<(), InvalidLimits> {
    if quotas.len() > QUOTAS_MAX {
        return Err(InvalidLimits::TooManyQuotas(quotas.len()));
    }
    for (place, quota) in quotas.iter().enumerate() {
        if quotas[place + 1..].iter().any(|other| quota.counts_like(other)) {
            return Err(InvalidLimits::Twice(quota.window.as_str()));
        }
    }
    Ok(())
}

impl LimitTerms {
    /// Checks that these can be set together.
    pub fn check(&self) -> Result<(), InvalidLimits> {
        if self.tool_buckets.len() > TOOL_BUCKETS_MAX {
            return Err(InvalidLimits::TooManyBuckets(self.tool_buckets.len()));
        }
        check_quotas(&self.quotas)
    }
}

/// How many calls were counted in the newest window of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The digest of what is counted, and for whom.
    pub key: Digest,
    /// Where the window begins.
    pub start: Timestamp,
    /// How many calls were allowed in it.
    pub count: u64,
    /// When one was counted last.
    pub at: Timestamp,
}

impl Counter {
    /// One that nothing was counted in.
    pub const fn new(key: Digest) -> Self {
        let beginning = Timestamp::from_millis(0);
        Self {
            key,
            start: beginning,
            count: 0,
            at: beginning,
        }
    }

    /// How many were counted in the window that begins here. A window that another gateway, whose clock is ahead, has begun
    /// already goes on being counted in: a clock that is set back does not give calls away.
    pub fn count_in(self, start: Timestamp) -> u64 {
        if self.start < start { 0 } else { self.count }
    }

    /// When it begins anew, seen from here; none if it never does. That is the end of the window that is counted in,
    /// which another gateway, or this one before its clock was set back, may have begun ahead of time.
    pub fn begins_anew(self, window: Window, now: Timestamp) -> Option<Timestamp> {
        let (start, _) = window.around(now);
        window.around(self.start.max(start)).1
    }

    /// After one more call.
    #[must_use]
    pub fn plus_one(self, start: Timestamp, now: Timestamp) -> Self {
        Self {
            key: self.key,
            start: self.start.max(start),
            count: self.count_in(start).saturating_add(1),
            at: self.at.max(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn quota(json: &str) -> Quota {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn windows_are_those_of_the_calendar_in_utc() {
        let now = time("2028-02-29T23:59:59.999Z");
        for (window, start, end) in [
            (Window::Minute, "2028-02-29T23:59:00Z", "2028-03-01T00:00:00Z"),
            (Window::Hour, "2028-02-29T23:00:00Z", "2028-03-01T00:00:00Z"),
            (Window::Day, "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"),
            (Window::Month, "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        ] {
            assert_eq!(window.around(now), (time(start), Some(time(end))), "{window:?}");
            assert_eq!(window.around(time(start)).0, time(start), "{window:?}");
            assert_eq!(window.around(time(end)).0, time(end), "{window:?}");
        }
        let december = Window::Month.around(time("2026-12-31T12:00:00Z"));
        assert_eq!(december.1, Some(time("2027-01-01T00:00:00Z")));
        assert_eq!(Window::Run.around(now).1, None);
    }

    #[test]
    fn a_window_is_as_long_as_its_month_is() {
        for (window, end, seconds) in [
            (Window::Day, "2027-03-01T00:00:00Z", Some(86_400)),
            (Window::Month, "2027-03-01T00:00:00Z", Some(28 * 86_400)),
            (Window::Month, "2027-01-01T00:00:00Z", Some(31 * 86_400)),
            (Window::Run, "2027-01-01T00:00:00Z", None),
        ] {
            assert_eq!(window.seconds_before(time(end)), seconds, "{window:?}");
        }
    }

    #[test]
    fn a_quota_covers_what_all_its_filters_have_in_common() {
        let call = Call {
            tool: "github",
            group: ActionGroup::Mutate,
            risk: Risk::High,
        };
        for (json, covers) in [
            (r#"{"window":"day","limit":1}"#, true),
            (r#"{"window":"day","limit":1,"tool":"github"}"#, true),
            (r#"{"window":"day","limit":1,"tool":"slack"}"#, false),
            (
                r#"{"window":"day","limit":1,"tool":"github","group":"mutate","risk":"high"}"#,
                true,
            ),
            (
                r#"{"window":"day","limit":1,"tool":"github","group":"read"}"#,
                false,
            ),
            (r#"{"window":"day","limit":1,"risk":"low"}"#, false),
        ] {
            assert_eq!(quota(json).covers(&call), covers, "{json}");
        }
    }

    #[test]
    fn what_is_no_quota_is_refused() {
        for json in [
            r#"{"window":"week","limit":1}"#,
            r#"{"window":"day","limit":0}"#,
            r#"{"window":"day","limit":-1}"#,
            r#"{"window":"day","limit":1.5}"#,
            r#"{"window":"day","limit":1000000000001}"#,
            r#"{"window":"day"}"#,
            r#"{"window":"day","limit":1,"agent":"x"}"#,
        ] {
            assert!(serde_json::from_str::<Quota>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn two_quotas_that_count_the_same_are_one_too_many() {
        let day = quota(r#"{"window":"day","limit":1}"#);
        let more = quota(r#"{"window":"day","limit":2}"#);
        let tool = quota(r#"{"window":"day","limit":1,"tool":"github"}"#);
        assert_eq!(check_quotas(&[day.clone(), tool.clone()]), Ok(()));
        assert_eq!(
            check_quotas(&[day.clone(), tool, more]),
            Err(InvalidLimits::Twice("day"))
        );
        assert_eq!(
            check_quotas(&vec![day; QUOTAS_MAX + 1]),
            Err(InvalidLimits::TooManyQuotas(QUOTAS_MAX + 1))
        );
    }

    #[test]
    fn a_new_window_begins_at_nothing_and_a_clock_that_is_set_back_does_not() {
        let (first, second) = (Timestamp::from_millis(60_000), Timestamp::from_millis(120_000));
        let counter = Counter::new(Digest::of(b"x"));
        let counter = counter.plus_one(first, first).plus_one(first, first);
        assert_eq!((counter.count_in(first), counter.count_in(second)), (2, 0));
        let counter = counter.plus_one(second, second);
        assert_eq!((counter.count_in(second), counter.count_in(first)), (1, 1));
        assert_eq!(counter.plus_one(first, first).start, second);
    }
}
