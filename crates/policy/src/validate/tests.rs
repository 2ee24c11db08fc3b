//! That a policy which meets only the actions it has to is found valid exactly if Cedar, which lets it meet all of them,
//! finds it valid.

use super::found::ASKS_TOLD_MAX;
use super::names::{ACTION_ID_BYTES_MAX, MEMBER_LETTERS_MAX};
use super::*;
use crate::diagnostics::SAID_BYTES_MAX;
use crate::parse;
use crate::schema;
use crate::world::{action, tool};
use cedar_policy::ValidationResult;
use model::{NAME_BYTES_MAX, Risk, Tool};
use policy::Registry;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let number = json!({"properties": {"number": {"type": "integer"}}, "required": ["number"]});
    let text =
        json!({"properties": {"number": {"type": "string"}, "to": {"type": "string"}}, "required": ["to"]});
    let mut send = action("send", true, Some(text));
    send.risk = Risk::High;
    schema_of(&[
        tool(
            "github",
            [
                action("get", false, Some(number.clone())),
                action("put", true, Some(number)),
            ],
        ),
        tool("mail", [send, action("list", false, None)]),
        tool("idle", []),
    ])
});

fn schema_of(tools: &[Tool]) -> Schema {
    let tools = tools
        .iter()
        .map(|tool| (tool.name.clone(), Arc::new(tool.clone())));
    let registry = Registry {
        tools: &tools.collect(),
        attributes: &BTreeMap::new(),
    };
    schema::compile(registry).unwrap()
}

const PRINCIPALS: [&str; 4] = [
    "principal",
    "principal in Team::\"t\"",
    "principal == Team::\"t\"",
    "principal is User",
];
const ACTIONS: [&str; 10] = [
    "action",
    "action in Action::\"read\"",
    "action in Action::\"mutate\"",
    "action in [Action::\"risk:high\", Action::\"github/get\"]",
    "action in Action::\"tool:idle\"",
    "action in Action::\"risk:critical\"",
    "action == Action::\"github/get\"",
    "action == Action::\"mail/send\"",
    "action == Action::\"read\"",
    "action == Action::\"mail/sned\"",
];
const CONDITIONS: [&str; 21] = [
    "true",
    "false",
    "context.trust.rank > 3",
    "context.trsut.rank > 3",
    "context.trust.rank == \"high\"",
    "context.input.number > 5",
    "context.input has number && context.input.number == \"5\"",
    "context.input.to like \"*@example.com\"",
    "context.sources.number.rank > 3",
    "context.sources has to && context.sources.to.rank > 3",
    "context.sources.to.level > 3",
    "context has user && context.user in Team::\"t\"",
    "context.user in Team::\"t\"",
    "action in Action::\"mutate\"",
    "action == Action::\"github/put\"",
    "principal.name == context.agent.name",
    "principal has owner && principal.owner == \"x\"",
    "principal is User",
    "resource == Agent::\"a\"",
    "context == context",
    "User::\"a\" in Group::\"b\"",
];

fn policies() -> impl Strategy<Value = String> {
    let condition = (any::<bool>(), prop::sample::subsequence(&CONDITIONS[..], 1..3));
    let scope = (
        prop::sample::select(&PRINCIPALS[..]),
        prop::sample::select(&ACTIONS[..]),
    );
    (scope, prop::collection::vec(condition, 0..3)).prop_map(|((principal, action), conditions)| {
        let conditions = conditions.into_iter().map(|(when, all)| {
            let all: Vec<_> = all
                .into_iter()
                .map(|condition| format!("({condition})"))
                .collect();
            format!(
                "{} {{ {} }}",
                if when { "when" } else { "unless" },
                all.join(" && ")
            )
        });
        let conditions = conditions.collect::<String>();
        format!("@id(\"a\") permit ({principal}, {action}, resource) {conditions};")
    })
}

fn by_us(text: &str) -> Validated {
    Validator::new(&SCHEMA).validate(&parse::parse("mine", text, &[]).unwrap()[0])
}

fn by_cedar(text: &str) -> ValidationResult {
    let set = cedar_policy::PolicySet::from_str(text).unwrap();
    cedar_policy::Validator::new(SCHEMA.clone()).validate(&set, cedar_policy::ValidationMode::Strict)
}

/// Whoever looks at a member of the principal and does not speak of users means an agent: users have none.
fn as_meant(text: &str) -> String {
    let looks_at_members = text.contains("principal.") || text.contains("principal has");
    if !looks_at_members || text.contains("principal is User") {
        return text.to_owned();
    }
    let text = text.replacen("(principal,", "(principal is Agent,", 1);
    text.replacen("(principal in", "(principal is Agent in", 1)
}

