//! A registry and policies, compiled: validated as strictly as Cedar can, immutable, and shared by all decisions.

use crate::annotations::Notes;
use crate::base::{BasePolicies, TenantPolicy};
use crate::context::Prepared;
use crate::diagnostics::{Diagnostic, Diagnostics, Severity};
use crate::json_schema::Record;
use crate::parameters::Rules;
use crate::ruling::PolicyId;
use crate::schema;
use crate::slice::{Slice, Slicer};
use crate::statement::{self, Statement};
use canon::Digest;
use cedar_policy::{Schema, ValidationMode, ValidationResult, Validator};
use imbl::OrdMap;
use model::{AttributeType, Name, SlashFreeName, Tool, ToolAction};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What a tenant has registered, as far as policies may speak of it.
#[derive(Debug, Clone, Copy)]
pub struct Registry<'a> {
    /// Its tools.
    pub tools: &'a OrdMap<SlashFreeName, Arc<Tool>>,
    /// The context attributes that callers may send, and their types.
    pub attributes: &'a BTreeMap<Name, AttributeType>,
}

/// Policies that were validated against a registry. Cloning shares everything.
#[derive(Clone)]
pub struct PolicySet {
    pub(crate) compiled: Arc<Compiled>,
}

/// What a policy set is made of.
pub(crate) struct Compiled {
    pub(crate) notes: HashMap<PolicyId, Notes>,
    pub(crate) actions: HashMap<SlashFreeName, HashMap<Name, Action>>,
    pub(crate) attributes: Record,
    pub(crate) authorizer: cedar_policy::Authorizer,
    schema_text: String,
    digest: Digest,
    warnings: Vec<Diagnostic>,
}

/// An action of a tool, ready to be asked about.
pub(crate) struct Action {
    pub(crate) parameters: Rules,
    pub(crate) reading: Prepared,
    pub(crate) mutating: Prepared,
    /// What the registry says, which no question can loosen.
    pub(crate) mutates: bool,
}

impl PolicySet {
    /// These policies for this registry, or everything that is wrong with them.
    pub fn compile(
        base: &BasePolicies,
        tenant: &[TenantPolicy],
        registry: Registry<'_>,
    ) -> Result<Self, Diagnostics> {
        let mut faults = Vec::new();
        let statements = statements(base, tenant, &mut faults);
        let actions = actions(registry, Slicer::new(&statements), &mut faults);
        let schema::Compiled { schema, text } = schema::compile(registry)?;
        let warnings = validate(schema, &statements, &mut faults);
        if !faults.is_empty() {
            return Err(Diagnostics(faults));
        }
        let compiled = Compiled {
            digest: digest(&statements),
            notes: statements
                .into_iter()
                .map(|statement| (statement.id, statement.notes))
                .collect(),
            actions,
            attributes: schema::attributes(registry),
            authorizer: cedar_policy::Authorizer::new(),
            schema_text: text,
            warnings,
        };
        Ok(Self {
            compiled: Arc::new(compiled),
        })
    }

    /// SHA-256 of the canonical JSON of all policies: an array of pairs of id and text, in the order of the ids.
    pub fn digest(&self) -> Digest {
        self.compiled.digest
    }

    /// The schema that the policies were validated against, for people who write policies.
    pub fn schema_cedar(&self) -> &str {
        &self.compiled.schema_text
    }

    /// What is not wrong with the policies but odd, such as one that can never apply.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.compiled.warnings
    }

    /// The ids of all policies, sorted.
    pub fn policy_ids(&self) -> Vec<&PolicyId> {
        let ids: BTreeSet<_> = self.compiled.notes.keys().collect();
        ids.into_iter().collect()
    }
}

impl std::fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PolicySet({})", self.compiled.digest)
    }
}

fn actions(
    registry: Registry<'_>,
    mut slicer: Slicer<'_>,
    faults: &mut Vec<Diagnostic>,
) -> HashMap<SlashFreeName, HashMap<Name, Action>> {
    let mut ready = HashMap::new();
    for (name, tool) in registry.tools {
        let mut actions = HashMap::new();
        for action in tool.actions.values() {
            match prepare(tool, action, &mut slicer) {
                Ok(prepared) => {
                    actions.insert(action.name.clone(), prepared);
                }
                Err(fault) => {
                    let message = format!("the input schema of `{name}/{}` {}", action.name, fault.message);
                    faults.push(Diagnostic { message, ..fault });
                }
            }
        }
        ready.insert(name.clone(), actions);
    }
    ready
}

fn prepare(tool: &Tool, action: &ToolAction, slicer: &mut Slicer<'_>) -> Result<Action, Diagnostic> {
    Ok(Action {
        parameters: Rules::of(action)?,
        reading: Prepared::new(tool, action, false, slicer),
        mutating: Prepared::new(tool, action, true, slicer),
        mutates: action.mutates_state,
    })
}

/// Every policy, in the order of the ids.
fn statements(base: &BasePolicies, tenant: &[TenantPolicy], faults: &mut Vec<Diagnostic>) -> Vec<Statement> {
    let mut statements = base.statements.clone();
    let mut names = BTreeSet::new();
    for TenantPolicy { name, cedar } in tenant {
        if name.as_str() == PolicyId::BASE {
            faults.push(Diagnostic::error("the name `base` is the operator's").about(name));
        } else if !names.insert(name) {
            faults.push(Diagnostic::error("the name is used more than once").about(name));
        } else {
            match statement::parse(name.as_str(), cedar) {
                Ok(more) => statements.extend(more),
                Err(more) => faults.extend(more.0),
            }
        }
    }
    statements.sort_by(|one, other| one.id.cmp(&other.id));
    statements
}

/// Pushes the errors and returns the warnings, both in the order of the policies.
fn validate(schema: Schema, statements: &[Statement], faults: &mut Vec<Diagnostic>) -> Vec<Diagnostic> {
    let validator = Validator::new(schema);
    let whole = Slice::whole(statements);
    let results = [&whole.rules, &whole.advice].map(|set| validator.validate(set, ValidationMode::Strict));
    let mut warnings = Vec::new();
    for statement in statements {
        let ours = |id: &cedar_policy::PolicyId| AsRef::<str>::as_ref(id) == statement.id.as_str();
        let errors = results.iter().flat_map(ValidationResult::validation_errors);
        let errors = errors.filter(|error| ours(error.policy_id()));
        faults.extend(once_a_place(
            errors
                .map(|error| statement.finding(Severity::Error, error))
                .collect(),
        ));
        let odd = results.iter().flat_map(ValidationResult::validation_warnings);
        let odd = odd.filter(|warning| ours(warning.policy_id()));
        warnings.extend(once_a_place(
            odd.map(|warning| statement.finding(Severity::Warning, warning))
                .collect(),
        ));
    }
    warnings
}

/// Cedar validates a policy once for every action, and finds the same thing as often. Which action it names must not
/// depend on chance.
fn once_a_place(mut found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    found.sort_by(|one, other| {
        let key = |finding: &Diagnostic| finding.place.map(|place| (place.offset, place.length));
        key(one)
            .cmp(&key(other))
            .then_with(|| one.message.cmp(&other.message))
    });
    found.dedup_by_key(|finding| finding.place);
    found
}

fn digest(statements: &[Statement]) -> Digest {
    let pairs: Vec<_> = statements
        .iter()
        .map(|statement| (&statement.id, statement.text()))
        .collect();
    // An array of arrays of strings has no members to sort and no numbers, and serde_json escapes strings as RFC 8785
    // wants: the text is canonical already.
    Digest::of(&serde_json::to_vec(&pairs).expect("strings have no fallible serializers"))
}
