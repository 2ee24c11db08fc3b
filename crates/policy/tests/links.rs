//! Templates and what they are linked with.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[cfg(test)]
#[path = "world/world.rs"]
mod world;

use model::{ReasonCode, Team, Verdict};
use policy::{BasePolicies, Diagnostic, Link, PolicySet, TenantPolicy};
use serde_json::{Value, json};
use world::{World, matched, name, tenant};

const TEMPLATES: &str = r#"
    @id("may-read") @reason("they may read it")
    permit (principal in ?principal, action in Action::"read", resource == ?resource);
    @id("frozen")
    forbid (principal == ?principal, action, resource) unless { context.sensitive };
    @id("plain") forbid (principal, action, resource) when { context.sensitive };
"#;
const AGENT: &str = "Agent::\"agt_070w3ge1r70w3ge1r70w3ge1r7\"";

fn linked(links: Value) -> TenantPolicy {
    TenantPolicy {
        links: serde_json::from_value(links).unwrap(),
        ..tenant("mine", TEMPLATES)
    }
}

fn both() -> Value {
    json!([
        {"template": "may-read", "id": "sales-may-read", "values": {"?principal": "Team::\"sales\"", "?resource": "Resource::\"crm\""}},
        {"template": "frozen", "id": "freeze-builder", "values": {"?principal": AGENT}},
    ])
}

fn read() -> World {
    World {
        registered_as_mutating: false,
        ..World::default()
    }
}

fn compiled(world: &World, policy: TenantPolicy) -> Result<PolicySet, Vec<Diagnostic>> {
    let base = BasePolicies::parse("").unwrap();
    world
        .compile(&base, &[policy])
        .map_err(|diagnostics| diagnostics.0)
}

#[test]
fn a_link_is_a_policy_with_its_own_id_and_the_notes_of_its_template() {
    let sales = Team {
        name: name("sales"),
        attributes: model::Attributes::default(),
        quotas: Vec::new(),
    };
    let world = World {
        team: Some(sales),
        resource: Some("crm".into()),
        ..read()
    };
    let links = json!([both()[0], {"template": "frozen", "id": "freeze-another", "values": {"?principal": "Agent::\"agt_2\""}}]);
    let set = compiled(&world, linked(links)).unwrap();
    let ids: Vec<_> = set.policy_ids().into_iter().map(ToString::to_string).collect();
    assert_eq!(ids, ["mine/freeze-another", "mine/plain", "mine/sales-may-read"]);
    let ruling = world.ask(&set).unwrap();
    assert_eq!(
        (ruling.verdict(), matched(&ruling)),
        (Verdict::Allow, vec!["mine/sales-may-read"])
    );
    assert_eq!(ruling.explanation, "they may read it");

    let stranger = World {
        team: None,
        ..world.clone()
    };
    assert_eq!(stranger.ask(&set).unwrap().reason, ReasonCode::NoPolicyPermits);
    let elsewhere = World {
        resource: Some("hr".into()),
        ..world.clone()
    };
    assert_eq!(elsewhere.ask(&set).unwrap().reason, ReasonCode::NoPolicyPermits);

    let frozen = compiled(&world, linked(both())).unwrap();
    let ruling = world.ask(&frozen).unwrap();
    assert_eq!(
        (ruling.reason, matched(&ruling)),
        (ReasonCode::PolicyForbids, vec!["mine/freeze-builder"])
    );
}

#[test]
fn what_a_link_stands_for_is_part_of_the_digest() {
    let digest = |resource: &str| {
        let mut links = both();
        links[0]["values"]["?resource"] = resource.into();
        compiled(&read(), linked(links)).unwrap().digest()
    };
    assert_ne!(digest("Resource::\"crm\""), digest("Resource::\"hr\""));
    assert_eq!(digest("Resource::\"crm\""), digest("Resource::\"crm\""));
}

#[test]
fn a_link_is_json_with_known_members_only() {
    let link = both()[0].clone();
    let parsed: Link = serde_json::from_value(link.clone()).unwrap();
    assert_eq!(serde_json::to_value(&parsed).unwrap(), link);
    for (member, value) in [
        ("values", json!({"?action": "x"})),
        ("tempalte", json!("x")),
        ("id", json!("")),
    ] {
        let mut wrong = link.clone();
        wrong[member] = value;
        assert!(serde_json::from_value::<Link>(wrong).is_err(), "{member}");
    }
}

#[test]
fn what_is_wrong_with_a_link_is_told() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut links = both();
        change(&mut links);
        let found = compiled(&read(), linked(links)).unwrap_err();
        found
            .iter()
            .map(|found| {
                format!(
                    "{}: {}",
                    found.policy.as_deref().unwrap_or_default(),
                    found.message
                )
            })
            .collect::<Vec<_>>()
    };
    let value = |text: &'static str| move |links: &mut Value| links[1]["values"]["?principal"] = text.into();
    assert_eq!(
        with(&|links| links[1]["template"] = "forzen".into()),
        [
            "mine/freeze-builder: there is no template `mine/forzen`",
            "mine/frozen: the policy is a template, and nothing links it",
        ]
    );
    assert_eq!(
        with(&|links| links[1]["values"] = json!({})),
        ["mine/freeze-builder: the link does not say what `?principal` stands for"]
    );
    assert_eq!(
        with(&|links| links[1]["values"]["?resource"] = "Resource::\"x\"".into()),
        ["mine/freeze-builder: the template has no `?resource`"]
    );
    for taken in ["plain", "frozen", "sales-may-read"] {
        assert_eq!(
            with(&|links| links[1]["id"] = taken.into()),
            [format!(
                "mine/{taken}: the id `mine/{taken}` is used more than once"
            )]
        );
    }
    for wrong in ["bob", "Agent::bob", "", "Agent::\"a\" || true"] {
        assert_eq!(
            with(&value(wrong)),
            [format!("mine/freeze-builder: `{wrong}` is not an entity")]
        );
    }
    assert_eq!(
        with(&value("Agnet::\"a\""))[0],
        "mine/freeze-builder: for policy `mine/freeze-builder`, unrecognized entity type `Agnet`"
    );
    assert_eq!(
        with(&value("Resource::\"a\"")),
        [
            "mine/freeze-builder: the policy can never match: no ask satisfies its scope and its conditions together"
        ]
    );
}

