//! What a pattern may cost for each byte that it is matched against.
//!
//! The engine has linear time, and what it does for a byte is bounded by the states that it can be in at once. It
//! mostly is in one that stands for all of them, but goes back to going through them one by one where so many sets of
//! states come up that there is no room for them.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// How many ranges of a class are compared with a byte in the time that one state takes.
const RANGES_PER_STATE: usize = 64;

/// How many states a pattern can be in at once: a character or class is one or two, however much it is compiled to, and
/// repetitions with a count are multiplied out. A pattern that cannot be read has more than any text is matched with.
pub(super) fn states(pattern: &str) -> usize {
    let translated = jsonschema_regex::to_rust_regex(pattern).ok();
    let parsed = translated.and_then(|pattern| regex_syntax::parse(&pattern).ok());
    parsed.map_or(usize::MAX, |pattern| {
        let begins = pattern.properties().look_set_prefix();
        if begins.contains(Look::Start) {
            states_from_start(&pattern)
        } else {
            states_of(&pattern)
        }
    })
}

/// All of them: those of a pattern that may begin at any byte. The depth is bounded by that of the parser.
fn states_of(pattern: &Hir) -> usize {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Unicode(class)) if class.is_ascii() => 1,
        HirKind::Class(Class::Unicode(class)) => 2 + class.ranges().len() / RANGES_PER_STATE,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1) as usize;
            let once = states_of(&repetition.sub).saturating_add(1);
            times.saturating_mul(once).saturating_add(1)
        }
        HirKind::Capture(capture) => states_of(&capture.sub).saturating_add(2),
        HirKind::Concat(patterns) => sum(patterns, states_of),
        HirKind::Alternation(patterns) => sum(patterns, states_of).saturating_add(patterns.len()),
    }
}

/// Those of a pattern that begins at one place only. While all that came before has one length, there is one place to be at.
fn states_from_start(pattern: &Hir) -> usize {
    match pattern.kind() {
        HirKind::Literal(_) => 1,
        HirKind::Repetition(repetition) if length(pattern).is_some() => {
            states_from_start(&repetition.sub).saturating_add(2)
        }
        HirKind::Capture(capture) => states_from_start(&capture.sub).saturating_add(2),
        HirKind::Concat(patterns) => states_one_after_the_other(patterns),
        HirKind::Alternation(patterns) => sum(patterns, states_from_start).saturating_add(patterns.len()),
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) | HirKind::Repetition(_) => states_of(pattern),
    }
}

fn states_one_after_the_other(patterns: &[Hir]) -> usize {
    let fixed = patterns.iter().take_while(|pattern| length(pattern).is_some());
    let (fixed, others) = patterns.split_at(fixed.count());
    // What has no length is gone through at one place together with what is beside it.
    let (empty, longer): (Vec<_>, Vec<_>) = fixed.iter().partition(|pattern| length(pattern) == Some(0));
    let beside = empty.into_iter().map(states_of).fold(0, usize::saturating_add);
    let largest = longer.into_iter().map(states_from_start).max().unwrap_or(0);
    largest.max(sum(others, states_of)).saturating_add(beside)
}

/// How many bytes all texts have that match this, if that is one number.
fn length(pattern: &Hir) -> Option<usize> {
    let properties = pattern.properties();
    let length = properties.minimum_len()?;
    (properties.maximum_len() == Some(length)).then_some(length)
}

fn sum(patterns: &[Hir], states: impl Fn(&Hir) -> usize) -> usize {
    patterns.iter().map(states).fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::states;

    #[test]
    fn states_are_counted_with_repetitions_multiplied_out() {
        for (pattern, count) in [
            ("abc", 3),
            ("é", 2),
            (r"\w*", 3),
            ("(?:[ab]{10}){20}", 20 * (10 * 2 + 2) + 1),
            ("(a|bc)", 2 + 2 + 3),
            (r"^[\w.+-]+@[\w-]+\.[\w.]+$", 2 + 3 * 3 + 2),
        ] {
            assert_eq!(states(pattern), count, "{pattern}");
        }
        // However many letters there are, they are in a few states at once.
        assert!(states(r"^\p{L}+$") < 20);
        assert!(states("(?:a{1000}){1000}") >= 1_000_000);
        assert_eq!(states("("), usize::MAX);
    }

    #[test]
    fn what_begins_at_one_place_is_at_one_place_until_lengths_differ() {
        for (pattern, count) in [
            (r"^abc$", 2 + 1),
            (r"^[0-9a-f]{40}$", 2 + 3),
            (r"^\d{4}-\d{2}-\d{2}$", 2 + 3),
            (r"^(\d{4}|[a-z]{4}){3}$", 2 + 2 + 2 + 3 + 3 + 2),
            (r"^ab(?:c|de)f*$", 1 + (1 + 2 + 2) + 3 + 1),
            (r"^\b\b\bab", 4 + 1),
        ] {
            assert_eq!(states(pattern), count, "{pattern}");
        }
        // Only some of it begins there, or a repetition makes it be at many.
        assert!(states("^a{100}|b{100}") > 200);
        assert!(states("^a*b{100}") > 200);
        assert!(states("^é?b{100}") > 200);
    }
}
