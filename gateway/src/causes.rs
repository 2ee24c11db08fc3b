//! An error in words, with what has led to it.

use std::error::Error;

/// An error with its causes, each of which is told once: some errors tell their cause themselves, and then what to do.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut told = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        source = cause.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::with_causes;
    use anyhow::anyhow;
    use store::StoreError;

    #[test]
    fn a_cause_is_told_once() {
        for (text, expected) in [
            ("it cannot be read", "it cannot be read: no such file"),
            (
                "it cannot be read: no such file",
                "it cannot be read: no such file",
            ),
            (
                "it cannot be made: no such file; name another",
                "it cannot be made: no such file; name another",
            ),
        ] {
            let error = anyhow!("no such file").context(text).context("the source");
            assert_eq!(with_causes(&*error), format!("the source: {expected}"));
        }
    }

    #[test]
    fn a_database_that_is_away_says_why() {
        let error = StoreError::Unavailable("the server cannot be reached".into());
        assert_eq!(
            with_causes(&error),
            "the database is not available: the server cannot be reached"
        );
    }
}
