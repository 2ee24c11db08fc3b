//! What is odd about a candidate.

use crate::desk::Desk;
use policy_diff::report::Report;
use serde_json::{Value, json};

async fn found(desk: &Desk, before: &str, after: &str) -> Vec<Value> {
    let report = desk.compare(before, after).await;
    assert!(report.proof.complete, "{:?}", report.allows_more.unknown);
    told(&report)
}

fn told(report: &Report) -> Vec<Value> {
    report.findings.iter().map(|finding| json!(finding)).collect()
}

#[tokio::test]
async fn a_condition_that_no_ask_satisfies_is_found() {
    let desk = Desk::bare();
    let never = "@id(\"n\") permit (principal, action, resource) when { context.trust.rank > 5 };\
                 @id(\"y\") permit (principal, action, resource) when { context.trust.rank > 4 };";
    assert_eq!(
        found(&desk, "", never).await,
        [json!({"kind": "never_matches", "policy": "mine/n"})]
    );
}

/// An ask in the name of a user is put to the policies for that user, too.
#[tokio::test]
async fn a_condition_that_only_users_satisfy_is_not_found() {
    let desk = Desk::bare();
    let before = "@id(\"p\") permit (principal, action, resource);";
    let forbids = "@id(\"u\") forbid (principal, action, resource) when { principal is User && context.trust.rank == 3 };\
                   @id(\"n\") forbid (principal, action, resource) when { principal is User && context.trust.rank > 5 };";
    // Whether users are denied more is not known: nobody knows for whom an agent acts.
    let report = desk.compare(before, &format!("{before}{forbids}")).await;
    assert_eq!(
        told(&report),
        [json!({"kind": "never_matches", "policy": "mine/n"})]
    );
}

#[tokio::test]
async fn a_permit_that_forbids_deny_together_is_found_with_those_that_it_takes() {
    let desk = Desk::bare();
    let text = "@id(\"p\") permit (principal, action, resource) when { context.trust.rank >= 4 };\
                @id(\"high\") forbid (principal, action, resource) when { context.trust.rank >= 5 };\
                @id(\"rest\") forbid (principal, action, resource) when { context.trust.rank < 5 && !context.sensitive };\
                @id(\"other\") forbid (principal, action, resource) when { context.sensitive };\
                @id(\"idle\") forbid (principal, action, resource) when { context has run };\
                @id(\"lit\") permit (principal, action == Action::\"github/merge\", resource) when { context.trust.rank < 2 };";
    let found = found(&desk, "", text).await;
    let shadowed: Vec<_> = found
        .iter()
        .filter(|finding| finding["kind"] == "shadowed")
        .collect();
    assert_eq!(
        shadowed,
        [
            &json!({"kind": "shadowed", "policy": "mine/lit", "by": ["mine/other", "mine/rest"]}),
            &json!({"kind": "shadowed", "policy": "mine/p", "by": ["mine/high", "mine/other", "mine/rest"]}),
        ]
    );
}

/// What forbids it to agents alone leaves it to the users for whom agents of others act.
#[tokio::test]
async fn a_permit_that_users_need_is_in_the_shadow_of_no_forbid_about_agents() {
    let desk = Desk::bare();
    let refund = "action == Action::\"payments/refund\", resource";
    let agents = format!("@id(\"a\") permit (principal is Agent, {refund});");
    let permit = format!("@id(\"p\") permit (principal in Team::\"payroll\", {refund});");
    let forbid = |principal: &str| {
        format!("@id(\"f\") forbid ({principal}, {refund}) when {{ principal in Team::\"payroll\" }};")
    };
    let shadowed = [json!({"kind": "shadowed", "policy": "mine/p", "by": ["mine/f"]})];
    for (principal, expected) in [("principal is Agent", &[][..]), ("principal", &shadowed[..])] {
        let forbid = forbid(principal);
        // The permit is as new as the forbid, or was there before.
        for before in [agents.clone(), format!("{agents}{permit}")] {
            let report = desk.compare(&before, &format!("{agents}{permit}{forbid}")).await;
            assert_eq!(told(&report), expected, "{principal}");
        }
    }
}

/// The forbid is new and the permit is not; and a permit that is about another action as well is not in its shadow.
#[tokio::test]
async fn a_new_forbid_shadows_a_permit_that_was_there_before() {
    let desk = Desk::bare();
    let before = "@id(\"one\") permit (principal, action == Action::\"github/merge\", resource);\
                  @id(\"both\") permit (principal, action in Action::\"tool:github\", resource);";
    let forbid = "@id(\"f\") forbid (principal, action in Action::\"mutate\", resource);";
    let found = found(&desk, before, &format!("{before}{forbid}")).await;
    assert_eq!(
        found,
        [
            json!({"kind": "always_denies", "actions": {"count": 2, "some": [
                {"tool": "github", "action": "merge", "mutates_state": true},
                {"tool": "payments", "action": "refund", "mutates_state": true},
            ]}}),
            json!({"kind": "shadowed", "policy": "mine/one", "by": ["mine/f"]}),
        ]
    );
}

#[tokio::test]
async fn a_policy_that_can_fail_is_found_with_an_ask_that_it_fails_for() {
    let desk = Desk::bare();
    let text = "@id(\"e\") permit (principal, action == Action::\"payments/refund\", resource) \
                when { context.input.amount * 922337203685477 > 5 };\
                @id(\"fine\") permit (principal, action == Action::\"payments/refund\", resource) \
                when { context.input.amount * 92233720368547 > 5 };";
    let found = found(&desk, "", text).await;
    let [only] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (&only["kind"], &only["policy"]),
        (&json!("can_error"), &json!("mine/e"))
    );
    let amount = only["ask"]["tool_call"]["parameters"]["amount"].as_i64().unwrap();
    assert!((10_000..=100_000).contains(&amount), "{amount}");
}
