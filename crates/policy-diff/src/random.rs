//! Any policies, and any asks, for property tests. The policies are valid, and among their conditions are some that fail.

use crate::ask::{Ask, plain_agent};
use crate::desk::NOW;
use model::usage::{BudgetUsage, CallsUsage};
use model::{
    Amount, EffectiveTrust, Estimate, Name, RiskTier, SlashFreeName, Sources, Timestamp, Trust, Unit, Usage,
    User, Window,
};
use policy::ActionSide;
use proptest::prelude::*;
use serde_json::json;

const HEADS: [&str; 6] = [
    "forbid",
    "permit",
    "permit",
    "@decision(\"require_approval\") permit",
    "@decision(\"require_approval\") permit",
    "@decision(\"advise\") @obligation(\"redact:parameters.note\") permit",
];
const PRINCIPALS: [&str; 4] = [
    "principal",
    "principal",
    "principal in Team::\"ops\"",
    "principal == Agent::\"agt_00000000000000000000000000\"",
];
const ANY_ACTION: [&str; 4] = [
    "action",
    "action in Action::\"read\"",
    "action in Action::\"mutate\"",
    "action in Action::\"tool:github\"",
];
const CONDITIONS: [&str; 15] = [
    "context.sensitive",
    "context.trust.rank >= 3",
    "context.trust.signed",
    "principal.risk_tier == \"high\"",
    "context.agent has team && context.agent.team == \"ops\"",
    "context has user && context.user in Team::\"leads\"",
    "context.trust.rank * 4611686018427387904 > 0",
    "context.now.offset(duration(\"106751991167d\")) > context.now",
    "context.usage has budget && context.usage.budget.remaining < 5",
    "context.usage.calls has day && context.usage.calls.day.used * 4611686018427387904 > 0",
    "context.targets.contains(\"main\")",
    "context.target_stated",
    "context.tool.name like \"git*\" && context.tool.mutates",
    "principal.hasTag(\"tier\") && principal.getTag(\"tier\") == \"gold\"",
    "action in Action::\"mutate\" && resource == Resource::\"vault\"",
];
const OF_A_REFUND: [&str; 4] = [
    "context.input.amount < 100",
    "context.input.amount * 1000000000000000 > 5",
    "context.input has note && context.input.note like \"*urgent*\"",
    "context.input.currency == \"EUR\"",
];

fn condition(conditions: &'static [&'static str]) -> impl Strategy<Value = String> {
    let some = prop::sample::subsequence(conditions, 0..3);
    (any::<bool>(), some).prop_map(|(when, some)| {
        let all: Vec<_> = some.iter().map(|condition| format!("({condition})")).collect();
        match (all.is_empty(), when) {
            (true, _) => String::new(),
            (false, true) => format!("when {{ {} }}", all.join(" && ")),
            (false, false) => format!("unless {{ {} }}", all.join(" || ")),
        }
    })
}

fn policy() -> impl Strategy<Value = String> {
    let anywhere = (
        prop::sample::select(&ANY_ACTION[..]),
        condition(&CONDITIONS),
        Just(String::new()),
    );
    let refund = (
        Just("action == Action::\"payments/refund\""),
        condition(&CONDITIONS),
        condition(&OF_A_REFUND),
    );
    let head = (
        prop::sample::select(&HEADS[..]),
        prop::sample::select(&PRINCIPALS[..]),
    );
    (head, prop_oneof![anywhere, refund]).prop_map(|((head, principal), (action, one, other))| {
        format!("{head} ({principal}, {action}, resource) {one} {other};")
    })
}

/// Some policies in one text.
pub(crate) fn policies(count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    prop::collection::vec(policy(), count).prop_map(|policies| {
        let numbered = policies.iter().enumerate();
        let numbered = numbered.map(|(number, policy)| format!("@id(\"{number}\") {policy}"));
        numbered.collect::<Vec<_>>().join("\n")
    })
}

fn sides() -> impl Strategy<Value = ActionSide> {
    let sides = [
        ("github", "get_file", false),
        ("github", "get_file", true),
        ("github", "merge", true),
        ("payments", "refund", true),
    ];
    prop::sample::select(sides.to_vec()).prop_map(|(tool, action, mutates)| ActionSide {
        tool: SlashFreeName::new(tool).unwrap(),
        action: Name::new(action).unwrap(),
        mutates,
    })
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Trust as it can be: it counts for no more than was claimed.
fn trust() -> impl Strategy<Value = EffectiveTrust> {
    let levels = || prop::sample::select(Trust::ALL.to_vec());
    (levels(), levels(), any::<bool>()).prop_map(|(claimed, source, signed)| {
        let level = claimed.worse_of(source);
        EffectiveTrust {
            claimed,
            level,
            signed: signed || level == Trust::TrustedInternalSigned,
        }
    })
}

/// How much is used, of everything or of nothing.
fn usage(amount: i64, is_anything: bool) -> Usage {
    if !is_anything {
        return Usage::default();
    }
    let mut usage = Usage {
        budget: Some(BudgetUsage {
            allocated: Amount::clamped(amount),
            remaining: amount - 99,
            spent: Amount::clamped(amount.min(99)),
        }),
        estimate: Some(Estimate {
            amount: Amount::clamped(1),
            unit: Unit::new("TOKENS").unwrap(),
        }),
        ..Usage::default()
    };
    usage.note(Window::Day, CallsUsage { limit: 9, used: 2 });
    usage
}

/// Any ask.
pub(crate) fn ask() -> impl Strategy<Value = Ask> {
    let amount = prop::sample::select(vec![1_i64, 99, 100, 100_000]);
    let times = prop::sample::select(vec![
        NOW,
        Timestamp::from_millis(0),
        Timestamp::from_millis(i64::MAX),
    ]);
    (sides(), trust(), amount, times, any::<[bool; 10]>()).prop_map(|(side, trust, amount, now, facts)| {
        let usage = usage(amount, facts[0]);
        let [
            high,
            ops,
            gold,
            user,
            leads,
            sensitive,
            note,
            target,
            vault,
            other,
        ] = facts;
        let mut agent = plain_agent(NOW);
        agent.risk_tier = if high { RiskTier::High } else { RiskTier::Low };
        agent.team = ops.then(|| name("ops"));
        if gold {
            agent.attributes = serde_json::from_value(json!({"tier": "gold"})).unwrap();
        }
        if other {
            agent.id = model::AgentId::from_bytes([7; 16]);
        }
        let teams = leads.then(|| name("leads")).into_iter().collect();
        let mut parameters = serde_json::Map::new();
        if side.tool.as_str() == "payments" {
            parameters.insert("amount".into(), json!(amount));
            parameters.insert("currency".into(), json!(if high { "EUR" } else { "USD" }));
        }
        if note {
            parameters.insert("note".into(), json!("urgent"));
        }
        if target {
            parameters.insert("into".into(), if gold { json!("main") } else { json!(["main"]) });
        }
        Ask {
            side,
            agent,
            team_attributes: model::Attributes::default(),
            user: user.then(|| User {
                name: name("u-17"),
                teams,
                attributes: model::Attributes::default(),
                roles: std::collections::BTreeSet::new(),
            }),
            user_teams: imbl::OrdMap::new(),
            resource: if vault { "vault".into() } else { String::new() },
            parameters,
            trust,
            sensitive,
            attributes: serde_json::Map::new(),
            run: None,
            run_worst: Trust::TrustedInternalUnsigned,
            usage,
            sources: Sources::default(),
            now,
        }
    })
}
