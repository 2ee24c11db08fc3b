//! The promises of storage as tests: one function a promise, run against every backend.
//!
//! A backend says how a store of its own is opened and opened again ([`Fixture`]) and calls
//! [`conformance_tests!`](crate::conformance_tests), so a promise that is added here is asked of all of them at once. A
//! function returns if the promise is kept and panics if not.
#![expect(clippy::unwrap_used, reason = "these are tests: a panic is a broken promise")]

pub mod appends;
pub mod approvals;
pub mod buckets;
pub mod budgets;
pub mod commits;
pub mod counters;
pub mod directories;
pub mod erasures;
pub mod index;
pub mod records;
pub mod requests;
pub mod runs;
pub mod sample;
pub mod search;

use crate::{Batch, CommitError, FoundRequest, RequestKey, Store, StoredTenant};
use async_trait::async_trait;
use model::{DecisionId, TenantId};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many rounds of a test may be spoilt by a machine that stands still for longer than a turn may last or is waited for.
pub const STALLS_MAX: usize = 3;
/// What fails sooner did not fail because the machine stood still: no server gives anybody up after so short a time.
const STALL_TIME_MIN: Duration = Duration::from_millis(1_500);

/// An empty database, and how to open it.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Opens the database. Called once, before anything else.
    async fn open(&self) -> Arc<dyn Store>;

    /// Closes it and opens it again, as the next process would.
    async fn reopen(&self) -> Arc<dyn Store>;
}

pub use crate::commit_in_turn as try_commit;

/// Commits what must go through.
pub async fn commit(store: &dyn Store, batch: &Batch) {
    settle(|| try_commit(store, batch))
        .await
        .expect("a batch that hangs together is written");
}

