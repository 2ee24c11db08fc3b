//! What is compiled again when something changes, and what is shared.

use super::*;
use crate::Severity;
use crate::case::{Case, Known};
use crate::read_set::ReadSet;
use crate::ruling::Ruling;
use crate::world::{World, action, tool};
use model::{AgentId, ReasonCode, SlashFreeName};
use serde_json::{Map, Value};
use std::cell::Cell;

fn policies(count: usize) -> Vec<TenantPolicy> {
    let policy = |number: usize| {
        let cedar = format!(
            "@id(\"a\") forbid (principal == Agent::\"{number}\", action, resource) when {{ context.sensitive }};"
        );
        TenantPolicy::new(SlashFreeName::new(&format!("p{number}")).unwrap(), cedar)
    };
    (0..count).map(policy).collect()
}

fn compiled(compiler: &Compiler, policies: &[TenantPolicy], tools: &[&str]) -> PolicySet {
    with_candidate(policies, tools, |candidate| compiler.compile(candidate)).unwrap()
}

fn with_candidate<R>(
    policies: &[TenantPolicy],
    tools: &[&str],
    function: impl FnOnce(Candidate<'_>) -> R,
) -> R {
    let tools = tools.iter().map(|name| tool(name, [action("x", true, None)]));
    with_tools(policies, tools.collect(), function)
}

fn with_tools<R>(
    policies: &[TenantPolicy],
    tools: Vec<Tool>,
    function: impl FnOnce(Candidate<'_>) -> R,
) -> R {
    let tools = tools.into_iter().map(|tool| (tool.name.clone(), Arc::new(tool)));
    function(Candidate {
        policies,
        registry: Registry {
            tools: &tools.collect(),
            attributes: &BTreeMap::new(),
        },
        permits: TenantPermits::Allowed,
    })
}

/// A policy with a template of some more bytes than these, linked so often.
fn linked(name: &str, bytes: usize, links: usize) -> TenantPolicy {
    let cedar = format!(
        "@id(\"t\") forbid (principal == ?principal, action, resource) when {{ \"{}\" == \"\" || context.sensitive }};",
        "x".repeat(bytes)
    );
    let link = |number: usize| {
        let values = json!({"?principal": format!("Agent::\"{number}\"")});
        json!({"template": "t", "id": number.to_string(), "values": values})
    };
    let links: Vec<_> = (0..links).map(link).collect();
    TenantPolicy {
        links: serde_json::from_value(json!(links)).unwrap(),
        ..TenantPolicy::new(SlashFreeName::new(name).unwrap(), cedar)
    }
}

/// How many named policies of two sets are the same in memory.
fn shared(one: &PolicySet, other: &PolicySet) -> usize {
    let pairs = one.contents.policies.iter().zip(&other.contents.policies);
    pairs.filter(|(one, other)| Arc::ptr_eq(one, other)).count()
}

#[test]
fn a_change_to_one_policy_of_a_thousand_compiles_one() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let mut policies = policies(1_000);
    let before = compiled(&compiler, &policies, &["a"]);
    policies[7].cedar = "@id(\"a\") forbid (principal, action, resource);".into();
    let after = compiled(&compiler, &policies, &["a"]);
    assert_eq!(shared(&before, &after), 999);
    assert_ne!(before.digest(), after.digest());
    assert!(Arc::ptr_eq(
        &before.contents.vocabulary,
        &after.contents.vocabulary
    ));
}

#[test]
fn tenants_with_equal_tools_share_them_and_equal_policies_too() {
    let compiler = Compiler::new(BasePolicies::shipped());
    let one = compiled(&compiler, &policies(3), &["a", "b"]);
    let other = compiled(&compiler, &policies(2), &["a", "b"]);
    assert!(Arc::ptr_eq(&one.contents.vocabulary, &other.contents.vocabulary));
    assert_eq!(shared(&one, &other), 2);
    let elsewhere = compiled(&compiler, &policies(2), &["a", "c"]);
    assert!(!Arc::ptr_eq(
        &one.contents.vocabulary,
        &elsewhere.contents.vocabulary
    ));
    // What was valid there need not be valid here.
    assert_eq!(shared(&one, &elsewhere), 0);
}

#[test]
fn everything_about_an_action_makes_another_vocabulary() {
    let plain = || tool("a", [action("x", true, None)]);
    let digest = |tool: Tool| {
        vocabulary::digest(Registry {
            tools: &OrdMap::unit(tool.name.clone(), Arc::new(tool)),
            attributes: &BTreeMap::new(),
        })
    };
    let mut digests = vec![digest(plain())];
    let changes: [fn(&mut Tool); 5] = [
        |tool| tool.canary = true,
        |tool| first(tool).mutates_state = false,
        |tool| first(tool).risk = model::Risk::High,
        |tool| first(tool).input_schema = Some(Arc::new(json!({}))),
        |tool| tool.actions.clear(),
    ];
    for change in changes {
        let mut tool = plain();
        change(&mut tool);
        digests.push(digest(tool));
    }
    let different: BTreeSet<_> = digests.iter().map(ToString::to_string).collect();
    assert_eq!(different.len(), digests.len());
    let mut described = plain();
    first(&mut described).description = Some("words".into());
    assert_eq!(digest(described), digests[0]);
}

fn first(tool: &mut Tool) -> &mut model::ToolAction {
    tool.actions.values_mut().next().unwrap()
}

#[test]
fn ten_thousand_policies_about_others_are_not_looked_at() {
    let world = crate::world::World::default();
    let mut all = policies(10_000);
    let me = format!(
        "@id(\"me\") forbid (principal == Agent::\"{}\", action, resource);",
        world.agent().id
    );
    all.push(TenantPolicy::new(SlashFreeName::new("me").unwrap(), me));
    let set = world.compile(&BasePolicies::parse("").unwrap(), &all).unwrap();
    let ruling = world.ask(&set).unwrap();
    assert_eq!(crate::world::matched(&ruling), ["me/me"]);
    let width = world.with_question(|question| {
        let known = Known::read(&set.contents, question).unwrap().unwrap();
        let case = Case::open(known, question, ReadSet::default()).unwrap();
        case.width()
    });
    assert_eq!(width, 1);
}

#[test]
fn links_share_what_their_template_says() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let set = compiled(&compiler, &[linked("p", 10, 2)], &["a"]);
    let [one, other] = &set.contents.policies[0].statements[..] else {
        panic!("two links are two policies");
    };
    assert!(Arc::ptr_eq(&one.annotations, &other.annotations));
    let expression = |statement: &Statement| Arc::clone(&statement.condition.as_ref().unwrap().expression);
    assert!(Arc::ptr_eq(&expression(one), &expression(other)));
}

#[test]
fn a_policy_in_force_that_can_never_match_is_a_warning() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let never = "@id(\"a\") forbid (principal, action in Action::\"mutate\", resource) when { false };";
    let never = [TenantPolicy::new(SlashFreeName::new("never").unwrap(), never)];
    let with = |compile: &dyn Fn(Candidate<'_>) -> Result<PolicySet, Diagnostics>| {
        with_candidate(&never, &["a"], compile)
    };
    let set = with(&|candidate| compiler.compile(candidate)).unwrap();
    let Diagnostics(found) = with(&|candidate| compiler.compile_new(candidate, None)).unwrap_err();
    let ([warning], [fault]) = (set.warnings(), &found[..]) else {
        panic!("{:?}, {found:?}", set.warnings());
    };
    assert_eq!(set.wrong_for_users().count(), 0);
    assert_eq!(warning.message, fault.message);
    assert_eq!(
        (warning.severity, fault.severity),
        (Severity::Warning, Severity::Error)
    );
}

