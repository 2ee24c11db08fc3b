//! Records of Cedar's from a few pairs.
//!
//! Members are inserted one by one: a map that is collected is made of a sorted list, which costs more than a handful of
//! comparisons, and every ask needs several maps.

use cedar_policy_core::ast::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A record with these members. Their names differ.
pub(crate) fn record<'a>(pairs: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::record_arc(Arc::new(members(pairs)), None)
}

/// The members of a record, under whichever type of text it has them.
pub(crate) fn members<'a, K: Ord + From<&'a str>>(
    pairs: impl IntoIterator<Item = (&'a str, Value)>,
) -> BTreeMap<K, Value> {
    let mut members = BTreeMap::new();
    for (name, value) in pairs {
        members.insert(name.into(), value);
    }
    members
}
