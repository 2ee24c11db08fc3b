//! How much Cedar compares to tell whether two types are the same: all members of records, and where something differs
//! those of each record within again, so that each counts as often as there are records and sets around it. The types
//! of an action's parameters may have thousands, so that to compare them takes longer than all the rest.

use super::{OF_THE_PARAMETERS, Validator};
use cedar_policy_core::ast::{Expr, ExprKind, Var};
use cedar_policy_core::validator::types::{RequestEnv, Type};

/// As many members of types are compared in the time that it takes to check another part of a condition. Those of both
/// sides of a comparison count.
pub(super) const COMPARED_PER_PART: usize = 16;

/// How many members the types of an ask have, counted as [`members_in`] does.
#[derive(Debug)]
pub(super) struct Widths {
    /// That of the context.
    context: usize,
    /// Those of `OF_THE_PARAMETERS`.
    parameters: [usize; 2],
    /// That of the widest parameter in each of them.
    widest: [usize; 2],
}

impl Widths {
    /// Those of this ask.
    fn of(ask: &RequestEnv<'_>) -> Self {
        let context = ask.context_type();
        let parameters = OF_THE_PARAMETERS.map(|member| member_of(&context, member.as_str()));
        Self {
            context: members_in(&context),
            parameters: parameters.map(|record| record.map_or(0, members_in)),
            widest: parameters.map(|record| record.map_or(0, widest_in)),
        }
    }
}

/// How often the conditions of a policy have something of the context where types are compared.
#[derive(Debug, Default, PartialEq, Eq)]
struct Compared {
    /// The whole context.
    context: usize,
    /// The whole of one of `OF_THE_PARAMETERS`.
    parameters: [usize; 2],
    /// A parameter in one of them, or something within it.
    within: [usize; 2],
    /// How many members the types of all else have, which are the same for every ask.
    members_of_others: usize,
}

impl Compared {
    /// What these conditions have, where the context has this type but for the parameters.
    fn of(conditions: &Expr, context: &Type) -> Self {
        let mut compared = Self::default();
        // With how many records and sets that are written out are around each: what is in them is compared once more
        // for each of those that they stand in.
        let mut left = vec![(conditions, 0)];
        while let Some((part, around)) = left.pop() {
            let is_written_out = matches!(part.expr_kind(), ExprKind::Set(_) | ExprKind::Record(_));
            let times = around + 1;
            for way in operands(part).into_iter().filter_map(way_from_context) {
                compared.add(&way, times, context);
            }
            let around = if is_written_out { times } else { around };
            left.extend(directly_within(part).into_iter().map(|inner| (inner, around)));
        }
        compared
    }

    /// Adds what is at the end of this way, so many times.
    fn add(&mut self, way: &[&str], times: usize, context: &Type) {
        let [first, inner @ ..] = way else {
            self.context += times;
            return;
        };
        let place = OF_THE_PARAMETERS
            .iter()
            .position(|member| member.as_str() == *first);
        match place {
            Some(place) if inner.is_empty() => self.parameters[place] += times,
            Some(place) => self.within[place] += times,
            None => {
                let found = way
                    .iter()
                    .try_fold(context, |record, name| member_of(record, name));
                self.members_of_others += times * found.map_or(0, members_in);
            }
        }
    }

    /// How many members that are for an ask whose types are so wide. What is in a parameter counts as if it were the
    /// widest one.
    fn members(&self, widths: &Widths) -> usize {
        let both = |times: [usize; 2], each: [usize; 2]| times[0] * each[0] + times[1] * each[1];
        self.context * widths.context
            + both(self.parameters, widths.parameters)
            + both(self.within, widths.widest)
            + self.members_of_others
    }
}

impl Validator<'_> {
    /// How many members of types are compared to check these conditions for all of the asks at these places.
    pub(super) fn compared(&self, conditions: &Expr, places: &[usize]) -> usize {
        let Some(first) = places.first() else { return 0 };
        let compared = Compared::of(conditions, &self.asks[*first].context_type());
        if compared == Compared::default() {
            return 0;
        }
        let widths = self
            .widths
            .get_or_init(|| self.asks.iter().map(Widths::of).collect());
        let members = places.iter().map(|place| compared.members(&widths[*place]));
        members.fold(0, usize::saturating_add)
    }
}

