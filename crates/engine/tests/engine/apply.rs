//! One batch onto the books: places in the chain, repeats, conflicts, and what a decision does to the directory.

use crate::support::{
    AGENT, NOW, TENANT, agent, ask, books, proposal, signing_key, tenant, tenant_with, tool,
};
use canon::Digest;
use engine::approvals::{ApprovalChange, Ballot, Step, VotedWith};
use engine::budgets::cost::{Cost, Costed, Hold};
use engine::proposal::{Change, ErasedBody, Intent, Tallies};
use engine::quotas::QuotaUse;
use engine::{
    Applied, Ask, Books, Conflict, Decided, Disposition, EntryKind, Found, Judgement, LookedUpFacts,
    Proposal, ProposedEntry, Recompiled, Records, RepeatRule, Salt, TenantSnapshot,
};
use engine::{apply, judge};
use ledger::merkle::Frontier;
use ledger::receipt::{ReceiptVerifier, SignedAnswer};
use ledger::{Head, KeySet};
use model::approval::Voter;
use model::{
    Amount, Approval, ApprovalId, DecisionId, KeyId, Name, Noun, ReasonCode, ReservationId, Subject,
    TenantId, Timestamp, Unit, Window, Write,
};
use policy::{BasePolicies, Candidate, Compiler, Registry, TenantPermits};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use store::FoundRequest;

fn judged(books: &Books, ask: &Ask) -> Judgement {
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    judge(
        tenant,
        &tenant.directory.agents[&AGENT],
        ask,
        &LookedUpFacts::default(),
        NOW,
    )
    .unwrap()
}

fn propose(books: &Books, ask: &Ask, id: u8) -> Proposal {
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    proposal(tenant, ask, &judged(books, ask), id, RepeatRule::Any)
}

fn apply_all(books: &Books, proposals: &[Proposal]) -> Applied {
    apply(books, Found::default(), proposals, NOW.into(), &signing_key())
}

fn bytes(disposition: &Disposition) -> bytes::Bytes {
    match disposition {
        Disposition::Recorded { answer, .. } | Disposition::Repeated(answer) => answer.clone(),
        Disposition::Conflict(conflict) => panic!("{conflict:?}"),
    }
}

fn answer(disposition: &Disposition) -> Value {
    serde_json::from_slice(&bytes(disposition)).unwrap()
}

fn freeze(books: &Books) -> Proposal {
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    let frozen = tenant.directory.agents[&AGENT].freeze("odd", NOW).unwrap();
    Proposal {
        tenant: TENANT,
        revision: tenant.revision,
        base: tenant.policies.base_digest(),
        intent: Intent::Change(Change {
            entry: ProposedEntry::new(EntryKind::AgentFrozen, canon::of(&json!({"id": AGENT})).unwrap()),
            writes: vec![Write::Put(Noun::Agent(Arc::new(frozen)))],
            policies: None,
        }),
    }
}

/// Another tool is registered, and the policies are compiled for it.
fn register(books: &Books) -> Proposal {
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    let after = tenant_with(agent(), [tool("github"), tool("mail")]);
    Proposal {
        tenant: TENANT,
        revision: tenant.revision,
        base: tenant.policies.base_digest(),
        intent: Intent::Change(Change {
            entry: ProposedEntry::new(EntryKind::ToolPut, canon::of(&json!({"name": "mail"})).unwrap()),
            writes: vec![Write::Put(Noun::Tool(Arc::new(tool("mail"))))],
            policies: Some(after.policies),
        }),
    }
}

/// It may be long, and all asks name it until the first commit has it.
#[test]
fn decisions_of_a_tenant_name_one_text_of_its_policies_and_no_copies() {
    let books = books(tenant());
    let policies = Arc::clone(&books.snapshot().tenant(TENANT).unwrap().policies);
    let named = |id: u8| {
        let Intent::Decision(decision) = propose(&books, &ask("read", json!({})), id).intent else {
            panic!("it is a decision")
        };
        let mut contents = decision.contents.into_iter();
        let text = contents.find(|content| content.digest == policies.digest());
        text.unwrap().bytes
    };
    let (one, other) = (named(1), named(2));
    assert_eq!(one, policies.text().as_bytes());
    assert_eq!(one.as_ptr(), other.as_ptr());
}

