//! What an expression looks at, read off its syntax tree: what it does not look at need not be made for it.

use crate::facts::TYPES;
use cedar_policy_core::ast::{Expr, ExprKind, Literal, Var};

/// A set of things that an expression can look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Looks(u32);

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

impl Looks {
    /// Everything.
    pub(crate) const ALL: Self = Self(u32::MAX);
    /// What is made of the parameters.
    pub(crate) const PARAMETERS: Self = Self::member(Member::Input)
        .and(Self::member(Member::Parameters))
        .and(Self::member(Member::Targets))
        .and(Self::member(Member::TargetStated));
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

    /// This member of the context.
    pub(crate) const fn member(member: Member) -> Self {
        Self(1 << member as u32)
    }

    /// Both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of these is among them.
    pub(crate) const fn at(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether nothing else is among them.
    pub(crate) const fn only_at(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// What this expression looks at.
    pub(crate) fn of(expression: &Expr) -> Self {
        let mut looks = Self::default();
        // The context as a whole is every member, so each mention has to be under the name of one.
        let (mut mentions, mut members) = (0_usize, 0_usize);
        for part in expression.subexpressions() {
            if member_of(part).is_some_and(may_be_principal) {
                looks = looks.and(Self::OF_AN_AGENT);
            }
            match part.expr_kind() {
                ExprKind::Var(Var::Context) => mentions += 1,
                ExprKind::Var(Var::Principal) => looks = looks.and(Self::PRINCIPAL),
                ExprKind::Var(Var::Action) => looks = looks.and(Self::ACTION),
                ExprKind::Var(Var::Resource) => looks = looks.and(Self::RESOURCE),
                ExprKind::Lit(Literal::EntityUID(uid)) => {
                    let kind = uid.entity_type();
                    for (of, bit) in [
                        (&TYPES.agent, Self::PRINCIPAL),
                        (&TYPES.action, Self::ACTION),
                        (&TYPES.team, Self::TEAM),
                        (&TYPES.user, Self::USER),
                    ] {
                        looks = if kind == of { looks.and(bit) } else { looks };
                    }
                }
                ExprKind::GetAttr { expr, attr } | ExprKind::HasAttr { expr, attr } if is_context(expr) => {
                    members += 1;
                    looks = looks.and(Self::named(attr));
                }
                ExprKind::ExtHasAttr { expr, attrs } if is_context(expr) => {
                    members += 1;
                    looks = looks.and(Self::named(attrs.first()));
                }
                _ => {}
            }
        }
        if mentions == members { looks } else { Self::ALL }
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

/// Whether the principal can come of this. Where it is hidden more deeply, the types tell.
fn may_be_principal(expression: &Expr) -> bool {
    match expression.expr_kind() {
        ExprKind::Var(Var::Principal) => true,
        ExprKind::If {
            then_expr, else_expr, ..
        } => may_be_principal(then_expr) || may_be_principal(else_expr),
        _ => false,
    }
}

fn is_context(expression: &Expr) -> bool {
    matches!(expression.expr_kind(), ExprKind::Var(Var::Context))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(condition: &str) -> Looks {
        let text = format!("permit (principal, action, resource) when {{ {condition} }};");
        let policy = cedar_policy_core::parser::parse_policy(None, &text).unwrap();
        Looks::of(policy.non_scope_constraints().unwrap())
    }

    const NOW: Looks = Looks::member(Member::Now);

    #[test]
    fn members_are_found_wherever_they_stand() {
        assert_eq!(looks("\"now\" == \"context.now\""), Looks::default());
        assert_eq!(looks("context.now == context.now"), NOW);
        assert_eq!(looks("context[\"n\\u{6f}w\"] == context[\"now\"]"), NOW);
        let two = Looks::member(Member::Run).and(Looks::member(Member::Trust));
        assert_eq!(
            looks("context has run.id && [context.trust.rank].contains(3)"),
            two
        );
        assert_eq!(
            looks("if true then false else {a: [context.run.id, context.trust.level]}.a.isEmpty()"),
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
            assert_eq!(looks(condition), Looks::ALL, "{condition}");
        }
    }

    #[test]
    fn entities_are_looked_at_through_variables_and_by_name() {
        for (condition, seen) in [
            (
                "principal.name == \"a\"",
                Looks::PRINCIPAL.and(Looks::OF_AN_AGENT),
            ),
            (
                "(if context == context then principal else principal) has owner",
                Looks::ALL,
            ),
            (
                "principal.hasTag(\"vip\") || principal == principal",
                Looks::PRINCIPAL,
            ),
            ("Agent::\"a\" in Team::\"b\"", Looks::PRINCIPAL.and(Looks::TEAM)),
            ("action in Action::\"read\"", Looks::ACTION),
            ("resource == Resource::\"x\"", Looks::RESOURCE),
            ("User::\"u\".hasTag(\"vip\")", Looks::USER),
            ("{Var: \"context\"} == {Var: \"context\"}", Looks::default()),
        ] {
            assert_eq!(looks(condition), seen, "{condition}");
        }
        assert!(!looks("context.sensitive").at(Looks::PRINCIPAL));
        assert!(
            looks("context.now == context.now").only_at(NOW) && !looks("principal has owner").only_at(NOW)
        );
    }
}
