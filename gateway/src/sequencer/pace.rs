//! How long a commit takes, as far as the last ones tell.
//!
//! Whoever says by when an answer is needed is refused before anything is recorded if it would come too late. So this has to be
//! rather too long than too short: the smoothed time and four times its deviation, as TCP sets its timer (RFC 6298, section 2).

use std::time::Duration;

/// The times of the last commits.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The smoothed time; none before the first commit.
    mean: Option<Duration>,
    deviation: Duration,
}

impl Pace {
    /// Notes how long a commit took.
    pub(super) fn note(&mut self, took: Duration) {
        match self.mean {
            None => {
                self.mean = Some(took);
                self.deviation = took / 2;
            }
            Some(mean) => {
                self.deviation = (self.deviation * 3 + took.abs_diff(mean)) / 4;
                self.mean = Some((mean * 7 + took) / 8);
            }
        }
    }

    /// Notes that everybody was sent away because of what is expected here. One slow commit must not do that for good.
    pub(super) fn ease(&mut self) {
        self.mean = self.mean.map(|mean| mean * 7 / 8);
        self.deviation = self.deviation * 3 / 4;
    }

    /// How long a commit takes, smoothed; nothing before the first.
    pub(super) fn usual(&self) -> Duration {
        self.mean.unwrap_or_default()
    }

    /// How long the next commit may take; nothing is expected of the first.
    pub(super) fn expected(&self) -> Duration {
        self.usual() + self.deviation * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after(commits: usize, took: Duration) -> Pace {
        let mut pace = Pace::default();
        (0..commits).for_each(|_| pace.note(took));
        pace
    }

    #[test]
    fn a_steady_disk_is_expected_to_stay_so() {
        let expected = after(100, 2 * MS).expected();
        assert!((2 * MS..3 * MS).contains(&expected), "{expected:?}");
    }

    #[test]
    fn a_slow_commit_is_believed_at_once_and_forgotten_when_it_was_the_only_one() {
        let mut pace = after(100, MS);
        pace.note(50 * MS);
        assert!(pace.expected() > 50 * MS);
        (0..40).for_each(|_| pace.note(MS));
        assert!(pace.expected() < 3 * MS, "{pace:?}");
    }

    #[test]
    fn who_is_sent_away_because_of_it_makes_it_forgotten_too() {
        let mut pace = after(1, Duration::from_secs(5));
        (0..100).for_each(|_| pace.ease());
        assert!(pace.expected() < MS, "{pace:?}");
    }
}
