//! What cannot be activated, and what the writer of it is told.

#[cfg(test)]
#[path = "world/world.rs"]
mod world;

use policy::{BasePolicies, Diagnostic, Severity, Unanswerable};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::str::FromStr;
use world::{World, action, compile, tenant, tool};

/// What is wrong with this text as the policy `mine`.
fn faults(cedar: &str) -> Vec<Diagnostic> {
    let world = World {
        schema: Some(
            json!({"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}),
        ),
        ..World::default()
    };
    match world.compile(&BasePolicies::shipped(), &[tenant("mine", cedar)]) {
        Ok(_) => Vec::new(),
        Err(diagnostics) => diagnostics.0,
    }
}

#[test]
fn an_error_says_which_policy_and_where() {
    let cedar = "// ä comment\n@id(\"fine\") permit (principal, action, resource);\n@id(\"typo\")\nforbid (principal, action, resource)\n  when { context.trsut.rank > 1 };\n";
    let [fault] = &faults(cedar)[..] else {
        panic!("{:?}", faults(cedar))
    };
    assert_eq!(
        (fault.policy.as_deref(), fault.severity),
        (Some("mine/typo"), Severity::Error)
    );
    assert!(
        fault.message.contains("trsut") && fault.help.as_deref().unwrap().contains("trust"),
        "{fault:?}"
    );
    let place = fault.place.unwrap();
    assert_eq!((place.line, place.column), (5, 10));
    assert_eq!(
        &cedar[place.offset..place.offset + place.length],
        "context.trsut.rank"
    );
}

#[test]
fn a_text_that_does_not_parse_is_placed_too() {
    let cedar = "@id(\"a\")\npermit (principal action, resource);";
    let fault = &faults(cedar)[0];
    assert_eq!(fault.policy.as_deref(), Some("mine"));
    assert_eq!(fault.place.unwrap().line, 2, "{fault:?}");
}

/// Cedar finds an error in each, and for its place the whole text is gone through.
#[test]
fn of_a_text_with_very_many_errors_some_are_told() {
    let [fault] = &faults(&";".repeat(262_144))[..] else {
        panic!("not one fault")
    };
    assert_eq!(fault.to_string(), "mine:1:1: there is nothing before the `;`");
    let named = (0..100).map(|number| {
        format!("@id(\"p{number}\") forbid (principal, action, resource) when {{ context.no }};\n")
    });
    for text in [
        "permit (principal action, resource);\n".repeat(1_000),
        "permit (principal, action, resource);\n".repeat(1_000),
        named.collect(),
    ] {
        let found = faults(&text);
        assert!((64..100).contains(&found.len()), "{}", found.len());
        assert_eq!(found[0].place.unwrap().line, 1);
    }
}

#[test]
fn of_many_texts_with_very_many_errors_some_are_told_and_each_policy_is_named() {
    let wrong = "permit (principal action, resource);".repeat(100);
    let policies: Vec<_> = (0..16)
        .map(|number| tenant(&format!("p{number}"), &wrong))
        .collect();
    let found = compile(&[], &policies).unwrap_err();
    assert_eq!(found.policies().len(), 16);
    // Eight in full, one of each of the others, and that there may be more.
    assert_eq!(found.0.len(), 8 * 64 + 8 + 1);
    let last = found.0.last().unwrap();
    assert!(last.message.starts_with("there may be more: "), "{last}");
}

#[test]
fn what_the_schema_does_not_know_is_an_error() {
    for (condition, said) in [
        ("context.input.number == \"x\"", "String"),
        ("context.input.nmuber == 1", "nmuber"),
        ("principal.tier == 1", "tier"),
        ("action == Action::\"github/creat_issue\"", "creat_issue"),
        ("principal in Group::\"x\"", "Group"),
        ("context.now > 5", "datetime"),
        ("context.attributes.ticket == \"x\"", "ticket"),
        ("context.run.id == \"x\"", "run"),
    ] {
        let found = faults(&format!(
            "@id(\"a\") forbid (principal, action, resource) when {{ {condition} }};"
        ));
        assert!(!found.is_empty(), "{condition} was accepted");
        assert!(
            found.iter().any(|fault| format!("{fault:?}").contains(said)),
            "{condition}: {found:?}"
        );
    }
}

#[test]
fn a_text_that_is_too_long_or_too_deep_is_an_error_and_no_crash() {
    let with =
        |condition: &str| format!("@id(\"a\") permit (principal, action, resource) when {{ {condition} }};");
    let chain = |operator: &str| vec!["context.sensitive"; 5_000].join(operator);
    let comment = format!("// {}\n{}", "x".repeat(1 << 20), with("true"));
    for (cedar, message) in [
        (comment, "the text has 1048640 bytes, and a policy at most 262144"),
        (
            with(&format!("{}true{}", "(".repeat(10_000), ")".repeat(10_000))),
            "brackets are nested more than 64 deep",
        ),
        (with(&"[".repeat(10_000)), "brackets are nested more than 64 deep"),
        (
            with(&chain(" && ")),
            "an expression is more than 256 operators deep",
        ),
        (
            with(&chain(" || ")),
            "an expression is more than 256 operators deep",
        ),
        (
            with(&format!("{} true", "if true then true else ".repeat(5_000))),
            "an expression is more than 256 operators deep",
        ),
    ] {
        let [fault] = &faults(&cedar)[..] else {
            panic!("{message}")
        };
        assert_eq!(
            (fault.policy.as_deref(), fault.message.as_str()),
            (Some("mine"), message)
        );
        assert!(fault.help.is_some());
    }
    let deepest = format!("{}context.sensitive{}", "(".repeat(63), ")".repeat(63));
    assert_eq!(faults(&with(&deepest)), []);
    assert_eq!(faults(&with(&vec!["context.sensitive"; 200].join(" && "))), []);
}

#[test]
fn a_pattern_that_is_too_long_is_an_error() {
    let with = |length: usize| {
        let pattern = "*a".repeat(length / 2);
        format!(
            "@id(\"a\")\nforbid (principal, action, resource)\n  when {{ principal.name like \"{pattern}\" }};"
        )
    };
    assert_eq!(faults(&with(256)), []);
    let found = faults(&with(258));
    let [fault] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (fault.policy.as_deref(), fault.message.as_str()),
        (
            Some("mine/a"),
            "a pattern has 258 characters and wildcards, and may have 256"
        )
    );
    assert_eq!((fault.severity, fault.place.unwrap().line), (Severity::Error, 3));
}

#[test]
fn a_path_that_is_too_long_is_an_error() {
    let with = |path: &str| {
        format!(
            "// a comment\n@id(\"a\") @obligation(\"redact:parameters.{path}\")\npermit (principal, action, resource);"
        )
    };
    let dots = |count: usize| "a.".repeat(count) + "b";
    assert_eq!(faults(&with(&dots(64))), []);
    assert_eq!(faults(&with(&"a".repeat(1_024))), []);
    for (path, message) in [
        (dots(65), "the path of an obligation has 65 dots, and may have 64"),
        (
            dots(20_000),
            "the path of an obligation has 20000 dots, and may have 64",
        ),
        (
            "a".repeat(1_025),
            "the path of an obligation has 1025 bytes, and may have 1024",
        ),
    ] {
        let found = faults(&with(&path));
        let [fault] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (fault.policy.as_deref(), fault.message.as_str()),
            (Some("mine/a"), message)
        );
        let place = fault.place.unwrap();
        assert_eq!(
            (fault.severity, place.line, place.column),
            (Severity::Error, 2, 1)
        );
        assert!(fault.help.is_some());
    }
}

