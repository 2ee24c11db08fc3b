//! `POST /access/v1/search/subject`, `…/resource` and `…/action` (section 8): which agents, which tools, which of a tool's actions?
//!
//! What is found is permitted by standing, grants and policies, as far as they can be known beforehand: of an action whose parameters are not
//! given, whatever they will be. Limits and budgets are not looked at, and nothing is recorded.

use super::entities::{AGENT, Call, Context, TOOL, Tuple, check_own, missing, read};
use crate::gateway::Gateway;
use crate::http::{CanonicalBody, Code, Json, Refusal};
use crate::limits::{Admission, Asking};
use crate::line::Place;
use crate::records::reader::Credential;
use axum::extract::State;
use canon::{Canonical, Digest};
use engine::judge::{Evidence, judge};
use engine::{Ask, Delegation, Mode, TenantSnapshot};
use model::{Agent, AgentId, Directory, Name, Tool, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many results are on a page when the caller does not say, and how many at most.
const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 500;
/// How many candidates are looked at for a page, and for how long. Each takes some microseconds of judging, or, where large parameters are checked
/// against a schema, up to a fifth of a second.
const CANDIDATES_MAX: usize = 500;
const TIME_MAX: Duration = Duration::from_millis(500);
/// How often tokens of shared buckets are looked for.
const ATTEMPTS_MAX: usize = 8;
/// How much of its digest stands for a request in a token.
const DIGEST_CHARS: usize = "sha256:".len() + 16;

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
    credential: Credential,
    CanonicalBody(text): CanonicalBody,
) -> Result<Json<Results>, Refusal> {
    search(&gateway, &credential, Wanted::Subjects, &text).await
}

/// With which tools may this agent do this?
pub async fn resources(
    State(gateway): State<Arc<Gateway>>,
    credential: Credential,
    CanonicalBody(text): CanonicalBody,
) -> Result<Json<Results>, Refusal> {
    search(&gateway, &credential, Wanted::Resources, &text).await
}

/// What may this agent do with this tool?
pub async fn actions(
    State(gateway): State<Arc<Gateway>>,
    credential: Credential,
    CanonicalBody(text): CanonicalBody,
) -> Result<Json<Results>, Refusal> {
    search(&gateway, &credential, Wanted::Actions, &text).await
}

async fn search(
    gateway: &Gateway,
    credential: &Credential,
    wanted: Wanted,
    text: &Canonical,
) -> Result<Json<Results>, Refusal> {
    let id = credential.reader().tenant;
    let tuple: Tuple<'_> = canon::read(text.as_str())?;
    let part = Part::read(wanted, text, tuple)?;
    gateway.admit_search(credential).await?;
    let place = Arc::new(gateway.searches.place(id).await?);
    // The body and the line may have taken a while: it is looked at what is in force now.
    credential.check(gateway)?;
    let tenant = gateway.tenant(id)?;
    let query = Query::read(wanted, &tenant.directory, credential, tuple)?;
    let mut candidates = query
        .candidates(&tenant.directory, part.after.as_deref())
        .into_iter();
    let mut found = Vec::new();
    let mut last = part.after.clone();
    let began = Instant::now();
    for _ in 0..CANDIDATES_MAX {
        if found.len() == part.limit || began.elapsed() > TIME_MAX {
            break;
        }
        let Some(candidate) = candidates.next() else { break };
        let question = (query.ask(&candidate)?, query.parameters.is_none());
        let is_permitted = gateway
            .permits(&tenant, &candidate.agent, question, &place)
            .await?;
        last = Some(candidate.key(wanted));
        if is_permitted {
            found.push(candidate.found(wanted));
        }
    }
    let next = match candidates.next() {
        Some(_) => part.next(last.as_deref()),
        None => String::new(),
    };
    Ok(Json(Results::new(found, next)))
}

impl Part {
    /// The part that a request wants (section 8.2). A token is good for the request that it was given to and no other; how many results are on a page,
    /// it says itself.
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
    Agents { tool: String, action: String },
    Tools { agent: Arc<Agent>, action: String },
    Actions { agent: Arc<Agent>, tool: String },
}

/// What is asked about each candidate.
struct Query<'a> {
    sought: Sought,
    /// Whether an agent asks for itself. Then it is told of no tool that it could not name without being denied, and of no trap.
    is_own: bool,
    delegation: Delegation,
    target: Option<String>,
    /// None if nobody knows them.
    parameters: Option<&'a str>,
    context: Context<'a>,
}