/// The parts of this part whose types are compared with others, if they are records, or become parts of such a type. Of
/// what a member is taken, that one is looked up. That a record is no text and no number is seen at once.
fn operands(part: &Expr) -> Vec<&Expr> {
    match part.expr_kind() {
        ExprKind::BinaryApp { arg1, arg2, .. } if is_plain(arg1) || is_plain(arg2) => Vec::new(),
        ExprKind::BinaryApp { arg1, arg2, .. } => vec![&**arg1, &**arg2],
        ExprKind::If {
            then_expr, else_expr, ..
        } => vec![&**then_expr, &**else_expr],
        ExprKind::Set(elements) => elements.iter().collect(),
        ExprKind::Record(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

/// Whether this is a text, a number or the like, or a list of these.
fn is_plain(part: &Expr) -> bool {
    let is_literal = |part: &Expr| matches!(part.expr_kind(), ExprKind::Lit(_));
    match part.expr_kind() {
        ExprKind::Set(elements) => elements.iter().all(is_literal),
        _ => is_literal(part),
    }
}

/// The parts that this one is made of, without those within them.
fn directly_within(part: &Expr) -> Vec<&Expr> {
    match part.expr_kind() {
        ExprKind::Lit(_) | ExprKind::Var(_) | ExprKind::Slot(_) | ExprKind::Unknown(_) => Vec::new(),
        ExprKind::If {
            test_expr,
            then_expr,
            else_expr,
        } => vec![&**test_expr, &**then_expr, &**else_expr],
        ExprKind::And { left, right } | ExprKind::Or { left, right } => vec![&**left, &**right],
        ExprKind::BinaryApp { arg1, arg2, .. } => vec![&**arg1, &**arg2],
        ExprKind::UnaryApp { arg: expr, .. }
        | ExprKind::GetAttr { expr, .. }
        | ExprKind::HasAttr { expr, .. }
        | ExprKind::ExtHasAttr { expr, .. }
        | ExprKind::Like { expr, .. }
        | ExprKind::Is { expr, .. } => vec![&**expr],
        ExprKind::ExtensionFunctionApp { args: parts, .. } | ExprKind::Set(parts) => parts.iter().collect(),
        ExprKind::Record(members) => members.values().collect(),
    }
}

/// The members on the way from the context to this, if that is what it is.
fn way_from_context(mut part: &Expr) -> Option<Vec<&str>> {
    let mut way: Vec<&str> = Vec::new();
    while let ExprKind::GetAttr { expr, attr } = part.expr_kind() {
        way.push(attr);
        part = expr;
    }
    way.reverse();
    matches!(part.expr_kind(), ExprKind::Var(Var::Context)).then_some(way)
}

/// The type of a member, if this is a record that has it.
fn member_of<'t>(record: &'t Type, name: &str) -> Option<&'t Type> {
    let Type::Record { attrs, .. } = record else {
        return None;
    };
    attrs.get_attr(name).map(|member| &*member.attr_type)
}

/// How many members a type has, with those of the records within it: each as often as there are records and sets around
/// it.
fn members_in(of: &Type) -> usize {
    members_at(of, 1)
}

/// The same of a type that is so deep within another, from one.
fn members_at(of: &Type, depth: usize) -> usize {
    match of {
        Type::Record { attrs, .. } => {
            let members = attrs
                .iter()
                .map(|(_, member)| depth + members_at(&member.attr_type, depth + 1));
            members.sum()
        }
        Type::Set {
            element_type: Some(element),
        } => members_at(element, depth + 1),
        _ => 0,
    }
}

/// How many the widest member of a record has.
fn widest_in(record: &Type) -> usize {
    let Type::Record { attrs, .. } = record else {
        return 0;
    };
    let members = attrs.iter().map(|(_, member)| members_in(&member.attr_type));
    members.max().unwrap_or_default()
}
