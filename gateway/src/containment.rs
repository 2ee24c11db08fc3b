//! Containment: reads the ledgers of tenants that have rules, and does what a rule says when it is due.
//!
//! Every gateway reads; a rule that fires remembers what it counted in the same commit, so it fires once, whoever comes
//! first. What was read is kept in memory and read again after a restart, a day back and up to `BACKWARDS_MAX` entries,
//! as it is when the ledger has lost what was read of it, and when the clock was set back by more than some minutes:
//! while it was ahead, too much was too old to be kept. It happens beside the path of decisions, moments later, and a
//! tenant without rules is not looked at. Where the ledger of one cannot be read, the rules of all others hold, and where
//! what is due in one waits for other changes of that tenant, they do not wait.

use crate::causes::with_causes;
use crate::changes::{By, Force, Order, Plan};
use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::records::times::first_since_in;
use canon::Digest;
use engine::EntryKind;
use engine::rules::{Due, RecentEntries, Seen};
use engine::snapshot::TenantSnapshot;
use ledger::Head;
use model::rule::{BACKWARDS_MAX, Effect, Subject, WINDOW_SECONDS};
use model::{AgentId, Directory, Name, Noun, Rule, SlashFreeName, TenantId, Timestamp, Write};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::{StoreError, StoredEntry};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// How long a gateway waits between two looks.
const ROUND: Duration = Duration::from_millis(250);
/// Entries in a page.
const PAGE: u32 = 500;
/// The most pages of a tenant in one look, so that one does not keep the others waiting.
const PAGES_MAX: u32 = 20;
/// The most that the rules of a tenant do because of one look. The rest is due in the next one.
const FIRES_MAX: usize = 20;
/// In how many tenants rules do something at once: few enough that the changes of people find places before the
/// sequencer, too.
const FIRING_MAX: usize = 64;
/// Pages of a tenant in the first look: all that is read back, so that its rules hold after its own turn, and not after
/// everybody's.
const FIRST_PAGES: u32 = BACKWARDS_MAX.div_ceil(PAGE);
/// So many entries are read back in one look, of all tenants together, before the others are left for the next look:
/// meanwhile the rules hold of those that are read.
const READ_BACK: u64 = 100_000;

/// How far the clock may be set back and what was read is kept, in milliseconds. What was forgotten too early is only
/// what is older than the longest window but for that, and what is read back may be much less than what is remembered.
const SET_BACK_MILLIS: i64 = 10 * 60_000;

/// What was read of each tenant that has rules, and what they do.
pub struct Containment {
    /// The lock is that of looks: only one goes on at a time, and nothing else waits for it.
    known: tokio::sync::Mutex<HashMap<TenantId, Progress>>,
    /// Acquired by a rule that fires.
    places: Semaphore,
}

impl Default for Containment {
    fn default() -> Self {
        Self {
            known: tokio::sync::Mutex::default(),
            places: Semaphore::new(FIRING_MAX),
        }
    }
}

#[derive(Default)]
struct Progress {
    recent: RecentEntries,
    /// The next entry to read; 0 if nothing was read yet.
    next: u64,
    /// The hash of the entry before, if that was read.
    before: Option<Digest>,
    /// Where the ledger ended in the last look, or behind that what was read of it.
    head: Option<Head>,
    /// What the clock showed in the last look, which has decided by it what is too old; none if there was none.
    looked_at: Option<Timestamp>,
    /// Where the ledger ended when the look began that nothing has been done since.
    awaited: u64,
    /// How many entries were read in the last look.
    read: u64,
    /// What was carried out last.
    last: Option<Due>,
    /// The task that does what was due in the last look; none if nothing was, or its end was taken note of.
    firing: Option<JoinHandle<Fired>>,
    /// Why the last look broke off, if it did.
    broken_off: Option<String>,
}

/// What came of what was due.
struct Fired {
    /// What was tried last, if anything was.
    last: Option<Due>,
    /// Why nothing was done behind that, if it has failed.
    outcome: Result<(), String>,
}

/// Looks every now and then, as long as the gateway is there.
pub fn start(gateway: &Arc<Gateway>) {
    tokio::spawn(run(Arc::downgrade(gateway)));
}

