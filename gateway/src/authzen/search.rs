//! `POST /access/v1/search/subject`, `…/resource` and `…/action` (section 8): which agents, which tools, which of a
//! tool's actions?
//!
//! What is found is permitted by standing, grants and policies, as far as they can be known beforehand: of an action
//! whose parameters are not given, whatever they will be. Of what nobody has registered nothing is found. Limits and
//! budgets are not looked at, and nothing is recorded.

use super::entities::{AGENT, Call, Context, TOOL, Tuple, check_own, read};
use crate::fair_semaphore::Permit;
use crate::gateway::Gateway;
use crate::http::caller::ShownCredential;
use crate::http::page::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::http::{CanonicalBody, Code, Json, Refusal};
use crate::reader::Reader;
use axum::extract::State;
use canon::{Canonical, Digest};
use engine::judge::{LookedUpFacts, judge};
use engine::{Ask, Delegation, Judgement, Mode, ProvenanceError, TenantSnapshot};
use model::{Agent, AgentId, Directory, Name, RunTaint, Timestamp, Tool, Usage, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many candidates are looked at for a page. Each takes some microseconds of judging for every agent in whose name
/// it is asked, and, where large parameters are checked against a schema, up to a fifth of a second once for all of
/// them.
const CANDIDATES_MAX: usize = 500;
/// For how long candidates are looked at for a page.
const TIME_MAX: Duration = Duration::from_millis(500);
/// How much of its digest stands for a request in a token.
const DIGEST_CHARS: usize = "sha256:".len() + 16;
/// Stands for the tool and the action of whatever may be found, where only the rest of an ask is looked at, which is
/// the same for all.
const ANY: &str = "any";

/// What is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Subjects,
    Resources,
    Actions,
}

#[derive(Default, Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    token: Option<Cow<'a, str>>,
    limit: Option<u64>,
}

/// The part of the results that a request is about.
struct Part {
    limit: usize,
    /// The last candidate that was looked at before.
    after: Option<String>,
    /// What stands for the request in the token of the next part.
    digest: String,
}

/// Somebody who may be permitted something.
struct Candidate {
    agent: Arc<Agent>,
    tool: String,
    action: String,
}

/// What is found (section 8.3).
#[derive(Debug, Serialize)]
pub struct Results {
    page: PageFound,
    results: Vec<Found>,
}

