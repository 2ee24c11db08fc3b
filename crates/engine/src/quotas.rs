//! Quotas, in the course of an ask and in a batch: which of them a call counts towards, whether there is room in all of them, and
//! counting it.
//!
//! A call counts when it is allowed: what policy denies uses nothing up. It counts in all quotas or in none, in the commit of its
//! decision, so a quota is exact however many ask at once and whichever gateway they ask.

use crate::ask::Ask;
use crate::snapshot::TenantSnapshot;
use canon::{Digest, ObjectWriter};
use model::quota::Call;
use model::usage::CallsUsage;
use model::{ActionGroup, Agent, Counter, Name, Quota, TenantId, Timestamp, Usage, Window};
use std::collections::HashMap;

/// The counters of a batch as they are at the heads that it follows.
pub type KnownCounters = HashMap<(TenantId, Digest), Counter>;

/// Who has a quota.
#[derive(Debug, Clone, Copy)]
pub enum Holder<'a> {
    /// The tenant: all its agents together.
    Tenant,
    /// A team: its agents together.
    Team(&'a Name),
    /// An agent.
    Agent(&'a Agent),
}

impl Holder<'_> {
    /// The word of API and headers.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Team(_) => "team",
            Self::Agent(_) => "agent",
        }
    }

    /// By what the calls are counted that a quota of this holder covers. The limit is no part of it: one that is raised goes on
    /// counting. `run` is given for a quota of runs; asks that name none, and none that started theirs, are one run together.
    pub fn key(&self, quota: &Quota, run: Option<&Name>) -> Digest {
        let mut key = ObjectWriter::new();
        if let Self::Agent(agent) = self {
            key.string("agent", &agent.id.to_string());
        }
        if let Some(group) = quota.group {
            key.string("group", group.as_str());
        }
        if let Some(risk) = quota.risk {
            key.string("risk", risk.as_str());
        }
        if let Some(run) = run {
            key.string("run", run.as_str());
        }
        if let Self::Team(team) = self {
            key.string("team", team.as_str());
        }
        if let Some(tool) = &quota.tool {
            key.string("tool", tool.as_str());
        }
        key.string("window", quota.window.as_str());
        key.finish().digest()
    }
}

/// A quota that a call counts towards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUse {
    /// By what it is counted.
    pub key: Digest,
    /// Whose quota it is: `tenant`, `team` or `agent`.
    pub holder: &'static str,
    /// From when to when.
    pub window: Window,
    /// How many calls are allowed in that.
    pub limit: u64,
}

/// There is no room in a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// Which.
    pub quota: QuotaUse,
    /// When it begins anew; `None` if it does not.
    pub until: Option<Timestamp>,
}

/// What quotas look at in an ask.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The action of it.
    pub action: &'a str,
    /// Whether the caller says that it changes something.
    pub claims_mutation: bool,
    /// The run that it is part of.
    pub run_id: Option<&'a Name>,
    /// The run that it says started that.
    pub parent_run_id: Option<&'a Name>,
}

impl<'a> From<&'a Ask> for Asked<'a> {
    fn from(ask: &'a Ask) -> Self {
        Self {
            tool: ask.action.tool.as_str(),
            action: ask.action.action.as_str(),
            claims_mutation: ask.claims_mutation,
            run_id: ask.run_id.as_ref(),
            parent_run_id: ask.parent_run_id.as_ref(),
        }
    }
}

/// All quotas that hold for an agent, with those who have them.
pub fn of_agent<'a>(
    tenant: &'a TenantSnapshot,
    agent: &'a Agent,
) -> impl Iterator<Item = (Holder<'a>, &'a Quota)> {
    let directory = &tenant.directory;
    let team = agent.team.as_ref().and_then(|team| directory.teams.get(team));
    let with = |holder: Holder<'a>, quotas: &'a [Quota]| quotas.iter().map(move |quota| (holder, quota));
    let of_tenant = with(Holder::Tenant, &directory.tenant.limits.quotas);
    let of_team = team
        .into_iter()
        .flat_map(move |team| with(Holder::Team(&team.name), &team.quotas));
    of_tenant
        .chain(of_team)
        .chain(with(Holder::Agent(agent), &agent.limits.quotas))
}