async fn run(gateway: Weak<Gateway>) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(gateway) = gateway.upgrade() else { return };
        let mut known = gateway.containment.known.lock().await;
        gateway.look(&mut known).await;
    }
}

impl Progress {
    /// Whether a ledger that ends here is read back: nothing was read yet, or it has lost what was read.
    const fn is_to_begin(&self, head: u64) -> bool {
        self.next == 0 || self.next > head.saturating_add(1)
    }

    /// Forgets all that was read, so that the next look begins anew.
    fn forget(&mut self) {
        *self = Self {
            broken_off: self.broken_off.take(),
            ..Self::default()
        };
    }

    /// Whether the clock was set back far since the last look: it may have been ahead then, and more was forgotten than
    /// was too old.
    fn was_set_back(&self, now: Timestamp) -> bool {
        let looked_at = self.looked_at;
        looked_at.is_some_and(|looked_at| looked_at.millis() - now.millis() > SET_BACK_MILLIS)
    }

    /// Whether these entries follow the one that was read last: in another ledger, as of a standby that had not
    /// everything, others may have taken its place and that of those before it.
    fn leads_to(&self, entries: &[StoredEntry]) -> bool {
        let both = self.before.zip(entries.first());
        both.is_none_or(|(before, first)| first.prev == before)
    }

    /// Whether the ledger ends with another entry in the place of the one that it ended with in the last look.
    fn ends_otherwise(&self, head: Head) -> bool {
        let known = self.head;
        known.is_some_and(|known| known.seq == head.seq && known != head)
    }

    /// Takes note of an entry that was read. It may have been recorded after it was looked where the ledger ends.
    fn has_read(&mut self, entry: &StoredEntry) {
        let (seq, hash) = (entry.seq, entry.hash);
        (self.next, self.before) = (seq + 1, Some(hash));
        if self.head.is_some_and(|head| head.seq < seq) {
            self.head = Some(Head { seq, hash });
        }
        self.read += 1;
    }

    /// Begins at this entry of a ledger that ends here.
    fn begin(&mut self, first: u64, head: u64) {
        self.forget();
        (self.next, self.awaited) = (first, head);
    }

    /// Goes on in a ledger that ends here now.
    const fn go_on(&mut self, head: u64) {
        if self.is_through() {
            self.awaited = head;
        }
    }

    /// Whether all was read that was there when it was awaited: until then, what makes a rule due may be lifted by what
    /// comes behind it. Of what was added since, there may be more in every look.
    const fn is_through(&self) -> bool {
        self.next > self.awaited
    }

    /// Whether what was due is still being done.
    fn is_firing(&self) -> bool {
        let firing = self.firing.as_ref();
        firing.is_some_and(|firing| !firing.is_finished())
    }

    /// Waits until what was due is done, and takes note of what came of it.
    async fn settle(&mut self, tenant: TenantId) {
        let Some(firing) = &mut self.firing else { return };
        let ended = firing.await;
        self.firing = None;
        let fired = ended.unwrap_or_else(|_| Fired {
            last: None,
            // Not the error itself: it names the task, and would be news in every look.
            outcome: Err("what carries them out has broken down".to_owned()),
        });
        if fired.last.is_some() {
            self.last = fired.last;
        }
        self.conclude(tenant, fired.outcome);
    }

    /// Takes note of how a look has ended, and says so where that is news.
    fn conclude(&mut self, tenant: TenantId, outcome: Result<(), String>) {
        if self.note(outcome.err()) {
            self.log(tenant);
        }
    }

    /// Takes note of why a look has broken off, if it has. Returns whether that is news.
    fn note(&mut self, broken_off: Option<String>) -> bool {
        let is_news = self.broken_off != broken_off;
        self.broken_off = broken_off;
        is_news
    }

    /// What is due, by rule and by whom it is about.
    async fn due(&mut self, tenant: &TenantSnapshot) -> Vec<Due> {
        let rules = &tenant.directory.rules;
        let unsettled: Vec<_> = rules
            .values()
            .filter(|rule| !self.recent.is_settled(rule))
            .collect();
        let mut due = Vec::new();
        for rule in unsettled {
            due.extend(self.recent.due(rule));
            // Whoever is answered on this thread waits for one rule, and not for all of them.
            tokio::task::yield_now().await;
        }
        self.recent.looked(|name| rules.contains_key(name));
        due
    }