#[test]
fn what_would_be_recorded_with_each_ask_is_an_error_where_it_is_long() {
    let with = |annotation: &str, text: &str| {
        format!("// a comment\n@id(\"a\") @{annotation}(\"{text}\")\npermit (principal, action, resource);")
    };
    let notifying = |count: usize| {
        let all: Vec<_> = (0..count).map(|number| format!("notify:{number}")).collect();
        all.join(", ")
    };
    // An ask is told only of those that it has.
    let redacting: Vec<_> = (0..65)
        .map(|number| format!("redact:parameters.secret{number}"))
        .collect();
    for (annotation, most, more, message) in [
        (
            "reason",
            "a".repeat(4_096),
            "a".repeat(4_097),
            "`@reason` has 4097 bytes, and may have 4096",
        ),
        (
            "agent_message",
            "a".repeat(4_096),
            "\u{e4}".repeat(2_049),
            "`@agent_message` has 4098 bytes, and may have 4096",
        ),
        (
            "obligation",
            format!("b, {}", "a".repeat(1_024)),
            format!("b, {}", "a".repeat(1_025)),
            "an obligation has 1025 bytes, and may have 1024",
        ),
        (
            "obligation",
            format!("notify:0, {}, {}", notifying(64), redacting.join(", ")),
            notifying(65),
            "the policy has 65 obligations beside what is to be redacted, and may have 64",
        ),
    ] {
        assert_eq!(faults(&with(annotation, &most)), [], "{annotation}");
        let found = faults(&with(annotation, &more));
        let [fault] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (fault.policy.as_deref(), fault.message.as_str()),
            (Some("mine/a"), message)
        );
        let place = fault.place.unwrap();
        assert_eq!((fault.severity, place.line), (Severity::Error, 2));
        assert!(fault.help.is_some());
    }
}