#[test]
fn a_slot_without_a_value_is_told_with_an_entity_that_it_could_stand_for() {
    for (slot, left, entity) in [
        ("?principal", "?resource", r#"Agent::\"agt_…\""#),
        ("?resource", "?principal", r#"Resource::\"…\""#),
    ] {
        let mut links = both();
        let value = links[0]["values"][left].clone();
        links[0]["values"] = json!({left: value});
        let found = compiled(&read(), linked(links)).unwrap_err();
        let help = format!(r#"write `"{slot}": "{entity}"` into `values`"#);
        assert_eq!(found[0].help.as_ref(), Some(&help));
    }
}

#[test]
fn a_link_for_whom_nobody_can_be_is_pointed_out() {
    let warned = |principal: &str| {
        let mut links = both();
        links[1]["values"]["?principal"] = principal.into();
        compiled(&read(), linked(links)).unwrap().warnings().to_vec()
    };
    assert_eq!(warned(AGENT), []);
    let found = warned("Agent::\"billing-bot\"");
    let [warning] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(warning.policy.as_deref(), Some("mine/freeze-builder"));
    let said = "nobody can ever be `Agent::\"billing-bot\"`";
    assert!(warning.message.starts_with(said), "{warning:?}");
}

#[test]
fn whom_nobody_can_be_is_pointed_out_once_for_all_links_and_so_often_at_most() {
    let bot = |number: usize| format!("Agent::\"bot-{number}\"");
    let bots: Vec<_> = (0..50).map(bot).collect();
    let warned = |principal: &dyn Fn(usize) -> String| {
        let link = |number: usize| {
            let values = json!({"?principal": principal(number)});
            json!({"template": "t", "id": format!("link-{number:02}"), "values": values})
        };
        let links: Vec<_> = (0..100).map(link).collect();
        let cedar = format!(
            "@id(\"t\") forbid (principal == ?principal, action, resource) when {{ [{}].contains(principal) }};",
            bots.join(", ")
        );
        let policy = TenantPolicy {
            links: serde_json::from_value(json!(links)).unwrap(),
            ..tenant("mine", &cedar)
        };
        let set = compiled(&read(), policy).unwrap();
        let warnings = set.warnings().iter().map(|warning| warning.policy.clone());
        warnings.collect::<Option<Vec<_>>>().unwrap()
    };
    assert_eq!(warned(&|_| AGENT.to_owned()), vec!["mine/link-00"; 50]);
    let found = warned(&bot);
    assert_eq!((found.len(), &*found[50]), (64, "mine/link-01"));
}

#[test]
fn a_value_that_is_nested_deeply_is_no_crash() {
    let mut links = both();
    links[1]["values"]["?principal"] = "(".repeat(10_000).into();
    let found = compiled(&read(), linked(links)).unwrap_err();
    assert_eq!(found[0].message, format!("`{}` is not an entity", "(".repeat(64)));
}

/// Each would be told with the names of all templates.
#[test]
fn of_many_links_to_no_template_some_are_told_and_with_a_few_that_there_are() {
    let template =
        |number: usize| format!("@id(\"t{number:02}\") forbid (principal == ?principal, action, resource);");
    let link = |number: usize| json!({"template": "gone", "id": format!("l{number}"), "values": {"?principal": AGENT}});
    let links: Vec<_> = (0..1_000).map(link).collect();
    let policy = TenantPolicy {
        links: serde_json::from_value(json!(links)).unwrap(),
        ..tenant("mine", &(0..20).map(template).collect::<String>())
    };
    let found = compiled(&read(), policy).unwrap_err();
    assert_eq!(found.len(), 64);
    let help = found[0].help.as_deref().unwrap();
    assert!(help.starts_with("there are `mine/t00`, `mine/t01`, "), "{help}");
    assert!(help.ends_with("`mine/t15`, and others"), "{help}");
}

/// Each would be told with a copy of the whole value.
#[test]
fn a_value_of_what_is_no_escape_takes_no_memory() {
    let mut links = both();
    links[1]["values"]["?principal"] = format!("Agent::\"{}\"", "\\q".repeat(131_000)).into();
    let found = compiled(&read(), linked(links)).unwrap_err();
    let shown = format!("Agent::\"{}", "\\q".repeat(64));
    assert_eq!(found[0].message, format!("`{}` is not an entity", &shown[..64]));
}

#[test]
fn links_have_a_bound() {
    let link: Link = serde_json::from_value(both()[1].clone()).unwrap();
    let policy = TenantPolicy {
        links: vec![link; policy::LINKS_MAX + 1],
        ..tenant("mine", TEMPLATES)
    };
    let found = compiled(&read(), policy).unwrap_err();
    assert_eq!(
        found[0].to_string(),
        "mine: the policy has 10001 links, and may have 10000"
    );
}
