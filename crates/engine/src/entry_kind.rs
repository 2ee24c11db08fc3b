//! The kinds of ledger entry: one word for each thing that can happen to authority.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// What kind of thing an entry records.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EntryKind { $($(#[$doc])* $name,)* }

        impl EntryKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word in the ledger.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The kind with this word.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word)
            }
        }
    };
}

kinds! {
    /// An ask was decided.
    Decision = "decision",
    /// An agent said what became of a decision.
    OutcomeReported = "outcome_reported",
    /// A tenant was made.
    TenantCreated = "tenant_created",
    /// A tenant's settings changed.
    TenantUpdated = "tenant_updated",
    /// A tenant was frozen.
    TenantFrozen = "tenant_frozen",
    /// A tenant was unfrozen.
    TenantUnfrozen = "tenant_unfrozen",
    /// A tenant was revoked for good.
    TenantRevoked = "tenant_revoked",
    /// A tenant was deleted; its ledger stays.
    TenantDeleted = "tenant_deleted",
    /// A tenant's limits changed.
    TenantQuotaSet = "tenant_quota_set",
    /// An API key was made.
    KeyCreated = "key_created",
    /// An API key was deleted.
    KeyDeleted = "key_deleted",
    /// A team was made or changed.
    TeamPut = "team_put",
    /// A team's quotas changed.
    TeamQuotaSet = "team_quota_set",
    /// A team was deleted.
    TeamDeleted = "team_deleted",
    /// A user was made or changed.
    UserPut = "user_put",
    /// A user was deleted.
    UserDeleted = "user_deleted",
    /// An issuer of tokens was registered.
    IssuerCreated = "issuer_created",
    /// An issuer's keys were replaced.
    IssuerUpdated = "issuer_updated",
    /// An issuer was deleted: its tokens are worth nothing any more.
    IssuerDeleted = "issuer_deleted",
    /// A containment rule was made or changed.
    RulePut = "rule_put",
    /// A containment rule was deleted.
    RuleDeleted = "rule_deleted",
    /// A containment rule fired, and nothing was done but to tell.
    AlertRaised = "alert_raised",
    /// An agent was registered.
    AgentCreated = "agent_created",
    /// An agent's facts changed.
    AgentUpdated = "agent_updated",
    /// An agent was frozen.
    AgentFrozen = "agent_frozen",
    /// An agent was unfrozen.
    AgentUnfrozen = "agent_unfrozen",
    /// An agent was revoked for good.
    AgentRevoked = "agent_revoked",
    /// An agent's limits changed.
    AgentQuotaSet = "agent_quota_set",
    /// A token of an agent was made.
    TokenCreated = "token_created",
    /// A token of an agent was deleted.
    TokenDeleted = "token_deleted",
    /// An agent was granted a tool.
    ToolGranted = "tool_granted",
    /// A tool was taken from an agent.
    ToolWithdrawn = "tool_withdrawn",
    /// A tool was registered or its actions replaced.
    ToolPut = "tool_put",
    /// A tool's actions were imported from an MCP server's list.
    ToolImported = "tool_imported",
    /// A changed definition of an action was accepted.
    ActionAccepted = "action_accepted",
    /// A tool was frozen.
    ToolFrozen = "tool_frozen",
    /// A tool was unfrozen.
    ToolUnfrozen = "tool_unfrozen",
    /// A tool was revoked for good.
    ToolRevoked = "tool_revoked",
    /// A tool was deleted.
    ToolDeleted = "tool_deleted",
    /// A run was frozen.
    RunFrozen = "run_frozen",
    /// A run was unfrozen.
    RunUnfrozen = "run_unfrozen",
    /// A run was revoked for good.
    RunRevoked = "run_revoked",
    /// Somebody said what a run has seen.
    RunObserved = "run_observed",
    /// A policy was made, or has a new version.
    PolicyPut = "policy_put",
    /// A policy was deleted.
    PolicyDeleted = "policy_deleted",
    /// An earlier version of a policy was enforced again.
    PolicyRolledBack = "policy_rolled_back",
    /// A policy on trial was enforced.
    PolicyPromoted = "policy_promoted",
    /// A policy was taken out of its trial.
    PolicyReverted = "policy_reverted",
    /// All policies were replaced at once.
    PoliciesReplaced = "policies_replaced",
    /// A person approved what an agent had asked for.
    ApprovalApproved = "approval_approved",
    /// A person rejected it.
    ApprovalRejected = "approval_rejected",
    /// Nobody used an approval in time.
    ApprovalExpired = "approval_expired",
    /// An agent came with an approval that it cannot use.
    ApprovalRefused = "approval_refused",
    /// A budget was made.
    BudgetCreated = "budget_created",
    /// More was put into a budget.
    BudgetFunded = "budget_funded",
    /// Some was taken out of a budget.
    BudgetDebited = "budget_debited",
    /// A budget began anew because somebody wanted it.
    BudgetReset = "budget_reset",
    /// A budget was frozen.
    BudgetFrozen = "budget_frozen",
    /// A budget was unfrozen.
    BudgetUnfrozen = "budget_unfrozen",
    /// A budget was closed for good.
    BudgetClosed = "budget_closed",
    /// A budget began a new period.
    BudgetRolledOver = "budget_rolled_over",
    /// A share of a budget was used.
    BudgetThresholdReached = "budget_threshold_reached",
    /// Something was reserved without a decision.
    ReservationCreated = "reservation_created",
    /// What was spent of a reservation was charged.
    ReservationCommitted = "reservation_committed",
    /// Nothing was spent of a reservation.
    ReservationReleased = "reservation_released",
    /// A reservation is held longer.
    ReservationExtended = "reservation_extended",
    /// Nobody settled a reservation in time.
    ReservationExpired = "reservation_expired",
    /// Something was used without a reservation.
    UsageRecorded = "usage_recorded",
    /// Base policies were put in force on a gateway.
    BasePoliciesPut = "base_policies_put",
    /// A key signs from now on.
    LogKeyAdded = "log_key_added",
    /// A key that was replaced signs no more.
    LogKeyEnded = "log_key_ended",
    /// Bodies of entries were erased.
    BodiesErased = "bodies_erased",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_kinds_share_a_word() {
        let words: std::collections::BTreeSet<_> = EntryKind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(words.len(), EntryKind::ALL.len());
    }

    #[test]
    fn what_can_be_erased_is_of_a_kind_that_is_known() {
        for word in ledger::ERASABLE_KINDS {
            assert!(EntryKind::from_word(word).is_some(), "{word}");
        }
    }
}
