//! From what is known of a tenant to what it is now, by what the store says has changed.

use crate::compiling;
use crate::start::StartError;
use engine::TenantSnapshot;
use model::Write;
use policy::Compiler;
use std::sync::Arc;
use store::{ChangedNoun, ChangedTenant};

/// A tenant as it is to be put in force.
pub(super) struct Made {
    /// How it is now.
    pub(super) tenant: TenantSnapshot,
    /// Whether its policies were compiled for that: only then it tells how long they take.
    pub(super) was_compiled: bool,
}

/// A tenant as it is now: what it was before, with what has changed since. Its policies are compiled anew only where
/// something has changed that they are compiled from.
pub(super) fn bring_on(
    compiler: &Compiler,
    before: &TenantSnapshot,
    changed: ChangedTenant,
) -> Result<Made, StartError> {
    let tenant = changed.tenant;
    let writes = changed.nouns.into_iter().filter_map(|noun| match noun {
        ChangedNoun::There(noun) => Some(Write::Put(noun)),
        // What is not known has come and gone since.
        ChangedNoun::Gone { kind, id } => before.directory.noun(kind, &id).map(Write::Delete),
    });
    let writes: Vec<_> = writes.collect();
    let mut after = before.after(&writes, changed.position.revision);
    let was_compiled = !before.compiles_as(&after);
    if was_compiled {
        let policies = compiling::compile(compiler, &after.directory);
        let policies = policies.map_err(|diagnostics| StartError::Policies { tenant, diagnostics })?;
        after.policies = Arc::new(policies);
    }
    Ok(Made {
        tenant: after,
        was_compiled,
    })
}
