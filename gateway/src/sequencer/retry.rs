//! Why a batch is made again: one word for each cause, which is counted and logged.
//!
//! How often it may be, and what else is done about it, is in `task`.

/// Why an attempt did not settle a batch and the next one may.
#[derive(Debug, Clone, Copy)]
pub(super) enum RetryCause {
    /// It was made from what is remembered of its tenants, and something in it was made from another directory than that:
    /// one of the two is behind.
    DirectoryGuessed,
    /// Something in it that its caller has named came to nothing, and may have been recorded before.
    MayBeRecorded,
    /// Something that was remembered was forgotten while the rest was read.
    CacheCleared,
    /// Something in it was recorded before.
    AlreadyRecorded,
    /// Somebody else was faster: the head of a chain is not where the batch begins.
    HeadMoved,
    /// It was made without a turn, and says something about a tenant that it writes nothing to.
    ToldWithoutWrite,
    /// Its turn was over before it was written.
    TurnOver,
}

impl RetryCause {
    /// The word in metrics and in the log.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::DirectoryGuessed => "directory_guessed",
            Self::MayBeRecorded => "may_be_recorded",
            Self::CacheCleared => "cache_cleared",
            Self::AlreadyRecorded => "already_recorded",
            Self::HeadMoved => "head_moved",
            Self::ToldWithoutWrite => "told_without_write",
            Self::TurnOver => "turn_over",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = include_str!("../../../docs/operations.md");

    #[test]
    fn these_causes_are_explained_where_their_metric_is() {
        let mut rows = METRICS.lines();
        let row = rows.find(|row| row.starts_with("| `countersign_batch_retries_total`"));
        let row = row.unwrap();
        for cause in [
            RetryCause::DirectoryGuessed,
            RetryCause::MayBeRecorded,
            RetryCause::CacheCleared,
            RetryCause::AlreadyRecorded,
            RetryCause::HeadMoved,
            RetryCause::ToldWithoutWrite,
            RetryCause::TurnOver,
        ] {
            assert!(row.contains(&format!("`{}`", cause.as_str())), "{cause:?}");
        }
    }
}
