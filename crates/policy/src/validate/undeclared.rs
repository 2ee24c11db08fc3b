//! Tests for members that nothing has which a policy is about. To Cedar such a `has` is one that is never true, and
//! whatever stands behind it is right: a slip of one letter, and a rule never applies.
//!
//! Where it is not plain to see what is looked into, as with an `if`, nothing is said. A member that is looked at and
//! not tested for is Cedar's to find.

use super::OF_THE_PARAMETERS;
use crate::diagnostics::{Diagnostic, Place};
use crate::parse::Parsed;
use crate::read_set::Member;
use cedar_policy_core::ast::{EntityType, Expr, ExprKind, Literal, Var};
use cedar_policy_core::parser::Loc;
use cedar_policy_core::validator::ValidatorSchema;
use cedar_policy_core::validator::types::{Attributes, EntityKind, OpenTag, RequestEnv, Type};
use std::collections::HashSet;

/// Where the bytes of a part of a text begin and end.
pub(crate) type Span = (usize, usize);

/// A test for a member, `context.input has cc`, or for one of a member, `context has input.cc`.
pub(crate) struct Test<'e> {
    /// Where the way to it begins.
    root: &'e Expr,
    /// The members on the way to what is tested.
    way: Vec<&'e str>,
    /// The members that it is tested for, each one of that before it.
    members: Vec<&'e str>,
    loc: Option<&'e Loc>,
}

impl<'e> Test<'e> {
    /// The test that this part of a condition is, if it is one.
    pub(crate) fn of(part: &'e Expr) -> Option<Self> {
        let mut members: Vec<&str> = Vec::new();
        let mut root: &Expr = match part.expr_kind() {
            ExprKind::HasAttr { expr, attr } => {
                members.push(attr);
                expr
            }
            ExprKind::ExtHasAttr { expr, attrs } => {
                for attr in attrs {
                    members.push(attr);
                }
                expr
            }
            _ => return None,
        };
        let mut way: Vec<&str> = Vec::new();
        while let ExprKind::GetAttr { expr, attr } = root.expr_kind() {
            way.push(attr);
            root = expr;
        }
        way.reverse();
        Some(Self {
            root,
            way,
            members,
            loc: part.source_loc(),
        })
    }

    /// Whether it is about parameters, of which each action has its own.
    pub(super) fn is_of_parameters(&self) -> bool {
        OF_THE_PARAMETERS.iter().any(|member| self.is_within(*member))
    }

    /// The way to the value of a parameter that it is for, the name of the parameter first; `None` if it is for anything else.
    pub(crate) fn in_input(&self) -> Option<Vec<&'e str>> {
        let path = self.way.iter().chain(&self.members).skip(1).copied();
        let path: Vec<_> = path.collect();
        (self.is_within(Member::Input) && !path.is_empty()).then_some(path)
    }

    /// Whether the way to what is tested leads into this member of the context.
    fn is_within(&self, member: Member) -> bool {
        let first = self.way.iter().chain(&self.members).next();
        matches!(self.root.expr_kind(), ExprKind::Var(Var::Context))
            && first.is_some_and(|first| *first == member.as_str())
    }

    /// Where it stands in the text of the policy.
    pub(crate) fn span(&self) -> Option<Span> {
        self.loc.map(|loc| (loc.start(), loc.end()))
    }

    /// Where it stands in the text of the policy, for people. In a long text it takes time to find it.
    pub(crate) fn place(&self, parsed: &Parsed) -> Option<Place> {
        Place::of_loc(self.loc).or_else(|| parsed.statement.place())
    }

    /// Whether each of the members is called as one of these.
    pub(super) fn names_only(&self, known: &HashSet<&str>) -> bool {
        self.members.iter().all(|member| known.contains(*member))
    }

    /// Whether it is plain to see that it fails for such an ask, because there is no such member.
    pub(super) fn always_fails(&self, schema: &ValidatorSchema, ask: &RequestEnv<'_>) -> bool {
        let Some(mut found) = self.in_root(schema, ask) else {
            return false;
        };
        for name in &self.way {
            let inner = found
                .get_attr(name)
                .and_then(|member| of_type(schema, &member.attr_type));
            let Some(inner) = inner else { return false };
            found = inner;
        }
        for name in &self.members {
            let Some(member) = found.get_attr(name) else {
                return true;
            };
            let Some(inner) = of_type(schema, &member.attr_type) else {
                return false;
            };
            found = inner;
        }
        false
    }

    fn in_root(&self, schema: &ValidatorSchema, ask: &RequestEnv<'_>) -> Option<Attributes> {
        match self.root.expr_kind() {
            ExprKind::Var(Var::Context) => of_type(schema, &ask.context_type()),
            ExprKind::Var(Var::Principal) => of_entity(schema, ask.principal_entity_type()?),
            ExprKind::Var(Var::Resource) => of_entity(schema, ask.resource_entity_type()?),
            ExprKind::Lit(Literal::EntityUID(uid)) => of_entity(schema, uid.entity_type()),
            _ => None,
        }
    }

    /// What to tell of it.
    pub(super) fn told(&self, parsed: &Parsed) -> Diagnostic {
        let member = self.members.join(".");
        let message = format!("nothing that the policy is about has a member `{member}`");
        let told = Diagnostic::error(message)
            .with_help("write it as the schema has it: a test for what does not exist is never true")
            .about(&parsed.statement.id)
            .at(self.place(parsed));
        Diagnostic {
            is_of_undeclared: true,
            ..told
        }
    }
}

/// How all members of the context are called in which there are parameters of these asks, and all members within these.
pub(super) fn names_in_parameters<'s>(asks: &[RequestEnv<'s>]) -> HashSet<&'s str> {
    let mut names = HashSet::new();
    for ask in asks {
        let RequestEnv::DeclaredAction { context, .. } = *ask else {
            continue;
        };
        let Type::Record { attrs, .. } = context else {
            continue;
        };
        for member in OF_THE_PARAMETERS {
            names.insert(member.as_str());
            if let Some(parameters) = attrs.get_attr(member.as_str()) {
                add_names(&parameters.attr_type, &mut names);
            }
        }
    }
    names
}

fn add_names<'s>(of: &'s Type, names: &mut HashSet<&'s str>) {
    if let Type::Record { attrs, .. } = of {
        for (name, member) in attrs.iter() {
            names.insert(name);
            add_names(&member.attr_type, names);
        }
    }
}

/// The members of what has this type, if it has no others.
fn of_type(schema: &ValidatorSchema, of: &Type) -> Option<Attributes> {
    match of {
        Type::Record {
            attrs,
            open_attributes: OpenTag::ClosedAttributes,
        } => Some(attrs.clone()),
        Type::Entity(EntityKind::Entity(kinds)) => of_entity(schema, kinds.get_single_entity()?),
        _ => None,
    }
}

fn of_entity(schema: &ValidatorSchema, kind: &EntityType) -> Option<Attributes> {
    let kind = schema.get_entity_type(kind)?;
    let is_closed = kind.open_attributes() == OpenTag::ClosedAttributes;
    is_closed.then(|| kind.attributes().clone())
}
