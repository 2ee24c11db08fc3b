//! What holds for every ask, whatever is asked, as a Cedar expression: the gateway makes the facts that policies see, and
//! makes them consistent. Who reasons about requests that no ask can become concludes too much.
//!
//! What is said here follows from `context` and `parameters`, and is never more than that: an expression that an ask could
//! contradict would hide it. A property test asks thousands.

use crate::facts::TYPES;
use crate::json_schema::Shape;
use crate::parameters::{self, TARGETS, is_blank};
use crate::read_set::{Member, ReadSet};
use crate::schema;
use crate::slice::{Ground, Part, Principals};
use cedar_policy_core::ast::{EntityUID, Expr, ExprKind, Literal, Name, PatternElem, Var};
use jsonschema::Draft;
use model::amount::AMOUNT_MAX;
use model::{AgentId, RiskTier, SourceRule, Trust, Window};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The first and the last point in time that RFC 3339 can write and a clock can show.
const TIMES: [&str; 2] = ["1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"];

/// The names of parameters under which texts say into what a merge goes: `context.targets` has them.
pub const TARGET_NAMES: [&str; 8] = TARGETS;

/// What follows from who asks.
const OF_THE_AGENT: ReadSet = ReadSet::PRINCIPAL
    .union(ReadSet::member(Member::Agent))
    .union(ReadSet::member(Member::Environment));

static DATETIME: LazyLock<Name> =
    LazyLock::new(|| Name::parse_unqualified_name("datetime").expect("the word is an identifier"));

/// What holds for every ask of this side by these principals of a tenant with this rule, as far as these policies could
/// see that it does not: each of these, one by one, because a formula of all of them together would be a large one.
pub fn known(ground: &Ground<'_>, parts: &[Part<'_>], principals: Principals, rule: SourceRule) -> Vec<Expr> {
    let reads = parts
        .iter()
        .map(Part::reads)
        .fold(ReadSet::default(), ReadSet::union);
    let named: BTreeSet<_> = parts.iter().flat_map(|part| named(&part.condition)).collect();
    let at = |member| reads.intersects(ReadSet::member(member));
    let mut known = Vec::new();
    let is_of_agents = principals == Principals::Agents;
    if is_of_agents && (reads.intersects(OF_THE_AGENT) || !named.is_empty()) {
        known.extend(agent(&named));
    }
    if at(Member::Environment) {
        // A user is nowhere: the agent is.
        let agent = if is_of_agents {
            principal()
        } else {
            member(Member::Agent)
        };
        known.extend(same(&agent, &context(), "environment"));
    }
    if at(Member::Tool) {
        known.push(tool(ground));
    }
    if at(Member::Trust) {
        known.push(trust());
    }
    if at(Member::Run) {
        let run = member(Member::Run);
        known.push(implies(has(&context(), "run"), is_source(&of(&run, "worst"))));
    }
    if at(Member::Usage) {
        known.extend(usage());
    }
    if at(Member::Sources) {
        known.extend(sources(ground));
    }
    known.extend(levels(ground, reads, rule));
    if at(Member::Now) {
        known.extend(now());
    }
    if reads.intersects(ReadSet::PARAMETERS) {
        known.extend(parameters(ground));
    }
    known
}

fn all(conditions: impl IntoIterator<Item = Expr>) -> Expr {
    conditions
        .into_iter()
        .reduce(Expr::and)
        .unwrap_or(Expr::val(true))
}

fn any(conditions: impl IntoIterator<Item = Expr>) -> Expr {
    conditions
        .into_iter()
        .reduce(Expr::or)
        .unwrap_or(Expr::val(false))
}

/// `if one then other else true`, and not `!one || other`: Cedar's validator then knows in `other` that what `one`
/// tests for is there.
fn implies(one: Expr, other: Expr) -> Expr {
    Expr::ite(one, other, Expr::val(true))
}

fn principal() -> Expr {
    Expr::var(Var::Principal)
}

fn context() -> Expr {
    Expr::var(Var::Context)
}

fn member(member: Member) -> Expr {
    Expr::get_attr(context(), member.as_str().into())
}

fn of(record: &Expr, name: &str) -> Expr {
    Expr::get_attr(record.clone(), name.into())
}

