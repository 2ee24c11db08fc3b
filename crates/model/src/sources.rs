//! Where single parameters of an ask came from, as its caller says, and what that counts as.

use crate::trust::{EffectiveTrust, Trust};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The level of single parameters, by RFC 6901 pointer into the parameters; the empty one is all of them. What is not named has
/// the level of the call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sources(BTreeMap<String, Trust>);

/// What a signature that was checked says of the source of single parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vouched<'a> {
    /// Which: all that have the content that it speaks of.
    ///
    /// INVARIANT: they are in order, so that one is looked up among the thousands that may have the same content.
    pub parameters: &'a [String],
    /// How far the source of that is trusted.
    pub level: Trust,
}

impl Vouched<'_> {
    /// Whether it speaks of this parameter.
    fn is_about(&self, parameter: &str) -> bool {
        let found = self
            .parameters
            .binary_search_by(|name| name.as_str().cmp(parameter));
        found.is_ok()
    }
}

impl Sources {
    /// The levels under these pointers.
    pub const fn new(levels: BTreeMap<String, Trust>) -> Self {
        Self(levels)
    }

    /// Whether this is a JSON Pointer (RFC 6901, section 3).
    pub fn is_pointer(text: &str) -> bool {
        let are_escapes = || text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        text.is_empty() || (text.starts_with('/') && are_escapes())
    }

    /// Whether no parameter is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pointers and what was said of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Trust)> {
        self.0.iter().map(|(pointer, level)| (pointer.as_str(), *level))
    }

    /// The least trusted of all that are named.
    pub fn worst(&self) -> Option<Trust> {
        self.0.values().copied().max()
    }

    /// Whether no parameter and no part of one has a worse level than in others. What is not named has the level of the
    /// call: here `call`, there `others_call`.
    pub fn are_no_worse_than(&self, call: Trust, (others, others_call): (&Self, Trust)) -> bool {
        let named = self.0.keys().chain(others.0.keys()).map(String::as_str);
        // All that nobody names is a place, too.
        let mut places = named.chain([""]);
        let (here, there) = (self.by_place(), others.by_place());
        places.all(|place| here(place).unwrap_or(call) <= there(place).unwrap_or(others_call))
    }

    /// Tells the worst of what was said of a place in the parameters and of all that it is part of; none if nothing
    /// was. A signature may speak of thousands of parameters, which are looked up; what else there is, callers have
    /// said, and it is little.
    fn by_place(&self) -> impl Fn(&str) -> Option<Trust> + '_ {
        let is_parameter = |pointer: &str| pointer.rfind('/') == Some(0);
        let others: Vec<_> = self
            .iter()
            .filter(|(pointer, _)| !is_parameter(pointer))
            .collect();
        move |place| {
            // It is part of nothing but all of them.
            if is_parameter(place) {
                return self.0.get(place).max(self.0.get("")).copied();
            }
            let end = place.get(1..).and_then(|rest| rest.find('/'));
            let parameter = &place[..end.map_or(place.len(), |end| end + 1)];
            let holds_at = |pointer: &str| {
                let rest = place.strip_prefix(pointer);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let levels = others.iter().filter(|(pointer, _)| holds_at(pointer));
            let around = levels.map(|(_, level)| *level).max();
            self.0.get(parameter).copied().max(around)
        }
    }

    /// The least trusted of what was said of something that is no parameter; none if nothing was.
    pub fn of_none(&self, is_parameter: impl Fn(&str) -> bool) -> Option<Trust> {
        let is_of_none = |pointer: &str| {
            let name = parameter_of(pointer);
            !pointer.is_empty() && name.is_none_or(|name| !is_parameter(&name))
        };
        let levels = self.iter().filter(|(pointer, _)| is_of_none(pointer));
        levels.map(|(_, level)| level).max()
    }

    /// What the source of a parameter counts as in this call: the worst of what was said of it, of a part of it and of
    /// all parameters, or else the level of the call. Signed is what a signature speaks of: the call's, or one about
    /// the content of this parameter, which also says how good it is at best.
    pub fn level(&self, parameter: &str, call: EffectiveTrust, vouched: Option<Vouched<'_>>) -> Trust {
        let vouched = vouched.filter(|vouched| vouched.is_about(parameter));
        let unsigned = call.level.worse_of(Trust::TrustedInternalUnsigned);
        let best = match vouched {
            Some(vouched) => vouched.level,
            None if call.signed && call.level != unsigned => call.level,
            None => Trust::TrustedInternalUnsigned,
        };
        match self.of(parameter) {
            Some(claimed) => claimed.worse_of(best),
            None => vouched.map_or(call.level, |vouched| call.level.worse_of(vouched.level)),
        }
    }

    /// The levels as they count in this call, for people: signed only where a signature speaks of it, and with what a
    /// signature says of parameters that the caller says nothing of. What is not named still has the level that was
    /// said of the call.
    #[must_use]
    pub fn counted(&self, call: EffectiveTrust, vouched: Option<Vouched<'_>>) -> Self {
        let unsigned = Trust::TrustedInternalUnsigned;
        let best = |pointer: &str| {
            let name = parameter_of(pointer);
            let about = vouched.filter(|vouched| name.as_deref().is_some_and(|name| vouched.is_about(name)));
            about.map_or(call.level.min(unsigned), |vouched| vouched.level)
        };
        let named = self.iter();
        let named = named.map(|(pointer, level)| (pointer.to_owned(), level.worse_of(best(pointer))));
        let mut levels: BTreeMap<_, _> = named.collect();
        if let Some(Vouched { parameters, level }) = vouched {
            debug_assert!(parameters.is_sorted(), "they are looked up");
            let of_call = call.claimed.worse_of(unsigned);
            for name in parameters {
                // What nobody names counts as the call does.
                let said = self.of(name);
                if said.is_some() || level > of_call {
                    levels.insert(pointer_to(name), said.unwrap_or(of_call).worse_of(level));
                }
            }
            // Where it counts as the call does anyway, it would only hide that one of them is signed.
            if of_call == unsigned && levels.get("") == Some(&unsigned) {
                levels.remove("");
            }
        }
        Self(levels)
    }

    /// The worst of what was said of a parameter, of its parts and of all parameters; none if nothing was. It is looked
    /// up: an action may declare a thousand, and a signature may speak of many more.
    fn of(&self, parameter: &str) -> Option<Trust> {
        let mut pointer = pointer_to(parameter);
        let whole = self.0.get(&pointer).max(self.0.get(""));
        // The pointers to its parts begin with this, and so stand behind it one after the other.
        pointer.push('/');
        let first = Bound::Included(pointer.as_str());
        let parts = self.0.range::<str, _>((first, Bound::Unbounded));
        let parts = parts.take_while(|(part, _)| part.starts_with(&pointer));
        parts.map(|(_, level)| level).max().max(whole).copied()
    }
}