#[test]
fn a_condition_that_would_take_too_long_alone_is_an_error() {
    let list = vec!["1"; 120_000].join(",");
    let found = faults(&format!(
        "@id(\"a\") forbid (principal, action, resource) when {{ [{list}].contains(context.trust.rank) }};"
    ));
    let [fault] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (fault.policy.as_deref(), fault.message.as_str()),
        (
            Some("mine/a"),
            "the conditions have 1080005 parts to evaluate, and may have 1048576"
        )
    );
    assert_eq!((fault.severity, fault.place.unwrap().line), (Severity::Error, 1));
}

/// Ways to put an expression into another one.
const WRAPPERS: [&str; 20] = [
    "({})",
    "[{}]",
    "{a: {}}",
    "!{}",
    "-{}",
    "if true then {} else false",
    "if {} then true else false",
    "if true then true else {}",
    "{} && true",
    "true && {}",
    "{} || false",
    "false || {}",
    "({}) == 1",
    "1 + {}",
    "1 * ({})",
    "({}).a",
    "({})[\"a\"]",
    "({}) has a",
    "({}).contains(1)",
    "ip({})",
];

/// Wraps in turn until the text would be too deep.
fn deepest(wrappers: &[&str]) -> String {
    let mut condition = "context.sensitive".to_owned();
    for wrapper in wrappers.iter().cycle().take(2_000) {
        let deeper = wrapper.replacen("{}", &condition, 1);
        let text = format!("@id(\"a\") permit (principal, action, resource) when {{ {deeper} }};");
        let found = BasePolicies::parse(&text).err();
        if found.is_some_and(|found| found.to_string().contains(" deep")) {
            return condition;
        }
        condition = deeper;
    }
    panic!("{wrappers:?} never become too deep");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// An overflow of the stack would end the whole test.
    #[test]
    fn what_is_just_not_too_deep_is_read_and_validated_without_a_crash(
        wrappers in prop::collection::vec(prop::sample::select(&WRAPPERS[..]), 1..6),
    ) {
        let condition = deepest(&wrappers);
        let text = format!("@id(\"a\") permit (principal, action, resource) when {{ {condition} }};");
        for fault in faults(&text) {
            prop_assert!(fault.policy.is_some() && !fault.message.is_empty());
        }
    }
}

#[test]
fn annotations_templates_and_names_are_checked() {
    let cases = [
        ("permit (principal, action, resource);", "the policy has no `@id`"),
        (
            "@id(\"a\") @desicion(\"x\") permit (principal, action, resource);",
            "there is no annotation `@desicion`",
        ),
        (
            "@id(\"a\") permit (principal, action, resource); @id(\"a\") forbid (principal, action, resource);",
            "the id `mine/a` is used more than once",
        ),
        (
            "@id(\"a\") permit (principal == ?principal, action, resource);",
            "the policy is a template, and nothing links it",
        ),
    ];
    for (cedar, message) in cases {
        let found = faults(cedar);
        assert_eq!(
            found
                .iter()
                .map(|fault| fault.message.as_str())
                .collect::<Vec<_>>(),
            [message]
        );
        assert!(found[0].place.is_some() && found[0].policy.as_deref().unwrap().starts_with("mine"));
    }
}

#[test]
fn a_tenant_cannot_take_the_operators_name_or_one_name_twice() {
    let all = "@id(\"a\") permit (principal, action, resource);";
    let message = |policies: &[_]| compile(&[], policies).unwrap_err().to_string();
    assert_eq!(
        message(&[tenant("base", all)]),
        "base: the name `base` is the operator's"
    );
    assert_eq!(
        message(&[tenant("x", all), tenant("x", "")]),
        "x: the name is used more than once"
    );
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let wrong = "@id(\"a\") permit (principal, action, resource) when { context.no };";
    let found = compile(
        &[],
        &[
            tenant("x", "permit (principal, action, resource);"),
            tenant("y", wrong),
        ],
    );
    // Nothing is validated that has no action, so that the second is only odd in an empty registry.
    assert_eq!(found.unwrap_err().0.len(), 1);
    let tool = tool(
        "t",
        [
            action("a", true, Some(json!({"type": 5}))),
            action("b", true, None),
        ],
    );
    let found = compile(
        &[tool],
        &[
            tenant("x", "permit (principal, action, resource);"),
            tenant("y", wrong),
        ],
    );
    let policies: Vec<_> = found
        .unwrap_err()
        .0
        .into_iter()
        .map(|fault| fault.policy)
        .collect();
    assert_eq!(policies, [None, Some("x".to_owned())]);
}

