//! Which run and which decision a body is of: read where evidence is put together and where it is verified, by one rule.

use serde::Deserialize;
use std::borrow::Cow;

/// The members of a body by which its run is known.
#[expect(clippy::struct_field_names, reason = "they are called as in the body")]
#[derive(Default, Deserialize)]
pub(crate) struct Whose<'a> {
    #[serde(borrow)]
    run_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    parent_run_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) decision_id: Option<Cow<'a, str>>,
}

impl Whose<'_> {
    /// Its run: of an ask that names only who started it, that one.
    pub(crate) fn run(&self) -> Option<&str> {
        self.run_id.as_deref().or(self.parent_run_id.as_deref())
    }
}
