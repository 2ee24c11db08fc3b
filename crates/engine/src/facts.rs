//! What a decision was made from besides the ask: agent, team, user and action as they were, in records that are found by
//! their digest.
//!
//! A record holds what policies can see of a noun and nothing else, so that a decision can be judged again later, and so
//! that what no policy sees (a new token, a freeze) makes no new record. The digests are taken when the directory
//! changes and not for each ask.

mod record;

pub use record::{ActionRecord, Record};

use crate::ask::Ask;
use crate::delegation::delegators;
use crate::snapshot::TenantSnapshot;
use canon::{Canonical, Digest, ObjectWriter};
use model::{Agent, AgentId, Directory, Name, Noun, SlashFreeName, Team, Tool, ToolAction, User, Write};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::ContentRow;

/// The digest of the record of every noun that policies can see, and those of definitions. Cloning shares everything.
#[derive(Debug, Clone, Default)]
pub struct FactDigests {
    agents: imbl::OrdMap<AgentId, Digest>,
    teams: imbl::OrdMap<Name, Digest>,
    users: imbl::OrdMap<Name, Digest>,
    tools: imbl::OrdMap<SlashFreeName, Arc<BTreeMap<Name, ActionDigests>>>,
}

/// The digests of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ActionDigests {
    record: Digest,
    definition: Digest,
}

impl FactDigests {
    /// Those of a directory.
    pub fn of(directory: &Directory) -> Self {
        let mut digests = Self::default();
        for agent in directory.agents.values() {
            digests.put(&Noun::Agent(Arc::clone(agent)));
        }
        for team in directory.teams.values() {
            digests.put(&Noun::Team(Arc::clone(team)));
        }
        for user in directory.users.values() {
            digests.put(&Noun::User(Arc::clone(user)));
        }
        for tool in directory.tools.values() {
            digests.put(&Noun::Tool(Arc::clone(tool)));
        }
        digests
    }

    /// Takes the step that a directory takes, which is still what it was before.
    pub(crate) fn apply(&mut self, before: &Directory, write: &Write) {
        match write {
            Write::Put(Noun::Tool(tool)) => self.put_tool(before.tools.get(&tool.name), tool),
            Write::Put(noun) => self.put(noun),
            Write::Delete(noun) => self.delete(noun),
        }
    }

    /// The digest of the record of an action.
    pub fn action(&self, tool: &str, action: &str) -> Option<Digest> {
        Some(self.tools.get(tool)?.get(action)?.record)
    }

    /// The digest of the definition of an action: [`ToolAction::definition`].
    pub fn definition(&self, tool: &str, action: &str) -> Option<Digest> {
        Some(self.tools.get(tool)?.get(action)?.definition)
    }

    fn put(&mut self, noun: &Noun) {
        match noun {
            Noun::Agent(agent) => {
                self.agents.insert(agent.id, record::of_agent(agent).digest());
            }
            Noun::Team(team) => {
                self.teams
                    .insert(team.name.clone(), record::of_team(team).digest());
            }
            Noun::User(user) => {
                self.users
                    .insert(user.name.clone(), record::of_user(user).digest());
            }
            Noun::Tool(tool) => self.put_tool(None, tool),
            _ => {}
        }
    }

    /// Keeps the digests of those actions that are as they were: schemas may be megabytes, and all who wait to be
    /// recorded wait for a tool that is frozen.
    fn put_tool(&mut self, before: Option<&Arc<Tool>>, tool: &Tool) {
        let known = self.tools.get(&tool.name).cloned().zip(before);
        let kept = |action: &ToolAction| {
            let (digests, before) = known.as_ref()?;
            let is_alike =
                before.canary == tool.canary && are_alike(before.actions.get(&action.name)?, action);
            digests.get(&action.name).copied().filter(|_| is_alike)
        };
        let digests = |action: &ToolAction| {
            kept(action).unwrap_or_else(|| ActionDigests {
                record: record::of_action(tool, action).digest(),
                definition: action.definition(),
            })
        };
        let actions = tool.actions.values();
        let actions = actions.map(|action| (action.name.clone(), digests(action)));
        self.tools.insert(tool.name.clone(), Arc::new(actions.collect()));
    }

