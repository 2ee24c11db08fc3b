//! How much memory the schemas of a tenant's actions take once they are compiled, each that is the same once. They are
//! compiled again at each start, so what is too much would end the gateway, and with it all other tenants, again and
//! again.

use super::{Compiler, Registry};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::{parameters, vocabulary};
use canon::Digest;
use model::{Name, SlashFreeName, ToolAction};
use std::collections::HashSet;

/// The most bytes that they may take, as they are estimated: those of ten thousand actions fit that each have patterns
/// for a mail address, an identifier and a date, and twenty with the largest pattern that there may be.
pub(super) const WEIGHT_MAX: usize = 128 << 20;

/// What the schemas of a registry take.
#[derive(Default)]
struct Weight<'r> {
    bytes: usize,
    heaviest: Option<Heaviest<'r>>,
}

/// The action whose schema takes the most.
struct Heaviest<'r> {
    bytes: usize,
    tool: &'r SlashFreeName,
    action: &'r Name,
}

impl Compiler {
    /// Refuses a registry whose schemas take too much, unless those that were there before took as much. Nothing is
    /// compiled for that.
    pub(super) fn check_weight(
        &self,
        registry: Registry<'_>,
        before: Option<Registry<'_>>,
    ) -> Result<(), Diagnostics> {
        if before.is_some_and(|before| before.tools.ptr_eq(registry.tools)) {
            return Ok(());
        }
        let Weight { bytes, heaviest } = self.weight(registry);
        let Some(heaviest) = heaviest.filter(|_| bytes > WEIGHT_MAX) else {
            return Ok(());
        };
        if bytes <= before.map_or(0, |before| self.weight(before).bytes) {
            return Ok(());
        }
        let fault = Diagnostic::error(format!(
            "takes {} bytes once compiled, those of all actions together take {bytes}, and may take {WEIGHT_MAX}: repeat less by count in patterns, as in `a{{5000}}`, and have fewer groups in them, shorten `$id`s and names around many subschemas, refer less often to what has long lists, or delete tools that are not needed any more",
            heaviest.bytes
        ));
        Err(vocabulary::of_schema(heaviest.tool, heaviest.action, fault).into())
    }

    /// How many bytes the schema of this action takes once compiled, about. Nothing is compiled to know it.
    pub fn schema_weight(&self, action: &ToolAction) -> usize {
        self.weight_by_digest(action, &parameters::digest(action))
    }

    /// The same where the digest of the schema is at hand.
    fn weight_by_digest(&self, action: &ToolAction, digest: &Digest) -> usize {
        let known = self.parameter_rules.find(digest);
        known.map_or_else(|| parameters::weight(action), |rules| rules.weight())
    }

    /// What the schemas of this registry take. Those in force are known, and others are measured.
    fn weight<'r>(&self, registry: Registry<'r>) -> Weight<'r> {
        let mut seen = HashSet::new();
        let mut weight = Weight::default();
        for tool in registry.tools.values() {
            for action in tool.actions.values() {
                let digest = parameters::digest(action);
                if !seen.insert(digest) {
                    continue;
                }
                let bytes = self.weight_by_digest(action, &digest);
                weight.bytes = weight.bytes.saturating_add(bytes);
                if weight
                    .heaviest
                    .as_ref()
                    .is_none_or(|heaviest| heaviest.bytes < bytes)
                {
                    weight.heaviest = Some(Heaviest {
                        bytes,
                        tool: &tool.name,
                        action: &action.name,
                    });
                }
            }
        }
        weight
    }
}