fn is_about_never_matching(finding: &Diagnostic) -> bool {
    [
        "can never match",
        "nothing to do yet",
        "claims to change something",
    ]
    .iter()
    .any(|words| finding.message.contains(words))
}

/// What Cedar has nothing against.
fn is_about_undeclared(finding: &Diagnostic) -> bool {
    finding.message.contains("has a member")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_policy_is_valid_if_cedar_says_so(text in policies()) {
        let (ours, cedars) = (by_us(&text), by_cedar(&as_meant(&text)));
        let wrong = || ours.errors.iter().chain(&ours.unfit);
        let error = wrong().find(|error| !is_about_never_matching(error) && !is_about_undeclared(error));
        prop_assert_eq!(error.is_none(), cedars.validation_passed(), "{}: {:?}", text, error);
        if cedars.validation_passed() {
            let idle = wrong().chain(&ours.warnings).any(is_about_never_matching);
            let warned = cedars.validation_warnings().next().is_some();
            prop_assert_eq!(idle, warned, "{}", text);
        }
    }
}

/// The schema has actions with parameters of their own, as every registry that is in use.
#[test]
fn a_policy_meets_every_action_only_where_it_looks_at_what_differs() {
    let validator = Validator::new(&SCHEMA);
    assert!(validator.alike);
    let met = |condition: &str| {
        let text =
            format!("@id(\"a\") permit (principal is Agent, action, resource) when {{ {condition} }};");
        let parsed = parse::parse("p", &text, &[]).unwrap();
        let admitted = validator.admitted(&parsed[0].statement.scope.action);
        validator.asks_for(&parsed[0], &admitted).len()
    };
    assert_eq!(met("context.sensitive && context.trust.rank > 3"), 1);
    for of_the_action in [
        "context.input has to",
        "context.sources has to",
        "action in Action::\"read\"",
    ] {
        assert_eq!(met(of_the_action), 4, "{of_the_action}");
    }
}

#[test]
fn there_is_as_much_to_check_as_parts_for_the_asks_that_are_met() {
    let validator = Validator::new(&SCHEMA);
    let checks = |scope: &str, conditions: &str| {
        let text = format!("@id(\"a\") permit (principal is Agent, {scope}, resource) {conditions};");
        validator.checks(&parse::parse("p", &text, &[]).unwrap()[0])
    };
    assert_eq!(checks("action", ""), 1);
    assert_eq!(checks("action", "when { context.sensitive }"), 3);
    let looks = "when { action in Action::\"read\" }";
    assert_eq!(checks("action", looks), 4 * 4);
    assert_eq!(checks("action == Action::\"mail/send\"", looks), 4);
}

/// A list that names this group so often.
fn list(group: &str, count: usize) -> String {
    let group = format!("Action::\"{group}\"");
    format!("[{}]", vec![group.as_str(); count].join(", "))
}

#[test]
fn what_is_looked_through_for_an_in_is_counted() {
    let validator = Validator::new(&SCHEMA);
    let checks = |scope: &str, conditions: &str| {
        let text = format!("@id(\"a\") permit ({scope}, resource) when {{ {conditions} }};");
        validator.checks(&parse::parse("p", &text, &[]).unwrap()[0])
    };
    // Two actions are in the group, and each has an ask of an agent and one for a user.
    let often = format!("action in {}", list("mutate", 1_000));
    let looked_at = 4 * 1_000 / LOOKED_AT_PER_PART;
    assert_eq!(
        checks("principal is Agent, action", &often),
        4 * (1 + 1_003 + looked_at)
    );
    // All eight asks stand for all actions.
    let either = |what: &str| [what; 8].join(" || ");
    for (one, parts, looked_at) in [
        ("principal in Agent::\"a\"", 3, 1),
        ("resource in Team::\"t\"", 3, 1),
        ("{a: Team::\"s\"}.a in Team::\"t\"", 5, 1),
        ("principal in Team::\"t\"", 3, 0),
        ("resource in Resource::\"r\"", 3, 0),
        ("context.user in Team::\"t\"", 4, 0),
    ] {
        let found = checks("principal is Agent, action", &either(one));
        assert_eq!(found, 1 + 8 * parts + 7 + looked_at, "{one}");
    }
}

