//! What a policy names that nothing can ever be: an agent by what is no id, a team or a user by what is no name. Such a
//! policy is valid and looks like a rule, and it is about nobody.
//!
//! Whether anybody of an id or a name is registered is not asked here: they may come later.

use crate::annotations::PolicyEffect;
use crate::diagnostics::Diagnostic;
use crate::facts::TYPES;
use crate::parse::Parsed;
use crate::statement::Statement;
use cedar_policy_core::ast::{EntityUID, Expr, ExprKind, Literal, PrincipalOrResourceConstraint};
use cedar_policy_core::parser::Loc;
use model::{AgentId, Name};
use std::collections::BTreeSet;

/// How much is told of one text. More would help nobody, and to find the place of each in a long text takes time.
const TOLD_MAX: usize = 64;

const ID: &str = "write the id of the agent, `Agent::\"agt_…\"`; what it is called is `principal.name`";
const NAME: &str =
    "write the name as it is registered: in Unicode normalization form C, without control characters";

/// What to tell of these policies, which are those of one text: of each the entities that it names, once, and what
/// links have from their template with the first of them.
pub(crate) fn warnings(policies: &[Parsed]) -> Vec<Diagnostic> {
    let mut seen = BTreeSet::new();
    let mut warnings = Vec::new();
    for Parsed { statement, .. } in policies {
        let is_first = seen.insert(statement.loc.as_ref().map(Loc::start));
        let mut found = found(statement, is_first);
        found.truncate(TOLD_MAX - warnings.len());
        if found.is_empty() {
            continue;
        }
        let place = statement.place();
        let found = found.into_iter();
        warnings.extend(found.map(|found| found.into_warning().about(&statement.id).at(place)));
        if warnings.len() == TOLD_MAX {
            break;
        }
    }
    warnings
}

/// Whom the scope of a policy names that nobody can be, and unless it is a link behind another one, the rest of it, too.
fn found(statement: &Statement, is_first: bool) -> Vec<Diagnostic> {
    let scope = [&statement.scope.principal, &statement.scope.resource].into_iter();
    let scope = scope.filter_map(PrincipalOrResourceConstraint::get_euid);
    let condition = statement.condition.iter().filter(|_| is_first);
    let parts = condition.flat_map(|condition| condition.expression.subexpressions());
    let named: BTreeSet<&EntityUID> = scope.map(|uid| &**uid).chain(parts.filter_map(entity)).collect();
    let approvers = Some(statement).filter(|_| is_first).and_then(of_approvers);
    named.into_iter().filter_map(of_entity).chain(approvers).collect()
}

/// The entity that this is, if it is one.
fn entity(part: &Expr) -> Option<&EntityUID> {
    match part.expr_kind() {
        ExprKind::Lit(Literal::EntityUID(uid)) => Some(&**uid),
        _ => None,
    }
}

fn of_entity(uid: &EntityUID) -> Option<Diagnostic> {
    let (kind, id): (_, &str) = (uid.entity_type(), uid.eid().as_ref());
    let (why, help) = if *kind == TYPES.agent {
        (id.parse::<AgentId>().err()?.to_string(), ID)
    } else if *kind == TYPES.team || *kind == TYPES.user {
        (Name::new(id).err()?.to_string(), NAME)
    } else {
        return None;
    };
    Some(Diagnostic::error(format!("nobody can ever be `{uid}`: {why}")).with_help(help))
}

fn of_approvers(statement: &Statement) -> Option<Diagnostic> {
    let PolicyEffect::Approval(terms) = &statement.annotations.effect else {
        return None;
    };
    let why = Name::new(terms.group.as_deref()?).err()?;
    Some(Diagnostic::error(format!("nobody can ever be in the team of `@approvers`: {why}")).with_help(NAME))
}