/// The quotas that an ask counts towards if it is allowed. Most agents have none, and then nothing is looked at.
pub fn uses(tenant: &TenantSnapshot, agent: &Agent, asked: &Asked<'_>) -> Vec<QuotaUse> {
    uses_among(of_agent(tenant, agent), tenant, asked)
}

/// Those among these quotas that an ask counts towards if it is allowed.
pub fn uses_among<'a>(
    quotas: impl Iterator<Item = (Holder<'a>, &'a Quota)>,
    tenant: &TenantSnapshot,
    asked: &Asked<'_>,
) -> Vec<QuotaUse> {
    let mut quotas = quotas.peekable();
    if quotas.peek().is_none() {
        return Vec::new();
    }
    let tool = tenant.directory.tools.get(asked.tool);
    let Some(action) = tool.and_then(|tool| tool.actions.get(asked.action)) else {
        return Vec::new();
    };
    let registered = Call {
        tool: asked.tool,
        group: ActionGroup::of(action.mutates_state),
        risk: action.risk,
    };
    // A read that is said to change something counts as both: what is claimed gets nobody out of a quota.
    let claimed = Call {
        group: ActionGroup::of(action.mutates_state || asked.claims_mutation),
        ..registered
    };
    let mut uses = Vec::new();
    for (holder, quota) in quotas.filter(|(_, quota)| quota.covers(&registered) || quota.covers(&claimed)) {
        // A call that names only who started it is of that run.
        let run = asked.run_id.or(asked.parent_run_id);
        let run = run.filter(|_| quota.window == Window::Run);
        uses.push(quota_use(&holder, quota, run));
        // What a run does, the one that started it is responsible for.
        let parent = asked.parent_run_id.filter(|parent| Some(*parent) != run);
        if quota.window == Window::Run && parent.is_some() {
            uses.push(quota_use(&holder, quota, parent));
        }
    }
    uses
}

fn quota_use(holder: &Holder<'_>, quota: &Quota, run: Option<&Name>) -> QuotaUse {
    QuotaUse {
        key: holder.key(quota, run),
        holder: holder.as_str(),
        window: quota.window,
        limit: quota.limit,
    }
}

/// Whether there is room for one more call in all of these; if not, the one that begins anew last, so that nobody is told to come
/// back too early.
pub fn check<'k>(
    uses: &[QuotaUse],
    find: impl Fn(&Digest) -> Option<&'k Counter>,
    now: Timestamp,
) -> Result<(), Box<QuotaExceeded>> {
    let exceeded = |quota: &QuotaUse| {
        let (start, _) = quota.window.around(now);
        let counter = find(&quota.key)?;
        (counter.count_in(start) >= quota.limit).then(|| QuotaExceeded {
            quota: quota.clone(),
            until: counter.begins_anew(quota.window, now),
        })
    };
    let forever = Timestamp::from_millis(i64::MAX);
    let last = uses
        .iter()
        .filter_map(exceeded)
        .max_by_key(|over| over.until.unwrap_or(forever));
    last.map_or(Ok(()), |over| Err(Box::new(over)))
}

/// Notes how much is used of these.
pub fn note_usage<'k>(
    uses: &[QuotaUse],
    find: impl Fn(&Digest) -> Option<&'k Counter>,
    now: Timestamp,
    usage: &mut Usage,
) {
    for QuotaUse {
        key, window, limit, ..
    } in uses
    {
        let (start, _) = window.around(now);
        let calls = CallsUsage {
            limit: *limit,
            used: find(key).map_or(0, |counter| counter.count_in(start)),
        };
        usage.note(*window, calls);
    }
}