/// A commit is as long as what its decisions count in.
#[test]
fn a_decision_tells_in_how_many_quotas_and_budgets_it_counts_and_how_much_was_found() {
    let books = books(tenant());
    let read = ask("read", json!({"trace": {"run_id": "run"}}));
    let mut plain = propose(&books, &read, 1);
    assert_eq!(plain.tallies(), Tallies::default());
    let Intent::Decision(decision) = &mut plain.intent else {
        panic!("it is a decision")
    };
    let quota = QuotaUse {
        key: Digest::of(b"quota"),
        holder: "agent",
        window: Window::Day,
        limit: 1,
    };
    decision.quotas = vec![quota.clone(), quota];
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    let mut costed = Costed {
        hold: Hold {
            id: ReservationId::from_bytes([1; 16]),
            cost: Cost {
                subject: Subject {
                    run_id: read.run_id.clone(),
                    ..Subject::of_agent(&agent())
                },
                unit: Unit::new("tokens").unwrap(),
                amount: Amount::ZERO,
            },
            ttl_ms: 1,
            decision_id: Some(decision.id),
        },
        judgement: judged(&books, &read),
        ask: Arc::new(read),
        agent: Arc::new(agent()),
        tenant: Arc::clone(tenant),
        now: NOW,
        salt: Salt::from_bytes([7; 12]),
    };
    costed.judgement.matched = vec!["x".repeat(10_000)];
    decision.records = Records::Costed(Box::new(costed));
    let tallies = Tallies {
        quotas: 2,
        budgets_max: 2 + 16,
    };
    assert_eq!(plain.tallies(), tallies);
    // An entry and an answer name the policies.
    assert!((20_000..30_000).contains(&plain.bytes()), "{}", plain.bytes());
}

#[test]
fn entries_follow_each_other_without_a_gap_and_the_receipt_names_them() {
    let books = books(tenant());
    let read = ask("read", json!({}));
    let applied = apply_all(&books, &[propose(&books, &read, 1), propose(&books, &read, 2)]);
    let [first, second] = &applied.batch.entries[..] else {
        panic!("two entries")
    };
    assert_eq!((first.seq, first.prev), (1, Digest::ZERO));
    assert_eq!((second.seq, second.prev), (2, first.hash));
    let receipt = &answer(&applied.dispositions[1])["receipt"];
    assert_eq!(receipt["seq"], 2);
    assert_eq!(receipt["hash"], json!(second.hash));
    assert_eq!(receipt["prev_hash"], json!(first.hash));
    assert_eq!(receipt["tenant"], json!(TENANT));
    let advance = &applied.batch.advances[0];
    assert_eq!(
        (advance.from, advance.to.head()),
        (Head::GENESIS, applied.books.head(TENANT))
    );
}

#[test]
fn every_answer_of_a_batch_verifies_at_once_with_the_logs_key_alone() {
    let books = books(tenant());
    let keys = KeySet::of(signing_key().verifier().clone()).unwrap();
    for count in [1, 2, 7, 32] {
        let read = ask("read", json!({}));
        let proposals: Vec<_> = (0..count).map(|id| propose(&books, &read, id)).collect();
        let applied = apply_all(&books, &proposals);
        let mut verifier = ReceiptVerifier::new(&keys);
        for (disposition, entry) in applied.dispositions.iter().zip(&applied.batch.entries) {
            let signed = SignedAnswer::read(&bytes(disposition)).unwrap();
            verifier.verify(&signed).unwrap();
            assert_eq!(
                (signed.receipt().seq, signed.receipt().hash),
                (entry.seq, entry.hash)
            );
        }
    }
}

