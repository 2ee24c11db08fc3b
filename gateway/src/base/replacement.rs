//! Base policies that are to be put in force, with what is compiled under them so far. A try that fails, for whatever
//! reason, leaves it to the next one, which compiles only what has changed since then.

use crate::compiling;
use crate::http::{Code, Refusal};
use engine::{Recompiled, Snapshot, TenantSnapshot};
use model::TenantId;
use policy::{BasePolicies, Compiler, Diagnostics};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most findings that a refused reload names. A file that does not fit one tenant may not fit thousands.
const DIAGNOSTICS_MAX: usize = 100;

/// Base policies on their way into force. Cloning shares what is compiled.
#[derive(Clone)]
pub(super) struct Replacement {
    recompiled: Recompiled,
    misfits: BTreeMap<TenantId, Misfit>,
}

/// A tenant that they do not fit.
#[derive(Clone)]
struct Misfit {
    /// As it was when it was looked at last. Until something changes that policies are compiled from, they do not fit it.
    tenant: Arc<TenantSnapshot>,
    diagnostics: Diagnostics,
}

impl Replacement {
    /// These, under which nothing is compiled yet.
    pub(super) fn new(base: BasePolicies) -> Self {
        Self {
            recompiled: Recompiled::new(Arc::new(Compiler::new(base))),
            misfits: BTreeMap::new(),
        }
    }

    /// The base policies.
    pub(super) fn base(&self) -> &BasePolicies {
        self.recompiled.compiler().base()
    }

    /// What is compiled under them.
    pub(super) const fn recompiled(&self) -> &Recompiled {
        &self.recompiled
    }

    /// Compiles for all tenants of a snapshot in which something that policies are compiled from has changed since it
    /// was done last.
    pub(super) fn recompile_missing(&mut self, snapshot: &Snapshot) {
        self.recompiled.note(snapshot);
        let missing: Vec<_> = self.recompiled.missing(snapshot).map(Arc::clone).collect();
        let mut before = std::mem::take(&mut self.misfits);
        for tenant in missing {
            let id = tenant.directory.tenant.id;
            let known = before.remove(&id);
            if let Some(Misfit { diagnostics, .. }) =
                known.filter(|misfit| misfit.tenant.compiles_as(&tenant))
            {
                self.misfits.insert(id, Misfit { tenant, diagnostics });
                continue;
            }
            match compiling::compile(self.recompiled.compiler(), &tenant.directory) {
                Ok(policies) => self.recompiled.insert(tenant, Arc::new(policies)),
                Err(diagnostics) => {
                    self.misfits.insert(id, Misfit { tenant, diagnostics });
                }
            }
        }
    }

    /// Refuses them if there was a tenant that they do not fit.
    pub(super) fn check_fits(&self) -> Result<(), Refusal> {
        if self.misfits.is_empty() {
            return Ok(());
        }
        let findings = self.misfits.iter().flat_map(|(tenant, misfit)| {
            let findings = misfit.diagnostics.0.iter();
            findings.map(move |finding| {
                let mut told = json!(finding);
                told["tenant"] = json!(tenant);
                told
            })
        });
        let tenants = match self.misfits.len() {
            1 => "a tenant".to_owned(),
            more => format!("{more} tenants"),
        };
        let detail = format!("the base policies in the file do not fit {tenants}, so those in force stay");
        let findings: Vec<_> = findings.take(DIAGNOSTICS_MAX).collect();
        Err(Refusal::new(Code::PolicyInvalid, detail).with_diagnostics(json!(findings)))
    }

