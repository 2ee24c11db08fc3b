//! How an approval goes from one state to the next, and how it does not.

use super::*;
use crate::amount::{Amount, Unit};

const ASKED: Timestamp = Timestamp::from_millis(1_000);
const SOON: Timestamp = Timestamp::from_millis(2_000);
const END: Timestamp = Timestamp::from_millis(3_000);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn voter(user: &str, teams: &[&str]) -> Voter {
    Voter {
        user: name(user),
        teams: teams.iter().map(|team| name(team)).collect(),
        agents: Vec::new(),
    }
}

fn terms(quorum: u32) -> ApprovalTerms {
    ApprovalTerms {
        group: Some("leads".to_owned()),
        quorum,
        also: Vec::new(),
        exclude_owner: true,
    }
}

/// Two leads, and one of support.
fn leads_and_support() -> ApprovalTerms {
    ApprovalTerms {
        also: vec![GroupQuorum {
            group: "support".to_owned(),
            quorum: 1,
        }],
        ..terms(2)
    }
}

fn agent() -> AgentId {
    AgentId::from_bytes([1; 16])
}

fn user() -> Name {
    name("ursula")
}

/// Whether the agent can use it, as it does for the user whom it was asked for.
fn check_use(approval: &Approval, action_hash: &Digest, now: Timestamp) -> Result<(), Unusable> {
    approval.check_use(agent(), Some(&user()), action_hash, now)
}

fn pending(quorum: u32) -> Approval {
    let request = Request {
        decision_id: DecisionId::from_bytes([2; 16]),
        agent: agent(),
        agent_name: name("builder"),
        tool: SlashFreeName::new("github").unwrap(),
        action: name("merge_pull_request"),
        resource: None,
        action_hash: Digest::of(b"action"),
        parameters: Some("{}".to_owned()),
        estimate: None,
        reason: "merges need approval".to_owned(),
        matched_policies: vec!["base/merge".to_owned()],
        policy_digest: Digest::of(b"policies"),
        risk_level: None,
        definition: None,
        claimed_trust: Trust::Unknown,
        effective_trust: Trust::Unknown,
        sources: Sources::default(),
        run_id: None,
        run_worst: None,
        user: Some(user()),
        owner: Some(name("oscar")),
        team: Some(name("builders")),
        delegators: Vec::new(),
    };
    Approval::new(
        ApprovalId::from_bytes([3; 16]),
        request,
        terms(quorum),
        ASKED,
        END,
    )
}

/// The planner, for whom Pete and the team of planners answer.
fn planner() -> Delegator {
    Delegator {
        id: AgentId::from_bytes([5; 16]),
        name: name("planner"),
        owner: Some(name("pete")),
        team: Some(name("planners")),
    }
}

/// An approval that is waited for, where the planner has something from outside done.
fn delegated() -> Approval {
    let mut asked = pending(1);
    asked.request.delegators = vec![planner()];
    asked.request.sources = Sources::new([("/number".to_owned(), Trust::UntrustedExternal)].into());
    asked.request.run_worst = Some(Trust::UntrustedExternal);
    asked
}

#[test]
fn it_can_be_used_when_enough_different_people_have_approved() {
    let digest = Digest::of(b"action");
    let one = pending(2)
        .approve(&voter("ann", &["leads"]), "fine", SOON)
        .unwrap();
    assert_eq!(check_use(&one, &digest, SOON), Err(Unusable::Pending));
    assert_eq!(
        one.approve(&voter("ann", &["leads"]), "fine again", SOON),
        Err(VoteError::VotedBefore(name("ann")))
    );
    let two = one.approve(&voter("bob", &["leads"]), "fine", SOON).unwrap();
    assert_eq!(two.status, ApprovalStatus::Approved);
    assert_eq!(check_use(&two, &digest, SOON), Ok(()));
}