#[test]
fn what_an_entry_adds_to_the_tree_leads_to_the_edge_beside_the_head() {
    let books = books(tenant());
    let read = ask("read", json!({}));
    let proposals: Vec<_> = (0..11).map(|id| propose(&books, &read, id)).collect();
    let applied = apply_all(&books, &proposals);
    let mut tree = Frontier::EMPTY;
    for entry in &applied.batch.entries {
        assert!(tree.extend_as_stored(entry.nodes.leaf(), &entry.nodes));
    }
    assert_eq!(applied.batch.advances[0].to.tree(), &tree);
    assert_eq!(applied.books.position(TENANT).tip.tree(), &tree);
}

#[test]
fn the_body_names_the_answer_by_digest() {
    let books = books(tenant());
    let applied = apply_all(&books, &[propose(&books, &ask("read", json!({})), 1)]);
    let body: Value = serde_json::from_str(applied.batch.entries[0].body.as_str()).unwrap();
    let sealed = bytes(&applied.dispositions[0]);
    let signed = SignedAnswer::read(&sealed).unwrap();
    assert_eq!(body["answer_hash"], json!(signed.answer_hash()));
    assert_eq!(body["decision"], answer(&applied.dispositions[0])["decision"]);
}

#[test]
fn the_books_from_before_are_untouched_and_the_same_inputs_give_the_same_bytes() {
    let books = books(tenant());
    let read = ask("read", json!({}));
    let once = apply_all(&books, &[propose(&books, &read, 1)]);
    let again = apply_all(&books, &[propose(&books, &read, 1)]);
    assert_eq!(books.head(TENANT), Head::GENESIS);
    assert_eq!(bytes(&once.dispositions[0]), bytes(&again.dispositions[0]));
    assert_eq!(once.books.head(TENANT), again.books.head(TENANT));
}

#[test]
fn two_of_the_same_ask_in_one_batch_are_recorded_once() {
    let books = books(tenant());
    let read = ask("read", json!({"request_id": "call-1"}));
    let applied = apply_all(&books, &[propose(&books, &read, 1), propose(&books, &read, 2)]);
    assert_eq!(applied.batch.entries.len(), 1);
    assert!(matches!(applied.dispositions[1], Disposition::Repeated(_)));
    assert_eq!(bytes(&applied.dispositions[0]), bytes(&applied.dispositions[1]));
}

#[test]
fn a_request_id_with_another_ask_is_a_conflict() {
    let books = books(tenant());
    let read = ask("read", json!({"request_id": "call-1"}));
    let write = ask("write", json!({"request_id": "call-1"}));
    let applied = apply_all(&books, &[propose(&books, &read, 1), propose(&books, &write, 2)]);
    assert!(matches!(
        applied.dispositions[1],
        Disposition::Conflict(Conflict::RequestReused)
    ));
    assert_eq!(applied.batch.decisions.len(), 1);
}

#[test]
fn what_storage_recorded_before_is_answered_again() {
    let books = books(tenant());
    let read = ask("read", json!({"request_id": "call-1"}));
    let key = store::RequestKey {
        tenant: TENANT,
        agent: AGENT,
        request_id: read.request_id.clone().unwrap(),
    };
    let found = |reason| Found {
        requests: [(
            key.clone(),
            FoundRequest {
                key: key.clone(),
                ask: read.digest,
                reason,
                receipt: "earlier".into(),
            },
        )]
        .into(),
        ..Found::default()
    };
    let applied = apply(
        &books,
        found(ReasonCode::PolicyPermits),
        &[propose(&books, &read, 1)],
        NOW.into(),
        &signing_key(),
    );
    assert!(applied.batch.entries.is_empty());
    assert_eq!(bytes(&applied.dispositions[0]), "earlier");

    // An agent that may not act does not get yesterday's allow, though it may get yesterday's denial.
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    let only_denials = || proposal(tenant, &read, &judged(&books, &read), 1, RepeatRule::DenialsOnly);
    let applied = apply(
        &books,
        found(ReasonCode::PolicyPermits),
        &[only_denials()],
        NOW.into(),
        &signing_key(),
    );
    assert_eq!(applied.batch.entries.len(), 1);
    assert_eq!(applied.batch.decisions[0].request, None);
    let applied = apply(
        &books,
        found(ReasonCode::PolicyForbids),
        &[only_denials()],
        NOW.into(),
        &signing_key(),
    );
    assert_eq!(bytes(&applied.dispositions[0]), "earlier");
}