#[test]
fn a_policy_that_can_never_apply_is_a_warning() {
    let set = compile(
        &[],
        &[tenant(
            "x",
            "@id(\"a\") permit (principal == Agent::\"agt_1\", action, resource);",
        )],
    )
    .unwrap();
    let warned: Vec<_> = set
        .warnings()
        .iter()
        .filter_map(|warning| warning.policy.as_deref())
        .collect();
    assert!(warned.contains(&"x/a"), "{warned:?}");
    assert!(
        set.warnings()
            .iter()
            .all(|warning| warning.severity == Severity::Warning)
    );
}

/// Whom this policy is said to name that nobody can be. It is valid.
fn nobodies(policy: &str) -> Vec<Diagnostic> {
    let policy = tenant("mine", &format!("@id(\"a\") {policy}"));
    let set = World::default().compile(&BasePolicies::shipped(), &[policy]);
    let mut warnings = set.expect("it is valid").warnings().to_vec();
    warnings.retain(|warning| warning.message.starts_with("nobody can ever be "));
    warnings
}

#[test]
fn whom_nobody_can_be_is_pointed_out_once_wherever_a_policy_names_them() {
    let bot = "Agent::\"billing-bot\"";
    // Two characters where the name of a team has one.
    let team = "Team::\"e\u{301}quipe\"";
    let forbid = |scope: &str| format!("forbid ({scope}, action, resource);");
    let when = |condition: &str| {
        format!("forbid (principal is Agent, action, resource) when {{ {condition} || {condition} }};")
    };
    let approved = |approvers: &str| {
        format!(
            "@decision(\"require_approval\") @approvers(\"{approvers}\") permit (principal, action, resource);"
        )
    };
    for (policy, said) in [
        (forbid(&format!("principal == {bot}")), "26 characters of base32"),
        (forbid(&format!("principal in {team}")), "normalization form C"),
        (
            forbid(&format!("principal is User in {team}")),
            "normalization form C",
        ),
        (forbid("principal == User::\"\""), "at least one byte"),
        (
            when(&format!("[{bot}].contains(principal)")),
            "26 characters of base32",
        ),
        (when(&format!("principal in {team}")), "normalization form C"),
        (approved("e\u{301}quipe"), "`@approvers`"),
    ] {
        let found = nobodies(&policy);
        let [warning] = &found[..] else {
            panic!("{policy} {found:?}")
        };
        assert_eq!(
            (warning.severity, warning.policy.as_deref()),
            (Severity::Warning, Some("mine/a"))
        );
        assert!(warning.message.contains(said), "{warning:?}");
        assert!(warning.help.is_some() && warning.place.is_some(), "{warning:?}");
    }
    let somebody = "@decision(\"require_approval\") @approvers(\"\u{e9}quipe\")
        permit (principal in Team::\"\u{e9}quipe\", action, resource == Resource::\"e\u{301}\")
        when { principal == Agent::\"agt_00000000000000000000000000\" };";
    assert_eq!(nobodies(somebody), []);
}

/// As when the attribute that it looks at is not declared any more: a guard that has silently gone.
#[test]
fn a_forbid_of_mutations_that_can_never_match_is_an_error() {
    let condition = "context.attributes has no_such && context.attributes.no_such == \"x\"";
    let found = faults(&format!(
        "@id(\"a\") forbid (principal, action in Action::\"mutate\", resource) when {{ {condition} }};"
    ));
    let never = found
        .iter()
        .filter(|fault| fault.message.contains("can never match"));
    assert_eq!(never.count(), 1, "{found:?}");
}

#[test]
fn a_schema_that_is_none_names_its_action() {
    for schema in [
        json!({"type": 5}),
        json!({"$ref": "https://example.com/schema.json"}),
        json!({"properties": {"x": {"$ref": "file:///etc/passwd"}}}),
        json!({"properties": {"x": {"type": "string", "pattern": "("}}}),
        json!({"properties": {"x": {"$ref": "#/$defs/gone"}}}),
    ] {
        let tool = tool("github", [action("merge", true, Some(schema.clone()))]);
        let Err(diagnostics) = compile(&[tool], &[]) else {
            panic!("{schema} was accepted")
        };
        let message = &diagnostics.0[0].message;
        assert!(
            message.starts_with("the input schema of `github/merge` is no JSON Schema: "),
            "{message}"
        );
    }
}

#[test]
fn a_draft_that_is_not_taken_is_refused_with_those_that_are() {
    let compiled = |draft: &str| {
        let schema = json!({"$schema": draft, "type": "object"});
        compile(&[tool("github", [action("merge", true, Some(schema))])], &[])
    };
    for unknown in [
        "https://example.com/our-own",
        "http://json-schema.org/draft-03/schema#",
    ] {
        let Err(diagnostics) = compiled(unknown) else {
            panic!("{unknown} was accepted")
        };
        let message = &diagnostics.0[0].message;
        let said = "the input schema of `github/merge` is no JSON Schema: `$schema` is one of ";
        let drafts = message.strip_prefix(said).unwrap_or_else(|| panic!("{message}"));
        let drafts: Vec<_> = drafts.split('`').skip(1).step_by(2).collect();
        assert_eq!(drafts.len(), 5, "{message}");
        for draft in drafts {
            assert!(compiled(draft).is_ok(), "{draft}");
        }
    }
}

#[test]
fn a_pattern_that_is_not_taken_is_named_with_what_is_in_it() {
    let schema = json!({"properties": {"x": {"type": "string", "pattern": "(?=lookahead)"}}});
    let tool = tool("github", [action("merge", true, Some(schema))]);
    let Err(diagnostics) = compile(&[tool], &[]) else {
        panic!("it was accepted")
    };
    assert_eq!(
        diagnostics.0[0].message,
        "the input schema of `github/merge` has the pattern \"(?=lookahead)\" with `(?=`: look-around is not supported"
    );
    assert!(diagnostics.0[0].help.is_some(), "{diagnostics}");
}

#[test]
fn patterns_share_the_room_that_a_schema_has_for_them() {
    let asked = |count: usize, pattern: &str| {
        let property = |number: usize| {
            let pattern = format!("{pattern}|{number}");
            (
                format!("p{number}"),
                json!({"type": "string", "pattern": pattern}),
            )
        };
        let world = World {
            schema: Some(json!({"properties": (0..count).map(property).collect::<serde_json::Map<_, _>>()})),
            parameters: json!({"p0": "0"}),
            ..World::default()
        };
        world.ask(&world.compile(&BasePolicies::shipped(), &[]).unwrap())
    };
    for ordinary in [
        r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$",
        "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$",
    ] {
        assert!(asked(100, ordinary).is_ok(), "{ordinary}");
    }
    for long in ["^.{1,1000}$", r"(\w\W){250}"] {
        assert!(asked(2, long).is_ok(), "{long}");
        // Such a schema may be registered already: it keeps nothing from starting, and nothing satisfies it.
        let Err(Unanswerable::InvalidParameters { detail, .. }) = asked(100, long) else {
            panic!("100 of {long} were compiled")
        };
        assert!(detail.starts_with("cannot be checked: "), "{detail}");
    }
}

#[test]
fn a_schema_that_refers_to_itself_is_no_trap() {
    let asked = |schema: &Value| {
        let world = World {
            schema: Some(schema.clone()),
            parameters: json!({"x": {"x": {}}}),
            ..World::default()
        };
        world.ask(&world.compile(&BasePolicies::shipped(), &[]).unwrap())
    };
    assert!(asked(&json!({"properties": {"x": {"$ref": "#"}}})).is_ok());
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
    ] {
        let Err(Unanswerable::InvalidParameters { detail, .. }) = asked(&schema) else {
            panic!("{schema} was gone through")
        };
        assert!(detail.starts_with("cannot be checked: "), "{detail}");
    }
}

#[test]
fn a_public_policy_with_a_type_error_is_rejected_by_strict_validation() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/receipts");
    let read = |path: &str| std::fs::read_to_string(format!("{folder}/{path}"));
    let (Ok(schema), Ok(policy)) = (
        read("lint.cedarschema"),
        read("fixtures/policy/autoresearch-safe.cedar"),
    ) else {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "the vectors are missing");
        eprintln!("skipped: no {folder}");
        return;
    };
    // The same engine and mode as ours, against the vector's own schema.
    let (schema, _) = cedar_policy::Schema::from_cedarschema_str(&schema).unwrap();
    let policies = cedar_policy::PolicySet::from_str(&policy).unwrap();
    let result =
        cedar_policy::Validator::new(schema).validate(&policies, cedar_policy::ValidationMode::Strict);
    assert!(!result.validation_passed());
    // And against ours: it has no ids, which is found before anything else.
    assert!(
        faults(&policy)
            .iter()
            .all(|fault| fault.message == "the policy has no `@id`")
    );
}