/// Cedar goes through them for each ask to tell whether two types are the same.
#[test]
fn members_of_records_that_are_compared_are_counted() {
    let parameters = |count: usize| {
        let names = (0..count).map(|number| (format!("p{number}"), json!({"type": "string"})));
        json!({"properties": names.collect::<serde_json::Map<_, _>>()})
    };
    let mut nested = parameters(1);
    nested["properties"]["inner"] = json!({"type": "object", "properties": parameters(32)["properties"]});
    let schema = schema_of(&[tool(
        "wide",
        [
            action("flat", true, Some(parameters(160))),
            action("nested", true, Some(nested)),
            action("none", true, None),
        ],
    )]);
    let validator = Validator::new(&schema);
    let checks = |conditions: &str| {
        let text =
            format!("@id(\"a\") permit (principal is Agent, action, resource) when {{ {conditions} }};");
        validator.checks(&parse::parse("p", &text, &[]).unwrap()[0])
    };
    // `p0` and `inner` are members as well, and each parameter has a source with two members. Those that are within
    // another record count twice.
    let (input, sources) = (160 + 2 + 2 * 32, (1 + 2 * 2) * (160 + 2));
    for (conditions, parts, members) in [
        ("context.input == context.input", 5, 2 * input),
        ("context.sources == context.sources", 5, 2 * sources),
        ("[context.input].contains(context.input)", 6, 2 * input),
        ("{a: context.input}.a == context.input", 7, 2 * input),
        (
            "(if context.sensitive then context.input else context.input).p0 == \"\"",
            10,
            2 * input,
        ),
        // What is in lists or records that are written out counts once for each of them.
        ("[[context.input]] == [[context.input]]", 9, 2 * 2 * input),
        (
            "{a: [{b: context.input}]}.a.contains({b: context.input})",
            10,
            (3 + 1) * input,
        ),
        // Of something within a parameter the widest one counts, and a mere name has none.
        ("context.input.p0 == context.input.p0", 7, 2 * 32),
        // What is compared with a text, a number or a list of these is no record.
        ("context.sources.p0.rank == 3", 6, 0),
        ("\"a\" == context.input.p0", 5, 0),
        ("[\"a\", \"b\"].contains(context.input.p0)", 7, 0),
        ("context.input has p0", 3, 0),
        (
            "context.agent == context.agent && context.input has p0",
            9,
            3 * 2 * 5,
        ),
    ] {
        let expected = 3 * (1 + parts) + members / COMPARED_PER_PART;
        assert_eq!(checks(conditions), expected, "{conditions}");
    }
    let all = checks("context == context") - 3 * (1 + 3);
    assert!(all > 2 * (input + sources) / COMPARED_PER_PART, "{all}");
}

/// Cedar would have them in one list, and it is not asked.
#[test]
fn an_in_that_goes_through_too_many_actions_is_told_and_its_types_are_not_checked() {
    let group_asks = 4;
    let validator = Validator {
        looked_at_max: 10 * group_asks,
        ..Validator::new(&SCHEMA)
    };
    let found = |count: usize, also: &str| {
        let looks = format!("action in {}", list("mutate", count));
        let text = format!("@id(\"a\") forbid (principal, action, resource) when {{ {looks} && {also} }};");
        let parsed = parse::parse("mine", &text, &[]).unwrap();
        let Validated { errors, unfit, .. } = validator.validate(&parsed[0]);
        let place = unfit.first().and_then(|finding| finding.place);
        let at = place.map(|place| text[place.offset..place.offset + place.length].to_owned());
        let said: Vec<_> = unfit.into_iter().map(|finding| finding.message).collect();
        (errors.len(), said, at == Some(looks))
    };
    let too_wide = "an `in` goes through more than 20 actions, each as often as a group of it is named";
    assert_eq!(found(10, "context.sensitive"), (0, Vec::new(), false));
    assert_eq!(found(10, "context.trsut.rank > 3").0, 1);
    for also in ["context.sensitive", "false", "context.trsut.rank > 3"] {
        assert_eq!(found(11, also), (0, vec![too_wide.to_owned()], true), "{also}");
    }
}

#[test]
fn a_scope_may_name_a_group_as_often_as_it_likes() {
    let validator = Validator::new(&SCHEMA);
    let looks = "action in Action::\"read\"";
    let parsed = |scope: &str| {
        let text = format!("@id(\"a\") permit (principal is Agent, {scope}, resource) when {{ {looks} }};");
        parse::parse("p", &text, &[]).unwrap().remove(0)
    };
    let (once, often) = (
        parsed("action in Action::\"read\""),
        parsed(&format!("action in {}", list("read", 1_000))),
    );
    let admitted = |parsed: &Parsed| validator.admitted(&parsed.statement.scope.action);
    assert_eq!(admitted(&often), admitted(&once));
    assert_eq!(validator.checks(&often), validator.checks(&once));
    for admits in [&once, &often, &parsed("action == Action::\"mail/list\"")] {
        let checked = checked(&admits.template, &admitted(admits));
        assert_eq!(checked.action_constraint(), &ActionConstraint::Any);
        let Validated { errors, unfit, .. } = validator.validate(admits);
        assert_eq!((errors, unfit), (Vec::new(), Vec::new()));
    }
    // No ask is in the scope of these, so one tells of all what is wrong with them.
    for idle in ["action in Action::\"tool:idle\"", "action == Action::\"read\""] {
        let idle = parsed(idle);
        assert_eq!(
            checked(&idle.template, &admitted(&idle)).action_constraint(),
            idle.template.action_constraint()
        );
        assert_eq!(validator.asks_for(&idle, &admitted(&idle)).len(), 1);
        assert_eq!(validator.checks(&idle), 1);
    }
}