/// What comes of an ask for this user, if for one.
fn asked_for(set: &PolicySet, user: Option<&str>) -> Ruling {
    let world = World {
        tool: "a".into(),
        action: "x".into(),
        user: user.map(|id| (id.to_owned(), None)),
        ..World::default()
    };
    world.ask(set).unwrap()
}

#[test]
fn what_is_wrong_for_users_only_is_a_warning_where_it_is_in_force_and_is_not_put_in_force() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let agents = "[Agent::\"agt_070w3ge1r70w3ge1r70w3ge1r7\"].contains(principal)";
    // No member of the context is called so.
    let maintenance = "context has maintenance";
    for (scope, condition, reason) in [
        (
            "principal",
            format!("{agents} || {maintenance}"),
            ReasonCode::PolicyForbids,
        ),
        (
            "principal",
            "!(principal is User) || principal.risk_tier == \"low\"".to_owned(),
            ReasonCode::PolicyError,
        ),
        (
            "principal",
            "principal == User::\"eve\" || principal.risk_tier == \"low\"".to_owned(),
            ReasonCode::PolicyError,
        ),
        (
            "principal == User::\"ada\"",
            "principal.risk_tier == \"low\"".to_owned(),
            ReasonCode::PolicyError,
        ),
        (
            "principal",
            "!(principal is User) && principal.risk_tier == \"low\" || principal is User && context.sesitive"
                .to_owned(),
            ReasonCode::PolicyError,
        ),
    ] {
        let all = "@id(\"all\") permit (principal, action, resource);";
        let cedar = format!("{all} @id(\"a\") forbid ({scope}, action, resource) unless {{ {condition} }};");
        let window = [TenantPolicy::new(SlashFreeName::new("window").unwrap(), cedar)];
        let set = compiled(&compiler, &window, &["a"]);
        let warning = set.warnings().first().unwrap();
        assert_eq!(warning.policy.as_deref(), Some("window/a"));
        assert_eq!(set.wrong_for_users().next(), Some(warning));
        let for_nobody = asked_for(&set, None).verdict();
        assert_eq!(for_nobody, model::Verdict::Allow, "{condition}");
        assert_eq!(asked_for(&set, Some("ada")).reason, reason, "{condition}");
        assert!(!warning.message.contains("never match"), "{warning}");
        let before: (&[_], &[_]) = (&window, &["a"]);
        assert!(changed(&compiler, (&window, &["a", "b"]), before).is_ok());
        // The finding is told of an action that was not there before.
        assert!(
            changed(&compiler, (&window, &["0", "a"]), before).is_ok(),
            "{condition}"
        );
        let nothing = changed(&compiler, before, (&[], before.1));
        assert_eq!(nothing.unwrap_err()[0], "window/a", "{condition}");
    }
    // What is wrong for agents is wrong.
    let cedar = "@id(\"a\") forbid (principal, action, resource) when { principal.risk_tier > 3 };";
    let wrong = [TenantPolicy::new(SlashFreeName::new("wrong").unwrap(), cedar)];
    assert!(with_candidate(&wrong, &["a"], |candidate| compiler.compile(candidate)).is_err());
}

/// Another action comes first and has slips of its own, so that other ones are told.
#[test]
fn a_policy_in_force_with_more_slips_for_users_than_are_told_stays_when_actions_come() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let slips = vec!["context.input.slip"; TOLD_MAX + 6].join(", ");
    let of_action = |parameter: &str| format!("context.input has {parameter} && [{slips}].contains(1)");
    let cedar = format!(
        "@id(\"a\") forbid (principal, action, resource) when {{ !(principal is User) && principal.risk_tier == \"low\" || principal is User && ({} || {}) }};",
        of_action("a"),
        of_action("b")
    );
    let old = [TenantPolicy::new(SlashFreeName::new("old").unwrap(), cedar)];
    let taking = |name: &str, parameter: &str| {
        let schema = json!({"properties": {parameter: {"type": "integer"}}});
        tool(name, [action("x", true, Some(schema))])
    };
    let before = || vec![taking("1", "a")];
    let first = with_tools(&old, before(), |candidate| compiler.compile(candidate)).unwrap();
    assert_eq!(first.wrong_for_users().count(), TOLD_MAX);
    let changed = with_tools(&old, before(), |before| {
        with_tools(&old, vec![taking("0", "b"), taking("1", "a")], |candidate| {
            compiler.compile_new(candidate, Some(before))
        })
    });
    let places = |set: &PolicySet| {
        let places = set.wrong_for_users().map(|found| found.place.unwrap().offset);
        places.collect::<BTreeSet<_>>()
    };
    assert!(places(&first).is_disjoint(&places(&changed.unwrap())));
}

/// So many actions have the first slip that nobody looks for the second one, until one of them is gone.
#[test]
fn a_policy_in_force_with_slips_for_more_asks_of_users_than_are_looked_at_stays_when_actions_go() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let cedar = "@id(\"a\") forbid (principal, action, resource) when { !(principal is User) && principal.risk_tier == \"low\" || principal is User && (context.input has a && context.input.slip == 1 || context.input has b && context.input.slip == 2) };";
    let old = [TenantPolicy::new(
        SlashFreeName::new("old").unwrap(),
        cedar.to_owned(),
    )];
    let taking = |name: &str, parameter: &str, count: usize| {
        let schema = json!({"properties": {parameter: {"type": "integer"}}});
        let names = (0..count).map(|number| format!("x{number:02}"));
        tool(name, names.map(|name| action(&name, true, Some(schema.clone()))))
    };
    let actions = |first: usize| vec![taking("1", "a", first), taking("2", "b", 1)];
    let set = with_tools(&old, actions(64), |candidate| compiler.compile(candidate)).unwrap();
    assert_eq!(set.wrong_for_users().count(), 1);
    let changed = with_tools(&old, actions(64), |before| {
        with_tools(&old, actions(63), |candidate| {
            compiler.compile_new(candidate, Some(before))
        })
    });
    assert_eq!(changed.unwrap().wrong_for_users().count(), 2);
}

#[test]
fn a_policy_in_force_that_tests_for_what_nothing_has_is_a_warning_and_stays() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let cedar = "@id(\"a\") forbid (principal, action, resource) when { context has usr && context.usr == User::\"z\" || context.sensitive };";
    let old = [TenantPolicy::new(SlashFreeName::new("old").unwrap(), cedar)];
    let set = compiled(&compiler, &old, &["a"]);
    let [warning] = set.warnings() else {
        panic!("{:?}", set.warnings());
    };
    assert_eq!(warning.severity, Severity::Warning);
    assert_eq!(
        warning.message,
        "nothing that the policy is about has a member `usr`"
    );
    let before: (&[_], &[_]) = (&old, &["a"]);
    assert!(changed(&compiler, (&old, &["0", "a"]), before).is_ok());
    let nothing = changed(&compiler, before, (&[], before.1));
    assert_eq!(nothing.unwrap_err(), ["old/a"]);
}

