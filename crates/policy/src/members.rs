//! Which members of the context a policy looks at, read off its syntax tree.

use crate::context::Member;
use serde_json::Value;

/// The members of the context that this policy, in Cedar's JSON form, looks at, as bits.
pub(crate) fn looked_at(policy: &Value) -> u32 {
    match policy {
        Value::Object(object) if is_context(policy) => {
            debug_assert_eq!(object.len(), 1);
            // The context as a whole, and not one of its members.
            u32::MAX
        }
        Value::Object(object) => object
            .iter()
            .fold(0, |bits, (operator, operand)| bits | within(operator, operand)),
        Value::Array(values) => values.iter().fold(0, |bits, value| bits | looked_at(value)),
        _ => 0,
    }
}

fn within(operator: &str, operand: &Value) -> u32 {
    if matches!(operator, "." | "has") && is_context(&operand["left"]) {
        // `has a.b` names a list, of which the first is the context's.
        let name = operand["attr"].as_str().or(operand["attr"][0].as_str());
        // A name that is no member's is not valid, and will be found to be so.
        return name.and_then(Member::named).map_or(u32::MAX, Member::bit);
    }
    looked_at(operand)
}

fn is_context(expression: &Value) -> bool {
    expression["Var"] == "context"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(condition: &str) -> u32 {
        let text = format!("permit (principal, action, resource) when {{ {condition} }};");
        looked_at(&text.parse::<cedar_policy::Policy>().unwrap().to_json().unwrap())
    }

    #[test]
    fn members_are_found_wherever_they_stand() {
        assert_eq!(bits("principal.name == \"now\""), 0);
        assert_eq!(bits("context.now == context.now"), Member::Now.bit());
        assert_eq!(
            bits("context[\"n\\u{6f}w\"] == context[\"now\"]"),
            Member::Now.bit()
        );
        let two = Member::Run.bit() | Member::Trust.bit();
        assert_eq!(
            bits("context has run.id && [context.trust.rank].contains(3)"),
            two
        );
        assert_eq!(
            bits("if true then false else {a: [context.run.id, context.trust.level]}.a.isEmpty()"),
            two
        );
    }

    #[test]
    fn the_context_as_a_whole_is_every_member() {
        for condition in [
            "context == context",
            "[context].isEmpty()",
            "(if true then context else context).sensitive",
        ] {
            assert_eq!(bits(condition), u32::MAX, "{condition}");
        }
        assert_eq!(bits("context has elsewhere"), u32::MAX);
    }

    #[test]
    fn a_record_that_looks_like_the_syntax_is_not_mistaken() {
        assert_eq!(bits("{Var: \"context\"} == {Var: \"context\"}"), 0);
    }
}
