//! Containment: reads the ledgers of tenants that have rules, and does what a rule says when it is due.
//!
//! Every gateway reads; a rule that fires remembers what it counted in the same commit, so it fires once, whoever comes first.
//! What was read is kept in memory and read again after a restart, up to `BACKWARDS_MAX` entries. It happens beside the
//! path of decisions, moments later, and a tenant without rules is not looked at. Where the ledger of one cannot be read, the
//! rules of all others hold.

use crate::changes::{By, Force, Order, Plan};
use crate::gateway::Gateway;
use crate::http::Refusal;
use engine::EntryKind;
use engine::rules::{Due, Watch};
use engine::snapshot::TenantSnapshot;
use model::rule::Subject;
use model::{AgentId, Directory, Name, Noun, Rule, SlashFreeName, TenantId, Timestamp, Write};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::StoreError;

/// How long a gateway waits between two looks.
const ROUND: Duration = Duration::from_millis(250);
/// Entries in a page.
const PAGE: u32 = 500;
/// The most pages of a tenant in one look, so that one does not keep the others waiting.
const PAGES_MAX: u32 = 20;
/// The most that the rules of a tenant do in one look, for the same reason. The rest is due in the next one.
const FIRES_MAX: usize = 20;
/// How far back a gateway reads that has just begun to look at a tenant.
const BACKWARDS_MAX: u64 = 20_000;

/// What was read of each tenant that has rules.
#[derive(Default)]
pub struct Containment(tokio::sync::Mutex<HashMap<TenantId, Progress>>);

#[derive(Default)]
struct Progress {
    watch: Watch,
    /// The next entry to read; 0 if nothing was read yet.
    next: u64,
    /// Which rule was carried out last, and because of whom.
    last: Option<(Name, Subject)>,
    /// Why the last look broke off, if it did.
    broken_off: Option<String>,
}

/// Looks every now and then, as long as the gateway is there.
pub fn start(gateway: &Arc<Gateway>) {
    tokio::spawn(run(Arc::downgrade(gateway)));
}

async fn run(gateway: Weak<Gateway>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(gateway) = gateway.upgrade() else { return };
        gateway.contain().await;
    }
}

impl Progress {
    /// Takes note of why a look has broken off, if it has. Returns whether that is news.
    fn note(&mut self, broken_off: Option<String>) -> bool {
        let is_news = self.broken_off != broken_off;
        self.broken_off = broken_off;
        is_news
    }

    /// What is done in this look, of all that is due, by rule and by whom it is about. It begins behind what was done last, so that
    /// whoever is due in every look keeps nobody waiting for ever.
    fn turn(&self, mut due: Vec<Due>) -> Vec<Due> {
        let first = self.last.as_ref().map_or(0, |(rule, subject)| {
            due.partition_point(|due| (&due.rule, &due.subject) <= (rule, subject))
        });
        due.rotate_left(first);
        due.truncate(FIRES_MAX);
        due
    }

    fn log(&self, tenant: TenantId) {
        if let Some(error) = &self.broken_off {
            tracing::error!(%tenant, error, "the containment rules of {tenant} do not hold for now: {error}");
        } else {
            tracing::warn!(%tenant, "the containment rules of {tenant} hold again");
        }
    }
}

impl Gateway {
    /// Looks once at all tenants that have rules, and does what is due.
    pub async fn contain(&self) {
        let mut known = self.containment.0.lock().await;
        let snapshot = self.snapshot.load_full();
        let has_rules = |directory: &Directory| directory.rules.values().any(|rule| rule.enabled);
        let tenants = snapshot
            .tenants()
            .filter(|(_, tenant)| has_rules(&tenant.directory));
        let tenants: Vec<_> = tenants.map(|(id, tenant)| (*id, Arc::clone(tenant))).collect();
        known.retain(|id, _| tenants.iter().any(|(tenant, _)| tenant == id));
        for (id, tenant) in tenants {
            let progress = known.entry(id).or_default();
            let look = self.contain_tenant(id, &tenant, progress).await;
            if progress.note(look.err()) {
                progress.log(id);
            }
        }
    }

    /// The same for one tenant. An error says in words what has gone wrong.
    async fn contain_tenant(
        &self,
        id: TenantId,
        tenant: &TenantSnapshot,
        progress: &mut Progress,
    ) -> Result<(), String> {
        let read = self.read_on(id, progress).await;
        read.map_err(|error| error.to_string())?;
        let rules = tenant.directory.rules.values();
        let due: Vec<_> = rules.flat_map(|rule| progress.watch.due(rule)).collect();
        for due in progress.turn(due) {
            progress.last = Some((due.rule.clone(), due.subject.clone()));
            let fired = self.fire(id, &due).await;
            fired.map_err(|refusal| refusal.detail().to_owned())?;
        }
        Ok(())
    }

    async fn read_on(&self, tenant: TenantId, progress: &mut Progress) -> Result<(), StoreError> {
        let head = self.store.head(tenant).await?.seq;
        if progress.next == 0 {
            progress.next = head.saturating_sub(BACKWARDS_MAX) + 1;
        }
        for _ in 0..PAGES_MAX {
            if progress.next > head {
                break;
            }
            let entries = self.store.entries(tenant, progress.next, PAGE).await?;
            for entry in &entries {
                let place = (entry.seq, entry.at);
                progress.watch.see(place, &entry.kind, &entry.body);
                progress.next = entry.seq + 1;
            }
        }
        progress.watch.forget(self.clock.now());
        Ok(())
    }