#[derive(Debug, Serialize)]
struct PageFound {
    next_token: String,
    count: usize,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Found {
    Entity {
        #[serde(rename = "type")]
        kind: &'static str,
        id: String,
    },
    Action {
        name: String,
    },
}

/// Which agents may do this with this tool?
pub async fn subjects(
    State(gateway): State<Arc<Gateway>>,
    credential: ShownCredential,
    CanonicalBody(text): CanonicalBody,
) -> Result<Json<Results>, Refusal> {
    search(&gateway, &credential, Wanted::Subjects, &text).await
}

/// With which tools may this agent do this?
pub async fn resources(
    State(gateway): State<Arc<Gateway>>,
    credential: ShownCredential,
    CanonicalBody(text): CanonicalBody,
) -> Result<Json<Results>, Refusal> {
    search(&gateway, &credential, Wanted::Resources, &text).await
}

/// What may this agent do with this tool?
pub async fn actions(
    State(gateway): State<Arc<Gateway>>,
    credential: ShownCredential,
    CanonicalBody(text): CanonicalBody,
) -> Result<Json<Results>, Refusal> {
    search(&gateway, &credential, Wanted::Actions, &text).await
}

async fn search(
    gateway: &Gateway,
    credential: &ShownCredential,
    wanted: Wanted,
    text: &Canonical,
) -> Result<Json<Results>, Refusal> {
    let reader = Reader::from(credential);
    let id = reader.tenant;
    let tuple: Tuple<'_> = canon::read(text.as_str())?;
    let part = Part::read(wanted, text, tuple)?;
    // Standing in line is paid for, too: for nothing, one agent could fill it and keep it full.
    if let ShownCredential::Agent(caller) = credential {
        gateway.pass_buckets(caller).await?;
    }
    let permit = gateway.searches.acquire(reader.fairness_key()).await?;
    // The body and the wait for a permit may have taken a while: it is looked at what is in force now.
    let as_of = gateway.snapshot.as_of(id);
    credential.check(gateway)?;
    let tenant = gateway.tenant(id)?;
    let query = Query::read(wanted, &tenant.directory, credential, tuple)?;
    let any = query.ask(ANY, ANY)?;
    let grounds = Arc::new(Grounds {
        run: gateway.run_of(&tenant, &any).await?,
        tenant,
        parameters_unknown: query.parameters.is_none(),
        _permit: permit,
    });
    let found = look(gateway, &query, &grounds, &part).await?;
    gateway.check_answer_is_current(as_of)?;
    Ok(Json(found))
}

/// Looks at candidates until there are enough, or time is up.
async fn look(
    gateway: &Gateway,
    query: &Query<'_>,
    grounds: &Arc<Grounds>,
    part: &Part,
) -> Result<Results, Refusal> {
    let (wanted, after) = (query.wanted, part.after.as_deref());
    let mut candidates = query.candidates(&grounds.tenant.directory, after).into_iter();
    let mut found = Vec::new();
    let mut last = part.after.clone();
    let began = Instant::now();
    for _ in 0..CANDIDATES_MAX {
        if found.len() == part.limit || began.elapsed() > TIME_MAX {
            break;
        }
        let Some(candidate) = candidates.next() else { break };
        let ask = query.ask(&candidate.tool, &candidate.action)?;
        let is_permitted = gateway.permits(grounds, &candidate.agent, ask).await?;
        last = Some(candidate.key(wanted));
        if is_permitted {
            found.push(candidate.found(wanted));
        }
    }
    let next = match candidates.next() {
        Some(_) => part.next(last.as_deref()),
        None => String::new(),
    };
    Ok(Results::new(found, next))
}

impl Part {
    /// The part that a request wants (section 8.2). A token is good for the request that it was given to and no other;
    /// how many results are on a page, it says itself.
    fn read(wanted: Wanted, text: &Canonical, tuple: Tuple<'_>) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        struct Paged<'a> {
            #[serde(borrow)]
            page: Option<&'a RawValue>,
        }
        let Paged { page } = canon::read(text.as_str())?;
        let page: Page<'_> = match page {
            Some(_) => read("/page", page)?,
            None => Page::default(),
        };
        let limit = page
            .limit
            .map(|limit| usize::try_from(limit).map_or(LIMIT_MAX, |limit| limit.min(LIMIT_MAX)));
        let digest = digest(wanted, tuple);
        match page.token.filter(|token| !token.is_empty()) {
            Some(token) => {
                let (told, after) = Self::read_token(&token, &digest).ok_or_else(foreign_token)?;
                if limit.is_some_and(|limit| limit != told) {
                    return Err(foreign_token());
                }
                Ok(Self {
                    limit: told,
                    after: Some(after),
                    digest,
                })
            }
            // What an empty token asks for is the beginning: it is what the last page names.
            None => Ok(Self {
                limit: limit.unwrap_or(LIMIT_DEFAULT),
                after: None,
                digest,
            }),
        }
    }

    /// How many results are on a page, and behind what the next one begins.
    fn read_token(token: &str, digest: &str) -> Option<(usize, String)> {
        let rest = token.strip_prefix(digest)?.strip_prefix('.')?;
        let (limit, after) = rest.split_once('.')?;
        let limit = limit.parse().ok().filter(|limit| *limit <= LIMIT_MAX)?;
        Some((limit, after.to_owned()))
    }

    fn next(&self, last: Option<&str>) -> String {
        format!("{}.{}.{}", self.digest, self.limit, last.unwrap_or_default())
    }
}

/// What stands in a token for what a request asks for, but for which part of it.
fn digest(wanted: Wanted, tuple: Tuple<'_>) -> String {
    let parts = [tuple.subject, tuple.action, tuple.resource, tuple.context];
    let [subject, action, resource, context] = parts.map(|part| part.map_or("", RawValue::get));
    let text = format!("{wanted:?}\n{subject}\n{action}\n{resource}\n{context}");
    let mut digest = Digest::of(text.as_bytes()).to_string();
    digest.truncate(DIGEST_CHARS);
    digest
}

fn foreign_token() -> Refusal {
    let detail = "`/page/token`: is not the `next_token` of an answer to this request; everything but the token stays the same";
    Refusal::new(Code::InvalidField, detail)
}

/// Who or what is searched for, and what is given of the rest.
enum Sought {
    /// The tool has the action.
    Agents {
        tool: Arc<Tool>,
        action: String,
    },
    Tools {
        agent: Arc<Agent>,
        action: String,
    },
    Actions {
        agent: Arc<Agent>,
        tool: Arc<Tool>,
    },
    /// Something is of a type, or is called by a name, that nobody has registered.
    Nothing,
}