#[test]
fn what_was_judged_before_a_freeze_is_not_recorded_after_it() {
    let books = books(tenant());
    let applied = apply_all(
        &books,
        &[freeze(&books), propose(&books, &ask("read", json!({})), 1)],
    );
    assert!(matches!(
        applied.dispositions[1],
        Disposition::Conflict(Conflict::DirectoryMoved { .. })
    ));
    assert_eq!(applied.batch.entries.len(), 1);
    let after = &applied.books.snapshot().tenant(TENANT).unwrap();
    assert_eq!(after.revision, 8);
    assert_eq!(
        judged(&applied.books, &ask("read", json!({}))).reason,
        ReasonCode::AgentFrozen
    );
}

#[test]
fn two_changes_from_one_revision_cannot_both_be_made() {
    let books = books(tenant());
    let applied = apply_all(&books, &[freeze(&books), freeze(&books)]);
    assert!(matches!(
        applied.dispositions[1],
        Disposition::Conflict(Conflict::DirectoryMoved { .. })
    ));
    assert_eq!(applied.changed, BTreeSet::from([TENANT]));
}

#[test]
fn a_tenant_is_made_whole_or_not_at_all() {
    let books = books(tenant());
    let new = TenantId::from_bytes([9; 16]);
    let make = |revision| Proposal {
        tenant: TENANT,
        revision,
        base: books.snapshot().base_digest(),
        intent: Intent::NewTenant {
            tenant: new,
            announcement: ProposedEntry::new(EntryKind::TenantCreated, canon::of(&json!({})).unwrap()),
            change: Change {
                entry: ProposedEntry::new(EntryKind::TenantCreated, canon::of(&json!({})).unwrap()),
                writes: vec![Write::Put(Noun::Tenant(Arc::new(model::Tenant {
                    id: new,
                    ..(*tenant().directory.tenant).clone()
                })))],
                policies: Some(Arc::clone(&tenant().policies)),
            },
        },
    };
    let stale = apply_all(&books, &[make(6)]);
    assert!(matches!(
        stale.dispositions[0],
        Disposition::Conflict(Conflict::DirectoryMoved { .. })
    ));
    assert!(stale.batch.entries.is_empty() && stale.books.snapshot().tenant(new).is_none());
    let applied = apply_all(&books, &[make(7)]);
    let places: Vec<_> = applied
        .batch
        .entries
        .iter()
        .map(|entry| (entry.tenant, entry.seq))
        .collect();
    assert_eq!(places, [(TENANT, 1), (new, 1)]);
    assert_eq!(applied.books.snapshot().tenant(new).unwrap().revision, 1);
    assert_eq!(applied.batch.advances.len(), 2);
}

/// A proposal to put base policies in force that deny everything, compiled for the directory in these books.
fn deny_everything(books: &Books) -> Proposal {
    let compiler = Arc::new(Compiler::new(BasePolicies::parse("").unwrap()));
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    let candidate = Candidate {
        policies: &[],
        registry: Registry {
            tools: &tenant.directory.tools,
            attributes: &tenant.directory.tenant.settings.context_attributes,
        },
        permits: TenantPermits::Allowed,
    };
    let policies = compiler.compile(candidate).unwrap();
    let mut recompiled = Recompiled::new(compiler);
    recompiled.insert(Arc::clone(tenant), Arc::new(policies));
    Proposal {
        tenant: TENANT,
        revision: tenant.revision,
        base: books.snapshot().base_digest(),
        intent: Intent::Base {
            change: Change {
                entry: ProposedEntry::new(EntryKind::BasePoliciesPut, canon::of(&json!({})).unwrap()),
                writes: Vec::new(),
                policies: None,
            },
            recompiled: Arc::new(recompiled),
        },
    }
}