fn has(record: &Expr, name: &str) -> Expr {
    Expr::has_attr(record.clone(), name.into())
}

fn texts<'a>(words: impl IntoIterator<Item = &'a str>) -> Expr {
    Expr::set(words.into_iter().map(Expr::val))
}

/// Both records have this member with the same value, or neither has it.
fn same(one: &Expr, other: &Expr, name: &str) -> [Expr; 2] {
    let equal = Expr::is_eq(of(one, name), of(other, name));
    [
        implies(has(one, name), Expr::and(has(other, name), equal)),
        implies(has(other, name), has(one, name)),
    ]
}

/// The entities that an expression names.
fn named(expression: &Expr) -> Vec<EntityUID> {
    let parts = expression.subexpressions();
    let named = parts.filter_map(|part| match part.expr_kind() {
        ExprKind::Lit(Literal::EntityUID(uid)) => Some((**uid).clone()),
        _ => None,
    });
    named.collect()
}

/// `context.agent` says of the principal what the principal says of itself; it is in one team at most, and has a real id.
fn agent(named: &BTreeSet<EntityUID>) -> Vec<Expr> {
    let (principal, agent) = (principal(), member(Member::Agent));
    let tiers = [RiskTier::Low, RiskTier::Medium, RiskTier::High].map(RiskTier::as_str);
    let mut known = vec![
        Expr::noteq(of(&principal, "name"), Expr::val("")),
        Expr::is_eq(of(&agent, "name"), of(&principal, "name")),
        Expr::contains(texts(tiers), of(&principal, "risk_tier")),
        Expr::is_eq(of(&agent, "risk_tier"), of(&principal, "risk_tier")),
    ];
    for optional in ["environment", "owner"] {
        known.extend(same(&principal, &agent, optional));
    }
    let teams = named.iter().filter(|uid| *uid.entity_type() == TYPES.team);
    for team in teams {
        let is_in = Expr::is_in(principal.clone(), Expr::val(team.clone()));
        let name = Expr::val(AsRef::<str>::as_ref(team.eid()));
        let is_told = Expr::and(has(&agent, "team"), Expr::is_eq(of(&agent, "team"), name));
        known.extend([implies(is_in.clone(), is_told.clone()), implies(is_told, is_in)]);
    }
    let nobody = named.iter().filter(|uid| {
        let id: &str = uid.eid().as_ref();
        *uid.entity_type() == TYPES.agent && id.parse::<AgentId>().is_err()
    });
    known.extend(nobody.map(|uid| Expr::noteq(principal.clone(), Expr::val(uid.clone()))));
    known
}

/// `context.tool` is the registry's.
fn tool(ground: &Ground<'_>) -> Expr {
    let (tool, action) = (ground.tool, ground.action);
    let facts = member(Member::Tool);
    all([
        Expr::is_eq(of(&facts, "name"), Expr::val(tool.name.as_str())),
        Expr::is_eq(of(&facts, "action"), Expr::val(action.name.as_str())),
        Expr::is_eq(of(&facts, "risk"), Expr::val(action.risk.as_str())),
        Expr::is_eq(of(&facts, "mutates"), Expr::val(ground.mutates)),
        Expr::is_eq(of(&facts, "canary"), Expr::val(tool.canary)),
    ])
}

/// A level is one of six and has its rank, it counts for no more than was claimed, and the best one is signed.
fn trust() -> Expr {
    let trust = member(Member::Trust);
    let levels = Trust::ALL.map(|level| {
        let better = Trust::ALL.into_iter().filter(|claimed| *claimed <= level);
        let claimed = Expr::contains(texts(better.map(Trust::as_str)), of(&trust, "claimed"));
        let level = [
            Expr::is_eq(of(&trust, "level"), Expr::val(level.as_str())),
            Expr::is_eq(of(&trust, "rank"), Expr::val(level.rank())),
            claimed,
        ];
        all(level)
    });
    let best = Expr::val(Trust::TrustedInternalSigned.as_str());
    let signed = implies(Expr::is_eq(of(&trust, "level"), best), of(&trust, "signed"));
    Expr::and(any(levels), signed)
}