impl Sought {
    fn new(wanted: Wanted, agent: Option<Arc<Agent>>, tool: Option<Arc<Tool>>, action: &str) -> Self {
        match (wanted, agent, tool) {
            (Wanted::Subjects, _, Some(tool)) if tool.actions.contains_key(action) => {
                let action = action.to_owned();
                Self::Agents { tool, action }
            }
            (Wanted::Resources, Some(agent), _) => {
                let action = action.to_owned();
                Self::Tools { agent, action }
            }
            (Wanted::Actions, Some(agent), Some(tool)) => Self::Actions { agent, tool },
            _ => Self::Nothing,
        }
    }
}

/// What is asked about each candidate.
struct Query<'a> {
    wanted: Wanted,
    sought: Sought,
    /// Whether an agent asks for itself. Then it is told of no tool that it could not name without being denied, and of no trap.
    is_own: bool,
    delegation: Delegation,
    target: Option<String>,
    /// None if nobody knows them.
    parameters: Option<&'a str>,
    context: Context<'a>,
}

/// What all candidates are judged with. Each takes its share along to where policies are asked, so that the place is
/// kept until they have answered, also if the caller has gone.
struct Grounds {
    tenant: Arc<TenantSnapshot>,
    /// What the run of the ask has seen.
    run: Option<RunTaint>,
    parameters_unknown: bool,
    _permit: Permit,
}

impl<'a> Query<'a> {
    fn read(
        wanted: Wanted,
        directory: &Directory,
        credential: &ShownCredential,
        tuple: Tuple<'a>,
    ) -> Result<Self, Refusal> {
        let (subject, resource) = (tuple.subject()?, tuple.resource()?);
        let action = match wanted {
            Wanted::Actions => None,
            Wanted::Subjects | Wanted::Resources => Some(tuple.action()?),
        };
        let agent = match wanted {
            Wanted::Subjects => None,
            Wanted::Resources | Wanted::Actions => agent(directory, credential, subject.id()?)?,
        };
        let tool = match wanted {
            Wanted::Resources => None,
            Wanted::Subjects | Wanted::Actions => directory.tools.get(resource.id()?).cloned(),
        };
        let name = action.as_ref().map(|action| &*action.name).unwrap_or_default();
        let sought = if subject.is_agent && resource.is_tool {
            Sought::new(wanted, agent, tool, name)
        } else {
            Sought::Nothing
        };
        let (is_own, delegation) = match credential {
            ShownCredential::Agent(caller) => (true, caller.delegation.clone()),
            ShownCredential::Holder(_) => (false, Delegation::default()),
        };
        Ok(Self {
            wanted,
            sought,
            is_own,
            delegation,
            target: resource.target().map(str::to_owned),
            parameters: action.and_then(|action| action.properties).map(RawValue::get),
            context: tuple.context()?,
        })
    }

    /// Whoever, or whatever, may be found behind `after`, in the order of ids and names: one more than are looked at.
    fn candidates(&self, directory: &Directory, after: Option<&str>) -> Vec<Candidate> {
        let is_behind = |name: &str| after.is_none_or(|after| name > after);
        match &self.sought {
            Sought::Agents { tool, action } => {
                let after = after.and_then(|after| after.parse::<AgentId>().ok());
                let first = after.map_or(Bound::Unbounded, Bound::Excluded);
                let agents = directory.agents.range((first, Bound::Unbounded));
                let found = agents.map(|(_, agent)| Candidate::new(agent, tool.name.as_str(), action));
                found.take(CANDIDATES_MAX + 1).collect()
            }
            Sought::Tools { agent, action } => {
                let is_one = |tool: &&Arc<Tool>| {
                    let has_action = tool.actions.contains_key(action.as_str());
                    is_behind(tool.name.as_str()) && has_action && self.may_be_told(agent, tool)
                };
                let tools = directory.tools.values().filter(is_one);
                let found = tools.map(|tool| Candidate::new(agent, tool.name.as_str(), action));
                found.take(CANDIDATES_MAX + 1).collect()
            }
            Sought::Actions { agent, tool } => {
                let may_be_told = self.may_be_told(agent, tool);
                let names = tool.actions.keys().map(Name::as_str);
                let names = names.filter(|name| may_be_told && is_behind(name));
                let found = names.map(|name| Candidate::new(agent, tool.name.as_str(), name));
                found.take(CANDIDATES_MAX + 1).collect()
            }
            Sought::Nothing => Vec::new(),
        }
    }

