//! What callers are told of quotas. They are counted by `engine::quotas`, in the commit of what they count.

use super::RateLimit;
use crate::http::{Code, Refusal};
use engine::quotas::QuotaExceeded;
use model::Timestamp;

/// The refusal of a call that there is no room for. `now` is the time by the clock, which callers wait by: the chain
/// may be ahead of one that was set back.
pub fn exceeded(over: &QuotaExceeded, now: Timestamp) -> Refusal {
    let quota = &over.quota;
    let (holder, window, limit) = (quota.holder, quota.window.as_str(), quota.limit);
    let wait = over.until.map(|until| {
        let millis = until.millis() - now.millis();
        // Rounded up: nobody is told to come back before the window is over.
        u64::try_from(millis).unwrap_or_default().div_ceil(1_000).max(1)
    });
    let advice = match (over.until, wait) {
        (Some(until), Some(wait)) => format!("it begins anew at {until}, in {wait} s"),
        _ => "a run does not begin anew: have the limit raised".to_owned(),
    };
    let shown = RateLimit {
        name: &format!("{holder}-{window}"),
        quota: limit,
        window: over.until.and_then(|until| quota.window.seconds_before(until)),
        left: 0,
        wait,
    };
    shown.with(Refusal::new(
        Code::QuotaExceeded,
        format!("the {holder}'s quota of {limit} calls per {window} is used up; {advice}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{RATE_LIMIT, RATE_LIMIT_POLICY};
    use super::*;
    use axum::http::header;
    use canon::Digest;
    use engine::quotas::QuotaUse;
    use model::Window;

    /// What is told of a quota of this window that was used up at the first time, and is asked for at the second.
    fn refused(window: Window, used_up: &str, now: &str) -> Refusal {
        let used_up: Timestamp = used_up.parse().unwrap();
        let over = QuotaExceeded {
            quota: QuotaUse {
                key: Digest::ZERO,
                holder: "team",
                window,
                limit: 7,
            },
            until: window.around(used_up).1,
        };
        exceeded(&over, now.parse().unwrap())
    }

    fn headers(refusal: &Refusal) -> [Option<&str>; 3] {
        [header::RETRY_AFTER, RATE_LIMIT_POLICY, RATE_LIMIT]
            .map(|name| refusal.header(&name).map(|value| value.to_str().unwrap()))
    }

    #[test]
    fn a_caller_is_told_when_the_window_is_over_and_not_a_moment_earlier() {
        let now = "2026-11-21T10:00:29.999Z";
        let refusal = refused(Window::Minute, now, now);
        let (policy, left) = ("\"team-minute\";q=7;w=60", "\"team-minute\";r=0;t=31");
        assert_eq!(headers(&refusal), [Some("31"), Some(policy), Some(left)]);
        assert_eq!(
            refusal.detail(),
            "the team's quota of 7 calls per minute is used up; it begins anew at 2026-11-21T10:01:00.000Z, in 31 s"
        );
    }

    #[test]
    fn a_month_is_as_long_as_it_is() {
        let used_up = "2027-02-27T00:00:00.000Z";
        let refusal = refused(Window::Month, used_up, used_up);
        assert_eq!(headers(&refusal)[1], Some("\"team-month\";q=7;w=2419200"));
        // The clock was set back by two months since.
        let refusal = refused(Window::Month, used_up, "2026-12-27T00:00:00.000Z");
        let (policy, left) = ("\"team-month\";q=7;w=2419200", "\"team-month\";r=0;t=5529600");
        assert_eq!(headers(&refusal), [Some("5529600"), Some(policy), Some(left)]);
    }

    #[test]
    fn a_run_is_not_promised_anything() {
        let now = "2026-11-21T10:00:30.000Z";
        let refusal = refused(Window::Run, now, now);
        let (policy, left) = ("\"team-run\";q=7", "\"team-run\";r=0");
        assert_eq!(headers(&refusal), [Some("86400"), Some(policy), Some(left)]);
        assert!(
            refusal
                .detail()
                .ends_with("a run does not begin anew: have the limit raised")
        );
    }
}