impl<'a> Query<'a> {
    fn read(
        wanted: Wanted,
        directory: &Directory,
        credential: &Credential,
        tuple: Tuple<'a>,
    ) -> Result<Self, Refusal> {
        let (named, resource) = (tuple.agent()?, tuple.tool()?);
        let agent = || {
            let named = named.as_deref().ok_or_else(|| missing("/subject/id"))?;
            agent(directory, credential, named)
        };
        let tool = || resource.id().map(str::to_owned);
        let action = match wanted {
            Wanted::Actions => None,
            Wanted::Subjects | Wanted::Resources => Some(tuple.action()?),
        };
        let name = || {
            action
                .as_ref()
                .map(|action| action.name.to_string())
                .unwrap_or_default()
        };
        let sought = match wanted {
            Wanted::Subjects => Sought::Agents {
                tool: tool()?,
                action: name(),
            },
            Wanted::Resources => Sought::Tools {
                agent: agent()?,
                action: name(),
            },
            Wanted::Actions => Sought::Actions {
                agent: agent()?,
                tool: tool()?,
            },
        };
        let (is_own, delegation) = match credential {
            Credential::Agent(caller) => (true, caller.delegation.clone()),
            Credential::Holder(_) => (false, Delegation::default()),
        };
        Ok(Self {
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
                let found = agents.map(|(_, agent)| Candidate::new(agent, tool, action));
                found.take(CANDIDATES_MAX + 1).collect()
            }
            Sought::Tools { agent, action } => {
                let is_one = |tool: &&Arc<Tool>| {
                    let has_action = tool.actions.keys().any(|name| name.as_str() == action);
                    is_behind(tool.name.as_str()) && has_action && self.may_be_told(agent, tool)
                };
                let tools = directory.tools.values().filter(is_one);
                let found = tools.map(|tool| Candidate::new(agent, tool.name.as_str(), action));
                found.take(CANDIDATES_MAX + 1).collect()
            }
            Sought::Actions { agent, tool } => {
                let tool = directory.tools.get(tool.as_str());
                let tool = tool.filter(|tool| self.may_be_told(agent, tool));
                let actions = tool.into_iter().flat_map(|tool| {
                    let names = tool.actions.keys().map(Name::as_str);
                    names.map(|name| Candidate::new(agent, tool.name.as_str(), name))
                });
                let found = actions.filter(|candidate| is_behind(&candidate.action));
                found.take(CANDIDATES_MAX + 1).collect()
            }
        }
    }

    /// Whether this tool can be found, and where a page ends may tell of it.
    fn may_be_told(&self, agent: &Agent, tool: &Tool) -> bool {
        agent.tools.includes(tool.name.as_str()) && !(self.is_own && tool.canary)
    }

    /// The ask of a candidate.
    fn ask(&self, candidate: &Candidate) -> Result<Ask, Refusal> {
        let ask = self.context.ask(Call {
            tool: &candidate.tool,
            action: &candidate.action,
            target: self.target.as_deref(),
            parameters: self.parameters,
        })?;
        Ok(Ask {
            approval_id: None,
            mode: Mode::DryRun,
            ..ask.delegated(&self.delegation)?
        })
    }
}

/// The agent of this id or name. An agent finds nobody but itself.
fn agent(directory: &Directory, credential: &Credential, named: &str) -> Result<Arc<Agent>, Refusal> {
    if let Credential::Agent(caller) = credential {
        check_own(&caller.agent, named)?;
        let own = directory.agents.get(&caller.agent.id);
        return Ok(Arc::clone(own.unwrap_or(&caller.agent)));
    }
    let name = Name::new(named).ok();
    let agent = name.and_then(|name| directory.agent_called(&name).cloned());
    agent.ok_or_else(|| Refusal::not_found("agent", named))
}

impl Gateway {
    /// Takes a token from the buckets of an agent that searches, as an ask does.
    async fn admit_search(&self, credential: &Credential) -> Result<(), Refusal> {
        let Credential::Agent(caller) = credential else {
            return Ok(());
        };
        for _ in 0..ATTEMPTS_MAX {
            let (tenant, now) = (self.tenant(caller.tenant)?, self.clock.now());
            let agent = caller.refresh(&tenant, now)?;
            let asking = Asking {
                tenant: &tenant.directory.tenant,
                agent: &agent,
                tool: "",
            };
            match self.limits.admit(&asking, now)? {
                Admission::Admitted => return Ok(()),
                Admission::Short(short) => self.limits.fill(&short).await?,
            }
        }
        Err(Refusal::overloaded())
    }

    /// Whether this would be allowed, but for limits and budgets. Policies are asked where nobody waits for a decision, and the place is kept until
    /// they have answered, also if the caller has gone.
    async fn permits(
        &self,
        tenant: &Arc<TenantSnapshot>,
        agent: &Arc<Agent>,
        (ask, parameters_unknown): (Ask, bool),
        place: &Arc<Place>,
    ) -> Result<bool, Refusal> {
        let now = self.clock.now();
        let usage = if tenant.policies.looks_at_usage() {
            let counted = self.counted(tenant, agent, &ask).await?;
            Some(Arc::new(counted.usage(tenant, agent, &ask, now)))
        } else {
            None
        };
        let run = self.run_of(tenant, &ask).await?;
        let (tenant, agent, place) = (Arc::clone(tenant), Arc::clone(agent), Arc::clone(place));
        let work = tokio::task::spawn_blocking(move || {
            let evidence = Evidence {
                run: run.as_ref(),
                usage: usage.as_ref(),
                parameters_unknown,
                ..Evidence::default()
            };
            let judged = judge(&tenant, &agent, &ask, &evidence, now);
            drop(place);
            judged
        });
        let judged = work.await.map_err(|error| {
            tracing::error!(%error, "a search broke off");
            Refusal::new(Code::Internal, "the policies could not be asked")
        })?;
        match judged {
            Ok(judgement) => Ok(judgement.verdict() == Verdict::Allow),
            // It is registered for another one than is asked about.
            Err(engine::Refusal::EnvironmentNotAllowed { .. }) => Ok(false),
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