#[test]
fn votes_that_approve_are_kept_while_there_is_room_and_a_rejection_always() {
    // The longest names, in as many teams as a person is in.
    let others: BTreeSet<_> = (1..256).map(|team| name(&format!("{team:0256}"))).collect();
    let lead = |number: usize| {
        let mut lead = voter(&format!("lead-{number}"), &["leads"]);
        lead.teams.extend(others.iter().cloned());
        lead
    };
    let mut asked = pending(1_000);
    for number in 0..14 {
        asked = asked.approve(&lead(number), "fine", SOON).unwrap();
    }
    assert_eq!(asked.approve(&lead(14), "fine", SOON), Err(VoteError::Full));
    // There is room for who is in fewer teams.
    let asked = asked.approve(&voter("ann", &["leads"]), "fine", SOON).unwrap();
    let rejected = asked.reject(&lead(14), "no", SOON).unwrap();
    assert_eq!(
        (rejected.status, rejected.votes.len()),
        (ApprovalStatus::Rejected, 16)
    );
}

#[test]
fn who_may_not_vote_is_told_why() {
    let asked = pending(1);
    for (voter, error) in [
        (voter("ursula", &["leads"]), VoteError::OwnRequest(name("ursula"))),
        (
            voter("ann", &["others"]),
            VoteError::NotInGroup {
                user: name("ann"),
                groups: vec!["leads".to_owned()],
            },
        ),
        (
            voter("oscar", &["leads"]),
            VoteError::OwnerExcluded(name("oscar")),
        ),
        (
            voter("bert", &["builders", "leads"]),
            VoteError::OwnerExcluded(name("bert")),
        ),
    ] {
        assert_eq!(asked.approve(&voter, "", SOON), Err(error.clone()));
        assert_eq!(asked.reject(&voter, "", SOON), Err(error));
    }
}

#[test]
fn who_answers_for_a_delegator_votes_no_more_than_the_agents_owner() {
    for voter in [voter("pete", &["leads"]), voter("pia", &["planners", "leads"])] {
        let error = VoteError::OwnerExcluded(voter.user.clone());
        assert_eq!(delegated().approve(&voter, "", SOON), Err(error));
        // It was voted on before the planner was named.
        let approved = pending(1).approve(&voter, "", SOON).unwrap();
        assert!(approved.suffices(&terms(1), &[], |_| None));
        assert!(!approved.suffices(&terms(1), &[planner()], |_| None));
    }
    let approved = delegated().approve(&voter("ann", &["leads"]), "", SOON).unwrap();
    assert!(approved.suffices(&terms(1), &[planner()], |_| None));
}

#[test]
fn who_is_called_like_a_delegator_does_not_vote() {
    let namesake = Voter {
        agents: vec![planner().id],
        ..voter("planner", &["leads"])
    };
    let error = VoteError::OwnRequest(namesake.user.clone());
    assert_eq!(delegated().approve(&namesake, "", SOON), Err(error.clone()));
    assert_eq!(delegated().reject(&namesake, "", SOON), Err(error.clone()));
    assert!(error.to_string().contains("an agent that is or was called so"));
    assert!(pending(1).approve(&namesake, "", SOON).is_ok());
}

#[test]
fn who_is_called_like_the_agent_that_asks_does_not_vote() {
    let another = AgentId::from_bytes([7; 16]);
    for agents in [vec![agent()], vec![another, agent()]] {
        let namesake = Voter {
            agents,
            ..voter("builder", &["leads"])
        };
        let error = VoteError::OwnRequest(namesake.user.clone());
        for asked in [pending(1), delegated()] {
            assert_eq!(asked.approve(&namesake, "", SOON), Err(error.clone()));
            assert_eq!(asked.reject(&namesake, "", SOON), Err(error.clone()));
        }
    }
}

#[test]
fn who_has_joined_a_team_that_answers_since_they_voted_does_not_count() {
    let approved = pending(1).approve(&voter("ann", &["leads"]), "", SOON).unwrap();
    let whoever_answers = ApprovalTerms {
        exclude_owner: false,
        ..terms(1)
    };
    for (team, counts) in [("builders", false), ("planners", false), ("others", true)] {
        let now = voter("ann", &[team]);
        let teams_now = |user: &Name| (*user == now.user).then_some(&now.teams);
        assert_eq!(
            approved.suffices(&terms(1), &[planner()], teams_now),
            counts,
            "{team}"
        );
        // She has left the leads, and votes as the lead that she was.
        assert!(approved.suffices(&whoever_answers, &[planner()], teams_now));
    }
}

