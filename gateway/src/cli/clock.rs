//! The clock of the machine at a start: whether what is answered could have its date.

use anyhow::ensure;
use model::Timestamp;

/// Fails where the clock shows a time before 1970 or after 9999. HTTP has no date for it, so that every connection that
/// hyper has would end without an answer, and nothing that is recorded would say when.
pub(super) fn check(now: Timestamp) -> anyhow::Result<()> {
    // The system's clock is brought to the first or to the last of these where it shows what is beyond.
    let (first, last) = (Timestamp::from_millis(0), Timestamp::from_millis(i64::MAX));
    ensure!(
        first < now && now < last,
        "the clock of this machine shows a time before 1970 or after 9999: set it right, and start again"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;
    use model::Timestamp;

    #[test]
    fn nothing_starts_by_a_clock_of_which_http_has_no_date() {
        for (millis, is_good) in [
            (i64::MIN, false),
            (0, false),
            (1, true),
            (1_800_000_000_000, true),
            (253_402_300_799_998, true),
            (253_402_300_799_999, false),
            (i64::MAX, false),
        ] {
            let checked = check(Timestamp::from_millis(millis));
            assert_eq!(checked.is_ok(), is_good, "{millis}");
        }
    }
}
