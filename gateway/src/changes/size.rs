//! How much a change writes at once. Nobody is answered meanwhile, and what takes longer than a store gives a statement is never done.
//!
//! What force takes out of use is not counted here: that cannot be done in several steps, only operators do it, and how much is kept of policies is
//! bounded where they are written.

use crate::http::{Code, Refusal};
use model::Write;

/// The most bytes of nouns that one change writes: what takes a tenth of a second. The largest set of policies fits, with the one before it.
const WRITTEN_BYTES_MAX: usize = 16 << 20;

/// Refuses a change of several nouns that together are longer than may be written at once. Each of them alone has bounds of its own, so whoever is
/// refused gets there step by step.
pub(super) fn check(writes: &[Write]) -> Result<(), Refusal> {
    if writes.len() < 2 {
        return Ok(());
    }
    let mut left = WRITTEN_BYTES_MAX;
    for write in writes {
        if let Write::Put(noun) = write {
            left = left.checked_sub(noun.to_json().len()).ok_or_else(too_much)?;
        }
    }
    Ok(())
}

fn too_much() -> Refusal {
    let detail = format!(
        "the change would write more than {WRITTEN_BYTES_MAX} bytes at once, so nothing was changed; make it in several steps"
    );
    Refusal::new(Code::Conflict, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Noun, Policy, PolicyMode, PolicyText, SlashFreeName, Timestamp};
    use std::sync::Arc;

    /// A policy of this length, and a little more.
    fn put(bytes: usize) -> Write {
        let text = PolicyText {
            cedar: "x".repeat(bytes).into(),
            ..PolicyText::default()
        };
        let name = SlashFreeName::new("long").unwrap();
        let now = Timestamp::from_millis(1);
        let policy = Policy::new(name, text, PolicyMode::Enforced, now);
        Write::Put(Noun::Policy(Arc::new(policy)))
    }

    #[test]
    fn what_would_be_written_for_too_long_is_made_in_several_steps() {
        let half = WRITTEN_BYTES_MAX / 2;
        let refusal = check(&[put(half), put(half)]).unwrap_err();
        assert_eq!(refusal.code(), Code::Conflict);
        check(&[put(half), put(half - 1_000)]).unwrap();
        check(&[put(WRITTEN_BYTES_MAX)]).unwrap();
    }

    #[test]
    fn what_is_deleted_is_not_written() {
        let Write::Put(gone) = put(WRITTEN_BYTES_MAX) else {
            panic!("it is put")
        };
        check(&[put(1), Write::Delete(gone)]).unwrap();
    }
}