#[test]
fn a_policy_in_force_that_asks_for_the_team_of_a_user_whom_it_names_is_a_warning_and_stays() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let cedar =
        "@id(\"a\") forbid (principal, action, resource) unless { User::\"ada\" in Team::\"oncall\" };";
    let old = [TenantPolicy::new(SlashFreeName::new("old").unwrap(), cedar)];
    let set = compiled(&compiler, &old, &["a"]);
    let [warning] = set.warnings() else {
        panic!("{:?}", set.warnings());
    };
    assert!(
        warning.message.starts_with("teams, members and tags"),
        "{warning}"
    );
    let before: (&[_], &[_]) = (&old, &["a"]);
    assert!(changed(&compiler, (&old, &["a", "b"]), before).is_ok());
    let nothing = changed(&compiler, before, (&[], before.1));
    assert_eq!(nothing.unwrap_err(), ["old/a"]);
}

#[test]
fn a_policy_in_force_with_too_long_a_pattern_is_a_warning_and_stays() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let cedar = format!(
        "@id(\"a\") forbid (principal, action, resource) when {{ principal.name like \"{}\" }};",
        "a*".repeat(200)
    );
    let old = [TenantPolicy::new(SlashFreeName::new("old").unwrap(), cedar)];
    let set = compiled(&compiler, &old, &["a"]);
    let said = "a pattern has 400 characters and wildcards, and may have 256";
    assert_eq!(set.warnings()[0].message, said);
    let before: (&[_], &[_]) = (&old, &["a"]);
    assert!(changed(&compiler, (&old, &["a", "b"]), before).is_ok());
    let nothing = changed(&compiler, before, (&[], before.1));
    assert_eq!(nothing.unwrap_err(), ["old/a"]);
}

#[test]
fn a_policy_in_force_with_too_long_a_name_of_a_member_is_a_warning_and_stays() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let cedar = format!(
        "@id(\"a\") forbid (principal, action, resource) when {{ context.sensitive || {{\"{}\": 1}} has a }};",
        "n".repeat(257)
    );
    let old = [TenantPolicy::new(SlashFreeName::new("old").unwrap(), cedar)];
    let set = compiled(&compiler, &old, &["a"]);
    let said = "the name of a member has more than 256 bytes";
    assert_eq!(set.warnings()[0].message, said);
    let before: (&[_], &[_]) = (&old, &["a"]);
    assert!(changed(&compiler, (&old, &["a", "b"]), before).is_ok());
    let nothing = changed(&compiler, before, (&[], before.1));
    assert_eq!(nothing.unwrap_err(), ["old/a"]);
}

/// The longest path that a text has room for. Each part of it written out would fill the memory.
#[test]
fn a_policy_in_force_with_too_long_a_path_is_a_warning_and_redacts() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let path = "a.".repeat(130_000) + "b";
    let cedar = format!(
        "@id(\"all\") permit (principal, action, resource);
        @id(\"a\") @decision(\"advise\") @obligation(\"redact:parameters.{path}, redact:parameters.pin\")
        permit (principal, action, resource);"
    );
    let old = [TenantPolicy::new(SlashFreeName::new("old").unwrap(), cedar)];
    let set = compiled(&compiler, &old, &["a"]);
    let said = "the path of an obligation has 130000 dots, and may have 64";
    assert_eq!(set.warnings()[0].message, said);
    let before: (&[_], &[_]) = (&old, &["a"]);
    assert!(changed(&compiler, (&old, &["a", "b"]), before).is_ok());
    let nothing = changed(&compiler, before, (&[], before.1));
    assert_eq!(nothing.unwrap_err(), ["old/a"]);

    let asked = World {
        tool: "a".into(),
        action: "x".into(),
        parameters: json!({"a": {"a": 1}, "pin": 1}),
        ..World::default()
    };
    let ruling = asked.ask(&set).unwrap();
    assert_eq!(crate::world::obligations(&ruling), ["redact:parameters.pin"]);
}

#[test]
fn a_policy_in_force_that_says_too_much_is_a_warning_and_says_it() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let reason = "a".repeat(5_000);
    let cedar = format!("@id(\"all\") @reason(\"{reason}\") permit (principal, action, resource);");
    let old = [TenantPolicy::new(SlashFreeName::new("old").unwrap(), cedar)];
    let set = compiled(&compiler, &old, &["a"]);
    let said = "`@reason` has 5000 bytes, and may have 4096";
    assert_eq!(set.warnings()[0].message, said);
    let before: (&[_], &[_]) = (&old, &["a"]);
    assert!(changed(&compiler, (&old, &["a", "b"]), before).is_ok());
    let nothing = changed(&compiler, before, (&[], before.1));
    assert_eq!(nothing.unwrap_err(), ["old/all"]);
    let asked = World {
        tool: "a".into(),
        action: "x".into(),
        ..World::default()
    };
    assert_eq!(asked.ask(&set).unwrap().explanation, reason);
}

#[test]
fn what_links_make_of_templates_has_a_bound_and_what_is_in_force_has_none() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let new = |policies: &[TenantPolicy]| {
        with_candidate(policies, &["a"], |candidate| {
            compiler.compile_new(candidate, None)
        })
    };
    let half = LINKED_BYTES_MAX / 2 / 100;
    // A long policy that nothing links does not count.
    let plain = format!(
        "@id(\"plain\") forbid (principal, action, resource) when {{ \"{}\" == \"\" || context.sensitive }};",
        "x".repeat(half)
    );
    let mut small = linked("small", half - 200, 100);
    small.cedar = format!("{}{plain}", small.cedar).into();
    assert!(new(&[small.clone(), linked("other", half - 200, 100)]).is_ok());

    let large = [small, linked("large", half + 200, 100)];
    let Diagnostics(found) = new(&large).unwrap_err();
    let [fault] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(fault.policy.as_deref(), Some("large"));
    assert!(fault.message.contains("may have 8388608"), "{fault}");
    assert_eq!(compiled(&compiler, &large, &["a"]).policy_ids().len(), 201);
}

/// So many policies in one text.
fn forbids(name: &str, count: usize) -> TenantPolicy {
    let one = |number: usize| format!("@id(\"{number}\")forbid(principal,action,resource);");
    let cedar: String = (0..count).map(one).collect();
    TenantPolicy::new(SlashFreeName::new(name).unwrap(), cedar)
}

/// A text in which so many groups of long names have to approve, each named twice.
fn asks_groups(count: usize) -> TenantPolicy {
    let one = |number: usize| {
        let group = number % count;
        format!(
            "@id(\"{number}\")@decision(\"require_approval\")@approvers(\"{group:0220}\")permit(principal,action,resource);"
        )
    };
    let cedar: String = (0..2 * count).map(one).collect();
    TenantPolicy::new(SlashFreeName::new("groups").unwrap(), cedar)
}

/// This policy, tried for so many agents.
fn canary(agents: u128, policy: TenantPolicy) -> TenantPolicy {
    let agents = (0..agents).map(|number| AgentId::from_bytes(number.to_be_bytes()));
    TenantPolicy {
        mode: crate::Mode::Canary(Arc::new(agents.collect())),
        ..policy
    }
}

