//! Tenants: one organisation's agents, tools, policies and ledger, apart from everybody else's.

use crate::id::TenantId;
use crate::name::Name;
use crate::parameter_recording::{ParameterRecording, Pointer};
use crate::quota::LimitTerms;
use crate::standing::Standing;
use crate::taint::TaintRule;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// The type of a context attribute that callers may send and policies may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributeType {
    /// A string.
    #[serde(alias = "string")]
    String,
    /// A 64-bit integer.
    #[serde(alias = "long", alias = "integer")]
    Long,
    /// True or false.
    #[serde(alias = "boolean", alias = "Bool")]
    Boolean,
    /// A number with at most four decimal places.
    #[serde(rename = "decimal", alias = "Decimal", alias = "number")]
    Decimal,
    /// Any number of strings.
    #[serde(rename = "Set<String>")]
    Strings,
}

/// What a tenant can set for itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The members of `context.attributes` that policies see, and their types.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context_attributes: BTreeMap<Name, AttributeType>,
    /// How limits are kept.
    #[serde(default, skip_serializing_if = "LimitSettings::is_default")]
    pub limits: LimitSettings,
    /// What its policies may do.
    #[serde(default, skip_serializing_if = "PolicySettings::is_default")]
    pub policies: PolicySettings,
    /// What its ledger keeps of parameters.
    #[serde(default, skip_serializing_if = "ParameterRecording::is_default")]
    pub parameters: ParameterRecording,
    /// What of the parameters is left out, where the rest is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<Pointer>,
    /// After how many days of 24 hours what agents did is erased; never, if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erase_after_days: Option<NonZeroU32>,
    /// What it makes of the levels that callers give to single parameters.
    #[serde(default, skip_serializing_if = "SourceRule::is_default")]
    pub sources: SourceRule,
    /// What it makes of changes in a run that has seen what is not trusted.
    #[serde(default, skip_serializing_if = "TaintRule::is_off")]
    pub run_taint: TaintRule,
    /// What holds for its approvals.
    #[serde(default, skip_serializing_if = "ApprovalSettings::is_default")]
    pub approvals: ApprovalSettings,
    /// Whether its agents may ask to be allowed whatever is found, and only be told what it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
}

impl Settings {
    /// The names of those that policies are compiled with.
    pub const OF_POLICIES: [&str; 2] = ["context_attributes", "policies"];

    /// Those that policies are compiled with. All are named here, so that whoever adds one says whether it is one of these.
    pub fn of_policies(&self) -> (&BTreeMap<Name, AttributeType>, PolicySettings) {
        let Self {
            context_attributes,
            policies,
            limits: _,
            parameters: _,
            redact: _,
            erase_after_days: _,
            sources: _,
            run_taint: _,
            approvals: _,
            observe: _,
        } = self;
        (context_attributes, *policies)
    }
}

/// What a tenant's policies may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySettings {
    /// Whether they may permit what the base policies do not; otherwise they can only forbid and advise.
    #[serde(default = "yes")]
    pub may_permit: bool,
}

const fn yes() -> bool {
    true
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self { may_permit: true }
    }
}

impl PolicySettings {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a tenant makes of the levels that callers give to single parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceRule {
    /// The least trusted of them counts for the whole call.
    #[default]
    Call,
    /// Each counts for its parameter: the tenant's policies say what may come from where.
    Parameter,
}

impl SourceRule {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The least and the most that approvals may last, in seconds: one minute to one week.
const APPROVAL_SECONDS: std::ops::RangeInclusive<u32> = 60..=604_800;

/// What holds for a tenant's approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalSettings {
    /// How long after it was asked for an approval can be used, in seconds.
    #[serde(deserialize_with = "approval_seconds")]
    pub expire_after_seconds: u32,
}

impl Default for ApprovalSettings {
    fn default() -> Self {
        Self {
            expire_after_seconds: 3_600,
        }
    }
}

impl ApprovalSettings {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// When an approval expires that is asked for now.
    pub fn expires_at(self, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.millis() + i64::from(self.expire_after_seconds) * 1_000)
    }
}

fn approval_seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let seconds = u32::deserialize(deserializer)?;
    if APPROVAL_SECONDS.contains(&seconds) {
        return Ok(seconds);
    }
    let (least, most) = (APPROVAL_SECONDS.start(), APPROVAL_SECONDS.end());
    Err(serde::de::Error::custom(format!(
        "an approval lasts from {least} to {most} seconds"
    )))
}

/// How a tenant's limits are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// Whether all gateways together admit what a bucket allows, exactly, and not each of them.
    #[serde(default)]
    pub shared: bool,
}

impl LimitSettings {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// What people call it.
    pub name: Name,
    /// What it has set.
    pub settings: Settings,
    /// Whether its agents may act.
    #[serde(flatten)]
    pub standing: Standing,
    /// How often its agents together are allowed to act.
    #[serde(flatten)]
    pub limits: LimitTerms,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was deleted: nobody can sign in any more, and its ledger stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

impl Tenant {
    /// The tenant with another standing.
    #[must_use]
    pub fn with_standing(&self, standing: Standing) -> Self {
        Self {
            standing,
            ..self.clone()
        }
    }
}