/// Counts a call in all of these, and returns the counters that change.
pub(crate) fn count<'a>(
    known: &'a mut KnownCounters,
    tenant: TenantId,
    uses: &'a [QuotaUse],
    now: Timestamp,
) -> impl Iterator<Item = Counter> + 'a {
    uses.iter().map(move |quota| {
        let counter = known
            .entry((tenant, quota.key))
            .or_insert_with(|| Counter::new(quota.key));
        *counter = counter.plus_one(quota.window.around(now).0, now);
        *counter
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::SYSTEM;

    fn quota_use(window: Window, limit: u64) -> QuotaUse {
        QuotaUse {
            key: Digest::of(window.as_str().as_bytes()),
            holder: "agent",
            window,
            limit,
        }
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Asks once; whether it was allowed, or until when it is not.
    fn ask(known: &mut KnownCounters, uses: &[QuotaUse], now: Timestamp) -> Result<(), Option<Timestamp>> {
        check(uses, |key| known.get(&(TENANT, *key)), now).map_err(|over| over.until)?;
        count(known, TENANT, uses, now).for_each(drop);
        Ok(())
    }

    #[test]
    fn a_window_allows_its_limit_and_the_next_one_again() {
        let mut known = KnownCounters::new();
        let uses = [quota_use(Window::Minute, 3)];
        let now = time("2026-11-21T10:00:30.000Z");
        let next = time("2026-11-21T10:01:00.000Z");
        for _ in 0..3 {
            assert_eq!(ask(&mut known, &uses, now), Ok(()));
        }
        assert_eq!(ask(&mut known, &uses, now), Err(Some(next)));
        assert_eq!(ask(&mut known, &uses, next.plus_millis(-1)), Err(Some(next)));
        assert_eq!(ask(&mut known, &uses, next), Ok(()));
        // A clock that was set back is in the newer window all the same.
        assert_eq!(known[&(TENANT, uses[0].key)].count, 1);
        for _ in 0..2 {
            assert_eq!(ask(&mut known, &uses, now), Ok(()));
        }
        assert_eq!(ask(&mut known, &uses, now), Err(Some(next.plus_millis(60_000))));
    }

    #[test]
    fn a_call_counts_everywhere_or_nowhere_and_the_longest_wait_is_told() {
        let mut known = KnownCounters::new();
        let uses = [
            quota_use(Window::Minute, 1),
            quota_use(Window::Day, 2),
            quota_use(Window::Hour, 1),
        ];
        let now = time("2026-11-21T10:00:30.000Z");
        assert_eq!(ask(&mut known, &uses, now), Ok(()));
        assert_eq!(
            ask(&mut known, &uses, now),
            Err(Some(time("2026-11-21T11:00:00.000Z")))
        );
        assert!(known.values().all(|counter| counter.count == 1));
    }

    #[test]
    fn a_run_does_not_begin_anew() {
        let mut known = KnownCounters::new();
        let uses = [quota_use(Window::Run, 1)];
        assert_eq!(ask(&mut known, &uses, time("2026-11-21T10:00:30.000Z")), Ok(()));
        assert_eq!(
            ask(&mut known, &uses, time("2029-11-21T10:00:30.000Z")),
            Err(None)
        );
    }

    #[test]
    fn no_two_things_are_counted_as_one() {
        let name = |text: &str| Name::new(text).unwrap();
        let quota = |json: &str| serde_json::from_str::<Quota>(json).unwrap();
        let (team, other) = (name("a"), name("b"));
        let day = quota(r#"{"window":"day","limit":1}"#);
        let tool = quota(r#"{"window":"day","limit":1,"tool":"a"}"#);
        let run = quota(r#"{"window":"run","limit":1}"#);
        let keys = [
            Holder::Tenant.key(&day, None),
            Holder::Tenant.key(&tool, None),
            Holder::Team(&team).key(&day, None),
            Holder::Team(&other).key(&day, None),
            Holder::Team(&team).key(&tool, None),
            Holder::Tenant.key(&run, None),
            Holder::Tenant.key(&run, Some(&team)),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        let raised = quota(r#"{"window":"day","limit":5}"#);
        assert_eq!(Holder::Tenant.key(&raised, None), keys[0]);
    }
}