#[test]
fn how_much_a_set_holds_has_a_bound_and_what_is_in_force_may_stay() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let many = ["a", "b", "c", "d"].map(|name| forbids(name, 5_001));
    let long = [forbids(&"x".repeat(250), 5_000)];
    let groups = [asks_groups(300)];
    let canaries = [forbids("a", 2_600), canary(100, forbids("a", 2_600))];
    for (policies, said) in [
        (
            &groups[..],
            "the set has 75900 bytes of groups that approve, and may have 65536",
        ),
        (
            &many[..],
            "the set has 20004 policies in texts and links, and may have 20000",
        ),
        (
            &long[..],
            "the set has 1288890 bytes of ids, and may have 1048576",
        ),
        (
            &canaries[..],
            "the set has 520000 agents of canaries, counted with each policy of theirs and each whose place that takes, and may have 500000",
        ),
    ] {
        let refused = with_candidate(policies, &["a"], |candidate| {
            compiler.compile_new(candidate, None)
        });
        let Diagnostics(found) = refused.unwrap_err();
        let [fault] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((fault.message.as_str(), &fault.policy), (said, &None));
        let before: (&[_], &[_]) = (policies, &["a"]);
        assert!(changed(&compiler, before, before).is_ok());
    }
    let before: (&[_], &[_]) = (&long, &["a"]);
    let more = [long[0].clone(), forbids("b", 1)];
    assert!(changed(&compiler, (&more, before.1), before).is_err());
    assert!(changed(&compiler, (&more[1..], before.1), before).is_ok());
    // In the place of nothing it is half as much.
    assert!(changed(&compiler, (&canaries[1..], before.1), (&[], before.1)).is_ok());
}

/// A policy whose text is six times as long in JSON as it is in Cedar, for so many agents.
fn escaped(bytes: usize, links: usize) -> TenantPolicy {
    let cedar = format!(
        "@id(\"t\") forbid (principal == ?principal, action, resource) // {}\n;",
        "\u{1}".repeat(bytes)
    );
    TenantPolicy {
        cedar: cedar.into(),
        ..linked("escaped", 1, links)
    }
}

#[test]
fn the_text_of_what_is_in_force_has_a_bound_and_what_was_longer_before_may_stay() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let long = [escaped(30_000, 100)];
    let bytes = compiled(&compiler, &long, &["a"]).text().len() - 1;
    let refused = with_candidate(&long, &["a"], |candidate| compiler.compile_new(candidate, None));
    let Diagnostics(found) = refused.unwrap_err();
    let [fault] = &found[..] else {
        panic!("{found:?}");
    };
    let said = format!("the set has {bytes} bytes of text in force, and may have 16777216");
    assert_eq!((&fault.message, &fault.policy), (&said, &None));

    let of = |policies: &[TenantPolicy], before: &[TenantPolicy]| {
        changed(&compiler, (policies, &["a"]), (before, &["a"]))
    };
    assert!(of(&long, &long).is_ok());
    assert!(of(&[long[0].clone(), forbids("b", 1)], &long).is_err());
    let tried = TenantPolicy {
        mode: crate::Mode::Shadow,
        ..long[0].clone()
    };
    assert!(of(&[tried], &[]).is_ok(), "it is not in force");
}

#[test]
fn the_text_of_what_is_in_force_is_as_long_as_it_was_counted() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let nothing = |name: &str| TenantPolicy::new(SlashFreeName::new(name).unwrap(), "");
    let policies = [
        escaped(10, 2),
        forbids("a", 3),
        canary(5, forbids("a", 2)),
        canary(2, linked("b", 10, 2)),
        forbids("c", 4),
        canary(3, nothing("c")),
        canary(0, forbids("d", 1)),
        forbids("e", 1),
        TenantPolicy {
            mode: crate::Mode::Shadow,
            ..forbids("e", 6)
        },
        nothing("f"),
    ];
    let [.., counted, _] = with_candidate(&policies, &["a"], |candidate| {
        amounts(&compiler.in_force(Some(candidate)))
    });
    let text = compiled(&compiler, &policies, &["a"]).text().to_string();
    assert_eq!(counted, text.len() - 1, "{text}");
}

/// A policy that looks at this many actions of each ask, for so many agents.
fn wide(actions: usize, links: usize) -> TenantPolicy {
    let one = |number: usize| format!("action == Action::\"a/x{number}\"");
    let actions: Vec<_> = (0..actions).map(one).collect();
    let cedar = format!(
        "@id(\"t\") forbid (principal == ?principal, action, resource) when {{ {} }};",
        actions.join(" || ")
    );
    TenantPolicy {
        cedar: cedar.into(),
        ..linked("wide", 1, links)
    }
}

fn wide_tools(actions: usize) -> Vec<Tool> {
    let actions = (0..actions).map(|number| action(&format!("x{number}"), true, None));
    vec![tool("a", actions)]
}

#[test]
fn what_would_take_too_long_to_validate_is_refused_before_it_does() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let policies = [wide(60, 1_000)];
    let refused = with_tools(&policies, wide_tools(256), |candidate| {
        compiler.compile_new(candidate, None)
    });
    let Diagnostics(found) = refused.unwrap_err();
    let [fault] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(fault.policy.as_deref(), Some("wide"));
    assert!(fault.message.contains("more than 33554432 parts"), "{fault}");
    assert!(fault.message.contains("twice for agents and users"), "{fault}");
}

#[test]
fn comparisons_of_wide_types_are_refused_before_they_are_made() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let names = (0..1_900).map(|number| (format!("p{number}"), json!({"type": "string"})));
    let schema = json!({"properties": names.collect::<serde_json::Map<_, _>>()});
    let actions = (0..8).map(|number| action(&format!("x{number}"), true, Some(schema.clone())));
    let actions: Vec<_> = actions.collect();
    let many = format!("[{}].contains(context)", vec!["context"; 8_000].join(", "));
    // They differ at the bottom only, so their types are compared again on the way down.
    let nested = |b: bool| format!("{}{{a: context, b: {b}}}{}", "[".repeat(56), "]".repeat(56));
    let deep = format!("{} == {}", nested(true), nested(false));
    for conditions in [many, [deep.as_str(); 24].join(" || ")] {
        let cedar = format!("@id(\"a\") forbid (principal, action, resource) when {{ {conditions} }};");
        let policies = [TenantPolicy::new(SlashFreeName::new("equal").unwrap(), cedar)];
        let refused = with_tools(&policies, vec![tool("a", actions.clone())], |candidate| {
            compiler.compile_new(candidate, None)
        });
        let Diagnostics(found) = refused.unwrap_err();
        let [fault] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(fault.policy.as_deref(), Some("equal"));
        assert!(fault.message.contains("more than 33554432 parts"), "{fault}");
    }
}

#[test]
fn what_does_not_go_on_is_refused_and_nothing_is_remembered_of_it() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let policies = [wide(2, 3)];
    // Whether it is compiled, and how often it was asked whether it goes on, which it does not after so many times.
    let asking = |times: usize| {
        let asked = Cell::new(0);
        let goes_on = || {
            asked.set(asked.get() + 1);
            asked.get() <= times
        };
        let set = with_tools(&policies, wide_tools(64), |candidate| {
            compiler.compile_new_while(candidate, None, &goes_on)
        });
        (set.is_ok(), asked.get())
    };
    let (is_compiled, parts) = asking(usize::MAX);
    assert!(is_compiled);
    assert!(parts > 3 * 64, "it is asked {parts} times");
    for times in [0, 1, parts / 2, parts - 1] {
        assert!(!asking(times).0, "{times} of {parts}");
    }
    assert_eq!(asking(parts), (true, parts));
}