    /// Whether a tenant that they did not fit has changed something that policies are compiled from, or was deleted.
    pub(super) fn may_fit(&self, snapshot: &Snapshot) -> bool {
        let has_moved = |(id, misfit): (&TenantId, &Misfit)| {
            let now = snapshot.tenant(*id);
            now.is_none_or(|now| !misfit.tenant.compiles_as(now))
        };
        self.misfits.iter().any(has_moved)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use model::{Attributes, Directory, Name, Noun, Team, Tenant, Tool, Write};

    /// A tenant for which the attribute that the policies look at is a text.
    const TEXT: TenantId = TenantId::from_bytes([1; 16]);
    /// One for which it is a number, which they do not fit.
    const NUMBER: TenantId = TenantId::from_bytes([2; 16]);

    /// Base policies that fit one of two tenants, and nothing compiled under them.
    pub(in crate::base) fn replacement() -> Replacement {
        let blocked = r#"@id("blocked") forbid (principal, action, resource)
            when { context.attributes has ticket && context.attributes.ticket like "blocked*" };"#;
        Replacement::new(BasePolicies::parse(blocked).unwrap())
    }

    /// Both tenants.
    pub(in crate::base) fn snapshot() -> Snapshot {
        let compiler = Arc::new(Compiler::new(BasePolicies::parse("").unwrap()));
        let mut snapshot = Snapshot::new(Arc::clone(&compiler));
        for (id, ticket) in [(TEXT, "String"), (NUMBER, "Long")] {
            let mut directory = Directory::new(Arc::new(tenant(id, ticket)));
            directory.apply(&Write::Put(Noun::Tool(Arc::new(tool()))));
            let policies = compiling::compile(&compiler, &directory).unwrap();
            snapshot.insert(TenantSnapshot::new(directory, Arc::new(policies), 7));
        }
        snapshot
    }

    /// The tenants after a change of what no policy is compiled from.
    pub(in crate::base) fn with_teams(snapshot: &Snapshot) -> Snapshot {
        let team = Team {
            name: Name::new("crew").unwrap(),
            attributes: Attributes::default(),
            quotas: Vec::new(),
        };
        let write = Write::Put(Noun::Team(Arc::new(team)));
        let mut after = snapshot.clone();
        for id in [TEXT, NUMBER] {
            after.advance(id, std::slice::from_ref(&write), None);
        }
        after
    }

    /// The tenants after a change that makes the base policies fit both.
    pub(in crate::base) fn mended(snapshot: &Snapshot) -> Snapshot {
        let write = Write::Put(Noun::Tenant(Arc::new(tenant(NUMBER, "String"))));
        let mut after = snapshot.clone();
        after.advance(NUMBER, &[write], None);
        after
    }

    /// The tenants after the one that the base policies do not fit was deleted.
    fn deleted(snapshot: &Snapshot) -> Snapshot {
        let mut gone = tenant(NUMBER, "Long");
        gone.deleted_at = Some(model::Timestamp::from_millis(1));
        let mut after = snapshot.clone();
        after.advance(NUMBER, &[Write::Put(Noun::Tenant(Arc::new(gone)))], None);
        after
    }

    fn tenant(id: TenantId, ticket: &str) -> Tenant {
        let tenant = json!({"id": id, "name": "acme", "settings": {"context_attributes": {"ticket": ticket}},
            "bucket": null, "status": "active", "created_at": "1970-01-01T00:00:00.000Z"});
        serde_json::from_value(tenant).unwrap()
    }

    fn tool() -> Tool {
        let read = json!({"name": "read", "mutates_state": false, "risk": "low"});
        let tool = json!({"name": "github", "status": "active", "created_at": "1970-01-01T00:00:00.000Z",
            "actions": {"read": read}});
        serde_json::from_value(tool).unwrap()
    }

    fn missing(replacement: &Replacement, snapshot: &Snapshot) -> Vec<TenantId> {
        let missing = replacement.recompiled().missing(snapshot);
        missing.map(|tenant| tenant.directory.tenant.id).collect()
    }

    #[test]
    fn what_fits_stays_compiled_beside_what_does_not() {
        let (snapshot, mut replacement) = (snapshot(), replacement());
        assert_eq!(missing(&replacement, &snapshot), [TEXT, NUMBER]);
        replacement.recompile_missing(&snapshot);
        assert_eq!(missing(&replacement, &snapshot), [NUMBER]);
        assert_eq!(replacement.check_fits().unwrap_err().code(), Code::PolicyInvalid);
        assert_eq!(missing(&replacement, &with_teams(&snapshot)), [NUMBER]);
        let mended = mended(&snapshot);
        replacement.recompile_missing(&mended);
        assert!(missing(&replacement, &mended).is_empty());
        assert!(replacement.check_fits().is_ok());
    }

    #[test]
    fn what_does_not_fit_is_compiled_again_only_when_it_may() {
        let (snapshot, mut replacement) = (snapshot(), replacement());
        replacement.recompile_missing(&snapshot);
        assert!(!replacement.may_fit(&snapshot));
        // Findings that were made again would be equal, and not the same ones.
        let findings = replacement.misfits[&NUMBER].diagnostics.0.as_ptr();
        let busy = with_teams(&snapshot);
        assert!(!replacement.may_fit(&busy));
        replacement.recompile_missing(&busy);
        assert_eq!(replacement.misfits[&NUMBER].diagnostics.0.as_ptr(), findings);
        assert!(replacement.check_fits().is_err());
        assert!(replacement.may_fit(&mended(&busy)));
    }

    #[test]
    fn a_tenant_that_was_deleted_stands_in_nobodys_way() {
        let (snapshot, mut replacement) = (snapshot(), replacement());
        replacement.recompile_missing(&snapshot);
        let deleted = deleted(&snapshot);
        assert!(replacement.may_fit(&deleted));
        replacement.recompile_missing(&deleted);
        assert!(missing(&replacement, &deleted).is_empty());
        assert!(replacement.check_fits().is_ok());
    }

    #[test]
    fn what_was_looked_at_is_let_go_for_what_compiles_alike() {
        let (snapshot, mut replacement) = (snapshot(), replacement());
        let before = Arc::downgrade(snapshot.tenant(TEXT).unwrap());
        replacement.recompile_missing(&snapshot);
        let busy = with_teams(&snapshot);
        replacement.recompile_missing(&busy);
        drop(snapshot);
        assert!(before.upgrade().is_none());
        assert_eq!(missing(&replacement, &busy), [NUMBER]);
    }
}
