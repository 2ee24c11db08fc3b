//! Conditions, evaluated one by one with Cedar's evaluator.
//!
//! Cedar's own authorizer walks a whole set and evaluates every scope as an expression. Here the index has decided the
//! scopes, and what is left is a condition. That both come to the same is proven with Cedar's authorizer in the tests.

use crate::condition::Condition;
use cedar_policy_core::ast::{Expr, Literal, Request, SlotEnv, Value, ValueKind};
use cedar_policy_core::entities::Entities;
use cedar_policy_core::evaluator::{EvaluationError, Evaluator};
use cedar_policy_core::extensions::Extensions;
use std::sync::LazyLock;

/// Links are written out when they are made, so there are no slots left.
static NO_SLOTS: LazyLock<SlotEnv> = LazyLock::new(SlotEnv::new);

/// A question in the form that Cedar evaluates policies against.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) entities: Entities,
}

impl Asked {
    pub(crate) fn evaluator(&self) -> Evaluator<'_> {
        Evaluator::new(self.request.clone(), &self.entities, Extensions::all_available())
    }
}

/// Why it is not known whether a condition holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Failure<'e> {
    /// Cedar cannot evaluate it.
    Cedar(&'e EvaluationError),
    /// There is too much to evaluate.
    Excess(Excess),
}

/// What there is too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Its patterns could take too long with the texts of the ask.
    Patterns,
    /// Its comparisons could take too long with what the caller has written, with those of all others about the ask.
    Comparisons,
    /// There is too much of it, with the conditions of all others that the ask is about.
    Parts,
}

/// Whether this holds; nothing always does.
pub(crate) fn holds(
    evaluator: &Evaluator<'_>,
    condition: Option<&Condition>,
) -> Result<bool, Box<EvaluationError>> {
    let Some(Condition { expression, .. }) = condition else {
        return Ok(true);
    };
    match truth(&evaluator.interpret(expression, &NO_SLOTS)?) {
        Some(truth) => Ok(truth),
        // Only what was not validated comes here. Cedar has no other way to make the error that it is.
        None => evaluator
            .interpret(&Expr::not((**expression).clone()), &NO_SLOTS)
            .map(|_| false)
            .map_err(Box::new),
    }
}

fn truth(value: &Value) -> Option<bool> {
    match value.value_kind() {
        ValueKind::Lit(Literal::Bool(truth)) => Some(*truth),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