/// The pointer to a parameter.
fn pointer_to(parameter: &str) -> String {
    format!("/{}", parameter.replace('~', "~0").replace('/', "~1"))
}

/// The parameter that a pointer is about, or a part of which; none if it is about all of them, or is no pointer.
/// Entries of earlier versions may have such.
fn parameter_of(pointer: &str) -> Option<Cow<'_, str>> {
    let token = pointer.strip_prefix('/')?.split('/').next()?;
    if !token.contains('~') {
        return Some(Cow::Borrowed(token));
    }
    Sources::is_pointer(pointer).then(|| Cow::Owned(token.replace("~1", "/").replace("~0", "~")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(levels: &[(&str, Trust)]) -> Sources {
        let levels = levels
            .iter()
            .map(|(pointer, level)| ((*pointer).to_owned(), *level));
        Sources::new(levels.collect())
    }

    #[test]
    fn a_parameter_has_the_worst_level_of_its_parts_and_of_the_whole() {
        let some = sources(&[
            ("/card/number", Trust::UntrustedExternal),
            ("/card", Trust::SemiTrustedCustomer),
            ("/cards", Trust::Unknown),
            ("/amount", Trust::TrustedInternalSigned),
        ]);
        assert_eq!(some.of("card"), Some(Trust::UntrustedExternal));
        assert_eq!(some.of("recipient"), None);
        assert_eq!(some.worst(), Some(Trust::Unknown));
        let all = sources(&[("", Trust::SemiTrustedCustomer)]);
        assert_eq!(all.of("recipient"), Some(Trust::SemiTrustedCustomer));
    }

    #[test]
    fn no_place_in_the_parameters_gets_worse_without_being_noticed() {
        let [_, own, customer, outside, ..] = Trust::ALL;
        let is_covered = |shown: &[_], now: &[_]| {
            let (shown, now) = (sources(shown), sources(now));
            now.are_no_worse_than(customer, (&shown, customer))
        };
        assert!(is_covered(&[], &[]));
        assert!(is_covered(&[], &[("/to", customer)]));
        assert!(!is_covered(&[], &[("/to", outside)]));
        assert!(is_covered(&[("/to", customer)], &[("/to", own)]));
        assert!(!is_covered(&[("/to", customer)], &[("/to", outside)]));
        assert!(!is_covered(&[("/to", customer)], &[("/top", outside)]));
        // What is not named any more has the level of the call.
        assert!(!is_covered(&[("/to", own)], &[]));
        assert!(is_covered(&[("/to", outside)], &[]));
        assert!(is_covered(&[("", outside)], &[("/to", outside)]));
        assert!(!is_covered(&[("/to", outside)], &[("", outside)]));
        assert!(is_covered(&[("/to", outside)], &[("/to/0", outside)]));
        for now in ["/to", "/to/1"] {
            assert!(!is_covered(&[("/to/0", outside)], &[(now, outside)]), "{now}");
        }
    }

    #[test]
    fn a_signed_parameter_is_one_that_a_signature_speaks_of() {
        let claim = sources(&[("/amount", Trust::TrustedInternalSigned)]);
        let unsigned = EffectiveTrust::without_signature(Trust::TrustedInternalSigned, None);
        let level = |parameter, vouched| claim.level(parameter, unsigned, vouched);
        let both = ["amount".to_owned(), "recipient".to_owned()];
        let (amount, recipient) = both.split_at(1);
        let about = |parameters, level| Some(Vouched { parameters, level });
        assert_eq!(level("amount", None), Trust::TrustedInternalUnsigned);
        let signed = Trust::TrustedInternalSigned;
        assert_eq!(level("amount", about(amount, signed)), signed);
        assert_eq!(
            level("amount", about(recipient, signed)),
            Trust::TrustedInternalUnsigned
        );
        for parameters in [recipient, &both[..]] {
            assert_eq!(
                level("recipient", about(parameters, Trust::UntrustedExternal)),
                Trust::UntrustedExternal,
                "a signature also says how bad it is, asked or not"
            );
        }
        let call = EffectiveTrust::signed(signed, signed, None);
        assert_eq!(claim.level("amount", call, None), signed);
        assert_eq!(claim.level("recipient", call, None), signed);
    }

    #[test]
    fn what_counts_is_signed_only_by_a_signature_and_has_what_one_says() {
        let [signed, unsigned, customer, outside, ..] = Trust::ALL;
        let call = |claimed| EffectiveTrust::without_signature(claimed, None);
        let by_signature = |vouched| EffectiveTrust::signed(signed, vouched, None);
        let names = ["amount".to_owned(), "a/b".to_owned()];
        let (amount, odd) = names.split_at(1);
        let about = |parameters, level| Some(Vouched { parameters, level });
        let claim: &[_] = &[("/amount", signed), ("/to/0", outside)];
        let unsigned_claim: &[_] = &[("/amount", unsigned), ("/to/0", outside)];
        let bad_claim: &[_] = &[("/amount", outside), ("/to/0", outside)];
        let of_customer: &[_] = &[("/amount", customer)];
        let (of_all, of_amount): (&[_], &[_]) = (&[("", signed)], &[("/amount", signed)]);
        for (said, call, vouched, expected) in [
            (claim, call(signed), None, unsigned_claim),
            (claim, call(unsigned), about(amount, signed), claim),
            (claim, call(unsigned), about(amount, outside), bad_claim),
            (&[], call(unsigned), about(odd, outside), &[("/a~1b", outside)]),
            (&[], call(customer), about(amount, signed), &[]),
            (of_customer, call(unsigned), about(amount, signed), of_customer),
            (of_all, call(unsigned), about(amount, signed), of_amount),
            (claim, by_signature(signed), None, claim),
            (claim, by_signature(unsigned), None, unsigned_claim),
        ] {
            let said = sources(said);
            let counted = said.counted(call, vouched);
            assert_eq!(counted, sources(expected));
            // Policies see the same.
            for name in ["amount", "a/b", "to"] {
                let level = counted.of(name).unwrap_or(call.level);
                assert_eq!(level, said.level(name, call, vouched), "{name}");
            }
        }
    }

    #[test]
    fn what_a_signature_says_of_very_many_parameters_is_counted_and_compared() {
        let mut names: Vec<_> = (0..30_000).map(|number| number.to_string()).collect();
        names.sort_unstable();
        let vouched = Vouched {
            parameters: &names,
            level: Trust::UntrustedExternal,
        };
        let call = EffectiveTrust::without_signature(Trust::TrustedInternalUnsigned, None);
        let said = (0..256).map(|number| (format!("/{number}/a"), Trust::Unknown));
        let said = Sources::new(said.collect());
        // It takes minutes where each is compared with each.
        let (counted, alone) = (said.counted(call, Some(vouched)), said.counted(call, None));
        assert_eq!(counted.iter().count(), names.len() + 256);
        for name in &names {
            let level = said.level(name, call, Some(vouched));
            assert_eq!(counted.of(name), Some(level), "{name}");
        }
        let is_no_worse = |one: &Sources, other| one.are_no_worse_than(call.level, (other, call.level));
        assert!(is_no_worse(&counted, &counted));
        assert!(is_no_worse(&alone, &counted));
        assert!(!is_no_worse(&counted, &alone));
    }

    #[test]
    fn what_is_looked_up_is_what_is_found_where_each_is_compared_with_each() {
        const POINTERS: [&str; 13] = [
            "", "/", "/a", "/a-", "/a-/x", "/a/0", "/a/0/b", "/a0", "/a~1b", "/a~1b/0", "/a~", "//a", "a",
        ];
        const NAMES: [&str; 8] = ["", "-", "a", "a-", "a/b", "a0", "a~", "b"];
        let holds_at = |pointer: &str, place: &str| {
            let rest = place.strip_prefix(pointer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_about = |pointer: &str, name: &str| pointer.is_empty() || holds_at(&pointer_to(name), pointer);
        let [_, own, customer, outside, ..] = Trust::ALL;
        let count = POINTERS.len();
        for number in 0..count.pow(3) {
            let [one, other, third] = [1, count, count * count].map(|place| POINTERS[number / place % count]);
            let said = sources(&[(one, own), (other, customer), (third, outside)]);
            let worst = |is_meant: &dyn Fn(&str) -> bool| {
                let meant = said.iter().filter(|(pointer, _)| is_meant(pointer));
                meant.map(|(_, level)| level).max()
            };
            for name in NAMES {
                let plainly = worst(&|pointer: &str| is_about(pointer, name));
                assert_eq!(said.of(name), plainly, "{name:?} in {said:?}");
            }
            let at = said.by_place();
            for place in POINTERS {
                let plainly = worst(&|pointer: &str| holds_at(pointer, place));
                assert_eq!(at(place), plainly, "{place:?} in {said:?}");
            }
        }
        let names = NAMES.map(str::to_owned);
        for (start, end) in (0..=names.len()).flat_map(|end| (0..=end).map(move |start| (start, end))) {
            let vouched = Vouched {
                parameters: &names[start..end],
                level: outside,
            };
            for name in &names {
                let is_listed = vouched.parameters.contains(name);
                assert_eq!(vouched.is_about(name), is_listed, "{name:?} in {vouched:?}");
            }
        }
    }

    #[test]
    fn a_name_with_the_signs_of_a_pointer_is_found() {
        let odd = sources(&[("/a~1b~0c", Trust::Unknown), ("/a", Trust::SemiTrustedCustomer)]);
        assert_eq!(odd.of("a/b~c"), Some(Trust::Unknown));
        assert_eq!(odd.of("a"), Some(Trust::SemiTrustedCustomer));
        let is_parameter = |name: &str| ["a", "a/b~c"].contains(&name);
        assert_eq!(odd.of_none(is_parameter), None);
    }

    #[test]
    fn what_is_said_of_no_parameter_is_found() {
        let is_parameter = |name: &str| ["recipient", "c~d"].contains(&name);
        for stray in [
            "/recipent",
            "/recipient~",
            "/c~d",
            "/c~2d",
            "/",
            "/recipient~1x",
            "//recipient",
        ] {
            let some = sources(&[
                (stray, Trust::UntrustedExternal),
                ("/recipient/0", Trust::SemiTrustedCustomer),
            ]);
            assert_eq!(
                some.of_none(is_parameter),
                Some(Trust::UntrustedExternal),
                "{stray}"
            );
        }
        let all = sources(&[("", Trust::Unknown), ("/recipent", Trust::UntrustedExternal)]);
        assert_eq!(all.of_none(is_parameter), Some(Trust::UntrustedExternal));
    }

    #[test]
    fn a_pointer_begins_with_a_slash_and_has_two_escapes() {
        for pointer in ["", "/", "/a", "/a/0", "/~0~1", "//"] {
            assert!(Sources::is_pointer(pointer), "{pointer}");
        }
        for odd in ["a", "~0", "/~", "/a~", "/a~2", "/~~0", "/a/b~c"] {
            assert!(!Sources::is_pointer(odd), "{odd}");
        }
    }
}