#[test]
fn a_policy_without_anything_to_do_is_wrong_odd_or_early() {
    let told = |scope: &str, condition: &str| {
        let text = format!("@id(\"a\") forbid (principal, {scope}, resource) when {{ {condition} }};");
        let Validated {
            errors,
            unfit,
            warnings,
            ..
        } = by_us(&text);
        (errors.len() + unfit.len(), warnings.len())
    };
    let (fine, odd, wrong) = ((0, 0), (0, 1), (1, 0));
    for (scope, condition, expected) in [
        ("action", "context.sensitive", fine),
        ("action", "context.sensitive && !context.sensitive", fine),
        ("action", "context.sensitive && false", wrong),
        (
            "action in Action::\"mutate\"",
            "context.sensitive && false",
            wrong,
        ),
        ("action == Action::\"read\"", "true", wrong),
        ("action in Action::\"risk:critical\"", "true", odd),
        ("action in Action::\"tool:idle\"", "true", odd),
        ("action in Action::\"read\"", "action in Action::\"mutate\"", odd),
        ("action in Action::\"read\"", "principal in Team::\"t\"", fine),
        ("action in Action::\"read\"", "principal == Team::\"t\"", wrong),
    ] {
        assert_eq!(told(scope, condition), expected, "{scope} {condition}");
    }
}

#[test]
fn users_are_principals_and_only_agents_have_members() {
    let said = |scope: &str, condition: &str| {
        let text = format!("@id(\"a\") permit ({scope}, action, resource) when {{ {condition} }};");
        let Validated { errors, unfit, .. } = by_us(&text);
        let wrong = errors.into_iter().chain(unfit);
        wrong.map(|error| error.message).collect::<String>()
    };
    for scope in [
        "principal",
        "principal is User",
        "principal == User::\"u\"",
        "principal is User in Team::\"t\"",
    ] {
        assert_eq!(said(scope, "principal.hasTag(\"vip\")"), "", "{scope}");
    }
    for scope in ["principal", "principal in Team::\"t\"", "principal is Agent"] {
        assert_eq!(said(scope, "principal.risk_tier == \"low\""), "", "{scope}");
    }
    for scope in ["principal is User", "principal == User::\"u\""] {
        let said = said(scope, "principal.risk_tier == \"low\"");
        assert!(said.contains("risk_tier"), "{said}");
    }
}

#[test]
fn look_alike_letters_are_pointed_at() {
    let found =
        by_us("@id(\"a\") permit (principal, action, resource) when { principal.name == \"sсope\" };");
    assert!(found.errors.is_empty());
    assert!(
        found.warnings[0].message.contains("mixed scripts"),
        "{:?}",
        found.warnings
    );
}

/// What keeps a policy with this scope, which also forbids what is sensitive, from being put in force: of each finding
/// what it says, and where.
fn unfit_of(scope: &str, condition: &str) -> Vec<(String, String)> {
    let text =
        format!("@id(\"a\") forbid ({scope}, resource) when {{ ({condition}) || context.sensitive }};");
    let Validated { errors, unfit, .. } = by_us(&text);
    assert_eq!(errors, [], "{text}");
    let at = |finding: &Diagnostic| {
        let place = finding.place.unwrap();
        text[place.offset..place.offset + place.length].to_owned()
    };
    let told = unfit.iter().map(|finding| (finding.message.clone(), at(finding)));
    told.collect()
}