#[test]
fn what_is_about_agents_and_users_is_counted_twice_to_validate() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let checks = |principal: &str| {
        let cedar =
            format!("@id(\"a\") forbid ({principal}, action, resource) when {{ context.input has to }};");
        let policies = [TenantPolicy::new(SlashFreeName::new("p").unwrap(), cedar)];
        with_candidate(&policies, &["a", "b", "c"], |before| {
            compiler.checks_before(Some(before), before.registry, usize::MAX)
        })
    };
    let (of_agents, of_both) = (checks("principal is Agent"), checks("principal"));
    assert!(of_agents > 0);
    assert_eq!(of_both, 2 * of_agents);
}

#[test]
fn what_took_long_to_validate_before_may_take_it_again() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let (policies, more) = ([wide(2, 3)], [wide(2, 4)]);
    let validated =
        |policies_now: &[TenantPolicy], tools: usize, before: Option<usize>, checks_max: usize| {
            with_tools(policies_now, wide_tools(tools), |candidate| {
                let registry = vocabulary::digest(candidate.registry);
                let new = |before: Option<Candidate<'_>>| {
                    let goes_on: GoesOn<'_> = &|| true;
                    let stage = Stage::New { before, goes_on };
                    let found = compiler.validated(registry, candidate, stage, checks_max);
                    found.unwrap().remove(0).is_ok()
                };
                match before {
                    None => new(None),
                    Some(tools) => with_tools(&policies, wide_tools(tools), |before| new(Some(before))),
                }
            })
        };
    assert!(validated(&policies, 3, None, 10_000));
    assert!(!validated(&policies, 3, None, 10));
    assert!(validated(&policies, 3, Some(3), 10));
    assert!(validated(&policies, 2, Some(3), 10));
    assert!(!validated(&more, 3, Some(3), 10));
    // It does not stand in the way of tools, and those that come do not make too much of what is not.
    assert!(validated(&policies, 4, Some(3), 10));
    assert!(!validated(&more, 4, Some(3), 10));
    let checks = with_tools(&policies, wide_tools(3), |before| {
        compiler.checks_before(Some(before), before.registry, usize::MAX)
    });
    assert!(validated(&policies, 4, Some(3), checks - 1));
    assert!(!validated(&policies, 4, Some(3), checks));
}

/// These policies with these tools in the place of those with those, or what is said against them.
fn changed(
    compiler: &Compiler,
    (policies, tools): (&[TenantPolicy], &[&str]),
    (before, tools_before): (&[TenantPolicy], &[&str]),
) -> Result<PolicySet, Vec<String>> {
    let changed = with_candidate(before, tools_before, |before| {
        with_candidate(policies, tools, |candidate| {
            compiler.compile_new(candidate, Some(before))
        })
    });
    changed.map_err(|found| found.0.into_iter().filter_map(|finding| finding.policy).collect())
}

/// A policy that can never match where there is no tool with this name.
fn about_tool(name: &str, tool: &str) -> TenantPolicy {
    let cedar = format!(
        "@id(\"a\") forbid (principal, action in Action::\"mutate\", resource) when {{ context.tool.name == \"{tool}\" && {} }};",
        if tool == "none" {
            "false"
        } else {
            "context.sensitive"
        }
    );
    TenantPolicy::new(SlashFreeName::new(name).unwrap(), cedar)
}

#[test]
fn a_policy_that_could_never_match_before_does_not_stand_in_the_way() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let old = about_tool("old", "none");
    let new = about_tool("new", "none");
    let fine = about_tool("fine", "a");
    let before: (&[_], &[_]) = (std::slice::from_ref(&old), &["a"]);

    // Another tool, another policy, and the same policy for others than before.
    let set = changed(&compiler, (before.0, &["a", "b"]), before).unwrap();
    assert_eq!(set.warnings().len(), 1);
    assert!(changed(&compiler, (&[old.clone(), fine.clone()], before.1), before).is_ok());
    let on_trial = TenantPolicy {
        mode: crate::Mode::Shadow,
        ..old.clone()
    };
    assert!(changed(&compiler, (&[on_trial], before.1), before).is_ok());

    let refused = changed(&compiler, (&[old.clone(), new.clone()], before.1), before);
    assert_eq!(refused.unwrap_err(), ["new/a"]);
    // Another text with the name and the place of the old one is another policy.
    let other = TenantPolicy::new(old.name.clone(), format!("{} // so", old.cedar));
    let trial = TenantPolicy {
        mode: crate::Mode::Shadow,
        ..other.clone()
    };
    assert_eq!(
        changed(&compiler, (&[other], before.1), before).unwrap_err(),
        ["old/a"]
    );
    let refused = changed(&compiler, (&[old.clone(), trial], before.1), before);
    assert_eq!(refused.unwrap_err(), ["old/a"]);
    let nothing = changed(&compiler, before, (&[], before.1));
    assert_eq!(nothing.unwrap_err(), ["old/a"]);
    assert_eq!(
        changed(&compiler, (&[new], before.1), (&[fine], before.1)).unwrap_err(),
        ["new/a"]
    );
}

#[test]
fn what_stood_within_many_choices_before_does_not_stand_in_the_way() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let list = vec!["1"; 60].join(", ");
    let cases = format!("if context.sensitive then [{list}].contains(1) else ").repeat(200);
    let text =
        |last: &str| format!("@id(\"a\") forbid (principal, action, resource) when {{ {cases}{last} }};");
    let old = TenantPolicy::new(SlashFreeName::new("old").unwrap(), text("false"));
    let other = TenantPolicy::new(old.name.clone(), text("true"));
    let before: (&[_], &[_]) = (std::slice::from_ref(&old), &["a"]);
    compiled(&compiler, before.0, before.1);
    let more = [old.clone(), about_tool("fine", "a")];
    assert!(changed(&compiler, (&more, before.1), before).is_ok());
    let refused = changed(&compiler, (&[other], before.1), before);
    assert_eq!(refused.unwrap_err(), ["old"]);
}

#[test]
fn a_change_of_tools_that_makes_a_policy_idle_is_refused() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let never = "@id(\"never\") forbid (principal, action, resource) when { false };";
    let limit = "@id(\"limit\") forbid (principal, action == Action::\"a/x\", resource) when { context.input has n && context.input.n > 3 };";
    let name = SlashFreeName::new("p").unwrap();
    let policies = [TenantPolicy::new(name, format!("{never}\n{limit}"))];
    let taking = |parameters: &[&str]| {
        let numbers = parameters
            .iter()
            .map(|name| (name.to_string(), json!({"type": "integer"})));
        let schema = json!({"properties": numbers.collect::<serde_json::Map<_, _>>()});
        vec![tool("a", [action("x", true, Some(schema))])]
    };
    let change = |from: &[&str], to: &[&str]| {
        let changed = with_tools(&policies, taking(from), |before| {
            with_tools(&policies, taking(to), |candidate| {
                compiler.compile_new(candidate, Some(before))
            })
        });
        changed.map_err(|found| found.0[0].policy.clone().unwrap())
    };
    assert!(change(&["n"], &["n", "m"]).is_ok());
    assert_eq!(change(&["n"], &["m"]).unwrap_err(), "p/limit");
    assert!(change(&["m"], &["m", "o"]).is_ok());
}