    /// Does what a rule says, if nobody has done it yet. It waits for no policies of the tenant to be compiled, because the rules of all
    /// others would wait with it.
    async fn fire(&self, tenant: TenantId, due: &Due) -> Result<(), Refusal> {
        let by = By::Rule(&due.rule);
        self.change_in(Order::AtOnce, by, Force::No, tenant, |directory, now| {
            Ok(fired(directory, due, now))
        })
        .await
    }
}

/// What comes of a rule that is due: the agent or the tool afterwards, and the rule, which remembers what it counted.
fn fired(directory: &Directory, due: &Due, now: Timestamp) -> Plan<()> {
    let rule = directory.rules.get(&due.rule);
    // Whoever was first has counted the last of them, or the rule has changed since. That none of them is older than the rule was seen
    // by their own times: those of the chain may be ahead of this clock.
    let rule = rule.filter(|rule| {
        let last = due.evidence.last();
        rule.since == due.since && last.is_some_and(|last| rule.counts(&due.subject, *last, rule.since))
    });
    let Some(rule) = rule else {
        return Plan::nothing(());
    };
    let reason = told(rule, due);
    let done = match &due.subject {
        Subject::Agent(agent) => of_agent(directory, *agent, rule, (reason.as_str(), now)),
        Subject::Tool(tool) => of_tool(directory, tool, rule, (reason.as_str(), now)),
    };
    let Some(Done {
        kind,
        mut facts,
        write,
    }) = done
    else {
        return Plan::nothing(());
    };
    let shared = json!({
        "reason": reason, "rule": rule.name, "trigger": rule.trigger, "effect": rule.effect,
        "evidence": due.evidence, "window_seconds": rule.window_seconds,
    });
    facts.extend(shared.as_object().cloned().unwrap_or_default());
    let last = due.evidence.last().copied().unwrap_or_default();
    let mut writes = vec![Write::Put(Noun::Rule(Arc::new(rule.fire(
        &due.subject,
        last,
        now,
    ))))];
    writes.extend(write);
    Plan {
        kind,
        facts: Value::Object(facts),
        writes,
        answer: (),
    }
}

/// What a rule does about somebody, and how the ledger tells it.
struct Done {
    kind: EntryKind,
    facts: Map<String, Value>,
    write: Option<Write>,
}

/// What a rule does about an agent; `None` if it is gone.
fn of_agent(
    directory: &Directory,
    agent: AgentId,
    rule: &Rule,
    (reason, now): (&str, Timestamp),
) -> Option<Done> {
    let agent = directory.agents.get(&agent)?;
    let changed = rule.effect.apply(agent, reason, now).ok().flatten();
    let mut facts = Map::from_iter([("id".to_owned(), json!(agent.id))]);
    let kind = match &changed {
        None => EntryKind::AlertRaised,
        Some(changed) if changed.standing == agent.standing => {
            facts.insert("risk_tier".to_owned(), json!(changed.risk_tier));
            EntryKind::AgentUpdated
        }
        Some(_) => EntryKind::AgentFrozen,
    };
    Some(Done {
        kind,
        facts,
        write: changed.map(|agent| Write::Put(Noun::Agent(Arc::new(agent)))),
    })
}

/// What a rule does about a tool; `None` if it is gone.
fn of_tool(
    directory: &Directory,
    tool: &SlashFreeName,
    rule: &Rule,
    (reason, now): (&str, Timestamp),
) -> Option<Done> {
    let tool = directory.tools.get(tool)?;
    let changed = rule.effect.apply_to_tool(tool, reason, now);
    Some(Done {
        kind: if changed.is_some() {
            EntryKind::ToolFrozen
        } else {
            EntryKind::AlertRaised
        },
        facts: Map::from_iter([("tool".to_owned(), json!(tool.name))]),
        write: changed.map(|tool| Write::Put(Noun::Tool(Arc::new(tool)))),
    })
}

fn told(rule: &Rule, due: &Due) -> String {
    let (first, last) = (due.evidence.first(), due.evidence.last());
    format!(
        "the rule `{}` counted {} within {} seconds, entries {} to {}",
        rule.name,
        rule.count,
        rule.window_seconds,
        first.copied().unwrap_or_default(),
        last.copied().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(rule: &str, agent: u8) -> Due {
        Due {
            rule: Name::new(rule).unwrap(),
            subject: Subject::Agent(AgentId::from_bytes([agent; 16])),
            since: Timestamp::from_millis(0),
            evidence: vec![1],
        }
    }

    #[test]
    fn whoever_is_due_in_every_look_keeps_nobody_waiting() {
        let mut progress = Progress::default();
        let mut all: Vec<_> = (0..30).map(|agent| due("many", agent)).collect();
        all.push(due("one", 0));
        let looks = [(); 2].map(|()| {
            let turn = progress.turn(all.clone());
            let last = turn.last().unwrap();
            progress.last = Some((last.rule.clone(), last.subject.clone()));
            turn
        });
        assert_eq!(looks[0], all[..20]);
        assert_eq!(looks[1], [&all[20..], &all[..9]].concat());
        progress.last = Some((Name::new("two").unwrap(), all[0].subject.clone()));
        assert_eq!(progress.turn(all.clone()), all[..20]);
        assert_eq!(progress.turn(Vec::new()), []);
    }

    #[test]
    fn why_looks_break_off_is_news_until_it_changes() {
        let mut progress = Progress::default();
        let news = [None, Some("gone"), Some("gone"), Some("unreadable"), None, None]
            .map(|error| progress.note(error.map(str::to_owned)));
        assert_eq!(news, [false, true, false, true, true, false]);
    }
}
