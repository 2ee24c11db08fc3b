//! Why a batch is made again: one word for each cause, which is counted and logged.
//!
//! How often it may be, and what else is done about it, is in `task`.

macro_rules! retry_causes {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// Why an attempt did not settle a batch and the next one may.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum RetryCause { $($(#[$doc])* $name,)* }

        impl RetryCause {
            /// Every cause.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word in metrics and in the log.
            pub(super) const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

retry_causes! {
    /// It was made from what is remembered of its tenants, and something in it was made from another directory than that:
    /// one of the two is behind.
    DirectoryGuessed = "directory_guessed",
    /// Something in it that its caller has named came to nothing, and may have been recorded before.
    MayBeRecorded = "may_be_recorded",
    /// Something that was remembered was forgotten while the rest was read.
    CacheCleared = "cache_cleared",
    /// Something in it was recorded before.
    AlreadyRecorded = "already_recorded",
    /// Somebody else was faster: the head of a chain is not where the batch begins.
    HeadMoved = "head_moved",
    /// It was made without a turn, and says something about a tenant that it writes nothing to.
    ToldWithoutWrite = "told_without_write",
    /// Its turn was over before it was written.
    TurnOver = "turn_over",
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = include_str!("../../../docs/operations.md");

    #[test]
    fn every_cause_is_explained_where_its_metric_is() {
        let mut rows = METRICS.lines();
        let row = rows.find(|row| row.starts_with("| `countersign_batch_retries_total`"));
        let row = row.unwrap();
        for cause in RetryCause::ALL {
            assert!(row.contains(&format!("`{}`", cause.as_str())), "{cause:?}");
        }
    }
}