#[test]
fn a_test_for_a_member_that_nothing_in_the_scope_has_is_told() {
    let all = "principal, action";
    let send = "principal, action == Action::\"mail/send\"";
    let mail = "principal, action in Action::\"tool:mail\"";
    let changes = "principal, action in Action::\"mutate\"";
    let get = "principal, action == Action::\"github/get\"";
    let users = "principal is User, action";
    for (scope, test, behind, member) in [
        (send, "context.input has bcc", "context.input.bcc == \"x\"", "bcc"),
        (
            mail,
            "context.input has bcc",
            "!context.input.bcc.isEmpty()",
            "bcc",
        ),
        (changes, "context.input has bcc", "context.input.bcc > 3", "bcc"),
        (get, "context.input has to", "context.input.to == \"x\"", "to"),
        (
            send,
            "context has input.bcc",
            "context.input.bcc == \"x\"",
            "input.bcc",
        ),
        (
            send,
            "context.sources has bcc",
            "context.sources.bcc.rank < 3",
            "bcc",
        ),
        (all, "context has usr", "context.usr == User::\"z\"", "usr"),
        (all, "context.usage.calls has week", "true", "week"),
        (all, "context.attributes has ticket", "true", "ticket"),
        (
            all,
            "context has run.wurst",
            "context.run.wurst.rank < 3",
            "run.wurst",
        ),
        (
            all,
            "principal has risktier",
            "principal.risktier == \"high\"",
            "risktier",
        ),
        (users, "principal has owner", "principal.owner == \"x\"", "owner"),
        (all, "resource has owner", "resource.owner == \"x\"", "owner"),
        (
            all,
            "Team::\"t\" has floor",
            "Team::\"t\".floor == \"3\"",
            "floor",
        ),
    ] {
        let said = format!("nothing that the policy is about has a member `{member}`");
        let told = [(said, test.to_owned())];
        assert_eq!(unfit_of(scope, &format!("{test} && {behind}")), told, "{scope}");
        let either = format!("if {test} then {behind} else context.tool.canary");
        assert_eq!(unfit_of(scope, &either), told, "{scope}");
    }
    let nobody = "context has user && context.user has floor";
    assert_eq!(unfit_of(all, nobody).len(), 1);
}

#[test]
fn a_test_for_a_member_that_something_in_the_scope_has_is_fine() {
    let all = "principal, action";
    let critical = "principal, action in Action::\"risk:critical\"";
    let mail = "principal, action in Action::\"tool:mail\"";
    for (scope, condition) in [
        (all, "context.input has to && context.input.to == \"x\""),
        (mail, "context.input has number || context.sources has to"),
        (all, "context has run.worst.rank && context.run.worst.rank < 3"),
        (all, "principal has owner && principal.owner == \"x\""),
        (all, "context.usage.calls has day || context.agent has team"),
        // No action is registered that is in the scope, and who knows what one will be called with.
        (critical, "context.input has bcc && context.input.bcc == \"x\""),
        // What is looked into is not plain to see.
        (
            all,
            "(if context.sensitive then context.trust else context.trust) has levl",
        ),
    ] {
        let found = unfit_of(scope, condition);
        assert!(found.is_empty(), "{scope} {condition} {found:?}");
    }
}

#[test]
fn a_claim_brings_the_parameters_of_reads_into_the_scope_of_changes() {
    let title = json!({"properties": {"title": {"type": "string"}}});
    let tool = tool(
        "wiki",
        [action("look", false, Some(title)), action("write", true, None)],
    );
    let schema = schema_of(&[tool]);
    let validator = Validator::new(&schema);
    let unfit = |test: &str| {
        let text = format!(
            "@id(\"a\") forbid (principal, action in Action::\"mutate\", resource) when {{ {test} || context.sensitive }};"
        );
        validator
            .validate(&parse::parse("mine", &text, &[]).unwrap()[0])
            .unfit
            .len()
    };
    for (test, expected) in [
        ("context.input has title", 0),
        ("context has input.title", 0),
        ("context.input has tilte", 1),
        ("context has input.tilte", 1),
    ] {
        assert_eq!(unfit(test), expected, "{test}");
    }
}

#[test]
fn what_is_not_known_is_told_once_and_not_as_nested_too_deeply() {
    for (scope, said) in [
        (
            "principal, action in Action::\"tool:mial\"",
            "for policy `mine/a`, unrecognized action `Action::\"tool:mial\"`",
        ),
        (
            "principal in Foo::\"x\", action",
            "for policy `mine/a`, unrecognized entity type `Foo`",
        ),
    ] {
        let Validated { errors, unfit, .. } = by_us(&format!("@id(\"a\") forbid ({scope}, resource);"));
        let errors: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!((errors, unfit), (vec![said], Vec::new()));
    }
}

#[test]
fn what_is_wrong_is_told_without_all_members_of_the_parameters() {
    let members = (0..200).map(|number| (format!("{number:0200}"), json!({"type": "string"})));
    let members: serde_json::Map<_, _> = members.collect();
    let wide = action("write", true, Some(json!({"properties": members})));
    let schema = schema_of(&[tool("wide", [wide])]);
    let text = "@id(\"a\") forbid (principal, action, resource) when { context.input > 1 };";
    let parsed = parse::parse("mine", text, &[]).unwrap();
    let errors = Validator::new(&schema).validate(&parsed[0]).errors;
    let [error] = &errors[..] else {
        panic!("{errors:?}");
    };
    let said = &error.message;
    assert!(
        said.starts_with("for policy `mine/a`, unexpected type: expected "),
        "{said}"
    );
    assert!(said.contains("000") && said.ends_with('…'), "{said}");
    assert!(said.len() <= SAID_BYTES_MAX + "…".len(), "{said}");
}

