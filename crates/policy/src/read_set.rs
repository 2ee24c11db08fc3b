//! What an expression reads, found in its syntax tree: what it does not read need not be made for it.

use crate::facts::TYPES;
use cedar_policy_core::ast::{Expr, ExprKind, Literal, Var};

/// A set of things that an expression can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReadSet(u32);

macro_rules! members {
    ($($name:ident = $word:literal,)*) => {
        /// The members of the context.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Member {
            $($name,)*
        }

        impl Member {
            /// Every member.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name that policies know it by.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

members! {
    Input = "input",
    Parameters = "parameters",
    Targets = "targets",
    TargetStated = "target_stated",
    Trust = "trust",
    Tool = "tool",
    Agent = "agent",
    Environment = "environment",
    User = "user",
    Sensitive = "sensitive",
    Attributes = "attributes",
    Run = "run",
    Usage = "usage",
    Sources = "sources",
    Now = "now",
}

impl ReadSet {
    /// Everything that can be made for a policy. Who is meant by the principal is none of it: whatever reads the whole
    /// context says nothing of that.
    pub(crate) const ALL: Self = Self(!Self::OF_AN_AGENT.union(Self::IS_A_USER).0);
    /// What is made of the parameters.
    pub(crate) const PARAMETERS: Self = Self::member(Member::Input)
        .union(Self::member(Member::Parameters))
        .union(Self::member(Member::Targets))
        .union(Self::member(Member::TargetStated));
    /// The principal, or an agent that is named.
    pub(crate) const PRINCIPAL: Self = Self(1 << 24);
    /// The action, or one that is named.
    pub(crate) const ACTION: Self = Self(1 << 25);
    /// The resource.
    pub(crate) const RESOURCE: Self = Self(1 << 26);
    /// A team that is named.
    pub(crate) const TEAM: Self = Self(1 << 27);
    /// A user that is named.
    pub(crate) const USER: Self = Self(1 << 28);
    /// A member of the principal, such as its owner: only agents have any.
    pub(crate) const OF_AN_AGENT: Self = Self(1 << 29);
    /// Whether the principal is a user, or one that is named: what asks for that speaks of users.
    pub(crate) const IS_A_USER: Self = Self(1 << 30);

    /// This member of the context.
    pub(crate) const fn member(member: Member) -> Self {
        Self(1 << member as u32)
    }

    /// What is in either of them.
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of these is in it.
    pub(crate) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all of these are in it.
    pub(crate) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing else is in it.
    pub(crate) const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// What this expression reads.
    pub(crate) fn of(expression: &Expr) -> Self {
        let mut reads = Self::default();
        // The context as a whole is every member, so each mention has to be under the name of one.
        let (mut mentions, mut members) = (0_usize, 0_usize);
        for part in expression.subexpressions() {
            if member_of(part).is_some_and(may_be_principal) {
                reads = reads.union(Self::OF_AN_AGENT);
            }
            if asks_for_a_user(part) {
                reads = reads.union(Self::IS_A_USER);
            }
            match part.expr_kind() {
                ExprKind::Var(Var::Context) => mentions += 1,
                ExprKind::Var(Var::Principal) => reads = reads.union(Self::PRINCIPAL),
                ExprKind::Var(Var::Action) => reads = reads.union(Self::ACTION),
                ExprKind::Var(Var::Resource) => reads = reads.union(Self::RESOURCE),
                ExprKind::Lit(Literal::EntityUID(uid)) => {
                    let kind = uid.entity_type();
                    for (of, bit) in [
                        (&TYPES.agent, Self::PRINCIPAL),
                        (&TYPES.action, Self::ACTION),
                        (&TYPES.team, Self::TEAM),
                        (&TYPES.user, Self::USER),
                    ] {
                        reads = if kind == of { reads.union(bit) } else { reads };
                    }
                }
                ExprKind::GetAttr { expr, attr } | ExprKind::HasAttr { expr, attr } if is_context(expr) => {
                    members += 1;
                    reads = reads.union(Self::named(attr));
                }
                ExprKind::ExtHasAttr { expr, attrs } if is_context(expr) => {
                    members += 1;
                    reads = reads.union(Self::named(attrs.first()));
                }
                _ => {}
            }
        }
        if mentions == members {
            reads
        } else {
            reads.union(Self::ALL)
        }
    }

    /// The member of the context with this name. One that is no member's is not valid, and will be found to be so.
    fn named(name: &str) -> Self {
        let member = Member::ALL.iter().find(|member| member.as_str() == name);
        member.map_or(Self::ALL, |member| Self::member(*member))
    }
}

/// Of what this looks at a member.
fn member_of(expression: &Expr) -> Option<&Expr> {
    match expression.expr_kind() {
        ExprKind::GetAttr { expr, .. }
        | ExprKind::HasAttr { expr, .. }
        | ExprKind::ExtHasAttr { expr, .. } => Some(expr),
        _ => None,
    }
}

/// Whether this asks if the principal is a user, or holds it against one that is named. Whatever else two such things
/// can be held against each other for, `<` say, the types tell.
fn asks_for_a_user(expression: &Expr) -> bool {
    match expression.expr_kind() {
        ExprKind::Is { expr, entity_type } => *entity_type == TYPES.user && may_be_principal(expr),
        ExprKind::BinaryApp { arg1, arg2, .. } => {
            let is_held = |one: &Expr, other: &Expr| may_be_principal(one) && may_be(other, is_user);
            is_held(arg1, arg2) || is_held(arg2, arg1)
        }
        _ => false,
    }
}

fn may_be_principal(expression: &Expr) -> bool {
    may_be(expression, |part| {
        matches!(part.expr_kind(), ExprKind::Var(Var::Principal))
    })
}

/// Whether such a thing can come of this, alone or in a set. Where it is hidden more deeply, the types tell.
fn may_be(expression: &Expr, is_such: fn(&Expr) -> bool) -> bool {
    match expression.expr_kind() {
        ExprKind::If {
            then_expr, else_expr, ..
        } => may_be(then_expr, is_such) || may_be(else_expr, is_such),
        ExprKind::Set(items) => items.iter().any(|item| may_be(item, is_such)),
        _ => is_such(expression),
    }
}

fn is_user(part: &Expr) -> bool {
    matches!(part.expr_kind(), ExprKind::Lit(Literal::EntityUID(uid)) if *uid.entity_type() == TYPES.user)
}

/// Whether this is the context as a whole.
pub(crate) fn is_context(expression: &Expr) -> bool {
    matches!(expression.expr_kind(), ExprKind::Var(Var::Context))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(condition: &str) -> ReadSet {
        let text = format!("permit (principal, action, resource) when {{ {condition} }};");
        let policy = cedar_policy_core::parser::parse_policy(None, &text).unwrap();
        ReadSet::of(policy.non_scope_constraints().unwrap())
    }

    const NOW: ReadSet = ReadSet::member(Member::Now);

    #[test]
    fn members_are_found_wherever_they_stand() {
        assert_eq!(reads("\"now\" == \"context.now\""), ReadSet::default());
        assert_eq!(reads("context.now == context.now"), NOW);
        assert_eq!(reads("context[\"n\\u{6f}w\"] == context[\"now\"]"), NOW);
        let two = ReadSet::member(Member::Run).union(ReadSet::member(Member::Trust));
        assert_eq!(
            reads("context has run.id && [context.trust.rank].contains(3)"),
            two
        );
        assert_eq!(
            reads("if true then false else {a: [context.run.id, context.trust.level]}.a.isEmpty()"),
            two
        );
    }

    #[test]
    fn the_context_as_a_whole_is_every_member() {
        for condition in [
            "context == context",
            "[context].isEmpty()",
            "(if true then context else context).sensitive",
            "context.sensitive && context == context",
            "context has elsewhere",
        ] {
            assert_eq!(reads(condition), ReadSet::ALL, "{condition}");
        }
        assert!(!ReadSet::ALL.intersects(ReadSet::OF_AN_AGENT.union(ReadSet::IS_A_USER)));
    }

    #[test]
    fn to_hold_the_principal_against_a_user_is_to_speak_of_users() {
        for condition in [
            "principal is User",
            "principal == User::\"u\" || context.sensitive",
            "User::\"u\" == principal",
            "principal in [User::\"u\", User::\"v\"]",
            "principal == (if context.sensitive then User::\"u\" else User::\"v\")",
            "[User::\"u\"].contains(if true then principal else principal)",
            "[principal].containsAny([User::\"u\"])",
            "[User::\"u\"].containsAll([principal])",
        ] {
            assert!(reads(condition).intersects(ReadSet::IS_A_USER), "{condition}");
        }
        for condition in [
            "context.user == User::\"u\"",
            "[User::\"u\"].contains(context.user) && principal is Agent",
            "principal == (if context.user == User::\"u\" then Agent::\"a\" else Agent::\"b\")",
            "principal in Team::\"t\" && User::\"u\" in Team::\"t\"",
            "principal == Agent::\"a\" || principal.hasTag(\"User\")",
        ] {
            assert!(!reads(condition).intersects(ReadSet::IS_A_USER), "{condition}");
        }
    }

    #[test]
    fn entities_are_looked_at_through_variables_and_by_name() {
        for (condition, seen) in [
            (
                "principal.name == \"a\"",
                ReadSet::PRINCIPAL.union(ReadSet::OF_AN_AGENT),
            ),
            (
                "(if context == context then principal else principal) has owner",
                ReadSet::ALL.union(ReadSet::OF_AN_AGENT),
            ),
            (
                "principal.hasTag(\"vip\") || principal == principal",
                ReadSet::PRINCIPAL,
            ),
            (
                "principal is Agent || principal is User in Team::\"b\"",
                ReadSet::PRINCIPAL.union(ReadSet::TEAM).union(ReadSet::IS_A_USER),
            ),
            (
                "User::\"u\" is User && principal is Agent",
                ReadSet::USER.union(ReadSet::PRINCIPAL),
            ),
            (
                "Agent::\"a\" in Team::\"b\"",
                ReadSet::PRINCIPAL.union(ReadSet::TEAM),
            ),
            ("action in Action::\"read\"", ReadSet::ACTION),
            ("resource == Resource::\"x\"", ReadSet::RESOURCE),
            ("User::\"u\".hasTag(\"vip\")", ReadSet::USER),
            ("{Var: \"context\"} == {Var: \"context\"}", ReadSet::default()),
        ] {
            assert_eq!(reads(condition), seen, "{condition}");
        }
        assert!(!reads("context.sensitive").intersects(ReadSet::PRINCIPAL));
        assert!(ReadSet::ALL.union(NOW).contains(ReadSet::ALL) && !NOW.contains(ReadSet::ALL));
        assert!(
            reads("context.now == context.now").is_subset_of(NOW)
                && !reads("principal has owner").is_subset_of(NOW)
        );
    }
}