#[test]
fn where_parameters_came_from_is_kept_as_long_as_they_are() {
    let approved = delegated().approve(&voter("ann", &["leads"]), "", SOON).unwrap();
    assert_eq!(approved.request.sources, delegated().request.sources);
    let rejected = approved.reject(&voter("bob", &["leads"]), "", SOON).unwrap();
    let spent = approved.spend(DecisionId::from_bytes([4; 16]));
    for over in [rejected, spent, approved.expire(END).unwrap()] {
        assert!(over.request.sources.is_empty());
        assert_eq!(over.request.run_worst, Some(Trust::UntrustedExternal));
    }
}

#[test]
fn one_rejection_rejects_also_what_was_approved() {
    let approved = pending(1)
        .approve(&voter("ann", &["leads"]), "fine", SOON)
        .unwrap();
    for before in [pending(1), approved] {
        let rejected = before.reject(&voter("ann", &["leads"]), "no", SOON).unwrap();
        assert_eq!(rejected.status, ApprovalStatus::Rejected);
        assert_eq!(rejected.request.parameters, None);
        assert_eq!(
            check_use(&rejected, &Digest::of(b"action"), SOON),
            Err(Unusable::Rejected)
        );
        assert_eq!(
            rejected.approve(&voter("bob", &["leads"]), "", SOON),
            Err(VoteError::Over(ApprovalStatus::Rejected))
        );
    }
}

#[test]
fn it_is_for_one_agent_one_user_and_one_action_once() {
    let digest = Digest::of(b"action");
    let approved = pending(1).approve(&voter("ann", &["leads"]), "", SOON).unwrap();
    let other = AgentId::from_bytes([9; 16]);
    assert_eq!(
        approved.check_use(other, Some(&user()), &digest, SOON),
        Err(Unusable::Foreign)
    );
    assert_eq!(
        check_use(&approved, &Digest::of(b"another"), SOON),
        Err(Unusable::OtherAction)
    );
    for somebody_else in [Some(&name("ann")), None] {
        assert_eq!(
            approved.check_use(agent(), somebody_else, &digest, SOON),
            Err(Unusable::OtherUser)
        );
    }
    let spent = approved.spend(DecisionId::from_bytes([4; 16]));
    assert_eq!(check_use(&spent, &digest, SOON), Err(Unusable::Spent));
    assert_eq!(spent.request.parameters, None);
}

#[test]
fn from_its_end_on_it_has_expired_whether_that_was_written_down_or_not() {
    let approved = pending(1).approve(&voter("ann", &["leads"]), "", SOON).unwrap();
    assert_eq!(approved.expire(SOON), None);
    let digest = Digest::of(b"action");
    assert_eq!(check_use(&approved, &digest, END), Err(Unusable::Expired));
    assert_eq!(
        approved.reject(&voter("bob", &["leads"]), "", END),
        Err(VoteError::Over(ApprovalStatus::Expired))
    );
    let expired = approved.expire(END).unwrap();
    assert_eq!(
        (expired.status, expired.expire(END)),
        (ApprovalStatus::Expired, None)
    );
    assert_eq!(expired.request.parameters, None);
}

#[test]
fn votes_count_for_the_terms_of_the_moment() {
    let approved = pending(1).approve(&voter("ann", &["leads"]), "", SOON).unwrap();
    assert!(approved.suffices(&terms(1), &[], |_| None));
    assert!(!approved.suffices(&terms(2), &[], |_| None));
    let other_group = ApprovalTerms {
        group: Some("owners".to_owned()),
        ..terms(1)
    };
    assert!(!approved.suffices(&other_group, &[], |_| None));
}

