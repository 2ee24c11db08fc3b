//! A policy in two parts: what is known as soon as the action is, and what only a question can tell.
//!
//! The first part is the scope's action and the leading conditions that look at nothing but `context.tool`. It is settled
//! for every action when policies are compiled, so that a question meets only the second part of the policies that are
//! still open. Conditions behind the first that asks for more stay where they are: they may fail, and failing counts.

use crate::context::Member;
use crate::facts;
use crate::members::looked_at;
use crate::statement::Statement;
use cedar_policy::{ActionConstraint, Authorizer, Decision, EntityUid, Policy, PolicyId, PolicySet, Request};
use model::{Tool, ToolAction};
use serde_json::{Value, json};

/// A policy in two parts.
pub(crate) struct Split {
    scope: ActionConstraint,
    /// A permit with the conditions that are known as soon as the action is.
    guard: Option<PolicySet>,
    /// The policy without them, and with a scope of any action.
    pub(crate) rest: Policy,
    /// The members of the context that `rest` looks at.
    pub(crate) members: u32,
    /// The policy as it was written.
    pub(crate) whole: Policy,
}

/// What an action leaves of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Left {
    /// Nothing: it cannot be satisfied.
    Nothing,
    /// Its second part.
    Rest,
    /// All of it, because its first part fails.
    Whole,
}

impl Split {
    pub(crate) fn of(statement: &Statement) -> Self {
        let mut tree = statement.tree.clone();
        let known = take_known(&mut tree["conditions"]);
        tree["action"] = json!({"op": "All"});
        let guard = (!known.is_empty()).then(|| {
            let guard = json!({
                "effect": "permit",
                "principal": {"op": "All"}, "action": {"op": "All"}, "resource": {"op": "All"},
                "conditions": known,
            });
            PolicySet::from_policies([policy("guard", guard)]).expect("one policy has no twin")
        });
        Self {
            scope: statement.cedar.action_constraint(),
            guard,
            members: looked_at(&tree),
            rest: policy(statement.id.as_str(), tree),
            whole: statement.cedar.clone(),
        }
    }

    /// What this action leaves of the policy.
    pub(crate) fn left(&self, known: &Known<'_>) -> Left {
        let within = |wanted: &EntityUid| known.action == *wanted || known.groups.contains(wanted);
        let admitted = match &self.scope {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(wanted) => known.action == *wanted,
            ActionConstraint::In(wanted) => wanted.iter().any(within),
        };
        match &self.guard {
            _ if !admitted => Left::Nothing,
            None => Left::Rest,
            Some(guard) => {
                let response =
                    Authorizer::new().is_authorized(known.request, guard, &cedar_policy::Entities::empty());
                match response.decision() {
                    Decision::Allow => Left::Rest,
                    Decision::Deny if response.diagnostics().errors().next().is_some() => Left::Whole,
                    Decision::Deny => Left::Nothing,
                }
            }
        }
    }
}

/// What is known of every ask for an action.
pub(crate) struct Known<'a> {
    pub(crate) action: EntityUid,
    pub(crate) groups: [EntityUid; 3],
    /// A request with the action and `context.tool`, and with nothing else that a guard could look at.
    pub(crate) request: &'a Request,
}

impl<'a> Known<'a> {
    pub(crate) fn new(tool: &Tool, action: &ToolAction, mutates: bool, request: &'a Request) -> Self {
        Self {
            action: facts::action(&facts::action_id(tool.name.as_str(), action.name.as_str())),
            groups: facts::groups(tool, action, mutates),
            request,
        }
    }
}

fn policy(id: &str, tree: Value) -> Policy {
    Policy::from_json(Some(PolicyId::new(id)), tree)
        .expect("a tree of Cedar's with parts left out is one of Cedar's")
}

/// Takes the leading conditions that are known as soon as the action is.
fn take_known(conditions: &mut Value) -> Vec<Value> {
    let mut known = Vec::new();
    let Some(conditions) = conditions.as_array_mut() else {
        return known;
    };
    while let Some(first) = conditions.first_mut() {
        if is_known(&first["body"]) {
            known.push(conditions.remove(0));
            continue;
        }
        // `unless` negates its whole body, so that only `when` can be taken apart.
        if first["kind"] == "when"
            && let Some((leading, rest)) = take_leading(&first["body"])
        {
            first["body"] = rest;
            known.push(json!({"kind": "when", "body": leading}));
        }
        break;
    }
    known
}

/// The known leading part of `a && b && c`, which nests to the left, and the rest.
fn take_leading(body: &Value) -> Option<(Value, Value)> {
    let (left, right) = (&body["&&"]["left"], &body["&&"]["right"]);
    if left.is_null() {
        return None;
    }
    if is_known(left) {
        return Some((left.clone(), right.clone()));
    }
    let (leading, rest) = take_leading(left)?;
    Some((leading, json!({"&&": {"left": rest, "right": right}})))
}

/// Whether an expression looks at nothing but `context.tool`.
fn is_known(expression: &Value) -> bool {
    looked_at(expression) & !Member::Tool.bit() == 0 && !names_an_entity(expression)
}

/// Whether an expression looks at the principal, the action, the resource, or an entity that it names: what an entity is
/// in, only a question can tell.
fn names_an_entity(expression: &Value) -> bool {
    match expression {
        Value::Object(object) => object.iter().any(|(operator, operand)| match operator.as_str() {
            "Var" if operand.is_string() => operand != "context",
            "__entity" => true,
            _ => names_an_entity(operand),
        }),
        Value::Array(values) => values.iter().any(names_an_entity),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement;

    fn split(conditions: &str) -> (Option<String>, String) {
        let text =
            format!("@id(\"a\") permit (principal, action in Action::\"read\", resource) {conditions};");
        let split = Split::of(&statement::parse("base", &text).unwrap()[0]);
        let print = |policy: &Policy| {
            let text = policy
                .to_string()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            text.split_once(')').unwrap().1.replace("@id(\"a\")", "")
        };
        let guard = split.guard.map(|guard| print(guard.policies().next().unwrap()));
        let conditions =
            |text: &str| text[text.find(" when").or(text.find(" unless")).unwrap_or(text.len())..].to_owned();
        (
            guard.map(|text| conditions(&text)),
            conditions(&print(&split.rest)),
        )
    }

    #[test]
    fn only_what_the_action_decides_is_taken_and_only_from_the_front() {
        let (guard, rest) =
            split("when { context.tool.canary && context.tool.mutates && context.sensitive }");
        let guard = guard.unwrap();
        assert!(
            guard.contains("canary") && guard.contains("mutates") && !guard.contains("sensitive"),
            "{guard}"
        );
        assert!(rest.contains("sensitive") && !rest.contains("tool"), "{rest}");

        let (guard, rest) = split("when { context.sensitive && context.tool.canary }");
        assert!(guard.is_none() && rest.contains("canary"), "{rest}");

        let (guard, rest) =
            split("when { context.tool.canary } unless { context.tool.mutates } when { context.sensitive }");
        assert!(
            guard.unwrap().contains("unless") && !rest.contains("tool"),
            "{rest}"
        );

        let (guard, rest) = split("unless { context.tool.canary && context.sensitive }");
        assert!(guard.is_none() && rest.contains("canary"), "{rest}");

        for open in [
            "context.tool.name == principal.name",
            "User::\"bob\" in Team::\"leads\"",
            "context == context",
        ] {
            assert!(split(&format!("when {{ {open} }}")).0.is_none(), "{open}");
        }
    }
}