#[test]
fn of_many_actions_that_nobody_has_registered_some_are_told() {
    let names = (0..TOLD_MAX + 6).map(|number| format!("Action::\"none/{number}\""));
    let names = names.collect::<Vec<_>>().join(", ");
    let errors = by_us(&format!(
        "@id(\"a\") forbid (principal, action in [{names}], resource);"
    ))
    .errors;
    let is_unknown = |error: &Diagnostic| error.message.contains("unrecognized action `Action::\"none/");
    assert!(errors.iter().all(is_unknown), "{errors:?}");
    assert_eq!(errors.len(), TOLD_MAX);
}

#[test]
fn what_may_have_been_meant_is_said_as_long_as_that_takes_little() {
    let validator = Validator::new(&SCHEMA);
    let help = |id: &str| {
        let text = format!("@id(\"a\") forbid (principal, action == Action::\"{id}\", resource);");
        let errors = validator
            .validate(&parse::parse("mine", &text, &[]).unwrap()[0])
            .errors;
        let [error] = &errors[..] else {
            panic!("{errors:?}");
        };
        let said = format!("for policy `mine/a`, unrecognized action `Action::\"{id}\"`");
        assert_eq!(error.message, said);
        error.help.clone()
    };
    assert_eq!(
        help("mail/sned").as_deref(),
        Some("did you mean `Action::\"mail/send\"`?")
    );
    let long = "x".repeat(ACTION_ID_BYTES_MAX);
    assert!(help(&long).is_some());
    assert!(help(&(long + "x")).is_none());
    // What all policies share is used up.
    let left = "mail/sned".len() * validator.ids_bytes;
    validator.letters_left.set(left);
    assert!(help("mail/sned").is_none());
    assert!(help("mail/sne").is_some());
    assert_eq!(validator.letters_left.get(), 0);
}

/// What is asked of whoever forbids this and has misspelt one action in it.
fn asked_of(forbidden: &str) -> String {
    let errors = by_us(&format!("@id(\"a\") forbid (principal, {forbidden};")).errors;
    let [error] = &errors[..] else {
        panic!("{errors:?}");
    };
    error.help.clone().unwrap()
}

#[test]
fn a_group_may_have_been_meant_only_where_one_may_stand_and_is_written_almost_so() {
    for (forbidden, meant) in [
        ("action in Action::\"tool:mial\", resource)", "tool:mail"),
        ("action in Action::\"Read\", resource)", "read"),
        ("action in Action::\"raed\", resource)", "read"),
        ("action, resource) when { action in [Action::\"raed\"] }", "read"),
        // No ask is for a group.
        ("action == Action::\"raed\", resource)", "mail/send"),
        (
            "action, resource) when { action == Action::\"raed\" }",
            "mail/send",
        ),
        (
            "action, resource) unless { Action::\"raed\" == action }",
            "mail/send",
        ),
        // It is one letter off, and nobody begins to write the group like that.
        ("action in Action::\"lead\", resource)", "mail/send"),
        ("action in Action::\"github/gte\", resource)", "github/get"),
        ("action == Action::\"git/get\", resource)", "github/get"),
    ] {
        let expected = format!("did you mean `Action::\"{meant}\"`?");
        assert_eq!(asked_of(forbidden), expected, "{forbidden}");
    }
}

#[test]
fn whoever_leaves_out_the_tool_meant_the_action_and_no_group_that_is_as_short() {
    for (forbidden, meant) in [
        ("action in Action::\"send\", resource)", "mail/send"),
        (
            "action in [Action::\"get\", Action::\"mutate\"], resource)",
            "github/get",
        ),
        ("action == Action::\"list\", resource)", "mail/list"),
        (
            "action, resource) when { action == Action::\"put\" }",
            "github/put",
        ),
    ] {
        let expected = format!("did you mean `Action::\"{meant}\"`?");
        assert_eq!(asked_of(forbidden), expected, "{forbidden}");
    }
}