/// The level of each parameter is one of six, unsigned at best, and has its rank; the same as the call's unless the caller says
/// otherwise.
fn sources(ground: &Ground<'_>) -> Vec<Expr> {
    let sources = member(Member::Sources);
    let declared = schema::declared_parameters(ground.action).into_iter();
    let known = declared.map(|name| is_source(&of(&sources, &name)));
    known.collect()
}

/// A run that policies look at has seen the level of the call and those of all parameters; and where the least trusted
/// of these counts for the call, the call is no better than any.
fn levels(ground: &Ground<'_>, reads: ReadSet, rule: SourceRule) -> Vec<Expr> {
    let at = |member| reads.intersects(ReadSet::member(member));
    let rank = |source: &Expr| of(source, "rank");
    let call = rank(&member(Member::Trust));
    let worst = rank(&of(&member(Member::Run), "worst"));
    let seen = |other: &Expr| {
        let is_no_better = Expr::lesseq(worst.clone(), other.clone());
        implies(has(&context(), "run"), is_no_better)
    };
    let mut known = Vec::new();
    if at(Member::Run) && at(Member::Trust) {
        known.push(seen(&call));
    }
    if at(Member::Sources) {
        for name in schema::declared_parameters(ground.action) {
            let source = rank(&of(&member(Member::Sources), &name));
            known.extend(at(Member::Run).then(|| seen(&source)));
            let counts = rule == SourceRule::Call && at(Member::Trust);
            known.extend(counts.then(|| Expr::lesseq(call.clone(), source)));
        }
    }
    known
}

/// A level is one of six and has its rank.
fn is_source(source: &Expr) -> Expr {
    any(Trust::ALL.map(|level| {
        Expr::and(
            Expr::is_eq(of(source, "level"), Expr::val(level.as_str())),
            Expr::is_eq(of(source, "rank"), Expr::val(level.rank())),
        )
    }))
}

/// Amounts and counts are not below zero, of a budget no more is spent or left than there is, and only an ask with an estimate
/// counts against budgets.
fn usage() -> Vec<Expr> {
    let usage = member(Member::Usage);
    let amount = |record: &Expr, name: &str| {
        let value = of(record, name);
        let least = Expr::lesseq(Expr::val(0), value.clone());
        Expr::and(least, Expr::lesseq(value, Expr::val(AMOUNT_MAX)))
    };
    let (budget, estimate, calls) = (of(&usage, "budget"), of(&usage, "estimate"), of(&usage, "calls"));
    let left = of(&budget, "remaining");
    let told = [
        amount(&budget, "allocated"),
        amount(&budget, "spent"),
        Expr::lesseq(of(&budget, "spent"), of(&budget, "allocated")),
        Expr::lesseq(Expr::val(-AMOUNT_MAX), left.clone()),
        Expr::lesseq(left, of(&budget, "allocated")),
        has(&usage, "estimate"),
    ];
    let mut known = vec![
        implies(has(&usage, "budget"), all(told)),
        implies(
            has(&usage, "estimate"),
            Expr::and(
                amount(&estimate, "amount"),
                Expr::noteq(of(&estimate, "unit"), Expr::val("")),
            ),
        ),
    ];
    known.extend(Window::ALL.map(|window| {
        let counted = of(&calls, window.as_str());
        let told = [amount(&counted, "limit"), amount(&counted, "used")];
        implies(has(&calls, window.as_str()), all(told))
    }));
    known
}

fn now() -> [Expr; 2] {
    let [first, last] = TIMES.map(|time| Expr::call_extension_fn(DATETIME.clone(), vec![Expr::val(time)]));
    let now = member(Member::Now);
    [Expr::lesseq(first, now.clone()), Expr::lesseq(now, last)]
}