#[test]
fn each_group_that_is_asked_has_to_approve() {
    let asked = Approval {
        terms: leads_and_support(),
        ..pending(2)
    };
    let approve = |asked: &Approval, user: &str, teams: &[&str]| {
        let after = asked.approve(&voter(user, teams), "", SOON).unwrap();
        let is_enough = after.status == ApprovalStatus::Approved;
        assert_eq!(after.suffices(&leads_and_support(), &[], |_| None), is_enough);
        (after, is_enough)
    };
    let (one, is_enough) = approve(&asked, "sue", &["support"]);
    assert!(!is_enough, "no lead");
    let (two, is_enough) = approve(&one, "ann", &["leads"]);
    assert!(!is_enough, "one lead");
    assert!(approve(&two, "bob", &["leads"]).1);
    // However many of one group approve, they are none of the other.
    let (ann, _) = approve(&asked, "ann", &["leads"]);
    let (leads, is_enough) = approve(&ann, "bob", &["leads"]);
    assert!(!is_enough, "nobody of support");
    assert!(leads.suffices(&terms(2), &[], |_| None));
    // Whoever is in both counts for both.
    assert!(approve(&ann, "max", &["leads", "support"]).1);
}

#[test]
fn who_is_in_none_of_the_groups_is_told_which_they_are() {
    let asked = Approval {
        terms: leads_and_support(),
        ..pending(2)
    };
    let error = asked.reject(&voter("carl", &["others"]), "", SOON).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`carl` is in none of the teams `leads`, `support`, whose members vote on this"
    );
}

#[test]
fn terms_of_one_group_are_written_as_before_there_were_several() {
    let written = |terms: ApprovalTerms| serde_json::to_string(&terms).unwrap();
    assert_eq!(
        written(terms(2)),
        r#"{"group":"leads","quorum":2,"exclude_owner":true}"#
    );
    assert_eq!(
        written(leads_and_support()),
        r#"{"group":"leads","quorum":2,"also":[{"group":"support","quorum":1}],"exclude_owner":true}"#
    );
}

/// So much of this unit.
fn estimate(amount: i64, unit: &str) -> Estimate {
    Estimate {
        amount: Amount::new(amount).unwrap(),
        unit: Unit::new(unit).unwrap(),
    }
}

#[test]
fn it_covers_what_people_were_shown_that_it_may_cost_and_no_more() {
    let mut asked = pending(1);
    assert!(asked.covers_cost(None));
    assert!(
        !asked.covers_cost(Some(&estimate(1, "TOKENS"))),
        "nobody was shown it"
    );
    asked.request.estimate = Some(estimate(501, "TOKENS"));
    for (wanted, is_covered) in [
        (None, false),
        (Some(estimate(1, "TOKENS")), true),
        (Some(estimate(501, "TOKENS")), true),
        (Some(estimate(502, "TOKENS")), false),
        (Some(estimate(501, "CREDITS")), false),
    ] {
        assert_eq!(asked.covers_cost(wanted.as_ref()), is_covered, "{wanted:?}");
    }
    assert_eq!(Approval::from_json(&asked.to_json()).unwrap(), asked);
}

/// An approval that was asked for in this run, which had seen this; without one if there is none.
fn asked_in(run: Option<&str>, run_worst: Option<Trust>) -> Approval {
    let mut asked = pending(1);
    asked.request.claimed_trust = Trust::TrustedInternalUnsigned;
    asked.request.effective_trust = Trust::TrustedInternalUnsigned;
    asked.request.sources = Sources::new([("/to".to_owned(), Trust::SemiTrustedCustomer)].into());
    asked.request.run_id = run.map(name);
    asked.request.run_worst = run_worst;
    asked
}

#[test]
fn it_covers_what_comes_from_where_people_were_shown_and_from_nowhere_worse() {
    let [signed, unsigned, customer, outside, ..] = Trust::ALL;
    let asked = asked_in(None, None);
    for (trust, of_to, is_covered) in [
        (unsigned, Some(customer), true),
        (signed, Some(customer), true),
        (customer, Some(customer), false),
        (unsigned, Some(unsigned), true),
        (unsigned, Some(outside), false),
        // The level of the call stands for it, which is better.
        (unsigned, None, true),
    ] {
        let sources = Sources::new(of_to.map(|level| ("/to".to_owned(), level)).into_iter().collect());
        let origin = Origin {
            claimed: trust,
            trust,
            sources: &sources,
            run_worst: None,
        };
        assert_eq!(asked.covers_origin(origin), is_covered, "{trust:?} {of_to:?}");
    }
}