#[test]
fn which_members_may_have_been_meant_is_said_until_it_takes_long_and_then_nothing_is_looked_through() {
    let said = |validator: &Validator<'_>, condition: &str| {
        let text = format!("@id(\"a\") forbid (principal, action, resource) when {{ {condition} }};");
        let parsed = parse::parse("mine", &text, &[]).unwrap();
        let Validated { errors, unfit, .. } = validator.validate(&parsed[0]);
        assert!(unfit.is_empty(), "{unfit:?}");
        errors.into_iter().map(|error| error.message).collect::<Vec<_>>()
    };
    let (slip, fine) = ("context.trsut.rank > 3", "context.input has to");
    let given_up = "the policy is not looked through to its end, because too many members are misspelt";
    let validator = Validator::new(&SCHEMA).of_new();
    let found = said(&validator, slip).remove(0);
    assert!(found.ends_with("not found"), "{found}");
    let left = validator.member_letters_left.get();
    assert!(left < MEMBER_LETTERS_MAX);
    assert!(said(&validator, fine).is_empty());
    assert_eq!(validator.member_letters_left.get(), left);

    // What one ask takes is more than that. One of a user would be the next.
    validator.member_letters_left.set(1);
    assert_eq!(said(&validator, slip), [given_up, found.as_str()]);
    assert_eq!(validator.member_letters_left.get(), 0);
    assert_eq!(said(&validator, fine), [given_up]);

    // In force nothing is left out.
    let in_force = Validator::new(&SCHEMA);
    assert_eq!(said(&in_force, slip), [found.as_str()]);
    assert!(said(&in_force, fine).is_empty());
}

/// Cedar compares the name with all that the policy has written there, which may be far more than the context has.
#[test]
fn which_member_of_a_written_record_may_have_been_meant_takes_as_many_letters_as_are_written() {
    let taken = |members: usize| {
        let written = (0..members).map(|number| format!("\"{number:0200}\": 1"));
        let record = written.collect::<Vec<_>>().join(", ");
        let text =
            format!("@id(\"a\") forbid (principal, action, resource) when {{ {{{record}}}.slip == 1 }};");
        let validator = Validator::new(&SCHEMA).of_new();
        let parsed = parse::parse("mine", &text, &[]).unwrap();
        let errors = validator.validate(&parsed[0]).errors;
        assert!(errors[0].message.ends_with("not found"), "{errors:?}");
        MEMBER_LETTERS_MAX - validator.member_letters_left.get()
    };
    let compared = "slip ".len() * 500 * 201;
    assert!(taken(500) >= compared);
    assert!(taken(1) < compared);
}

#[test]
fn too_long_a_name_of_a_member_is_told_and_not_compared() {
    let of = |length: usize| "n".repeat(length);
    let found = |condition: &str| {
        let text = format!("@id(\"a\") forbid (principal, action, resource) when {{ {condition} }};");
        let Validated { errors, unfit, .. } = by_us(&text);
        let said = |found: Vec<Diagnostic>| found.into_iter().map(|found| found.message).collect::<Vec<_>>();
        (said(errors), said(unfit))
    };
    let too_long = "the name of a member has more than 256 bytes".to_owned();
    let long = of(NAME_BYTES_MAX + 1);
    for condition in [
        format!("context.input[\"{long}\"] == 1"),
        format!("{{\"{long}\": 1}}.a == 1"),
        format!("{{a: {{b: 1}}}} has a.{long}"),
    ] {
        assert_eq!(
            found(&condition),
            (Vec::new(), vec![too_long.clone()]),
            "{condition}"
        );
    }
    let (errors, unfit) = found(&format!("context.input[\"{}\"] == 1", of(NAME_BYTES_MAX)));
    assert!(errors[0].ends_with("not found"), "{errors:?}");
    assert!(unfit.is_empty(), "{unfit:?}");
}

#[test]
fn what_is_nested_too_deeply_for_the_stack_is_told() {
    let deep = vec!["context.sensitive"; 250].join(" && ");
    let text = format!("@id(\"a\") forbid (principal, action, resource) when {{ {deep} }};");
    let parsed = parse::parse("mine", &text, &[]).unwrap();
    LazyLock::force(&SCHEMA);
    // Little more than what Cedar leaves free.
    let little = std::thread::Builder::new().stack_size(256 << 10);
    let found = std::thread::scope(|scope| {
        let validated = || Validator::new(&SCHEMA).validate(&parsed[0]);
        little.spawn_scoped(scope, validated).unwrap().join().unwrap()
    });
    let errors: Vec<_> = found.errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(errors, ["the policy is nested too deeply to be validated"]);
}

/// A schema with so many actions, which have no parameters that policies see.
fn many_actions(count: usize) -> Schema {
    let actions = (0..count).map(|number| action(&format!("x{number:03}"), true, None));
    schema_of(&[tool("many", actions)])
}