    fn delete(&mut self, noun: &Noun) {
        match noun {
            Noun::Agent(agent) => drop(self.agents.remove(&agent.id)),
            Noun::Team(team) => drop(self.teams.remove(&team.name)),
            Noun::User(user) => drop(self.users.remove(&user.name)),
            Noun::Tool(tool) => drop(self.tools.remove(&tool.name)),
            _ => {}
        }
    }
}

/// Whether two states of an action have the same digests, if the tool is a trap in both or in none. A schema is not
/// compared but has to be the same one, as it is where nobody has sent it anew.
fn are_alike(one: &ToolAction, other: &ToolAction) -> bool {
    // Whatever an action gets later is looked at.
    let ToolAction {
        name,
        mutates_state,
        risk,
        input_schema,
        description,
        pinned,
        held: _,
    } = one;
    let members = (name, mutates_state, risk, description, pinned);
    members
        == (
            &other.name,
            &other.mutates_state,
            &other.risk,
            &other.description,
            &other.pinned,
        )
        && input_schema.as_ref().map(Arc::as_ptr) == other.input_schema.as_ref().map(Arc::as_ptr)
}

/// The digests of the contents that the body of a decision's entry names: the policies, and what they looked at.
pub fn named(body: &str) -> Vec<Digest> {
    #[derive(Deserialize)]
    struct Named {
        policy_digest: Digest,
        #[serde(default)]
        facts: BTreeMap<String, Digest>,
        #[serde(default)]
        delegators: Vec<NamedDelegator>,
        #[serde(default)]
        user_teams: Vec<Digest>,
    }
    #[derive(Deserialize)]
    struct NamedDelegator {
        agent: Digest,
        #[serde(default)]
        team: Option<Digest>,
    }
    canon::read(body).map_or(Vec::new(), |named: Named| {
        let delegators = named.delegators.into_iter();
        let delegators = delegators
            .flat_map(|named| [Some(named.agent), named.team])
            .flatten();
        let facts = named.facts.into_values().chain(delegators);
        let user_teams = named.user_teams.into_iter();
        facts.chain(user_teams).chain([named.policy_digest]).collect()
    })
}

/// The policies among them, where the body also names what they looked at: then both were recorded with it. What was
/// recorded before bodies named that has no contents at all.
pub fn named_policies(body: &str) -> Option<Digest> {
    #[derive(Deserialize)]
    struct Named {
        policy_digest: Digest,
        facts: BTreeMap<String, Digest>,
    }
    let named: Named = canon::read(body).ok()?;
    (!named.facts.is_empty()).then_some(named.policy_digest)
}