    /// What is done because of this look, of all that is due, in the order of the ledger, after those who are to be
    /// stopped: what is earlier than what a rule has forgotten counts no more. It begins behind what was done last, so
    /// that whoever is due in every look keeps nobody waiting for ever. Where more is due in every look than is done,
    /// what was passed may be forgotten meanwhile.
    fn turn(&self, directory: &Directory, due: Vec<Due>) -> Vec<Due> {
        let last = self.last.as_ref().map(place);
        // Whoever is to be stopped waits for nobody who is only told of; but for what was tried last, which may have
        // failed.
        let is_urgent = |due: &Due| {
            let rule = directory.rules.get(&due.rule);
            let freezes = rule.is_some_and(|rule| rule.effect == Effect::Freeze);
            freezes && !is_stopped(directory, &due.subject) && last != Some(place(due))
        };
        let (urgent, others): (Vec<_>, Vec<_>) = due.into_iter().partition(is_urgent);
        let mut turn = self.next_of(urgent, FIRES_MAX);
        let others = self.next_of(others, FIRES_MAX - turn.len());
        turn.extend(others);
        turn
    }

    /// So many of what is due, in the order of the ledger from behind what was done last.
    fn next_of(&self, mut due: Vec<Due>, max: usize) -> Vec<Due> {
        let last = self.last.as_ref().map(place);
        let was_passed = |due: &Due| last.is_some_and(|last| place(due) <= last);
        let order = |one: &Due, other: &Due| {
            let passed = was_passed(one).cmp(&was_passed(other));
            passed.then_with(|| place(one).cmp(&place(other)))
        };
        if due.len() > max {
            // There may be very many, and only these are put in order.
            due.select_nth_unstable_by(max, order);
            due.truncate(max);
        }
        due.sort_unstable_by(order);
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
    /// Looks once at all tenants that have rules, and returns when all is done that is due, also from the look before.
    pub async fn contain(self: &Arc<Self>) {
        let mut known = self.containment.known.lock().await;
        settle_all(&mut known).await;
        self.look(&mut known).await;
        settle_all(&mut known).await;
    }

    /// Looks once at all tenants that have rules, and begins to do what is due. Left for the next look are those in
    /// which what was due before is not done yet, and of those that have to be read back, the rest where that is much.
    async fn look(self: &Arc<Self>, known: &mut HashMap<TenantId, Progress>) {
        let snapshot = self.snapshot.load_full();
        let tenants = snapshot
            .tenants()
            .filter(|(_, tenant)| is_looked_at(&tenant.directory));
        // In order.
        let tenants: Vec<_> = tenants.map(|(id, _)| *id).collect();
        known.retain(|id, progress| progress.is_firing() || tenants.binary_search(id).is_ok());
        let mut read_back = 0;
        for id in tenants {
            if self.is_stopping() {
                return;
            }
            let progress = known.entry(id).or_default();
            if progress.is_firing() {
                continue;
            }
            progress.settle(id).await;
            let now = self.clock.now();
            if progress.was_set_back(now) {
                progress.forget();
            }
            let was_through = progress.is_through();
            if !was_through && read_back >= READ_BACK {
                continue;
            }
            let outcome = self.look_at_tenant(id, progress, now).await;
            if !was_through {
                read_back += progress.read;
            }
            // How a look has ended that something is due in is known when that is done.
            if progress.firing.is_none() {
                progress.conclude(id, outcome);
            }
        }
    }

    /// Looks once at one tenant at this time, and begins to do what is due. An error says in words what has gone wrong.
    async fn look_at_tenant(
        self: &Arc<Self>,
        id: TenantId,
        progress: &mut Progress,
        now: Timestamp,
    ) -> Result<(), String> {
        let in_words = |refusal: Refusal| refusal.detail().to_owned();
        // INVARIANT: it is taken before the ledger is read, which therefore tells of everybody who was lifted in it.
        let tenant = self.tenant(id).map_err(in_words)?;
        let read = self.read_on(&tenant.directory, progress, now).await;
        read.map_err(|error| with_causes(&error))?;
        if !progress.is_through() {
            return Ok(());
        }
        let due = progress.due(&tenant).await;
        let due = progress.turn(&tenant.directory, due);
        if !due.is_empty() {
            // A task of its own, because all changes of the tenant that were there before are waited for.
            let firing = Arc::clone(self).fire_all(id, tenant, due);
            progress.firing = Some(tokio::spawn(firing));
        }
        Ok(())
    }

    /// Does what is due in a tenant, one after the other, until something fails. The tenant is as it was before its
    /// ledger was read.
    async fn fire_all(self: Arc<Self>, id: TenantId, tenant: Arc<TenantSnapshot>, all: Vec<Due>) -> Fired {
        let (mut looked_at, mut last) = (vec![tenant], None);
        for due in all {
            if self.is_stopping() {
                break;
            }
            last = Some(due.clone());
            if let Err(refusal) = self.fire(id, &mut looked_at, &due).await {
                let outcome = Err(refusal.detail().to_owned());
                return Fired { last, outcome };
            }
        }
        let outcome = Ok(());
        Fired { last, outcome }
    }

    /// Reads on in the ledger of a tenant, which is as it was before that.
    async fn read_on(
        &self,
        directory: &Directory,
        progress: &mut Progress,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let tenant = directory.tenant.id;
        progress.read = 0;
        let end = self.store.head(tenant).await?;
        if progress.ends_otherwise(end) {
            progress.forget();
        }
        let head = end.seq;
        let is_to_begin = progress.is_to_begin(head);
        let pages = if is_to_begin {
            let first = self.first_that_counts(tenant, head, now).await?;
            progress.begin(first, head);
            FIRST_PAGES
        } else {
            progress.go_on(head);
            PAGES_MAX
        };
        (progress.looked_at, progress.head) = (Some(now), Some(end));
        for _ in 0..pages {
            if progress.next > head {
                break;
            }
            let entries = self.store.entries(tenant, progress.next, PAGE).await?;
            // A ledger that is read back is read to its end, also one whose entries somebody has changed: the rules
            // hold for what is there.
            if !is_to_begin && !progress.leads_to(&entries) {
                progress.forget();
                return Ok(());
            }
            let read_at = self.clock.now();
            for entry in &entries {
                let (seq, at) = (entry.seq, entry.at);
                let seen = Seen { seq, at, read_at };
                progress.recent.see(seen, &entry.kind, &entry.body);
                progress.has_read(entry);
            }
        }
        let on = directory.rules.values().filter(|rule| rule.enabled);
        let counted: BTreeSet<_> = on.map(|rule| rule.trigger).collect();
        progress.recent.forget(now, |trigger| counted.contains(&trigger));
        Ok(())
    }

    /// The entry to begin with, in a ledger that ends here. What is older than the longest window counts for no rule.
    async fn first_that_counts(
        &self,
        tenant: TenantId,
        head: u64,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let longest = i64::from(*WINDOW_SECONDS.end()) * 1_000;
        let oldest = now.plus_millis(-longest);
        let last = head.saturating_sub(BACKWARDS_MAX.into()) + 1..=head;
        first_since_in(&*self.store, tenant, last, oldest).await
    }

    /// Does what a rule says, if nobody has done it yet. It waits for no policies of the tenant to be compiled. The
    /// tenant is as it was before its ledger was read in this look, and before each thing that was done because of it.
    async fn fire(
        &self,
        id: TenantId,
        looked_at: &mut Vec<Arc<TenantSnapshot>>,
        due: &Due,
    ) -> Result<(), Refusal> {
        // What another rule has frozen because of the same look may be lifted, too, before it is the turn of this one.
        looked_at.push(self.tenant(id)?);
        let place = self.containment.places.acquire().await;
        let _place = place.expect("the semaphore is never closed");
        let by = By::Rule(&due.rule);
        let was_stopped = |tenant: &Arc<TenantSnapshot>| is_stopped(&tenant.directory, &due.subject);
        let was_stopped = due.was_stopped || looked_at.iter().any(was_stopped);
        self.change_in(Order::AtOnce, by, Force::No, id, |directory, now| {
            Ok(fired(directory, due, was_stopped, now))
        })
        .await
    }
}

/// Where something stands in the order in which all is done that is due: by the last entry that is counted, by rule and
/// by whom it is about.
fn place(due: &Due) -> (Option<&u64>, &Name, &Subject) {
    (due.evidence.last(), &due.rule, &due.subject)
}

/// Waits until everywhere is done what was due.
async fn settle_all(known: &mut HashMap<TenantId, Progress>) {
    for (id, progress) in known {
        progress.settle(*id).await;
    }
}

/// Whether the ledger of a tenant is looked at: it has a rule that is on. Nobody acts in one that was deleted.
fn is_looked_at(directory: &Directory) -> bool {
    directory.tenant.deleted_at.is_none() && directory.rules.values().any(|rule| rule.enabled)
}

/// Whether an agent or a tool may not act. One that is gone is not stopped.
fn is_stopped(directory: &Directory, subject: &Subject) -> bool {
    let standing = match subject {
        Subject::Agent(agent) => directory.agents.get(agent).map(|agent| &agent.standing),
        Subject::Tool(tool) => directory.tools.get(tool).map(|tool| &tool.standing),
    };
    standing.is_some_and(|standing| !standing.is_active())
}

/// What comes of a rule that is due: the agent or the tool afterwards, and the rule, which remembers what it counted.
/// `was_stopped` says whether the agent or the tool was stopped in what was read, when the rule was looked at, or when
/// it began to wait for its turn.
fn fired(directory: &Directory, due: &Due, was_stopped: bool, now: Timestamp) -> Plan<()> {
    let rule = directory.rules.get(&due.rule);
    // Whoever was first has counted the last of them, or the rule has changed since. That none of them is older than
    // the rule was seen by their own times: those of the chain may be ahead of this clock.
    let rule = rule.filter(|rule| {
        let last = due.evidence.last();
        rule.since == due.since && last.is_some_and(|last| rule.counts(&due.subject, *last, rule.since))
    });
    let Some(rule) = rule else {
        return Plan::nothing(());
    };
    // A person has lifted it meanwhile, and the entry that says so may be behind what was read. The next look reads it.
    if rule.effect == Effect::Freeze && was_stopped && !is_stopped(directory, &due.subject) {
        return Plan::nothing(());
    }
    let reason = reason_of(rule, due);
    let firing = Firing {
        rule,
        reason: &reason,
        now,
    };
    let done = match &due.subject {
        Subject::Agent(agent) => firing.on_agent(directory, *agent),
        Subject::Tool(tool) => firing.on_tool(directory, tool, due.recorded),
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
    let after = rule.fire(&due.subject, (last, due.recorded), now);
    let mut writes = vec![Write::Put(Noun::Rule(Arc::new(after)))];
    writes.extend(write);
    Plan::Change {
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

/// A rule that fires, with the reason that is given for it and the time.
struct Firing<'a> {
    rule: &'a Rule,
    reason: &'a str,
    now: Timestamp,
}

impl Firing<'_> {
    /// What the rule does about an agent; `None` if it is gone.
    fn on_agent(&self, directory: &Directory, agent: AgentId) -> Option<Done> {
        let agent = directory.agents.get(&agent)?;
        let changed = self.rule.effect.apply(agent, self.reason, self.now);
        let changed = changed.ok().flatten();
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

    /// What the rule does about a tool that was there when this was recorded; `None` if it is gone, or another one has
    /// its name by now.
    fn on_tool(&self, directory: &Directory, tool: &SlashFreeName, recorded: Timestamp) -> Option<Done> {
        let tool = directory.tools.get(tool);
        let tool = tool.filter(|tool| tool.created_at <= recorded)?;
        let changed = self.rule.effect.apply_to_tool(tool, self.reason, self.now);
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
}

fn reason_of(rule: &Rule, due: &Due) -> String {
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
    use model::rule::Trigger;
    use model::{Standing, Tool};
    use std::collections::BTreeMap;

    fn due(rule: &str, agent: u8) -> Due {
        Due {
            rule: Name::new(rule).unwrap(),
            subject: Subject::Agent(AgentId::from_bytes([agent; 16])),
            since: Timestamp::from_millis(0),
            evidence: vec![1],
            recorded: Timestamp::from_millis(0),
            was_stopped: false,
        }
    }

    #[test]
    fn whoever_is_due_in_every_look_keeps_nobody_waiting() {
        let directory = directory(&Standing::Active, Effect::Alert);
        let mut progress = Progress::default();
        let mut all: Vec<_> = (0..30).map(|agent| due("many", agent)).collect();
        all.push(due("one", 0));
        let looks = [(); 2].map(|()| {
            let turn = progress.turn(&directory, all.clone());
            progress.last = turn.last().cloned();
            turn
        });
        assert_eq!(looks[0], all[..20]);
        assert_eq!(looks[1], [&all[20..], &all[..9]].concat());
        progress.last = Some(due("two", 0));
        assert_eq!(progress.turn(&directory, all.clone()), all[..20]);
        assert_eq!(progress.turn(&directory, Vec::new()), []);
    }

    #[test]
    fn what_is_due_is_done_in_the_order_of_the_ledger_whoever_it_is_about() {
        let directory = directory(&Standing::Active, Effect::Alert);
        let mut progress = Progress::default();
        let mut all: Vec<_> = (0..30).map(|agent| due("many", agent)).collect();
        all.push(due("one", 0));
        for (due, seq) in all.iter_mut().rev().zip(1..) {
            due.evidence = vec![seq];
        }
        let seqs = |turn: &[Due]| turn.iter().map(|due| due.evidence[0]).collect::<Vec<_>>();
        let turn = progress.turn(&directory, all.clone());
        assert_eq!(seqs(&turn), (1..=20).collect::<Vec<_>>());
        progress.last = turn.last().cloned();
        // One of them is due again at once.
        all.retain(|due| due.evidence[0] > 20 || due.evidence[0] == 7);
        let turn = progress.turn(&directory, all);
        assert_eq!(seqs(&turn), (21..=31).chain([7]).collect::<Vec<_>>());
    }

    #[test]
    fn whoever_is_to_be_stopped_waits_for_nobody_who_is_only_told_of() {
        let mut told: Vec<_> = (0..40).map(|agent| due("many", agent)).collect();
        for (due, seq) in told.iter_mut().zip(1..) {
            due.evidence = vec![seq];
        }
        let stopped = Due {
            subject: Subject::Tool(SlashFreeName::new("github").unwrap()),
            evidence: vec![99],
            ..due("one", 0)
        };
        let mut all = told.clone();
        all.push(stopped.clone());
        let mut progress = Progress::default();
        let active = directory(&Standing::Active, Effect::Freeze);
        let first = [&all[40..], &told[..19]].concat();
        assert_eq!(progress.turn(&active, all.clone()), first);
        progress.last = Some(told[0].clone());
        let first = [&all[40..], &told[1..20]].concat();
        assert_eq!(progress.turn(&active, all.clone()), first);

        // What may have failed, who is stopped already and who is only told of wait as everybody does.
        progress.last = Some(stopped);
        assert_eq!(progress.turn(&active, all.clone()), told[..20]);
        progress.last = None;
        let frozen = Standing::Active.freeze("odd", Timestamp::from_millis(0)).unwrap();
        for (standing, effect) in [
            (&frozen, Effect::Freeze),
            (&Standing::Active, Effect::Alert),
            (&Standing::Active, Effect::RaiseRiskTier),
        ] {
            let turn = progress.turn(&directory(standing, effect), all.clone());
            assert_eq!(turn, told[..20], "{standing:?} {effect:?}");
        }
    }

    #[test]
    fn nothing_is_done_before_all_is_read_that_was_there_at_first() {
        let mut progress = Progress::default();
        assert!(progress.is_to_begin(25_000) && !progress.is_through());
        progress.begin(5_001, 25_000);
        // How far each look reads a ledger that ends there when it begins.
        for (head, next, is_through) in [
            (25_000, 15_001, false),
            (25_500, 25_000, false),
            (26_000, 25_001, true),
            (60_000, 35_001, false),
            (61_000, 60_000, false),
            (62_000, 60_001, true),
        ] {
            assert!(!progress.is_to_begin(head));
            progress.go_on(head);
            progress.next = next;
            assert_eq!(progress.is_through(), is_through, "{next}");
        }
        let mut nothing_there = Progress::default();
        nothing_there.begin(1, 0);
        assert!(nothing_there.is_through());
    }

    #[test]
    fn a_ledger_that_has_lost_what_was_read_is_read_anew() {
        let mut progress = Progress::default();
        progress.begin(1, 1_000);
        let at = Timestamp::from_millis(0);
        let seen = Seen {
            seq: 1_000,
            at,
            read_at: at,
        };
        progress.recent.see(seen, "rule_put", r#"{"name":"one"}"#);
        progress.next = 1_001;
        progress.note(Some("gone".to_owned()));
        let told = |progress: &Progress| format!("{:?}", progress.recent);
        assert!(!progress.is_to_begin(1_000));
        progress.go_on(1_000);
        assert_eq!((progress.next, progress.awaited), (1_001, 1_000));
        assert_ne!(told(&progress), told(&Progress::default()));
        assert!(progress.is_to_begin(900));
        progress.begin(1, 900);
        assert_eq!((progress.next, progress.awaited), (1, 900));
        assert_eq!(told(&progress), told(&Progress::default()));
        assert!(progress.note(None), "it is news that nothing is wrong any more");
    }

    #[test]
    fn a_ledger_in_which_others_have_taken_the_place_of_what_was_read_is_not_read_on() {
        let entry = |seq, prev: &[u8]| StoredEntry {
            seq,
            kind: "decision".to_owned(),
            at: Timestamp::from_millis(0),
            prev: Digest::of(prev),
            hash: Digest::of(&[1]),
            body: String::new(),
            nodes: Vec::new(),
            erased: None,
        };
        let mut progress = Progress::default();
        progress.begin(5, 8);
        assert!(progress.leads_to(&[entry(5, b"never read")]));
        (progress.next, progress.before) = (9, Some(Digest::of(b"read")));
        assert!(progress.leads_to(&[]));
        assert!(progress.leads_to(&[entry(9, b"read"), entry(10, b"another")]));
        assert!(!progress.leads_to(&[entry(9, b"another")]));
        progress.note(Some("gone".to_owned()));
        progress.forget();
        assert!(progress.is_to_begin(9) && !progress.is_through());
        assert!(progress.note(None), "it is news that nothing is wrong any more");
        let end = |seq, hash: &[u8]| Head {
            seq,
            hash: Digest::of(hash),
        };
        assert!(!progress.ends_otherwise(end(8, b"read")), "it has not looked yet");
        progress.head = Some(end(8, b"read"));
        assert!(!progress.ends_otherwise(end(8, b"read")) && !progress.ends_otherwise(end(9, b"another")));
        assert!(progress.ends_otherwise(end(8, b"another")));
        progress.has_read(&entry(8, b"before"));
        assert!(
            !progress.ends_otherwise(end(8, b"read")),
            "it is not behind the end"
        );
        // Recorded while it looked.
        progress.has_read(&entry(9, b"read"));
        assert!(!progress.ends_otherwise(end(9, &[1])));
        assert!(progress.ends_otherwise(end(9, b"another")));
    }

    #[test]
    fn what_was_read_is_read_anew_once_the_clock_was_set_back() {
        let at = |millis: i64| Timestamp::from_millis(1_000_000 + millis);
        let mut progress = Progress::default();
        assert!(!progress.was_set_back(at(0)), "it has not looked yet");
        progress.looked_at = Some(at(0));
        for (millis, was_set_back) in [(1, false), (0, false), (-600_000, false), (-600_001, true)] {
            assert_eq!(progress.was_set_back(at(millis)), was_set_back, "{millis}");
        }
    }

    /// A tenant with a tool and a rule.
    fn directory(standing: &Standing, effect: Effect) -> Directory {
        let tenant = json!({"id": TenantId::from_bytes([1; 16]), "name": "acme", "settings": {}, "bucket": null,
            "status": "active", "created_at": "1970-01-01T00:00:00.000Z"});
        let mut directory = Directory::new(Arc::new(serde_json::from_value(tenant).unwrap()));
        let tool = Tool {
            name: SlashFreeName::new("github").unwrap(),
            actions: BTreeMap::new(),
            canary: false,
            standing: standing.clone(),
            created_at: Timestamp::from_millis(0),
        };
        let rule = Rule {
            name: Name::new("one").unwrap(),
            trigger: Trigger::DefinitionChanged,
            count: 1,
            window_seconds: 60,
            effect,
            enabled: true,
            since: Timestamp::from_millis(0),
            fired: BTreeMap::new(),
            fired_tools: BTreeMap::new(),
            counted_through: 0,
        };
        directory.apply(&Write::Put(Noun::Tool(Arc::new(tool))));
        directory.apply(&Write::Put(Noun::Rule(Arc::new(rule))));
        directory
    }

    #[test]
    fn a_tenant_without_rules_or_that_was_deleted_is_not_looked_at() {
        let mut directory = directory(&Standing::Active, Effect::Alert);
        assert!(is_looked_at(&directory));
        assert!(!is_looked_at(&Directory::new(Arc::clone(&directory.tenant))));
        let mut tenant = (*directory.tenant).clone();
        tenant.deleted_at = Some(Timestamp::from_millis(1));
        directory.tenant = Arc::new(tenant);
        assert!(!is_looked_at(&directory));
    }

    #[test]
    fn a_tool_that_a_person_has_lifted_before_it_was_the_turn_of_a_rule_is_not_frozen_again() {
        let now = Timestamp::from_millis(1_000);
        let (active, frozen) = (Standing::Active, Standing::Active.freeze("odd", now).unwrap());
        let due = Due {
            subject: Subject::Tool(SlashFreeName::new("github").unwrap()),
            ..due("one", 0)
        };
        for (standing, effect, was_stopped, kind) in [
            (&active, Effect::Freeze, false, Some(EntryKind::ToolFrozen)),
            (&active, Effect::Freeze, true, None),
            (&active, Effect::Alert, true, Some(EntryKind::AlertRaised)),
            (&frozen, Effect::Freeze, true, Some(EntryKind::AlertRaised)),
        ] {
            let plan = fired(&directory(standing, effect), &due, was_stopped, now);
            let made = match plan {
                Plan::Nothing(()) => None,
                Plan::Change { kind, .. } => Some(kind),
            };
            assert_eq!(made, kind, "{standing:?} {effect:?}");
        }
    }

    #[test]
    fn a_tool_that_was_registered_behind_what_was_counted_is_another_one_of_its_name() {
        let due = Due {
            subject: Subject::Tool(SlashFreeName::new("github").unwrap()),
            ..due("one", 0)
        };
        for (created_at, is_made) in [(0, true), (1, false)] {
            let mut directory = directory(&Standing::Active, Effect::Freeze);
            let mut tool = Tool::clone(directory.tools.get("github").unwrap());
            tool.created_at = Timestamp::from_millis(created_at);
            directory.apply(&Write::Put(Noun::Tool(Arc::new(tool))));
            let plan = fired(&directory, &due, false, Timestamp::from_millis(1_000));
            assert_eq!(matches!(plan, Plan::Change { .. }), is_made, "{created_at}");
        }
    }

    #[tokio::test]
    async fn what_came_of_what_was_due_is_taken_note_of_when_it_is_done() {
        let id = TenantId::from_bytes([1; 16]);
        let tried = || due("one", 1);
        let mut progress = Progress::default();
        progress.settle(id).await;
        let (told, tells) = tokio::sync::oneshot::channel();
        progress.firing = Some(tokio::spawn(async move { tells.await.unwrap() }));
        assert!(progress.is_firing());
        let outcome = Err("no room".to_owned());
        let last = Some(tried());
        assert!(told.send(Fired { last, outcome }).is_ok());
        progress.settle(id).await;
        assert!(!progress.is_firing() && progress.firing.is_none());
        let noted = (progress.last.clone(), progress.broken_off.as_deref());
        assert_eq!(noted, (Some(tried()), Some("no room")));

        // One that did not come to an end tells nothing of what was tried.
        progress.firing = Some(tokio::spawn(std::future::pending()));
        progress.firing.as_ref().unwrap().abort();
        progress.settle(id).await;
        assert_eq!(progress.last, Some(tried()));
        let broken_off = progress.broken_off.clone();
        assert!(broken_off.as_ref().is_some_and(|error| error != "no room"));

        // The next one that did not is no news.
        progress.firing = Some(tokio::spawn(std::future::pending()));
        progress.firing.as_ref().unwrap().abort();
        progress.settle(id).await;
        assert_eq!(progress.broken_off, broken_off);
    }

    #[test]
    fn why_looks_break_off_is_news_until_it_changes() {
        let mut progress = Progress::default();
        let news = [None, Some("gone"), Some("gone"), Some("unreadable"), None, None]
            .map(|error| progress.note(error.map(str::to_owned)));
        assert_eq!(news, [false, true, false, true, true, false]);
    }
}