    /// Whether this tool can be found, and where a page ends may tell of it.
    fn may_be_told(&self, agent: &Agent, tool: &Tool) -> bool {
        agent.tools.includes(tool.name.as_str()) && !(self.is_own && tool.is_canary())
    }

    /// The ask for an action of a tool.
    fn ask(&self, tool: &str, action: &str) -> Result<Ask, Refusal> {
        let call = Call {
            tool,
            action,
            target: self.target.as_deref(),
            parameters: self.parameters,
        };
        let ask = self.context.ask(call, None)?;
        Ok(Ask {
            approval_id: None,
            mode: Mode::DryRun,
            ..ask.delegated(&self.delegation)?
        })
    }
}

impl Grounds {
    fn judge(
        &self,
        agent: &Agent,
        ask: &Ask,
        usage: Option<&Arc<Usage>>,
        now: Timestamp,
    ) -> Result<Judgement, engine::Refusal> {
        let facts = LookedUpFacts {
            run: self.run.as_ref(),
            usage,
            parameters_unknown: self.parameters_unknown,
            ..LookedUpFacts::default()
        };
        judge(&self.tenant, agent, ask, &facts, now)
    }
}

/// Whether this keeps one candidate from being found, and says nothing of the others: it is registered for another
/// environment than is asked about, or the token that came along is for somebody else.
const fn is_of_candidate(refusal: &engine::Refusal) -> bool {
    matches!(
        refusal,
        engine::Refusal::EnvironmentNotAllowed { .. }
            | engine::Refusal::Provenance(ProvenanceError::OtherSubject(_))
    )
}

/// The agent of this id or name, if there is one. An agent finds nobody but itself.
fn agent(
    directory: &Directory,
    credential: &ShownCredential,
    named: &str,
) -> Result<Option<Arc<Agent>>, Refusal> {
    if let ShownCredential::Agent(caller) = credential {
        check_own(&caller.agent, named)?;
        let own = directory.agents.get(&caller.agent.id);
        return Ok(Some(Arc::clone(own.unwrap_or(&caller.agent))));
    }
    let name = Name::new(named).ok();
    Ok(name.and_then(|name| directory.agent_called(&name).cloned()))
}

impl Gateway {
    /// Whether this would be allowed, but for limits and budgets. Policies are asked where nobody waits for a decision.
    async fn permits(&self, grounds: &Arc<Grounds>, agent: &Arc<Agent>, ask: Ask) -> Result<bool, Refusal> {
        let (tenant, now) = (&grounds.tenant, self.clock.now());
        let usage = if tenant.policies.looks_at_usage() {
            let counted = self.counted(tenant, agent, &ask).await?;
            Some(Arc::new(counted.usage(tenant, agent, &ask, now)))
        } else {
            None
        };
        let (grounds, agent) = (Arc::clone(grounds), Arc::clone(agent));
        let work = tokio::task::spawn_blocking(move || grounds.judge(&agent, &ask, usage.as_ref(), now));
        let judged = work.await.map_err(|error| {
            Refusal::broken_off(&error, "a search broke off", "the policies could not be asked")
        })?;
        match judged {
            Ok(judgement) => Ok(judgement.verdict() == Verdict::Allow),
            Err(refusal) if is_of_candidate(&refusal) => Ok(false),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

impl Candidate {
    fn new(agent: &Arc<Agent>, tool: &str, action: &str) -> Self {
        Self {
            agent: Arc::clone(agent),
            tool: tool.to_owned(),
            action: action.to_owned(),
        }
    }

    fn key(&self, wanted: Wanted) -> String {
        match wanted {
            Wanted::Subjects => self.agent.id.to_string(),
            Wanted::Resources => self.tool.clone(),
            Wanted::Actions => self.action.clone(),
        }
    }

    fn found(self, wanted: Wanted) -> Found {
        match wanted {
            Wanted::Subjects => Found::Entity {
                kind: AGENT,
                id: self.agent.id.to_string(),
            },
            Wanted::Resources => Found::Entity {
                kind: TOOL,
                id: self.tool,
            },
            Wanted::Actions => Found::Action { name: self.action },
        }
    }
}

impl Results {
    fn new(results: Vec<Found>, next_token: String) -> Self {
        let count = results.len();
        Self {
            page: PageFound { next_token, count },
            results,
        }
    }
}
