//! A schema with nothing in it but what one question is about. A registry can have thousands of actions, and a solver is
//! told of every one that its schema has.

use cedar_policy::{RequestEnv, Schema};
use cedar_policy_core::ast::{EntityUID, Expr, ExprKind, Literal};
use imbl::OrdMap;
use model::{Tool, ToolAction};
use policy::{ActionSide, Diagnostics, Part, Principals, Registry};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a question to the solver is set in.
pub(crate) struct Stage {
    pub(crate) schema: Schema,
    pub(crate) environment: RequestEnv,
}

impl Stage {
    /// The stage of asks of this side by these principals, for these policies.
    pub(crate) fn set<'p>(
        registry: Registry<'_>,
        (side, principals): (&ActionSide, Principals),
        parts: impl Iterator<Item = &'p Part<'p>>,
    ) -> Result<Self, Diagnostics> {
        let named: BTreeSet<_> = parts.flat_map(|part| actions(&part.condition)).collect();
        let is_named = |id: String| named.contains(id.as_str());
        let tools = registry.tools.values().filter_map(|tool| {
            let kept = tool.actions.values().filter_map(|action| {
                let is_it = (&tool.name, &action.name) == (&side.tool, &side.action);
                let is_kept = is_it || is_named(format!("{}/{}", tool.name, action.name));
                is_kept.then(|| as_asked(action, is_it && side.mutates))
            });
            let actions: BTreeMap<_, _> = kept.map(|action| (action.name.clone(), action)).collect();
            let is_kept = !actions.is_empty() || is_named(format!("tool:{}", tool.name));
            let tool = Tool {
                actions,
                ..Tool::clone(tool)
            };
            is_kept.then(|| (tool.name.clone(), Arc::new(tool)))
        });
        let tools: OrdMap<_, _> = tools.collect();
        let schema = policy::schema::compile(Registry {
            tools: &tools,
            attributes: registry.attributes,
        })?;
        let action = format!("{}/{}", side.tool, side.action);
        let environment = schema.request_envs().find(|found| {
            found.action().id().unescaped() == action
                && found.principal().to_string() == principals.type_name()
        });
        let environment = environment.expect("the action of the side was kept");
        Ok(Self { schema, environment })
    }
}

/// An ask can move an action among the mutations, never out of them.
fn as_asked(action: &ToolAction, mutates: bool) -> ToolAction {
    ToolAction {
        mutates_state: action.mutates_state || mutates,
        ..action.clone()
    }
}

/// The ids of the actions and groups that an expression names.
fn actions(expression: &Expr) -> Vec<String> {
    let parts = expression.subexpressions();
    let named = parts.filter_map(|part| match part.expr_kind() {
        ExprKind::Lit(Literal::EntityUID(uid)) if is_action(uid) => {
            Some(AsRef::<str>::as_ref(uid.eid()).to_owned())
        }
        _ => None,
    });
    named.collect()
}

fn is_action(uid: &EntityUID) -> bool {
    uid.entity_type().is_action()
}