#[test]
fn what_was_judged_under_other_base_policies_is_not_recorded() {
    let books = books(tenant());
    let read = ask("read", json!({}));
    let (before, after) = (propose(&books, &read, 1), propose(&books, &read, 2));
    let applied = apply_all(&books, &[before, deny_everything(&books), after]);
    let kinds: Vec<_> = applied.batch.entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, ["decision", "base_policies_put"]);
    assert!(matches!(
        applied.dispositions[2],
        Disposition::Conflict(Conflict::DirectoryMoved { tenant: TENANT, .. })
    ));
    assert_eq!(applied.changed, BTreeSet::from([TENANT]));
    let snapshot = applied.books.snapshot();
    let in_force = &snapshot.tenant(TENANT).unwrap().policies;
    assert_eq!(in_force.base_digest(), snapshot.base_digest());
    assert_ne!(snapshot.base_digest(), books.snapshot().base_digest());
    assert_eq!(judged(&applied.books, &read).reason, ReasonCode::NoPolicyPermits);
}

#[test]
fn base_policies_that_were_compiled_for_an_older_directory_are_not_put_in_force() {
    let books = books(tenant());
    let mut late = deny_everything(&books);
    late.revision = 8;
    let applied = apply_all(&books, &[register(&books), late]);
    assert!(matches!(
        applied.dispositions[1],
        Disposition::Conflict(Conflict::DirectoryMoved {
            tenant: TENANT,
            revision: 8
        })
    ));
    let in_force = applied.books.snapshot().base_digest();
    assert_eq!(in_force, books.snapshot().base_digest());
}

#[test]
fn base_policies_are_put_in_force_whatever_changed_that_no_policy_is_compiled_from() {
    let books = books(tenant());
    let mut late = deny_everything(&books);
    late.revision = 8;
    let applied = apply_all(&books, &[freeze(&books), late]);
    let kinds: Vec<_> = applied.batch.entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, ["agent_frozen", "base_policies_put"]);
    let after = applied.books.snapshot();
    assert_ne!(after.base_digest(), books.snapshot().base_digest());
    let tenant = after.tenant(TENANT).unwrap();
    assert_eq!(tenant.policies.base_digest(), after.base_digest());
    assert!(!tenant.directory.agents[&AGENT].standing.is_active());

    // The standing of a tool is no part of what is compiled either, and everything else of it is.
    let mut frozen = tenant.directory.clone();
    let github = &frozen.tools["github"];
    let standing = github.standing.freeze("odd", NOW).unwrap();
    let github = github.with_standing(standing);
    frozen.apply(&Write::Put(Noun::Tool(Arc::new(github))));
    assert!(TenantSnapshot::compile_alike(&frozen, &tenant.directory));
    frozen.apply(&Write::Put(Noun::Tool(Arc::new(tool("mail")))));
    assert!(!TenantSnapshot::compile_alike(&frozen, &tenant.directory));
}

#[test]
fn a_canary_freezes_its_caller_in_the_same_commit() {
    let books = books(tenant_with(agent(), [tool("github"), tool("canary-vault")]));
    let bait = ask("read", json!({"tool_call": {"tool": "canary-vault"}}));
    let applied = apply_all(&books, &[propose(&books, &bait, 1)]);
    let kinds: Vec<_> = applied.batch.entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, ["decision", "agent_frozen"]);
    assert_eq!(applied.batch.writes.len(), 1);
    assert_eq!(answer(&applied.dispositions[0])["receipt"]["seq"], 1);
    let after = applied.books.snapshot().tenant(TENANT).unwrap();
    assert!(!after.directory.agents[&AGENT].standing.is_active());
}

