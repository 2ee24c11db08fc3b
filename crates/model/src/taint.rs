//! What a run has seen: the least trusted source among all asks and observations of it and of the runs that belong to it.
//!
//! A run and those that it starts are a family: whatever one of them has read, the others may act on. So a family has one
//! level, kept with the run that began it, and it can only get worse.

use crate::name::Name;
use crate::trust::Trust;

/// How deep a family may nest does not matter: every run knows who began it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTaint {
    /// What its agents call it.
    pub run_id: Name,
    /// The run that began the family: itself, unless another one started it.
    pub root: Name,
    /// The least trusted source that the family has seen.
    pub worst: Trust,
}

impl RunTaint {
    /// A run that nobody started.
    pub fn beginning(run_id: Name, seen: Trust) -> Self {
        Self {
            root: run_id.clone(),
            run_id,
            worst: seen,
        }
    }

    /// A run that this one, or one of its family, has started.
    #[must_use]
    pub fn child(&self, run_id: Name) -> Self {
        Self {
            run_id,
            ..self.clone()
        }
    }

    /// After the family has seen this.
    #[must_use]
    pub fn after(&self, seen: Trust) -> Self {
        Self {
            worst: self.worst.worse_of(seen),
            ..self.clone()
        }
    }
}

/// What a tenant makes of calls that would change something in a run that has seen what is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaintRule {
    /// Nothing; its policies can.
    #[default]
    Off,
    /// People have to approve.
    Approve,
    /// They are denied.
    Deny,
}

impl TaintRule {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_only_gets_worse() {
        let root = RunTaint::beginning(Name::new("run-1").unwrap(), Trust::SemiTrustedCustomer);
        assert_eq!(root.after(Trust::TrustedInternalUnsigned), root);
        let child = root.child(Name::new("run-2").unwrap());
        assert_eq!((child.root.as_str(), child.worst), ("run-1", root.worst));
        assert_eq!(child.after(Trust::Unknown).worst, Trust::Unknown);
    }
}
