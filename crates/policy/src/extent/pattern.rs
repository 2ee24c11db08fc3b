//! What a pattern may cost for each byte that it is matched against, and the memory that it takes.
//!
//! The engine has linear time, and what it does for a byte is bounded by the states that it can be in at once. It
//! mostly is in one that stands for all of them, but goes back to going through them one by one where so many sets of
//! states come up that there is no room for them.

use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// How many ranges of a class are compared with a byte in the time that one state takes.
const RANGES_PER_STATE: usize = 64;
/// How many bytes a state of a program has.
const STATE_BYTES: usize = 24;
/// How many bytes there are for each state together: in the program, in the one that goes backwards, and in what a match
/// notes of the states that it is in.
const STATE_BYTES_IN_USE: usize = 4 * STATE_BYTES;
/// How many bytes more a match notes in each state for each group: where it begins and ends, two times over.
const GROUP_BYTES: usize = 32;
/// What a pattern takes beside its states, in bytes.
const PATTERN_BYTES: usize = 1 << 10;
/// How many ranges of a class of ASCII take as much as a state.
const RANGES_IN_STATE: usize = 3;
/// How many states there are for the bytes that a class of other letters begins with, and for each of its ranges.
const CLASS_STATES: usize = 16;
const STATES_PER_RANGE: usize = 2;

/// How many states a pattern can be in at once: a character or class is one or two, however much it is compiled to, and
/// repetitions with a count are multiplied out. A pattern that cannot be read has more than any text is matched with.
pub(super) fn states(pattern: &str) -> usize {
    parsed(pattern).map_or(usize::MAX, |pattern| {
        let begins = pattern.properties().look_set_prefix();
        if begins.contains(Look::Start) {
            states_from_start(&pattern)
        } else {
            states_of(&pattern)
        }
    })
}

/// How many bytes a pattern takes, compiled and in use, where its program may have so many. What cannot be read is not
/// compiled.
pub(super) fn bytes(pattern: &str, program_bytes_max: usize) -> usize {
    parsed(pattern).map_or(0, |pattern| {
        let states = program_states(&pattern).min(program_bytes_max / STATE_BYTES);
        let groups = pattern.properties().explicit_captures_len();
        let in_use = STATE_BYTES_IN_USE + groups * GROUP_BYTES;
        states.saturating_mul(in_use).saturating_add(PATTERN_BYTES)
    })
}

fn parsed(pattern: &str) -> Option<Hir> {
    let translated = jsonschema_regex::to_rust_regex(pattern).ok()?;
    regex_syntax::parse(&translated).ok()
}

/// All states of the program that a pattern is compiled to. The depth is bounded by that of the parser.
fn program_states(pattern: &Hir) -> usize {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(Class::Bytes(_)) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(Class::Unicode(class)) if class.is_ascii() => {
            1 + class.ranges().len() / RANGES_IN_STATE
        }
        HirKind::Class(Class::Unicode(class)) => CLASS_STATES + class.ranges().len() * STATES_PER_RANGE,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            let optional = times.saturating_sub(repetition.min) as usize;
            let once = program_states(&repetition.sub);
            let all = (times as usize).saturating_mul(once);
            all.saturating_add(optional + 1)
        }
        HirKind::Capture(capture) => program_states(&capture.sub).saturating_add(2),
        HirKind::Concat(patterns) => sum(patterns, program_states),
        HirKind::Alternation(patterns) => sum(patterns, program_states).saturating_add(patterns.len()),
    }
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
    use super::*;

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

    #[test]
    fn the_memory_of_a_pattern_is_that_of_all_its_states() {
        for (pattern, states) in [
            ("a{40000}17", 40_000 + 1 + 2),
            ("a{2,5}", 5 + 3 + 1),
            (r"^\d{4}-\d{2}$", 1 + 4 + 1 + 1 + 2 + 1 + 1),
            ("^[0-9a-f]{8}-[0-9a-f]{4}$", 1 + 8 + 1 + 1 + 4 + 1 + 1),
            (r"^[\w.+-]+@[\w-]+\.[\w.]+$", 1 + 4 + 1 + 3 + 1 + 3 + 1),
        ] {
            let expected = states * STATE_BYTES_IN_USE + PATTERN_BYTES;
            assert_eq!(bytes(pattern, usize::MAX), expected, "{pattern}");
        }
        // However much it is, the program is no longer than it may be.
        let most = 1_000 * STATE_BYTES_IN_USE + PATTERN_BYTES;
        assert_eq!(bytes("(?:a{1000}){1000}", 1_000 * STATE_BYTES), most);
        // A class of all letters is much more than one of ASCII, and each group is noted in each state.
        assert!(bytes(r"\p{L}", usize::MAX) > 50_000);
        assert!(bytes(&"(a)".repeat(1_000), usize::MAX) > 90_000_000);
        assert_eq!(bytes("(", usize::MAX), 0);
    }
}