#[test]
fn links_that_were_too_much_before_may_stay_and_not_grow() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let much = LINKED_BYTES_MAX / 100 + 200;
    let (large, larger, small) = (
        linked("large", much, 100),
        linked("large", much, 101),
        linked("small", 10, 2),
    );
    let of = |policies: &[TenantPolicy], before: &[TenantPolicy]| {
        changed(&compiler, (policies, &["a"]), (before, &["a"]))
    };
    let before = [large.clone(), small.clone()];
    assert!(of(&before, &before).is_ok());
    let plain = policies(1).remove(0);
    assert!(of(&[large.clone(), plain], &before).is_ok());
    assert_eq!(of(&[larger, small.clone()], &before).unwrap_err(), ["large"]);
    assert_eq!(of(&before, &[small]).unwrap_err(), ["large"]);
}

#[test]
fn tools_come_whatever_policies_in_force_test_for_and_do_not_go_with_what_they_find() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let cedar = "@id(\"a\") forbid (principal, action, resource) when { context.input has n && context.input.n > 3 || context.sensitive };";
    let old = [TenantPolicy::new(SlashFreeName::new("old").unwrap(), cedar)];
    let with_n = || {
        let schema = json!({"properties": {"n": {"type": "integer"}}});
        tool("n", [action("x", true, Some(schema))])
    };
    let plain = || tool("a", [action("x", true, None)]);
    let is_taken = |from: Vec<Tool>, to: Vec<Tool>| {
        with_tools(&old, from, |before| {
            with_tools(&old, to, |candidate| {
                compiler.compile_new(candidate, Some(before)).is_ok()
            })
        })
    };
    assert!(is_taken(vec![], vec![plain()]));
    let other = || tool("b", [action("x", true, None)]);
    assert!(is_taken(vec![plain()], vec![plain(), other()]));
    assert!(is_taken(vec![plain()], vec![with_n(), plain()]));
    assert!(!is_taken(vec![with_n(), plain()], vec![plain()]));
    // Nothing is left that the policy could be about, and one could be registered.
    assert!(is_taken(vec![with_n()], vec![]));
}

/// A tool with one action for each of these properties.
fn mail(properties: &[Value]) -> Tool {
    let one = |(number, properties): (usize, &Value)| {
        let schema = json!({"type": "object", "properties": properties});
        action(&format!("x{number}"), true, Some(schema))
    };
    tool("mail", properties.iter().enumerate().map(one))
}

/// What is said of a change from these properties of actions to those, while a policy with this scope and these
/// conditions is in force: the messages of all findings.
fn said_of_change(scope: &str, conditions: &str, from: &[Value], to: &[Value]) -> Vec<String> {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let cedar = format!("@id(\"a\") forbid (principal, {scope}, resource) when {{ {conditions} }};");
    let policies = [TenantPolicy::new(SlashFreeName::new("p").unwrap(), cedar)];
    let changed = with_tools(&policies, vec![mail(from)], |before| {
        compiler.compile_new(before, None).unwrap();
        with_tools(&policies, vec![mail(to)], |candidate| {
            compiler.compile_new(candidate, Some(before))
        })
    });
    let Err(Diagnostics(found)) = changed else {
        return Vec::new();
    };
    let about = |finding: &Diagnostic| finding.policy.as_deref() == Some("p/a") && finding.place.is_some();
    assert!(found.iter().all(about), "{found:?}");
    found.into_iter().map(|finding| finding.message).collect()
}

const ONE_OF_TWO: &str = "context.input has to && context.input.to like \"*evil*\" || context.input has n && context.input.n > 100";

#[test]
fn a_change_that_takes_away_what_one_of_several_conditions_tests_for_is_refused() {
    let text = || json!({"to": {"type": "string"}, "n": {"type": "integer"}});
    let several = json!({"to": {"type": ["string", "array"]}, "n": {"type": "integer"}});
    let gone = json!({"n": {"type": "integer"}});
    for (scope, conditions) in [
        ("action == Action::\"mail/x0\"", ONE_OF_TWO),
        ("action", ONE_OF_TWO),
        ("action", "context.sensitive || context has input.to"),
        (
            "action",
            "context.sensitive || context.input has to && context.input.to == \"x\"",
        ),
    ] {
        for to in [&several, &gone] {
            let said = said_of_change(scope, conditions, &[text()], std::slice::from_ref(to));
            let [said] = &said[..] else {
                panic!("{scope} {conditions}: {said:?}");
            };
            assert!(
                said.starts_with("nothing that the policy is about has a member `"),
                "{said}"
            );
        }
        let more = json!({"to": {"type": "string"}, "n": {"type": "integer"}, "cc": {}});
        assert_eq!(said_of_change(scope, conditions, &[text()], &[more]), [""; 0]);
    }
    let sources = "context.sensitive || context.sources has to && context.sources.to.rank < 3";
    assert_eq!(said_of_change("action", sources, &[text()], &[several]), [""; 0]);
    assert_eq!(said_of_change("action", sources, &[text()], &[gone]).len(), 1);
}

#[test]
fn a_parameter_that_one_of_several_actions_still_declares_is_not_hidden_from_policies() {
    let text = || json!({"to": {"type": "string"}, "n": {"type": "integer"}});
    let several = || json!({"to": {"type": ["string", "array"]}, "n": {"type": "integer"}});
    let both = [text(), text()];
    let to = |second: Value| [text(), second];
    let hidden = ["`mail/x1` would not let policies see `to` any more"];
    for scope in [
        "action",
        "action in Action::\"tool:mail\"",
        "action in Action::\"mutate\"",
    ] {
        assert_eq!(
            said_of_change(scope, ONE_OF_TWO, &both, &to(several())),
            hidden,
            "{scope}"
        );
    }
    for scope in ["action == Action::\"mail/x0\"", "action in Action::\"read\""] {
        assert_eq!(
            said_of_change(scope, ONE_OF_TWO, &both, &to(several())),
            [""; 0],
            "{scope}"
        );
    }
    // Its name stands among the sources, which a claim could be about.
    assert_eq!(
        said_of_change(
            "action in Action::\"mutate\"",
            ONE_OF_TWO,
            &[text()],
            &[several()]
        ),
        ["`mail/x0` would not let policies see `to` any more"]
    );
    // What an action does not have is not hidden, and neither is what was hidden before.
    let without = json!({"n": {"type": "integer"}});
    assert_eq!(said_of_change("action", ONE_OF_TWO, &both, &to(without)), [""; 0]);
    let other = json!({"to": {}, "n": {"type": "integer"}});
    assert_eq!(
        said_of_change("action", ONE_OF_TWO, &to(several()), &to(other)),
        [""; 0]
    );

    let inner = |kind: Value| json!({"to": {"type": "object", "properties": {"city": {"type": kind}, "n": {"type": "integer"}}}});
    let city = "context has input.to.city && context.input.to.city == \"x\" || context.sensitive";
    let from = [inner(json!("string")), inner(json!("string"))];
    let to = [inner(json!("string")), inner(json!(["string", "integer"]))];
    assert_eq!(
        said_of_change("action", city, &from, &to),
        ["`mail/x1` would not let policies see `to.city` any more"]
    );
    // It is hidden with all that it is in, and it is not where only what it was in is left.
    let to = [inner(json!("string")), json!({"to": {}})];
    assert_eq!(
        said_of_change("action", city, &from, &to),
        ["`mail/x1` would not let policies see `to.city` any more"]
    );
    let without = json!({"to": {"type": "object", "properties": {"n": {"type": "integer"}}}});
    let to = [inner(json!("string")), without];
    assert_eq!(said_of_change("action", city, &from, &to), [""; 0]);
}