/// Somebody says what became of a decision.
fn outcome(books: &Books, decision: DecisionId) -> Proposal {
    Proposal {
        tenant: TENANT,
        revision: 7,
        base: books.snapshot().base_digest(),
        intent: Intent::Outcome {
            entry: ProposedEntry::new(EntryKind::OutcomeReported, canon::of(&json!({})).unwrap()),
            decision,
            mismatch: false,
            settling: None,
        },
    }
}

#[test]
fn an_outcome_is_recorded_once() {
    let books = books(tenant());
    let decision = DecisionId::from_bytes([1; 16]);
    let report = || outcome(&books, decision);
    let applied = apply_all(&books, &[report(), report()]);
    assert_eq!(applied.batch.outcomes.len(), 1);
    assert!(matches!(
        applied.dispositions[1],
        Disposition::Conflict(Conflict::OutcomeReported)
    ));
    let known = Found {
        outcomes: [decision].into(),
        ..Found::default()
    };
    let applied = apply(&books, known, &[report()], NOW.into(), &signing_key());
    assert!(matches!(
        applied.dispositions[0],
        Disposition::Conflict(Conflict::OutcomeReported)
    ));
}

#[test]
fn time_in_a_chain_never_runs_backwards() {
    let books = books(tenant());
    let read = ask("read", json!({}));
    let later = apply_all(&books, &[propose(&books, &read, 1)]);
    let earlier = Timestamp::from_millis(NOW.millis() - 60_000);
    let applied = apply(
        &later.books,
        Found::default(),
        &[propose(&later.books, &read, 2)],
        earlier.into(),
        &signing_key(),
    );
    assert_eq!(applied.batch.entries[0].at, NOW);
}

/// What people are asked to approve for a customer.
fn asked_for(books: &Books) -> Approval {
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    let of_customer = json!({"context": {"source_trust": "semi_trusted_customer"}});
    let ask = ask("write", of_customer);
    let judgement = judged(books, &ask);
    let decided = Decided {
        id: DecisionId::from_bytes([1; 16]),
        ask: &ask,
        agent: &tenant.directory.agents[&AGENT],
        judgement: &judgement,
        tenant,
        approval: None,
        budget: None,
        now: NOW,
        salt: Salt::from_bytes([7; 12]),
    };
    decided
        .approval_to_ask_for(ApprovalId::from_bytes([3; 16]))
        .unwrap()
}

/// Somebody approves that.
fn vote(books: &Books, id: ApprovalId, user: &str) -> Proposal {
    let voter = Voter {
        user: Name::new(user).unwrap(),
        teams: BTreeSet::new(),
        agents: Vec::new(),
    };
    let step = Step::Approve(Ballot {
        voter,
        reason: "fine".to_owned(),
        with: VotedWith::Key(KeyId::from_bytes([4; 16])),
    });
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    Proposal::of(tenant, Intent::Approval(ApprovalChange { id, step }))
}

#[test]
fn an_approval_that_several_people_vote_on_is_written_once_with_all_that_they_say() {
    let books = books(tenant());
    let asked = asked_for(&books);
    let found = Found {
        approvals: HashMap::from([((TENANT, asked.id), asked.clone())]),
        ..Found::default()
    };
    let proposals = ["ann", "bob", "carl"].map(|user| vote(&books, asked.id, user));
    let applied = apply(&books, found, &proposals, NOW.into(), &signing_key());
    assert_eq!(applied.batch.entries.len(), 3);
    let [(tenant, written)] = &applied.batch.approvals[..] else {
        panic!("it is written {} times", applied.batch.approvals.len())
    };
    assert_eq!((*tenant, written.id), (TENANT, asked.id));
    let users: Vec<_> = written.votes.iter().map(|vote| vote.user.as_str()).collect();
    assert_eq!(users, ["ann", "bob", "carl"]);
}

