//! A tenant with three actions, and a set to compare others with.

use model::{AttributeType, Name, Risk, SlashFreeName, SourceRule, Standing, Timestamp, Tool, ToolAction};
use policy::{BasePolicies, Candidate, Compiler, Registry, TenantPermits, TenantPolicy};
use policy_diff::{Bounds, Comparison, Prover, Report, diff};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Once};
use std::time::Duration;

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

pub(crate) struct Desk {
    tools: imbl::OrdMap<SlashFreeName, Arc<Tool>>,
    attributes: BTreeMap<Name, AttributeType>,
    compiler: Compiler,
    pub(crate) prover: Prover,
}

pub(crate) fn action(name: &str, mutates_state: bool, input_schema: Option<Value>) -> ToolAction {
    ToolAction {
        name: Name::new(name).unwrap(),
        mutates_state,
        risk: Risk::Medium,
        input_schema: input_schema.map(Arc::new),
        description: None,
        pinned: None,
        held: None,
    }
}

pub(crate) fn tool(name: &str, actions: impl IntoIterator<Item = ToolAction>) -> Tool {
    Tool {
        name: SlashFreeName::new(name).unwrap(),
        actions: actions
            .into_iter()
            .map(|action| (action.name.clone(), action))
            .collect(),
        canary: false,
        standing: Standing::Active,
        created_at: NOW,
    }
}

fn refund() -> Value {
    json!({
        "type": "object",
        "properties": {
            "amount": {"type": "integer", "minimum": 1, "maximum": 100_000},
            "price": {"type": "number"},
            "currency": {"type": "string", "enum": ["EUR", "USD"]},
            "labels": {"type": "array", "items": {"type": "string"}},
            "note": {"type": "string"},
        },
        "required": ["amount", "currency"],
    })
}

/// For comparisons whose answer is asked for, however busy the machine is.
pub(crate) fn patient() -> Bounds {
    Bounds {
        question: Duration::from_mins(1),
        all: Duration::from_mins(10),
        ..Bounds::default()
    }
}

/// Has the solver read from the disk, which could take longer than it has to say which it is. Where it is not there, a
/// test says so.
fn load_solver() {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| drop(Command::new("cvc5").arg("--version").output()));
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::with(BasePolicies::shipped(), refund())
    }

    /// Without base policies: nothing is permitted but what a test permits.
    pub(crate) fn bare() -> Self {
        Self::bare_with(refund())
    }

    /// Without base policies, where refunds have this schema.
    pub(crate) fn bare_with(refund: Value) -> Self {
        Self::with(BasePolicies::parse("").unwrap(), refund)
    }

    fn with(base: BasePolicies, refund: Value) -> Self {
        load_solver();
        let tools = [
            tool(
                "github",
                [action("get_file", false, None), action("merge", true, None)],
            ),
            tool("payments", [action("refund", true, Some(refund))]),
        ];
        Self {
            tools: tools
                .into_iter()
                .map(|tool| (tool.name.clone(), Arc::new(tool)))
                .collect(),
            attributes: [(Name::new("region").unwrap(), AttributeType::String)].into(),
            compiler: Compiler::new(base),
            prover: Prover::new(PathBuf::from("cvc5"), 1, patient()),
        }
    }

    pub(crate) fn registry(&self) -> Registry<'_> {
        Registry {
            tools: &self.tools,
            attributes: &self.attributes,
        }
    }

    pub(crate) fn compile(&self, policies: &[TenantPolicy]) -> policy::PolicySet {
        let compiled = self.compiler.compile(Candidate {
            policies,
            registry: self.registry(),
            permits: TenantPermits::Allowed,
        });
        compiled.unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
    }

    pub(crate) fn comparison(&self, before: &[TenantPolicy], after: &[TenantPolicy]) -> Comparison {
        Comparison {
            before: self.compile(before),
            after: self.compile(after),
            tools: self.tools.clone(),
            attributes: self.attributes.clone(),
            sources: SourceRule::Parameter,
            body_bytes_max: 256 << 10,
            now: NOW,
        }
    }

    pub(crate) async fn compare_sets(&self, before: &[TenantPolicy], after: &[TenantPolicy]) -> Report {
        let turn = self.prover.turn().expect("nobody else has it");
        let report = diff(self.comparison(before, after), turn).await;
        report.expect("nothing panics")
    }

    /// Compares two texts, each as the policy `mine`, with the solver.
    pub(crate) async fn compare(&self, before: &str, after: &str) -> Report {
        let report = self.compare_sets(&[mine(before)], &[mine(after)]).await;
        assert!(report.proof.available, "{:?}", report.proof.why);
        report
    }
}

pub(crate) fn mine(cedar: &str) -> TenantPolicy {
    TenantPolicy::new(SlashFreeName::new("mine").unwrap(), cedar)
}
