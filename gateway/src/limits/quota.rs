//! What callers are told of quotas. They are counted by `engine::quotas`, in the commit of what they count.

use super::{NEVER_REFILLS_SECONDS, RATE_LIMIT, RATE_LIMIT_POLICY, with_wait};
use crate::http::{Code, Refusal};
use axum::http::HeaderValue;
use engine::quotas::QuotaExceeded;

/// The refusal of a call that there is no room for, with the headers of RFC 9110 and of the IETF draft on rate limit headers.
pub fn exceeded(over: &QuotaExceeded) -> Refusal {
    let quota = &over.quota;
    let (holder, window, limit) = (quota.holder, quota.window.as_str(), quota.limit);
    let wait = over.until.map(|until| {
        let millis = until.millis() - over.now.millis();
        // Rounded up: nobody is told to come back before the window is over.
        u64::try_from(millis).unwrap_or_default().div_ceil(1_000).max(1)
    });
    let advice = match (over.until, wait) {
        (Some(until), Some(wait)) => format!("it begins anew at {until}, in {wait} s"),
        _ => "a run does not begin anew: have the limit raised".to_owned(),
    };
    let told = wait.unwrap_or(NEVER_REFILLS_SECONDS);
    let name = format!("{holder}-{window}");
    let length = quota.window.seconds_max().map(|seconds| format!(";w={seconds}"));
    let text = |text: String| HeaderValue::from_str(&text).expect("digits and plain words are visible ASCII");
    let refusal = Refusal::new(
        Code::QuotaExceeded,
        format!("the {holder}'s quota of {limit} calls per {window} is used up; {advice}"),
    );
    with_wait(refusal, wait)
        .with_header(
            RATE_LIMIT_POLICY,
            text(format!("\"{name}\";q={limit}{}", length.unwrap_or_default())),
        )
        .with_header(RATE_LIMIT, text(format!("\"{name}\";r=0;t={told}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header;
    use canon::Digest;
    use engine::quotas::QuotaUse;
    use model::{Timestamp, Window};

    fn over(window: Window, now: &str) -> QuotaExceeded {
        let now: Timestamp = now.parse().unwrap();
        QuotaExceeded {
            quota: QuotaUse {
                key: Digest::ZERO,
                holder: "team",
                window,
                limit: 7,
            },
            now,
            until: window.around(now).1,
        }
    }

    fn headers(refusal: &Refusal) -> [String; 3] {
        [header::RETRY_AFTER, RATE_LIMIT_POLICY, RATE_LIMIT]
            .map(|name| refusal.header(&name).unwrap().to_str().unwrap().to_owned())
    }

    #[test]
    fn a_caller_is_told_when_the_window_is_over_and_not_a_moment_earlier() {
        let refusal = exceeded(&over(Window::Minute, "2026-11-21T10:00:29.999Z"));
        assert_eq!(
            headers(&refusal),
            ["31", "\"team-minute\";q=7;w=60", "\"team-minute\";r=0;t=31"]
        );
        assert_eq!(
            refusal.detail(),
            "the team's quota of 7 calls per minute is used up; it begins anew at 2026-11-21T10:01:00.000Z, in 31 s"
        );
    }

    #[test]
    fn a_run_is_not_promised_anything() {
        let refusal = exceeded(&over(Window::Run, "2026-11-21T10:00:30.000Z"));
        assert_eq!(
            headers(&refusal)[1..],
            ["\"team-run\";q=7", "\"team-run\";r=0;t=86400"]
        );
        assert!(
            refusal
                .detail()
                .ends_with("a run does not begin anew: have the limit raised")
        );
    }
}
