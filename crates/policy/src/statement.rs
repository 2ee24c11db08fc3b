//! One policy: its id, what its annotations ask for, whom its scope is about, and what must hold besides.
//! Whether it fits a schema is not decided here.

use crate::annotations::Annotations;
use crate::condition::Condition;
use crate::diagnostics::Place;
use crate::facts::TYPES;
use crate::index::Position;
use crate::read_set::ReadSet;
use crate::ruling::PolicyId;
use cedar_policy_core::ast::{ActionConstraint, EntityType, PrincipalOrResourceConstraint, Template};
use cedar_policy_core::parser::Loc;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One policy. Templates are not policies; their links are.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) id: PolicyId,
    pub(crate) annotations: Arc<Annotations>,
    pub(crate) scope: Scope,
    /// What must hold besides the scope, if anything.
    pub(crate) condition: Option<Condition>,
    /// What the slots of its template stand for, if it is a link.
    pub(crate) values: BTreeMap<String, String>,
    /// Where it is, and in which text.
    pub(crate) loc: Option<Loc>,
}

/// Whom a policy is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub(crate) principal: PrincipalOrResourceConstraint,
    pub(crate) action: ActionConstraint,
    pub(crate) resource: PrincipalOrResourceConstraint,
}

impl Statement {
    /// The policy in this template, which means nothing until it is linked if it has slots.
    pub(crate) fn new(id: PolicyId, annotations: Annotations, template: &Template) -> Self {
        Self {
            id,
            annotations: Arc::new(annotations),
            scope: Scope::of(template),
            condition: template.non_scope_constraints().map(Condition::of),
            values: BTreeMap::new(),
            loc: template.loc().cloned(),
        }
    }

    /// The policy that a link makes of this one, which is a template. Slots are in scopes only, so all links share the rest.
    pub(crate) fn linked(&self, id: PolicyId, scope: Scope, values: BTreeMap<String, String>) -> Self {
        Self {
            id,
            annotations: Arc::clone(&self.annotations),
            scope,
            condition: self.condition.clone(),
            values,
            loc: self.loc.clone(),
        }
    }

    /// Whether it is about principals of this type, on resources. A policy that looks at what only agents have is about
    /// agents, unless it speaks of users: then what it says of them holds, or it would leave them out without a word.
    pub(crate) fn is_about(&self, principal: &EntityType) -> bool {
        self.scope.admits_types(principal, &TYPES.resource)
            && (*principal == TYPES.agent
                || !self.looks_at(ReadSet::OF_AN_AGENT)
                || self.looks_at(ReadSet::IS_A_USER)
                || self.scope.is_of_users())
    }

    /// Whether its condition looks at any of these.
    fn looks_at(&self, any: ReadSet) -> bool {
        let condition = self.condition.as_ref();
        condition.is_some_and(|condition| condition.reads.intersects(any))
    }

    /// The policy's own text, without what stands around it.
    pub(crate) fn text(&self) -> &str {
        self.loc.as_ref().and_then(Loc::snippet).unwrap_or_default()
    }

    /// Where it is in the text that it was found in.
    pub(crate) fn place(&self) -> Option<Place> {
        Place::of_loc(self.loc.as_ref())
    }
}

impl Scope {
    pub(crate) fn of(template: &Template) -> Self {
        Self {
            principal: template.principal_constraint().as_inner().clone(),
            action: template.action_constraint().clone(),
            resource: template.resource_constraint().as_inner().clone(),
        }
    }

    /// Whether it is about this action.
    pub(crate) fn admits_action(&self, action: Position<'_>) -> bool {
        match &self.action {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(wanted) => **wanted == *action.entity,
            ActionConstraint::In(wanted) => wanted
                .iter()
                .any(|wanted| **wanted == *action.entity || action.ancestors.contains(wanted)),
        }
    }

    /// Whether it says that principals are users, or names one.
    fn is_of_users(&self) -> bool {
        match &self.principal {
            PrincipalOrResourceConstraint::Is(kind) | PrincipalOrResourceConstraint::IsIn(kind, _) => {
                **kind == TYPES.user
            }
            named => named
                .get_euid()
                .is_some_and(|uid| *uid.entity_type() == TYPES.user),
        }
    }

    /// Whether it is about principals and resources of these types: what an index of entities does not know.
    pub(crate) fn admits_types(&self, principal: &EntityType, resource: &EntityType) -> bool {
        let admits = |constraint: &PrincipalOrResourceConstraint, of: &EntityType| match constraint {
            PrincipalOrResourceConstraint::Is(wanted) | PrincipalOrResourceConstraint::IsIn(wanted, _) => {
                **wanted == *of
            }
            _ => true,
        };
        admits(&self.principal, principal) && admits(&self.resource, resource)
    }
}