/// What has a type has a name, what has a name and may not be `null` has its type, and texts under the names of targets
/// are targets.
fn parameters(ground: &Ground<'_>) -> Vec<Expr> {
    let schema = ground.action.input_schema.as_deref();
    let of_schema = |name: &str| schema.filter(|schema| says_what(schema))?["properties"].get(name);
    let input = member(Member::Input);
    let mut known = targets(&parameters::declared_targets(ground.action));
    for (name, typed) in schema::input(ground.action) {
        let value = of(&input, &name);
        let mut told = vec![Expr::contains(
            member(Member::Parameters),
            Expr::val(name.as_str()),
        )];
        if typed.shape == Shape::String && TARGETS.contains(&name.as_str()) {
            told.push(Expr::contains(member(Member::Targets), value.clone()));
            told.push(Expr::or(may_be_blank(&value), member(Member::TargetStated)));
        }
        told.extend(of_schema(&name).map(|schema| all(values(schema, &typed.shape, &value))));
        if !typed.required && of_schema(&name).is_some_and(refuses_null) {
            let is_named = Expr::contains(member(Member::Parameters), Expr::val(name.as_str()));
            known.push(implies(is_named, has(&input, &name)));
        }
        known.push(if typed.required {
            all(told)
        } else {
            implies(has(&input, &name), all(told))
        });
    }
    known
}

/// Whether this schema says that a value is of one type, and no `null`.
fn refuses_null(schema: &Value) -> bool {
    let word = schema.get("type").and_then(Value::as_str);
    says_what(schema) && word.is_some_and(|word| word != "null")
}

/// Whether this text is empty or begins with a space or a control: all that can be said of those in which there is nothing else.
fn may_be_blank(text: &Expr) -> Expr {
    let spaces = ('\0'..=char::MAX).filter(|character| is_blank(*character));
    let begins_with = |space| {
        let pattern = vec![PatternElem::Char(space), PatternElem::Wildcard];
        Expr::like(text.clone(), pattern.into())
    };
    let is_empty = Expr::is_eq(text.clone(), Expr::val(""));
    any(std::iter::once(is_empty).chain(spaces.map(begins_with)))
}

/// A target is a text under one of a few names, and it is stated if the action declares the name and there is more in it
/// than spaces.
fn targets(declared: &[&str]) -> Vec<Expr> {
    let (targets, stated) = (member(Member::Targets), member(Member::TargetStated));
    let names_one = |of: &[&str]| {
        let of = texts(of.iter().copied());
        Expr::contains_any(member(Member::Parameters), of)
    };
    let none = Expr::is_empty(targets);
    vec![
        if declared.is_empty() {
            Expr::not(stated.clone())
        } else {
            implies(stated.clone(), names_one(declared))
        },
        Expr::or(none.clone(), names_one(&TARGETS)),
        implies(stated, Expr::not(none)),
    ]
}

/// Whether the words under the `properties` of this schema say what they seem to. In older drafts some are no keywords, and
/// none counts beside a reference.
fn says_what(schema: &Value) -> bool {
    let draft = Draft::default().detect(schema);
    matches!(draft, Draft::Draft201909 | Draft::Draft202012) && schema.get("$ref").is_none()
}

/// What `enum`, `const`, `minLength`, `minimum` and `maximum` say of a value of this shape.
fn values(schema: &Value, shape: &Shape, value: &Expr) -> Vec<Expr> {
    let mut known = Vec::new();
    if !says_what(schema) {
        return known;
    }
    let whole = |word: &str| schema.get(word).and_then(Value::as_i64);
    match shape {
        Shape::String => {
            let allowed = schema.get("enum").and_then(Value::as_array);
            let constant = schema.get("const").and_then(Value::as_str);
            if let Some(words) = allowed {
                let words = words.iter().filter_map(Value::as_str);
                let equal = words.map(|word| Expr::is_eq(value.clone(), Expr::val(word)));
                known.push(any(equal));
            }
            known.extend(constant.map(|word| Expr::is_eq(value.clone(), Expr::val(word))));
            if whole("minLength").is_some_and(|length| length > 0) {
                known.push(Expr::noteq(value.clone(), Expr::val("")));
            }
        }
        Shape::Long => {
            let least = whole("minimum").map(|least| Expr::lesseq(Expr::val(least), value.clone()));
            let most = whole("maximum").map(|most| Expr::lesseq(value.clone(), Expr::val(most)));
            known.extend(least.into_iter().chain(most));
        }
        Shape::Bool | Shape::Decimal | Shape::Set(_) | Shape::Record(_) => {}
    }
    known
}