/// The nouns that one ask is about, as they are registered.
pub struct Facts<'a> {
    agent: (&'a Agent, Digest),
    team: Option<(&'a Team, Digest)>,
    user: Option<(&'a User, Digest)>,
    /// Those of the user's teams that are registered.
    user_teams: Vec<(&'a Team, Digest)>,
    action: (&'a Tool, &'a ToolAction, Digest),
    delegators: Vec<DelegatorFacts<'a>>,
}

/// An agent in whose name an ask is made, as it is registered.
struct DelegatorFacts<'a> {
    agent: (&'a Agent, Digest),
    team: Option<(&'a Team, Digest)>,
    /// Whether it may use the tool.
    granted: bool,
}

impl<'a> Facts<'a> {
    /// Those of an ask; `None` if its action is not registered.
    pub fn of(tenant: &'a TenantSnapshot, agent: &'a Agent, ask: &Ask) -> Option<Self> {
        let TenantSnapshot { directory, facts, .. } = tenant;
        let tool = directory.tools.get(ask.action.tool.as_str())?;
        let action = tool.actions.get(&ask.action.action)?;
        let of_team = |team: &'a Team| Some((team, *facts.teams.get(&team.name)?));
        let team = agent.team.as_ref().and_then(|name| directory.teams.get(name));
        let delegators = delegators(tenant, agent, ask).ok()?.into_iter().map(|delegator| {
            Some(DelegatorFacts {
                agent: (delegator.agent, *facts.agents.get(&delegator.agent.id)?),
                team: delegator.team.and_then(of_team),
                granted: delegator.granted,
            })
        });
        let user = ask.user.as_ref().and_then(|name| directory.users.get(name));
        let user_teams = user.into_iter().flat_map(|user| &user.teams);
        let user_teams = user_teams.filter_map(|name| directory.teams.get(name));
        Some(Self {
            agent: (agent, *facts.agents.get(&agent.id)?),
            team: team.and_then(|team| of_team(team)),
            user: user.and_then(|user| Some((&**user, *facts.users.get(&user.name)?))),
            user_teams: user_teams.filter_map(|team| of_team(team)).collect(),
            action: (
                tool,
                action,
                facts.action(tool.name.as_str(), action.name.as_str())?,
            ),
            delegators: delegators.collect::<Option<_>>()?,
        })
    }

    /// The member of an entry that names the records of those in whose name it was asked, if there are any.
    pub(crate) fn write_delegators(&self, object: &mut ObjectWriter) {
        if self.delegators.is_empty() {
            return;
        }
        object.objects("delegators", &self.delegators, |member, delegator| {
            member.digest("agent", &delegator.agent.1);
            if !delegator.granted {
                member.boolean("granted", false);
            }
            member.string("id", &delegator.agent.0.id.to_string());
            if let Some((_, digest)) = &delegator.team {
                member.digest("team", digest);
            }
        });
    }

    /// The member of an entry that names the records.
    pub(crate) fn write(&self, object: &mut ObjectWriter) {
        object.object("facts", |facts| {
            facts.digest("action", &self.action.2);
            facts.digest("agent", &self.agent.1);
            if let Some((_, digest)) = &self.team {
                facts.digest("team", digest);
            }
            if let Some((_, digest)) = &self.user {
                facts.digest("user", digest);
            }
        });
    }

    /// The member of an entry that names the records of the user's teams. A user without teams has no such member, and one
    /// whose teams are not registered an empty one: earlier versions wrote none.
    pub(crate) fn write_user_teams(&self, object: &mut ObjectWriter) {
        if self.user.is_some_and(|(user, _)| !user.teams.is_empty()) {
            let digests = self.user_teams.iter().map(|(_, digest)| digest.to_string());
            object.strings("user_teams", digests);
        }
    }

    /// The records that are not known to be stored.
    pub fn records(&self, is_stored: impl Fn(&Digest) -> bool) -> Vec<ContentRow> {
        let tenant = self.agent.0.tenant;
        let mut rows = Vec::new();
        let mut add = |digest: &Digest, record: &dyn Fn() -> Canonical| {
            if !is_stored(digest) {
                rows.push(ContentRow {
                    tenant,
                    digest: *digest,
                    bytes: record().into_string().into(),
                });
            }
        };
        let (agent, digest) = &self.agent;
        add(digest, &|| record::of_agent(agent));
        let (tool, action, digest) = &self.action;
        add(digest, &|| record::of_action(tool, action));
        if let Some((team, digest)) = &self.team {
            add(digest, &|| record::of_team(team));
        }
        if let Some((user, digest)) = &self.user {
            add(digest, &|| record::of_user(user));
        }
        for (team, digest) in &self.user_teams {
            add(digest, &|| record::of_team(team));
        }
        for delegator in &self.delegators {
            let (agent, digest) = &delegator.agent;
            add(digest, &|| record::of_agent(agent));
            if let Some((team, digest)) = &delegator.team {
                add(digest, &|| record::of_team(team));
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{HeldDefinition, Risk, Standing, TenantId, Timestamp};
    use serde_json::json;

    fn action(name: &str) -> ToolAction {
        ToolAction {
            name: Name::new(name).unwrap(),
            mutates_state: false,
            risk: Risk::Low,
            input_schema: Some(Arc::new(json!({"type": "object", "title": name}))),
            description: Some(name.to_owned()),
            pinned: None,
            held: None,
        }
    }

    fn tool() -> Tool {
        let actions = ["read", "write"].map(action);
        Tool {
            name: SlashFreeName::new("github").unwrap(),
            actions: actions.map(|action| (action.name.clone(), action)).into(),
            canary: false,
            standing: Standing::Active,
            created_at: Timestamp::from_millis(0),
        }
    }

    /// The tool after this has become of its first action.
    fn changed(tool: &Tool, change: impl FnOnce(&mut ToolAction)) -> Tool {
        let mut tool = tool.clone();
        change(tool.actions.values_mut().next().unwrap());
        tool
    }

    fn frozen(tool: &Tool) -> Tool {
        let standing = tool.standing.freeze("a test", Timestamp::from_millis(1));
        tool.with_standing(standing.unwrap())
    }

    fn trap(tool: &Tool) -> Tool {
        Tool {
            canary: true,
            ..tool.clone()
        }
    }

    fn put(tool: &Tool) -> Write {
        Write::Put(Noun::Tool(Arc::new(tool.clone())))
    }

    fn directory(tool: &Tool) -> Directory {
        let tenant = json!({"id": TenantId::from_bytes([1; 16]), "name": "acme", "settings": {}, "bucket": null,
            "status": "active", "created_at": "1970-01-01T00:00:00.000Z"});
        let mut directory = Directory::new(Arc::new(serde_json::from_value(tenant).unwrap()));
        directory.apply(&put(tool));
        directory
    }

    #[test]
    fn of_a_tool_that_is_put_again_only_what_has_changed_is_digested_again() {
        let github = tool();
        let directory = directory(&github);
        // No action has these: what has them afterwards has kept them.
        let kept = ActionDigests {
            record: Digest::of(b"kept"),
            definition: Digest::of(b"kept"),
        };
        let all_kept = github.actions.keys().map(|name| (name.clone(), kept));
        let mut before = FactDigests::default();
        before
            .tools
            .insert(github.name.clone(), Arc::new(all_kept.collect()));
        let are_kept = |tool: &Tool| {
            let mut after = before.clone();
            after.apply(&directory, &put(tool));
            ["read", "write"].map(|action| after.action("github", action) == Some(kept.record))
        };
        assert_eq!(are_kept(&frozen(&github)), [true; 2]);
        let held = HeldDefinition {
            digest: Digest::of(b"held"),
            action: Box::new(action("read")),
            since: Timestamp::from_millis(1),
        };
        let holding = changed(&github, |read| read.held = Some(held));
        assert_eq!(are_kept(&holding), [true; 2]);
        let riskier = changed(&github, |read| read.risk = Risk::High);
        assert_eq!(are_kept(&riskier), [false, true]);
        let sent_anew = changed(&github, |read| *read = action("read"));
        assert_eq!(are_kept(&sent_anew), [false, true]);
        assert_eq!(are_kept(&trap(&github)), [false; 2]);
    }

    #[test]
    fn digests_after_a_step_are_those_of_the_directory_after_it() {
        let github = tool();
        let before = directory(&github);
        let edits: [fn(&mut ToolAction); 6] = [
            |read| read.mutates_state = true,
            |read| read.risk = Risk::High,
            |read| read.input_schema = None,
            |read| read.input_schema = Some(Arc::new(json!({"type": "array"}))),
            |read| read.description = None,
            |read| read.pinned = Some(Digest::of(b"pinned")),
        ];
        let changed = edits.map(|edit| changed(&github, edit));
        let mut fewer = github.clone();
        fewer.actions.pop_last();
        let others = [frozen(&github), trap(&github), fewer];
        for tool in changed.iter().chain(&others) {
            let mut digests = FactDigests::of(&before);
            digests.apply(&before, &put(tool));
            let mut after = before.clone();
            after.apply(&put(tool));
            assert_eq!(digests.tools, FactDigests::of(&after).tools, "{tool:?}");
        }
    }

    #[test]
    fn a_body_names_everything_that_was_looked_at() {
        let digests =
            ["agent", "team", "delegator", "clients", "policies"].map(|of| Digest::of(of.as_bytes()));
        let [agent, team, delegator, clients, policies] = &digests;
        let body = format!(
            r#"{{"delegators":[{{"agent":"{delegator}","id":"x"}}],"facts":{{"agent":"{agent}","team":"{team}"}},"policy_digest":"{policies}","user_teams":["{clients}"]}}"#
        );
        assert_eq!(named(&body), digests);
        assert!(named("{}").is_empty());
        assert_eq!(named_policies(&body), Some(*policies));
        let early = format!(r#"{{"policy_digest":"{policies}"}}"#);
        assert_eq!(named(&early), [*policies]);
        assert_eq!(named_policies(&early), None);
        // One spelling of each thing: an array is no object, for whoever else verifies it neither.
        let list = format!(
            r#"{{"delegators":[["{delegator}","{team}"]],"facts":{{"agent":"{agent}"}},"policy_digest":"{policies}"}}"#
        );
        assert!(named(&list).is_empty());
    }
}