#[test]
fn it_covers_what_a_run_had_seen_when_people_were_asked_and_nothing_worse() {
    let [_, unsigned, customer, outside, malicious, _] = Trust::ALL;
    for (run, shown, seen, is_covered) in [
        (Some("run-1"), Some(outside), Some(outside), true),
        (Some("run-1"), Some(outside), Some(customer), true),
        (Some("run-1"), Some(outside), None, true),
        (Some("run-1"), Some(outside), Some(malicious), false),
        // Without a run, people were shown what the ask said.
        (None, None, None, true),
        (None, None, Some(customer), true),
        (None, None, Some(outside), false),
        // Nor more where it was not kept, or not written down.
        (Some("run-1"), None, Some(customer), true),
        (Some("run-1"), None, Some(malicious), false),
    ] {
        let asked = asked_in(run, shown);
        let origin = Origin {
            claimed: unsigned,
            trust: unsigned,
            sources: &asked.request.sources,
            run_worst: seen,
        };
        let found = asked.covers_origin(origin);
        assert_eq!(found, is_covered, "{run:?} {shown:?} {seen:?}");
    }
}

#[test]
fn it_covers_no_higher_risk_and_no_other_definition() {
    let [shown, other] = ["shown", "other"].map(|text| Digest::of(text.as_bytes()));
    let mut asked = pending(1);
    // Earlier versions have stored neither of every approval.
    assert!(asked.covers_risk(Some(Risk::Critical)) && asked.covers_risk(None));
    assert!(asked.covers_definition(Some(other)) && asked.covers_definition(None));
    asked.request.risk_level = Some(Risk::Medium);
    asked.request.definition = Some(shown);
    let covered = Risk::ALL.map(|risk| asked.covers_risk(Some(risk)));
    assert_eq!(covered, [true, true, false, false]);
    assert!(!asked.covers_risk(None));
    let covered = [Some(shown), Some(other), None].map(|now| asked.covers_definition(now));
    assert_eq!(covered, [true, false, false]);
    assert_eq!(Approval::from_json(&asked.to_json()).unwrap(), asked);
}

#[test]
fn of_those_who_approved_only_whose_vote_counts_is_counted() {
    let by_anybody = ApprovalTerms {
        group: None,
        ..terms(1)
    };
    let asked = Approval {
        terms: by_anybody.clone(),
        ..pending(1)
    };
    let approved = asked.approve(&voter("sue", &["support"]), "", SOON).unwrap();
    let approved = approved.approve(&voter("pete", &["leads"]), "", SOON).unwrap();
    let approved = approved.approve(&voter("ann", &["leads"]), "", SOON).unwrap();
    let counted = |terms: &ApprovalTerms, agents: &[Delegator]| {
        let votes = approved.counted(terms, agents, |_| None)?;
        Some(votes.iter().map(|vote| vote.user.to_string()).collect::<Vec<_>>())
    };
    let people = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(counted(&by_anybody, &[]), people(&["sue", "pete", "ann"]));
    assert_eq!(counted(&by_anybody, &[planner()]), people(&["sue", "ann"]));
    assert_eq!(counted(&terms(1), &[planner()]), people(&["ann"]));
    assert_eq!(counted(&terms(2), &[planner()]), None);
}

#[test]
fn it_is_the_same_after_being_stored() {
    let several = Approval {
        terms: leads_and_support(),
        ..pending(2)
    };
    for asked in [pending(1), delegated(), several] {
        let approved = asked.approve(&voter("ann", &["leads"]), "", SOON).unwrap();
        assert_eq!(Approval::from_json(&approved.to_json()).unwrap(), approved);
    }
}

#[test]
fn one_that_was_stored_before_it_told_where_it_came_from_is_read() {
    let text = pending(1).to_json();
    for member in ["sources", "run_worst", "delegators", "estimate", "definition"] {
        assert!(!text.contains(member), "{text}");
    }
    assert_eq!(Approval::from_json(&text).unwrap(), pending(1));
}
