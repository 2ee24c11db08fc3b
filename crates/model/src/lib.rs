//! The nouns of Countersign: ids, names, times, agents, tools, keys, and the directory that holds a tenant's.
//!
//! A map of the crate:
//! - [`id`], [`name`], [`time`], [`entropy`], [`secret`]: the small values that everything else is made of;
//! - [`trust`], [`verdict`]: the words of a decision;
//! - [`tenant`], [`agent`], [`key`], [`people`], [`policy`], [`tool`], [`bucket`]: one noun each, whose changes are methods;
//! - [`standing`]: whether an agent, a tool, a run or a tenant may act at all;
//! - [`issuer`]: who may sign tokens, and for what; `log_key`: a key that answers are signed with, as it is published;
//! - [`quota`]: how often agents are allowed to act, and how much of that is used;
//! - [`rule`]: what is done about an agent when the ledger shows too much of something;
//! - [`run`], [`taint`]: runs that were stopped, and what runs have seen;
//! - [`approval`]: what people are asked before an action, and what they said;
//! - [`amount`], [`budget`], [`reservation`]: what may be spent, by whom, and what of it is held;
//! - [`usage`]: how much of that is used, as policies see it;
//! - [`sources`]: where single parameters of an ask came from;
//! - [`parameter_recording`]: what is recorded of an ask's parameters;
//! - [`base`]: which base policies were put in force last;
//! - [`directory`]: all nouns of one tenant, as one immutable value.
//!
//! It does no I/O, reads no clock and takes no randomness of its own ([`time::Clock`] and [`entropy::Entropy`] are
//! arguments). It does not know Cedar, SQL or HTTP.

pub mod agent;
pub mod amount;
pub mod approval;
pub mod base;
pub mod bucket;
pub mod budget;
pub mod directory;
pub mod entropy;
pub mod id;
pub mod issuer;
pub mod key;
mod log_key;
pub mod name;
pub mod parameter_recording;
pub mod people;
pub mod policy;
pub mod quota;
pub mod reservation;
pub mod rule;
pub mod run;
pub mod secret;
pub mod sources;
pub mod standing;
pub mod taint;
pub mod tenant;
pub mod time;
pub mod tool;
pub mod trust;
pub mod usage;
pub mod verdict;

pub use agent::{Agent, AgentToken, RiskTier, ToolAccess};
pub use amount::{Amount, AmountOverflow, Estimate, Unit};
pub use approval::{Approval, ApprovalStatus, ApprovalTerms};
pub use base::BaseInForce;
pub use bucket::Bucket;
pub use budget::{Budget, Charge, Overage, Period, RunLink, Scope, Subject};
pub use directory::{Directory, Noun, NounKind, Write};
pub use entropy::{Entropy, SystemEntropy};
pub use id::{AgentId, ApprovalId, BudgetId, DecisionId, KeyId, ReservationId, TenantId, TokenId};
pub use issuer::{FormerIssuer, Issuer, IssuerTerms, Purpose};
pub use key::{ApiKey, DeletedKey, Role};
pub use log_key::LogKey;
pub use name::{NAME_BYTES_MAX, Name, SlashFreeName};
pub use parameter_recording::{ParameterRecording, Pointer};
pub use people::{Attributes, Team, User};
pub use policy::{Policy, PolicyLink, PolicyMode, PolicyText, PolicyVersion, Trial};
pub use quota::{ActionGroup, Counter, LimitTerms, Quota, Window};
pub use reservation::{Reservation, ReservationStatus};
pub use rule::Rule;
pub use run::StoppedRun;
pub use secret::{Secret, SecretKind};
pub use sources::{Sources, Vouched};
pub use standing::{Standing, StandingChange};
pub use taint::{RunTaint, TaintRule};
pub use tenant::{AttributeType, Settings, SourceRule, Tenant};
pub use time::{Clock, SystemClock, Timestamp};
pub use tool::{HeldDefinition, Risk, Tool, ToolAction};
pub use trust::{EffectiveTrust, Trust};
pub use usage::Usage;
pub use verdict::{ReasonCode, Verdict};