#[test]
fn of_many_slips_in_one_policy_some_are_told() {
    for scope in ["principal is Agent", "principal is User", "principal"] {
        let slips = vec!["context.input.b"; TOLD_MAX + 6].join(", ");
        let text = format!("@id(\"a\") permit ({scope}, action, resource) when {{ [{slips}].contains(1) }};");
        let errors = by_us(&text).errors;
        assert_eq!(errors.len(), TOLD_MAX, "{scope}");
        let places: HashSet<_> = errors.iter().map(|error| error.place.unwrap().offset).collect();
        assert_eq!(places.len(), TOLD_MAX, "{scope}");
    }
}

#[test]
fn what_is_wrong_for_every_action_is_looked_for_at_some_and_told_once() {
    let schema = many_actions(ASKS_TOLD_MAX + 6);
    let validator = Validator::new(&schema);
    let text = "@id(\"a\") permit (principal, action, resource) when { context.input.b == 1 };";
    let parsed = &parse::parse("mine", text, &[]).unwrap()[0];
    let mut found = Found::default();
    let of_agents = validator
        .asks
        .iter()
        .filter(|ask| ask.principal_entity_type() == Some(&TYPES.agent));
    let mut looked_at = 0;
    for ask in of_agents {
        if found.is_enough() {
            break;
        }
        let checked = validator
            .typechecker
            .typecheck_by_single_request_env(&parsed.template, ask);
        found.add(parsed, checked);
        looked_at += 1;
    }
    assert_eq!(looked_at, ASKS_TOLD_MAX);
    let told = found.into_diagnostics(parsed, false);
    assert_eq!(told, validator.validate(parsed).errors);
    let [slip] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(slip.message.contains("many/x000"), "{slip}");
}

#[test]
fn what_cedar_places_nowhere_is_about_the_whole_policy() {
    let text = "// first\n@id(\"a\") forbid (principal, action in [], resource);";
    let errors = by_us(text).errors;
    let [error] = &errors[..] else {
        panic!("{errors:?}");
    };
    let place = error.place.unwrap();
    assert_eq!((place.line, place.column), (2, 1));
    assert!(error.message.contains("empty set"), "{error}");
}

#[test]
fn the_groups_of_an_action_that_a_policy_names_are_not_asked_for() {
    let told = |condition: &str| {
        let text = format!("@id(\"a\") forbid (principal, action, resource) when {{ {condition} }};");
        let unfit = by_us(&text).unfit;
        let told = unfit
            .iter()
            .filter(|found| found.message.contains("groups of an action"));
        let columns = told.map(|found| found.place.unwrap().column);
        columns.collect::<Vec<_>>()
    };
    let named = "Action::\"github/put\" in Action::\"mutate\"";
    let column = "@id(\"a\") forbid (principal, action, resource) when { ".len() + 1;
    assert_eq!(told(named), [column]);
    let chosen = "(if context.sensitive then action else Action::\"github/put\") in [Action::\"mutate\"]";
    assert_eq!(told(chosen).len(), 1);
    for fine in [
        "action in Action::\"mutate\"",
        "action in [Action::\"github/put\", Action::\"read\"]",
        "action == Action::\"github/put\"",
        "(if action == Action::\"github/put\" then principal else principal) in Team::\"t\"",
    ] {
        assert!(told(fine).is_empty(), "{fine}");
    }
}

/// An ask knows its own agent and its own user, and nobody else.
#[test]
fn what_an_agent_or_a_user_that_a_policy_names_is_in_or_has_is_not_asked_for() {
    let told = |condition: &str| {
        let text = format!("@id(\"a\") forbid (principal, action, resource) when {{ {condition} }};");
        let unfit = by_us(&text).unfit;
        let told = unfit
            .iter()
            .filter(|found| found.message.starts_with("teams, members and tags"));
        told.count()
    };
    for asked in [
        "User::\"ada\" in Team::\"oncall\"",
        "Agent::\"b\" in [Team::\"suspended\"]",
        "Agent::\"b\".risk_tier == \"high\"",
        "Agent::\"b\" has owner",
        "Agent::\"b\".hasTag(\"vip\")",
        "User::\"ada\".hasTag(\"vip\")",
        "User::\"ada\".getTag(\"vip\") == \"yes\"",
        "(if context.sensitive then principal else Agent::\"b\") in Team::\"t\"",
        "{a: Agent::\"b\"}.a in Team::\"t\"",
    ] {
        assert_eq!(told(asked), 1, "{asked}");
    }
    for fine in [
        "principal == Agent::\"b\"",
        "principal in [User::\"ada\", User::\"bob\"]",
        "context has user && context.user == User::\"ada\"",
        "{a: principal, b: Agent::\"b\"}.a in Team::\"t\"",
        "Team::\"oncall\".hasTag(\"floor\")",
        "(if principal == Agent::\"b\" then principal else principal) in Team::\"t\"",
    ] {
        assert_eq!(told(fine), 0, "{fine}");
    }
}