/// `to` is still seen, and a member of it is declared where the list of its members is not all that there is to read.
#[test]
fn a_member_that_a_reference_or_a_choice_declares_is_not_taken_for_one_that_is_gone() {
    let city = "context has input.to.city && context.input.to.city == \"x\" || context.sensitive";
    let seen =
        json!({"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}});
    let unseen = json!({"type": "object", "properties": {"city": {}, "n": {"type": "integer"}}});
    let without = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let from = [json!({"to": seen}), json!({"to": seen})];
    for hiding in [
        json!({"to": {"anyOf": [unseen, {"type": "null"}]}}),
        json!({"to": {"allOf": [unseen]}}),
        json!({"to": {"$ref": "#/properties/address"}, "address": unseen}),
        json!({"to": {"type": "object", "properties": without["properties"], "allOf": [unseen]}}),
    ] {
        let to = [from[0].clone(), hiding];
        assert_eq!(
            said_of_change("action", city, &from, &to),
            ["`mail/x1` would not let policies see `to.city` any more"],
            "{}",
            to[1]
        );
    }
    let to = [from[0].clone(), json!({"to": without})];
    assert_eq!(said_of_change("action", city, &from, &to), [""; 0]);
    let city = "context has input.to.at.city && context.input.to.at.city == \"x\" || context.sensitive";
    let within = |at: &Value| json!({"to": {"type": "object", "properties": {"at": at}}});
    let from = [within(&seen), within(&seen)];
    let to = [within(&seen), within(&without)];
    assert_eq!(said_of_change("action", city, &from, &to), [""; 0]);
    let mut hiding = within(&without);
    hiding["to"]["allOf"] = json!([{"properties": {"at": unseen}}]);
    let to = [within(&seen), hiding];
    let expected = ["`mail/x1` would not let policies see `to.at.city` any more"];
    assert_eq!(said_of_change("action", city, &from, &to), expected);
}

/// What a policy in force with this scope and these conditions tests for in vain, where actions have these properties,
/// under such base policies.
fn in_vain(base: &str, scope: &str, conditions: &str, properties: &[Value]) -> Vec<(String, String)> {
    let compiler = Compiler::new(BasePolicies::parse(base).unwrap());
    let cedar = format!("@id(\"a\") forbid (principal, {scope}, resource) when {{ {conditions} }};");
    let policies = [TenantPolicy::new(SlashFreeName::new("p").unwrap(), cedar)];
    let found = with_tools(&policies, vec![mail(properties)], |candidate| {
        compiler.compile(candidate).unwrap().tests_in_vain(candidate)
    });
    let warnings = found.iter().all(|finding| finding.severity == Severity::Warning);
    assert!(warnings, "{found:?}");
    let told = |finding: Diagnostic| (finding.policy.unwrap(), finding.message);
    found.into_iter().map(told).collect()
}

/// It has no registry from before, so that an upgrade that sees fewer parameters is told of, too.
#[test]
fn a_parameter_in_force_that_an_action_declares_and_does_not_let_policies_see_is_tested_for_in_vain() {
    let text = || json!({"to": {"type": "string"}, "n": {"type": "integer"}});
    let several = || json!({"to": {"type": ["string", "array"]}, "n": {"type": "integer"}});
    let nothing = Vec::<(String, String)>::new();
    let told = |policy: &str, message: &str| vec![(policy.to_owned(), message.to_owned())];
    let unseen = "`mail/x1` declares `to` so that policies cannot see it";
    for scope in ["action", "action in Action::\"tool:mail\""] {
        assert_eq!(
            in_vain("", scope, ONE_OF_TWO, &[text(), several()]),
            told("p/a", unseen),
            "{scope}"
        );
    }
    let first = "action == Action::\"mail/x0\"";
    assert_eq!(in_vain("", first, ONE_OF_TWO, &[text(), several()]), nothing);
    assert_eq!(
        in_vain("", first, ONE_OF_TWO, &[several()]),
        told("p/a", "nothing that the policy is about has a member `to`")
    );
    // An action that does not declare it is what the test is for.
    let without = json!({"n": {"type": "integer"}});
    assert_eq!(in_vain("", "action", ONE_OF_TWO, &[text(), without]), nothing);

    let inner = |kind: Value| json!({"to": {"type": "object", "properties": {"city": {"type": kind}, "n": {"type": "integer"}}}});
    let city = "context has input.to.city && context.input.to.city == \"x\"";
    assert_eq!(
        in_vain(
            "",
            "action",
            city,
            &[inner(json!("string")), inner(json!(["string", "integer"]))]
        ),
        told(
            "p/a",
            "`mail/x1` declares `to.city` so that policies cannot see it"
        )
    );

    // The operator's policies are for every registry: what nothing declares is left out, and what is declared is not.
    let base = "@id(\"b\") forbid (principal, action, resource) when { context.input has to && context.input.to == \"x\" };";
    let sensitive = "context.sensitive";
    assert_eq!(
        in_vain(base, "action", sensitive, &[several()]),
        told("base/b", "`mail/x0` declares `to` so that policies cannot see it")
    );
    let other = json!({"n": {"type": "integer"}});
    assert_eq!(in_vain(base, "action", sensitive, &[other]), nothing);
}

/// A policy of the operator's may be for what one tenant has and others do not.
#[test]
fn what_base_policies_test_for_is_told_where_no_tenant_has_it() {
    let base = "@id(\"b\") forbid (principal, action, resource)
        when { context has usr && context.usr == \"x\" || context.input has to && context.input.to == 1 };";
    let base = BasePolicies::parse(base).unwrap();
    let compiler = Compiler::new(base.clone());
    let tenant = |tools: Vec<Tool>| with_tools(&[], tools, |candidate| compiler.compile(candidate)).unwrap();
    let taking = |parameter: &str| tenant(vec![mail(&[json!({parameter: {"type": "integer"}})])]);
    let told = |tenants: &[PolicySet]| {
        let found = base.tests_in_vain(tenants.iter()).into_iter();
        let found = found.map(|finding| (finding.severity, finding.message.clone()));
        found.collect::<Vec<_>>()
    };
    let in_vain = |member: &str| {
        let message = format!("nothing that the policy is about has a member `{member}`");
        (Severity::Warning, message)
    };
    assert_eq!(told(&[taking("n")]), [in_vain("usr"), in_vain("to")]);
    assert_eq!(told(&[taking("n"), taking("to")]), [in_vain("usr")]);
    // Where nothing can be asked for, nothing is known of what a policy is about.
    assert!(told(&[tenant(Vec::new())]).is_empty());
    assert!(told(&[]).is_empty());
}

#[test]
fn what_base_policies_say_of_whom_they_name_is_told_whatever_tenants_have() {
    let base = "@id(\"a\") forbid (principal, action, resource)
        when { context has user && context.user == User::\"ada\" && User::\"ada\" in Team::\"oncall\" };
        @id(\"b\") forbid (principal == Agent::\"coder\", action, resource);";
    let base = BasePolicies::parse(base).unwrap();
    let told = |found: Vec<Diagnostic>| {
        let [finding] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(finding.severity, Severity::Warning);
        finding.to_string()
    };
    let asking = told(base.asking_in_vain());
    assert!(asking.starts_with("base/a:2:"), "{asking}");
    assert!(
        asking.contains("teams, members and tags are known only"),
        "{asking}"
    );
    let naming = told(base.naming_nobody());
    assert!(naming.starts_with("base/b:3:"), "{naming}");
    assert!(
        naming.contains("nobody can ever be `Agent::\"coder\"`"),
        "{naming}"
    );
    // They stop nothing.
    compiled(&Compiler::new(base), &[], &["a"]);
}

/// A tool with so many actions, each with a parameter of such a pattern.
fn patterned(name: &str, count: usize, pattern: impl Fn(usize) -> String) -> Tool {
    let actions = (0..count).map(|number| {
        let schema = json!({"properties": {"a": {"pattern": pattern(number)}}});
        action(&format!("x{number}"), true, Some(schema))
    });
    tool(name, actions)
}

/// A short program that takes much memory in use: nearly a hundred million bytes.
fn with_groups(number: usize) -> String {
    format!("{}{number}", "(a)".repeat(1_000))
}

fn with_registry(
    compiler: &Compiler,
    tools: Vec<Tool>,
    before: Option<Vec<Tool>>,
) -> Result<PolicySet, Diagnostics> {
    with_tools(&[], tools, |candidate| match before {
        None => compiler.compile_new(candidate, None),
        Some(before) => with_tools(&[], before, |before| {
            compiler.compile_new(candidate, Some(before))
        }),
    })
}

#[test]
fn the_schemas_of_a_registry_take_no_more_memory_than_there_is_for_them() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let large = || patterned("large", 256, |number| format!("a{{40000}}{}", 100 + number));
    let Diagnostics(found) = with_registry(&compiler, vec![large()], None).unwrap_err();
    let [fault] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        fault.message,
        format!(
            "the input schema of `large/x0` takes 3841639 bytes once compiled, those of all actions together take {}, and may take 134217728: repeat less by count in patterns, as in `a{{5000}}`, and have fewer groups in them, shorten `$id`s and names around many subschemas, refer less often to what has long lists, or delete tools that are not needed any more",
            3_841_639_usize * 256
        )
    );
    assert!(Diagnostics(found).are_about_schemas());

    let ordinary = |number: usize| {
        let schema = json!({"properties": {
            "mail": {"type": "string", "pattern": r"^[\w.+-]+@[\w-]+\.[\w.]+$"},
            "id": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
            "day": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "description": number.to_string()},
        }});
        action(&format!("x{number}"), true, Some(schema))
    };
    assert!(parameters::weight(&ordinary(1_000)) * 10_000 <= weight::WEIGHT_MAX);
    let many = tool("many", (0..256).map(ordinary));
    assert!(with_registry(&compiler, vec![many], None).is_ok());
    // What is the same is compiled once.
    let same = patterned("same", 256, |_| with_groups(0));
    assert!(with_registry(&compiler, vec![same], None).is_ok());
}

#[test]
fn schemas_in_force_that_take_more_memory_may_stay_and_become_less() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let heavy = |count: usize| patterned("heavy", count, with_groups);
    let light = || patterned("light", 1, |_| "b".to_owned());
    let before = || Some(vec![heavy(3)]);
    let in_force = with_tools(&[], vec![heavy(3)], |candidate| compiler.compile(candidate)).unwrap();
    assert!(with_registry(&compiler, vec![heavy(3)], None).is_err());
    assert!(with_registry(&compiler, vec![heavy(3)], before()).is_ok());
    assert!(with_registry(&compiler, vec![heavy(3), light()], before()).is_err());
    // It is still too much, and less than it was.
    assert!(with_registry(&compiler, vec![heavy(2), light()], before()).is_ok());
    assert!(with_registry(&compiler, vec![light()], before()).is_ok());
    // What is known weighs as much as what is measured.
    let rules = in_force
        .contents
        .vocabulary
        .actions
        .values()
        .flat_map(HashMap::values);
    let known: usize = rules.map(|action| action.parameters.weight()).sum();
    let measured: usize = heavy(3).actions.values().map(parameters::weight).sum();
    assert_eq!(known, measured);
    assert!(known > 2 * weight::WEIGHT_MAX);
}

/// A tool with so many actions, each with 840 types: forty references to an object of twenty members.
fn referring(name: &str, count: usize) -> Tool {
    let members = (0..20).map(|number| (format!("m{number}"), json!({"type": "string"})));
    let members = members.collect::<Map<_, _>>();
    let properties = (0..40).map(|number| (format!("p{number}"), json!({"$ref": "#/$defs/a"})));
    let properties = properties.collect::<Map<_, _>>();
    let schema = json!({"properties": properties, "$defs": {"a": {"type": "object", "properties": members}}});
    let actions = (0..count).map(|number| action(&format!("x{number}"), true, Some(schema.clone())));
    tool(name, actions)
}

/// Whether these tools may come in the place of those, as far as that is known before anything is compiled.
fn weighed(compiler: &Compiler, tools: Vec<Tool>, before: Option<Vec<Tool>>) -> Result<(), Diagnostics> {
    with_tools(&[], tools, |candidate| match before {
        None => compiler.check_weight(candidate.registry, None),
        Some(before) => with_tools(&[], before, |before| {
            compiler.check_weight(candidate.registry, Some(before.registry))
        }),
    })
}

#[test]
fn the_parameters_of_all_actions_come_to_no_more_types_than_a_schema_is_made_of() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    // That is what each action has for itself, however many have the same schema.
    assert!(weighed(&compiler, vec![referring("many", 595)], None).is_ok());
    let Diagnostics(found) = with_registry(&compiler, vec![referring("many", 596)], None).unwrap_err();
    let [fault] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        fault.message,
        "the input schema of `many/x0` gives policies 840 types to look at, those of all actions together come to 500640, and may come to 500000: list fewer properties, refer less often to what has many, shorten names, or delete tools that are not needed any more"
    );
    assert!(Diagnostics(found).are_about_schemas());
}

#[test]
fn registries_in_force_with_more_types_may_stay_and_come_to_fewer() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let light = || patterned("light", 1, |_| "b".to_owned());
    let changed = |tools: Vec<Tool>| weighed(&compiler, tools, Some(vec![referring("many", 700)]));
    assert!(changed(vec![referring("many", 700)]).is_ok());
    assert!(changed(vec![referring("many", 700), light()]).is_err());
    assert!(changed(vec![referring("many", 701)]).is_err());
    assert!(changed(vec![referring("many", 699), light()]).is_ok());
}

#[test]
fn the_types_of_an_action_are_as_many_where_its_schema_is_compiled_already() {
    let compiler = Compiler::new(BasePolicies::parse("").unwrap());
    let one = referring("one", 1);
    let measured: usize = one.actions.values().map(schema::types).sum();
    let in_force = with_tools(&[], vec![one], |candidate| compiler.compile(candidate)).unwrap();
    let vocabulary = &in_force.contents.vocabulary;
    let rules = vocabulary.actions.values().flat_map(HashMap::values);
    let known: usize = rules.map(|action| action.parameters.types()).sum();
    assert_eq!((known, measured), (840, 840));
}
