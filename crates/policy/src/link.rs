//! Linking: a template and what its slots stand for make a policy. It is written out, because Cedar allows slots in the
//! scope only: what comes of it is validated, indexed and evaluated like any other policy.

use crate::diagnostics::Diagnostic;
use crate::parse::{Parsed, Unlinked};
use crate::ruling::PolicyId;
use crate::statement::Scope;
use crate::tenant::Link;
use crate::text;
use cedar_policy_core::ast::{EntityUID, PolicyID, SlotId, Template};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much of a value an error repeats, in characters.
const SHOWN_MAX: usize = 64;
/// How many templates an error names that there are.
const KNOWN_MAX: usize = 16;

/// The policy that a link makes of one of these templates.
pub(crate) fn link(
    name: &str,
    id: &PolicyId,
    link: &Link,
    templates: &mut BTreeMap<PolicyId, Unlinked>,
) -> Result<Parsed, Diagnostic> {
    let wanted = PolicyId::new(name, link.template.as_str());
    let Some(found) = templates.get_mut(&wanted) else {
        let known = templates.keys().take(KNOWN_MAX).map(|id| format!("`{id}`"));
        let known: Vec<_> = known.collect();
        let fault = Diagnostic::error(format!("there is no template `{wanted}`"));
        return Err(match known[..] {
            [] => fault.with_help("a template is a policy with `?principal` or `?resource` in its scope"),
            _ if templates.len() > KNOWN_MAX => {
                fault.with_help(format!("there are {}, and others", known.join(", ")))
            }
            _ => fault.with_help(format!("the templates are {}", known.join(", "))),
        });
    };
    found.links += 1;
    let template = &found.template;
    let principal = value(template, SlotId::principal(), link.values.principal.as_deref())?;
    let resource = value(template, SlotId::resource(), link.values.resource.as_deref())?;
    let template = filled(template, id, principal, resource);
    let values = [
        ("?principal", &link.values.principal),
        ("?resource", &link.values.resource),
    ];
    let values = values
        .into_iter()
        .filter_map(|(slot, value)| Some((slot.to_owned(), value.clone()?)));
    let statement = found
        .statement
        .linked(id.clone(), Scope::of(&template), values.collect());
    Ok(Parsed {
        statement: Arc::new(statement),
        template,
    })
}

/// What a slot stands for; nothing if the template does not have it.
fn value(
    template: &Template,
    slot: SlotId,
    text: Option<&str>,
) -> Result<Option<Arc<EntityUID>>, Diagnostic> {
    match (template.slots().any(|used| used.id == slot), text) {
        (false, None) => Ok(None),
        (true, Some(text)) => entity(text).map(Some),
        (true, None) => Err(unsaid(slot)),
        (false, Some(_)) => {
            Err(Diagnostic::error(format!("the template has no `{slot}`"))
                .with_help("take it out of `values`"))
        }
    }
}

fn unsaid(slot: SlotId) -> Diagnostic {
    let entity = if slot == SlotId::resource() {
        r#"Resource::\"…\""#
    } else {
        r#"Agent::\"agt_…\""#
    };
    Diagnostic::error(format!("the link does not say what `{slot}` stands for"))
        .with_help(format!("write `\"{slot}\": \"{entity}\"` into `values`"))
}

fn entity(text: &str) -> Result<Arc<EntityUID>, Diagnostic> {
    let help = "write an entity with its type, such as `Agent::\"agt_…\"` or `Team::\"platform\"`";
    let unfit = || {
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        Diagnostic::error(format!("`{shown}` is not an entity")).with_help(help)
    };
    text::check(text)
        .and_then(|()| text::check_ifs(text))
        .map_err(|_| unfit())?;
    text.parse().map(Arc::new).map_err(|_| unfit())
}

fn filled(
    template: &Template,
    id: &PolicyId,
    principal: Option<Arc<EntityUID>>,
    resource: Option<Arc<EntityUID>>,
) -> Template {
    let (mut of, mut on) = (
        template.principal_constraint().clone(),
        template.resource_constraint().clone(),
    );
    if let Some(uid) = principal {
        of = of.with_filled_slot(uid);
    }
    if let Some(uid) = resource {
        on = on.with_filled_slot(uid);
    }
    Template::new_shared(
        PolicyID::from_string(id.as_str()),
        template.loc().cloned(),
        Arc::clone(template.annotations_arc()),
        template.effect(),
        of,
        template.action_constraint().clone(),
        on,
        template.non_scope_constraints_arc().cloned(),
    )
}