/// What becomes of a batch whose writing is tried again where the machine stood still. What is refused at once is not
/// tried again.
pub async fn settle<F>(mut write: impl FnMut() -> F) -> Result<(), CommitError>
where
    F: Future<Output = Result<(), CommitError>>,
{
    let mut stalls = 0;
    loop {
        let begin = Instant::now();
        match write().await {
            Err(error) if stood_still(&error) && begin.elapsed() > STALL_TIME_MIN && stalls < STALLS_MAX => {
                stalls += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Whether a batch may not have been written because the machine stood still for longer than a turn may last or is
/// waited for: that is neither because two waited for each other, nor because one did not see what the other had
/// written.
pub fn stood_still(error: &CommitError) -> bool {
    let text = causes(error);
    let is_ours = text.contains("deadlock") || text.contains("serialize");
    matches!(error, CommitError::NotWritten(_)) && !is_ours
}

/// An error with all that caused it.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Commits what must not go through, and returns why.
pub async fn refused(store: &dyn Store, batch: &Batch) -> CommitError {
    try_commit(store, batch)
        .await
        .expect_err("the batch must not be written")
}

/// All tenants, by id.
pub async fn load(store: &dyn Store) -> Vec<StoredTenant> {
    let mut tenants = store.load(None).await.expect("the store can be loaded");
    tenants.sort_by_key(|tenant| tenant.tenant);
    tenants
}

/// Looks requests up in a turn of its own.
pub async fn find_requests(store: &dyn Store, keys: &[RequestKey]) -> Vec<FoundRequest> {
    let mut turn = store.begin(&[]).await.unwrap();
    turn.find_requests(keys).await.unwrap()
}

/// Looks outcomes up in a turn of its own.
pub async fn find_outcomes(store: &dyn Store, decisions: &[(TenantId, DecisionId)]) -> Vec<DecisionId> {
    let mut turn = store.begin(&[]).await.unwrap();
    turn.find_outcomes(decisions).await.unwrap()
}

/// Makes one `#[tokio::test]` of each promise. The argument is a function that makes a [`Fixture`].
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:path) => {
        $crate::conformance_tests! { @each $fixture;
            commits::a_new_store_is_empty,
            commits::a_commit_moves_the_heads_of_its_tenants,
            commits::a_turn_says_where_its_tenants_stand,
            commits::a_turn_that_is_given_back_wrote_nothing,
            commits::turns_for_the_same_tenant_wait_for_each_other,
            commits::a_commit_from_another_head_writes_nothing,
            commits::of_two_commits_from_one_head_only_one_lands,
            commits::a_batch_that_does_not_hang_together_is_not_written,
            commits::a_batch_whose_last_row_cannot_be_written_leaves_nothing,
            commits::batches_of_every_size_are_written_whole,
            commits::a_thousand_decisions_fit_in_one_batch,
            commits::what_was_committed_is_there_after_reopening,
            commits::a_commit_whose_caller_goes_away_is_there_whole_or_not_at_all,
            appends::what_is_appended_is_written_like_what_is_committed,
            appends::an_append_from_another_head_writes_nothing,
            appends::what_changes_with_a_batch_is_appended_with_it_or_not_at_all,
            appends::of_many_appends_from_one_head_only_one_lands,
            appends::a_request_that_was_recorded_is_not_appended_again,
            appends::an_append_whose_caller_goes_away_is_there_whole_or_not_at_all,
            directories::nouns_of_every_kind_are_loaded_as_they_were_put,
            directories::a_noun_is_replaced_and_taken_away,
            directories::an_agents_name_is_unique_within_its_tenant,
            directories::writes_of_one_batch_take_effect_in_order,
            directories::a_tenant_stays_in_its_own_directory,
            directories::only_the_tenants_that_are_named_are_loaded,
            directories::what_has_changed_since_leads_to_what_is_there,
            directories::a_database_that_is_written_to_stays_the_same,
            directories::revisions_are_those_of_the_last_commits,
            requests::a_recorded_request_is_found_with_its_answer,
            requests::a_request_that_was_not_recorded_is_not_found,
            requests::many_requests_are_found_in_one_call,
            requests::a_request_id_is_recorded_once_an_agent,
            requests::an_outcome_is_found_and_recorded_once,
            records::the_head_is_where_the_last_commit_left_it,
            records::a_chain_still_has_the_heads_that_it_had,
            records::the_tree_is_kept_with_the_chain,
            records::a_ledger_ends_where_the_last_commit_left_it,
            records::entries_come_in_order_and_within_the_limit,
            records::large_bodies_are_read_few_at_a_time,
            records::a_decision_and_its_receipt_are_found_by_id,
            records::entries_come_with_their_decisions_and_receipts,
            records::what_one_tenant_recorded_is_not_seen_by_another,
            records::an_unknown_tenant_has_recorded_nothing,
            records::a_read_sees_every_commit_that_returned_before_it,
            records::what_is_read_behind_is_what_was_recorded_and_ends_with_the_store,
            records::the_size_grows_with_what_is_recorded,
            records::contents_are_found_by_their_digest_once_they_are_written,
            records::contents_are_there_with_their_batch_or_not_at_all,
            search::every_filter_finds_what_it_names_and_nothing_else,
            search::filters_together_narrow_the_search,
            search::decisions_are_found_at_their_entries,
            search::pages_do_not_shift_while_decisions_arrive,
            search::a_rare_match_far_back_is_found,
            erasures::an_erased_body_is_gone_with_all_that_tells_of_it,
            erasures::an_outcome_behind_the_erasure_of_its_decision_is_not_recorded,
            erasures::what_was_held_is_gone_with_the_body_that_told_of_it,
            erasures::a_body_is_erased_once,
            erasures::an_erasure_that_nothing_tells_of_is_not_written,
            index::what_was_put_is_found_by_its_terms,
            index::a_block_is_put_by_whoever_has_the_claim,
            index::a_claim_of_a_clock_that_was_ahead_is_not_waited_for,
            index::a_block_that_is_taken_out_by_force_is_gone,
            index::a_block_of_many_terms_is_put_and_taken_out_whole,
            approvals::an_approval_is_as_it_was_written_last,
            approvals::an_approval_that_changes_twice_in_a_batch_is_as_at_its_end,
            approvals::a_batch_that_is_not_written_changes_no_approval,
            approvals::approvals_are_listed_newest_first_by_what_is_asked_for,
            approvals::approvals_are_looked_for_among_so_many_at_a_time,
            approvals::large_approvals_are_listed_few_at_a_time,
            approvals::open_approvals_are_found_when_their_time_is_over,
            approvals::an_approval_is_its_tenants_alone,
            runs::a_family_of_runs_has_the_level_of_the_one_that_began_it,
            runs::a_run_is_its_tenants_alone,
            counters::a_counter_is_what_was_written_last,
            counters::a_counter_is_its_tenants_alone,
            counters::counters_are_listed_in_the_order_of_their_keys,
            counters::counters_that_nothing_was_counted_in_for_long_are_forgotten,
            counters::old_counters_are_forgotten_wherever_they_are,
            counters::nobody_has_to_give_up_a_turn_where_no_counter_is_old,
            budgets::a_budget_is_as_it_was_written_last,
            budgets::a_budget_is_found_by_exactly_what_it_is_for,
            budgets::of_one_scope_and_unit_one_budget_is_open,
            budgets::budgets_are_listed_by_unit_and_whether_they_are_open,
            budgets::budgets_are_looked_for_among_so_many_at_a_time,
            budgets::open_budgets_are_listed_by_what_they_are_for,
            budgets::reservations_are_as_they_were_written_last,
            budgets::reservations_that_should_have_ended_first_are_found_first,
            budgets::reservations_are_looked_for_among_so_many_at_a_time,
            budgets::the_first_end_is_that_of_what_is_held,
            budgets::an_ancestry_of_runs_is_found_upwards_and_never_changed,
            budgets::an_answer_is_found_by_who_asked_and_under_which_key,
            budgets::an_answer_is_kept_where_nothing_moves,
            budgets::answers_are_forgotten_that_were_given_long_ago,
            budgets::budgets_are_written_beside_whatever_else_a_batch_changes,
            budgets::any_number_of_budgets_is_written_at_once,
            budgets::reservations_move_with_any_mix_of_entries,
            budgets::a_batch_that_is_not_written_moves_no_budget,
            budgets::budgets_are_appended_with_their_batch_or_not_at_all,
            buckets::a_full_bucket_lends_what_it_holds,
            buckets::fewer_than_the_least_are_not_lent,
            buckets::tokens_come_back_with_time,
            buckets::parts_of_tokens_add_up,
            buckets::what_is_given_back_can_be_lent_again,
            buckets::what_is_given_back_of_several_buckets_at_once_is_in_each_of_them,
            buckets::whoever_looks_at_a_bucket_sees_what_a_lease_would_find,
            buckets::several_buckets_are_looked_at_in_one_call,
            buckets::a_bucket_is_its_owners_alone,
            buckets::another_size_counts_from_now_on,
            buckets::until_it_has_another_size_a_bucket_refills_by_the_one_before,
            buckets::a_bucket_can_have_another_size_before_it_is_asked,
            buckets::what_is_given_back_fits_into_the_bucket_as_it_is_now,
            buckets::a_lease_is_there_after_reopening,
            buckets::all_together_never_get_more_than_there_is,
            buckets::only_full_buckets_are_forgotten,
            buckets::nobody_has_to_give_up_a_turn_where_no_bucket_is_full,
        }
    };
    (@each $fixture:path; $($module:ident::$promise:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                $crate::conformance::$module::$promise(&$fixture()).await;
            }
        )*
    };
}