fn erasure(books: &Books, seqs: &[u64]) -> Proposal {
    let tenant = books.snapshot().tenant(TENANT).unwrap();
    let bodies = seqs.iter().map(|seq| ErasedBody {
        seq: *seq,
        body: Digest::ZERO,
        request: None,
        outcome: None,
        approval: None,
        reservation: None,
    });
    Proposal {
        tenant: TENANT,
        revision: tenant.revision,
        base: tenant.policies.base_digest(),
        intent: Intent::Erasure {
            entry: ProposedEntry::new(EntryKind::BodiesErased, canon::of(&json!({})).unwrap()),
            bodies: bodies.collect(),
            reported: BTreeSet::new(),
        },
    }
}

#[test]
fn a_body_is_erased_by_one_entry() {
    let books = books(tenant());
    let found = Found {
        erased: [(TENANT, 1), (TenantId::SYSTEM, 2)].into(),
        ..Found::default()
    };
    let proposals = [&[1, 2][..], &[2, 3], &[3, 4]].map(|seqs| erasure(&books, seqs));
    let applied = apply(&books, found, &proposals, NOW.into(), &signing_key());
    let erased = |disposition: &Disposition| match disposition {
        Disposition::Conflict(Conflict::Erased(seqs)) => Some(seqs.iter().copied().collect::<Vec<_>>()),
        _ => None,
    };
    let before: Vec<_> = applied.dispositions.iter().map(erased).collect();
    assert_eq!(before, [Some(vec![1]), None, Some(vec![3])]);
    assert_eq!(applied.batch.entries.len(), 1);
    let seqs: Vec<_> = applied.batch.erasures.iter().map(|row| row.seq).collect();
    assert_eq!(seqs, [2, 3]);
}

/// The erasure of a decision by somebody who knows the outcomes of these.
fn erasure_of(books: &Books, decision: DecisionId, known: &[DecisionId]) -> Proposal {
    let mut proposal = erasure(books, &[1]);
    if let Intent::Erasure { bodies, reported, .. } = &mut proposal.intent {
        bodies[0].outcome = Some(decision);
        reported.extend(known);
    }
    proposal
}

/// Otherwise its entry would stay, with a digest of what was decided.
#[test]
fn an_outcome_that_whoever_erases_its_decision_does_not_know_of_turns_the_erasure_back() {
    let books = books(tenant());
    let decision = DecisionId::from_bytes([1; 16]);
    let unknown = |disposition: &Disposition| match disposition {
        Disposition::Conflict(Conflict::OutcomesUnknown(decisions)) => decisions.iter().eq([&decision]),
        _ => false,
    };
    let batch = [outcome(&books, decision), erasure_of(&books, decision, &[])];
    let applied = apply_all(&books, &batch);
    assert!(unknown(&applied.dispositions[1]), "{:?}", applied.dispositions);
    assert!(applied.batch.erasures.is_empty());

    let recorded_before = || Found {
        outcomes: [decision].into(),
        ..Found::default()
    };
    let apply_one =
        |proposal: Proposal| apply(&books, recorded_before(), &[proposal], NOW.into(), &signing_key());
    let applied = apply_one(erasure_of(&books, decision, &[]));
    assert!(unknown(&applied.dispositions[0]), "{:?}", applied.dispositions);
    assert!(applied.batch.is_empty());
    let applied = apply_one(erasure_of(&books, decision, &[decision]));
    assert_eq!(applied.batch.erasures.len(), 1, "{:?}", applied.dispositions);
}

#[test]
fn an_outcome_behind_the_erasure_of_its_decision_is_not_recorded() {
    let books = books(tenant());
    let decision = DecisionId::from_bytes([1; 16]);
    let batch = [erasure_of(&books, decision, &[]), outcome(&books, decision)];
    let applied = apply_all(&books, &batch);
    assert_eq!(applied.batch.erasures.len(), 1);
    assert!(applied.batch.outcomes.is_empty());
    assert!(matches!(
        applied.dispositions[1],
        Disposition::Conflict(Conflict::OutcomeReported)
    ));
}
