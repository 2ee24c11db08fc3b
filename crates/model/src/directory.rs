//! The directory of one tenant: all its nouns as one immutable value, and the writes that lead from one to the next.
//!
//! A [`Write`] is what storage keeps and what memory applies, so the two cannot disagree. Whether a write is allowed is
//! decided before it is made, by whoever makes it.

mod counted;
mod noun;
mod set_digest;
mod tally;

use crate::agent::{Agent, AgentToken};
use crate::base::BaseInForce;
use crate::id::{AgentId, KeyId, TokenId};
use crate::issuer::{FormerIssuer, Issuer};
use crate::key::{ApiKey, DeletedKey};
use crate::log_key::LogKey;
use crate::name::{Name, SlashFreeName};
use crate::people::{Team, User};
use crate::policy::Policy;
use crate::rule::Rule;
use crate::run::StoppedRun;
use crate::tenant::Tenant;
use crate::tool::Tool;
use canon::Digest;
use counted::Counted;
pub use counted::{ACTION_BYTES, VALUE_BYTES};
use imbl::{OrdMap, OrdSet};
pub use noun::{Noun, NounKind, Write};
use set_digest::SetDigest;
use std::borrow::Borrow;
use std::sync::Arc;
use tally::Tally;

/// Everything a tenant has registered. Cloning shares all of it.
#[derive(Debug, Clone)]
pub struct Directory {
    /// The tenant itself.
    pub tenant: Arc<Tenant>,
    /// Its API keys.
    pub keys: OrdMap<KeyId, Arc<ApiKey>>,
    /// Its agents.
    pub agents: OrdMap<AgentId, Arc<Agent>>,
    /// The ids of its agents by the names that they have and had.
    pub agent_names: OrdMap<Name, AgentId>,
    /// Its agents' tokens.
    pub tokens: OrdMap<TokenId, Arc<AgentToken>>,
    /// The ids of its tokens by their agents. INVARIANT: `put` and `delete` keep it to what is in `tokens`.
    tokens_by_agent: OrdSet<(AgentId, TokenId)>,
    /// Its tools.
    pub tools: OrdMap<SlashFreeName, Arc<Tool>>,
    /// Its teams.
    pub teams: OrdMap<Name, Arc<Team>>,
    /// Its users.
    pub users: OrdMap<Name, Arc<User>>,
    /// How many of its agents are in each team. INVARIANT: `put` and `delete` keep it to what is in `agents`.
    agents_by_team: Tally,
    /// How many of its users are in each team. INVARIANT: `put` and `delete` keep it to what is in `users`.
    users_by_team: Tally,
    /// Its policies, those that were deleted among them.
    pub policies: OrdMap<SlashFreeName, Arc<Policy>>,
    /// The digest of its policies, if anybody has asked for it since they were changed.
    set_digest: SetDigest,
    /// The runs that were stopped.
    pub runs: OrdMap<Name, Arc<StoppedRun>>,
    /// How many of them are revoked. INVARIANT: `put` and `delete` keep it to what is in `runs`.
    revoked_runs: usize,
    /// The issuers of tokens that it trusts.
    pub issuers: OrdMap<Name, Arc<Issuer>>,
    /// The keys that the ledger was and is signed with, by label; in the system tenant's directory only.
    pub log_keys: OrdMap<String, Arc<LogKey>>,
    /// What is done about agents when its ledger shows too much of something.
    pub rules: OrdMap<Name, Arc<Rule>>,
    /// The base policies that were put in force last; in the system tenant's directory only.
    pub base: Option<Arc<BaseInForce>>,
    /// The operators' keys that were deleted, by the digest of the secret; in the system tenant's directory only.
    pub deleted_keys: OrdMap<Digest, Arc<DeletedKey>>,
    /// What stays of issuers that signed agents or people in and were deleted, by their `iss`.
    pub former_issuers: OrdMap<Name, Arc<FormerIssuer>>,
    /// The bytes of its keys, agents, tokens, tools, teams and users. INVARIANT: `put` and `delete` alone change which
    /// there are, and count.
    counted: Counted,
}

impl Directory {
    /// A directory that holds only its tenant.
    pub fn new(tenant: Arc<Tenant>) -> Self {
        Self {
            tenant,
            keys: OrdMap::new(),
            agents: OrdMap::new(),
            agent_names: OrdMap::new(),
            tokens: OrdMap::new(),
            tokens_by_agent: OrdSet::new(),
            tools: OrdMap::new(),
            teams: OrdMap::new(),
            users: OrdMap::new(),
            agents_by_team: Tally::default(),
            users_by_team: Tally::default(),
            policies: OrdMap::new(),
            set_digest: SetDigest::default(),
            runs: OrdMap::new(),
            revoked_runs: 0,
            issuers: OrdMap::new(),
            log_keys: OrdMap::new(),
            rules: OrdMap::new(),
            base: None,
            deleted_keys: OrdMap::new(),
            former_issuers: OrdMap::new(),
            counted: Counted::default(),
        }
    }

    /// How many bytes its keys, agents, tokens, tools, teams and users have as storage keeps them, with [`VALUE_BYTES`]
    /// more for each value in a schema, a key set or attributes, and [`ACTION_BYTES`] for each action. Of these there
    /// may be any number; of the others there are few, or they have bounds of their own.
    pub const fn bytes(&self) -> usize {
        self.counted.bytes()
    }

    /// Takes one step.
    pub fn apply(&mut self, write: &Write) {
        match write {
            Write::Put(noun) => self.put(noun.clone()),
            Write::Delete(noun) => self.delete(noun),
        }
    }

    /// The noun of this kind with this id, as [`Noun::id`] gives it.
    pub fn noun(&self, kind: NounKind, id: &str) -> Option<Noun> {
        match kind {
            NounKind::Tenant => Some(Noun::Tenant(Arc::clone(&self.tenant))).filter(|noun| noun.id() == id),
            NounKind::Key => found(&self.keys, &id.parse().ok()?, Noun::Key),
            NounKind::Agent => found(&self.agents, &id.parse().ok()?, Noun::Agent),
            NounKind::Token => found(&self.tokens, &id.parse().ok()?, Noun::Token),
            NounKind::Tool => found(&self.tools, id, Noun::Tool),
            NounKind::Team => found(&self.teams, id, Noun::Team),
            NounKind::User => found(&self.users, id, Noun::User),
            NounKind::Policy => found(&self.policies, id, Noun::Policy),
            NounKind::Run => found(&self.runs, id, Noun::Run),
            NounKind::Issuer => found(&self.issuers, id, Noun::Issuer),
            NounKind::LogKey => found(&self.log_keys, id, Noun::LogKey),
            NounKind::Rule => found(&self.rules, id, Noun::Rule),
            NounKind::Base => self.base.clone().map(Noun::Base).filter(|noun| noun.id() == id),
            NounKind::DeletedKey => found(&self.deleted_keys, &id.parse().ok()?, Noun::DeletedKey),
            NounKind::FormerIssuer => found(&self.former_issuers, id, Noun::FormerIssuer),
        }
    }

    /// The agent that has or had this name.
    pub fn agent_named(&self, name: &str) -> Option<&Arc<Agent>> {
        self.agent_names.get(name).and_then(|id| self.agents.get(id))
    }

    /// The agent with this id, or that has or had this name. An id comes first: nobody takes it by choosing a name.
    pub fn agent_called(&self, called: &Name) -> Option<&Arc<Agent>> {
        self.agents_called(called).next()
    }

    /// All that are called so: the agent with this id, and the one that has or had this name. They are two only where
    /// an agent was registered under the id of another one.
    pub fn agents_called(&self, called: &Name) -> impl Iterator<Item = &Arc<Agent>> {
        let id = called.as_str().parse::<AgentId>().ok();
        let by_id = id.and_then(|id| self.agents.get(&id));
        let by_name = self.agent_named(called.as_str());
        by_id.into_iter().chain(by_name)
    }

    /// The tokens of one agent, in the order of their ids.
    pub fn tokens_of(&self, agent: AgentId) -> impl Iterator<Item = &Arc<AgentToken>> {
        let [first, last] = [0, u8::MAX].map(|byte| (agent, TokenId::from_bytes([byte; 16])));
        let tokens = self.tokens_by_agent.range(first..=last);
        tokens.filter_map(move |(_, id)| self.tokens.get(id))
    }

    /// How many agents are in this team.
    pub fn agents_in(&self, team: &Name) -> usize {
        self.agents_by_team.of(team)
    }

    /// How many users are in this team.
    pub fn users_in(&self, team: &Name) -> usize {
        self.users_by_team.of(team)
    }

    /// How many runs are revoked.
    pub const fn revoked_runs(&self) -> usize {
        self.revoked_runs
    }

    /// How many runs are frozen, and not revoked.
    pub fn frozen_runs(&self) -> usize {
        self.runs.len() - self.revoked_runs
    }

    /// The digest of its policies that are not deleted, as [`digest_of_set`](crate::policy::digest_of_set) makes it.
    pub fn digest_of_policies(&self) -> Digest {
        self.set_digest.of(&self.policies)
    }

    fn put(&mut self, noun: Noun) {
        match noun {
            Noun::Tenant(tenant) => self.tenant = tenant,
            Noun::Key(key) => self.counted.put(&mut self.keys, key.id, key),
            Noun::Agent(agent) => self.put_agent(agent),
            Noun::Token(token) => self.put_token(token),
            Noun::Tool(tool) => self.counted.put(&mut self.tools, tool.name.clone(), tool),
            Noun::Team(team) => self.counted.put(&mut self.teams, team.name.clone(), team),
            Noun::User(user) => self.put_user(user),
            Noun::Policy(policy) => {
                self.set_digest = SetDigest::default();
                self.policies.insert(policy.name.clone(), policy);
            }
            Noun::Run(run) => self.put_run(run),
            Noun::Issuer(issuer) => {
                self.issuers.insert(issuer.name.clone(), issuer);
            }
            Noun::LogKey(key) => {
                self.log_keys.insert(key.label.clone(), key);
            }
            Noun::Rule(rule) => {
                self.rules.insert(rule.name.clone(), rule);
            }
            Noun::Base(base) => self.base = Some(base),
            Noun::DeletedKey(key) => {
                self.deleted_keys.insert(key.digest, key);
            }
            Noun::FormerIssuer(former) => {
                self.former_issuers.insert(former.issuer.clone(), former);
            }
        }
    }

    fn put_agent(&mut self, agent: Arc<Agent>) {
        if let Some(before) = self.agents.get(&agent.id).cloned() {
            self.forget_names(&before);
            self.agents_by_team.take(before.team.as_ref());
        }
        for name in &agent.former_names {
            // Whoever is called so now comes first, in whatever order storage tells of both.
            self.agent_names.entry(name.clone()).or_insert(agent.id);
        }
        self.agent_names.insert(agent.name.clone(), agent.id);
        self.agents_by_team.add(agent.team.as_ref());
        self.counted.put(&mut self.agents, agent.id, agent);
    }

    fn delete_agent(&mut self, agent: &Agent) {
        self.forget_names(agent);
        if let Some(before) = self.agents.get(&agent.id) {
            self.agents_by_team.take(before.team.as_ref());
        }
        self.counted.delete(&mut self.agents, &agent.id);
    }

    fn forget_names(&mut self, agent: &Agent) {
        for name in agent.former_names.iter().chain([&agent.name]) {
            if self.agent_names.get(name) == Some(&agent.id) {
                self.agent_names.remove(name);
            }
        }
    }

    fn put_user(&mut self, user: Arc<User>) {
        self.delete_user(&user.name);
        self.users_by_team.add(&user.teams);
        self.counted.put(&mut self.users, user.name.clone(), user);
    }

    /// Takes out the user who is there, whatever teams that one is in.
    fn delete_user(&mut self, name: &Name) {
        if let Some(user) = self.users.get(name) {
            self.users_by_team.take(&user.teams);
        }
        self.counted.delete(&mut self.users, name);
    }

    fn put_run(&mut self, run: Arc<StoppedRun>) {
        self.delete_run(&run.run_id);
        self.revoked_runs += usize::from(run.standing.is_revoked());
        self.runs.insert(run.run_id.clone(), run);
    }

    /// Takes out the run that is there, whatever its standing.
    fn delete_run(&mut self, run_id: &Name) {
        if let Some(run) = self.runs.remove(run_id) {
            self.revoked_runs -= usize::from(run.standing.is_revoked());
        }
    }

    fn put_token(&mut self, token: Arc<AgentToken>) {
        self.delete_token(token.id);
        self.tokens_by_agent.insert((token.agent, token.id));
        self.counted.put(&mut self.tokens, token.id, token);
    }

    /// Takes out the token that is there, whoever's that is.
    fn delete_token(&mut self, id: TokenId) {
        if let Some(token) = self.tokens.get(&id) {
            self.tokens_by_agent.remove(&(token.agent, id));
        }
        self.counted.delete(&mut self.tokens, &id);
    }

    fn delete(&mut self, noun: &Noun) {
        match noun {
            // A tenant is never taken out of its own directory: one that is deleted says so (`deleted_at`).
            Noun::Tenant(_) => {}
            Noun::Key(key) => self.counted.delete(&mut self.keys, &key.id),
            Noun::Agent(agent) => self.delete_agent(agent),
            Noun::Token(token) => self.delete_token(token.id),
            Noun::Tool(tool) => self.counted.delete(&mut self.tools, &tool.name),
            Noun::Team(team) => self.counted.delete(&mut self.teams, &team.name),
            Noun::User(user) => self.delete_user(&user.name),
            Noun::Policy(policy) => {
                self.set_digest = SetDigest::default();
                self.policies.remove(&policy.name);
            }
            Noun::Run(run) => self.delete_run(&run.run_id),
            Noun::Issuer(issuer) => {
                self.issuers.remove(&issuer.name);
            }
            Noun::LogKey(key) => {
                self.log_keys.remove(&key.label);
            }
            Noun::Rule(rule) => {
                self.rules.remove(&rule.name);
            }
            Noun::Base(_) => self.base = None,
            Noun::DeletedKey(key) => {
                self.deleted_keys.remove(&key.digest);
            }
            Noun::FormerIssuer(former) => {
                self.former_issuers.remove(&former.issuer);
            }
        }
    }
}

/// The value with this key, as a noun.
fn found<K, Q, V>(map: &OrdMap<K, Arc<V>>, key: &Q, noun: fn(Arc<V>) -> Noun) -> Option<Noun>
where
    K: Ord + Borrow<Q>,
    Q: Ord + ?Sized,
{
    map.get(key).map(|value| noun(Arc::clone(value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{RiskTier, ToolAccess};
    use crate::id::TenantId;
    use crate::people::Attributes;
    use crate::policy::{PolicyMode, PolicyText, digest_of_set};
    use crate::standing::Standing;
    use crate::tenant::Settings;
    use crate::time::Timestamp;
    use crate::tool::{HeldDefinition, Risk, ToolAction};
    use serde_json::json;
    use std::collections::BTreeSet;

    fn directory() -> Directory {
        Directory::new(Arc::new(Tenant {
            id: TenantId::from_bytes([1; 16]),
            name: Name::new("acme").unwrap(),
            settings: Settings::default(),
            standing: Standing::Active,
            limits: crate::quota::LimitTerms::default(),
            created_at: Timestamp::from_millis(0),
            deleted_at: None,
        }))
    }

    fn team(name: &str) -> Noun {
        Noun::Team(Arc::new(Team {
            name: Name::new(name).unwrap(),
            attributes: Attributes::default(),
            quotas: Vec::new(),
        }))
    }

    #[test]
    fn a_write_changes_the_copy_and_not_the_original() {
        let before = directory();
        let mut after = before.clone();
        after.apply(&Write::Put(team("platform")));
        assert!(before.teams.is_empty());
        assert!(after.teams.contains_key("platform"));
        after.apply(&Write::Delete(team("platform")));
        assert!(after.teams.is_empty());
    }

    #[test]
    fn the_digest_of_policies_is_that_of_those_that_are_there() {
        let noun = |name: &str| {
            let (name, now) = (SlashFreeName::new(name).unwrap(), Timestamp::from_millis(1));
            let policy = Policy::new(name, PolicyText::default(), PolicyMode::Enforced, now);
            Noun::Policy(Arc::new(policy))
        };
        let mut directory = directory();
        let mut seen = Vec::new();
        let first = directory.clone();
        for write in [
            Write::Put(noun("a")),
            Write::Put(team("platform")),
            Write::Put(noun("b")),
            Write::Delete(noun("a")),
            Write::Delete(noun("b")),
        ] {
            directory.apply(&write);
            let digest = directory.digest_of_policies();
            assert_eq!(digest, digest_of_set(directory.policies.values()));
            seen.push(digest);
        }
        assert_eq!(seen[0], seen[1], "a team is no policy");
        assert!(seen[1] != seen[2] && seen[2] != seen[3] && seen[0] != seen[3]);
        assert_eq!(seen[4], first.digest_of_policies());
    }

    #[test]
    fn what_is_put_counts_once_and_nothing_when_it_is_gone() {
        let mut directory = directory();
        let (small, large) = (agent(1, "planner"), agent(1, "planner of all the others"));
        let of = |agent: &Agent| Noun::Agent(Arc::new(agent.clone())).to_json().len();
        for agent in [&small, &large, &small, &small] {
            put(&mut directory, agent);
            assert_eq!(directory.bytes(), of(agent));
        }
        let team = team("platform");
        directory.apply(&Write::Put(team.clone()));
        assert_eq!(directory.bytes(), of(&small) + team.to_json().len());
        // A delete removes what is stored under the id, whatever else the write carries.
        for gone in [team, Noun::Agent(Arc::new(large))] {
            directory.apply(&Write::Delete(gone.clone()));
            directory.apply(&Write::Delete(gone));
        }
        assert_eq!(directory.bytes(), 0);
    }

    /// An action with this schema.
    fn action(schema: serde_json::Value) -> ToolAction {
        ToolAction {
            name: Name::new("read").unwrap(),
            mutates_state: false,
            risk: Risk::Low,
            input_schema: Some(Arc::new(schema)),
            description: None,
            pinned: None,
            held: None,
        }
    }

    fn tool(action: ToolAction) -> Noun {
        Noun::Tool(Arc::new(Tool {
            name: SlashFreeName::new("github").unwrap(),
            actions: [(action.name.clone(), action)].into(),
            canary: false,
            standing: Standing::Active,
            created_at: Timestamp::from_millis(0),
        }))
    }

    #[test]
    fn a_schema_counts_for_each_of_its_values_whether_it_holds_or_is_held() {
        let small = action(json!({"type": "object"}));
        let large = action(json!({"type": "object", "default": [0, {"a": [[], "b"]}]}));
        let holding = ToolAction {
            held: Some(HeldDefinition {
                digest: Digest::of(b"held"),
                action: Box::new(large.clone()),
                since: Timestamp::from_millis(0),
            }),
            ..small.clone()
        };
        let mut directory = directory();
        for (action, values) in [
            (&small, 6),
            (&large, 24),
            (&holding, 30),
            (&large, 24),
            (&small, 6),
        ] {
            let noun = tool(action.clone());
            directory.apply(&Write::Put(noun.clone()));
            let values = values * VALUE_BYTES;
            assert_eq!(directory.bytes(), noun.to_json().len() + values + ACTION_BYTES);
        }
        directory.apply(&Write::Delete(tool(holding)));
        assert_eq!(directory.bytes(), 0);
    }

    #[test]
    fn each_action_that_may_be_asked_for_counts_beside_its_text() {
        let named = |name: &str| ToolAction {
            name: Name::new(name).unwrap(),
            input_schema: None,
            ..action(json!({}))
        };
        let mut directory = directory();
        let of = |names: &[&str]| {
            let actions = names.iter().map(|name| named(name));
            Noun::Tool(Arc::new(Tool {
                name: SlashFreeName::new("github").unwrap(),
                actions: actions.map(|action| (action.name.clone(), action)).collect(),
                canary: false,
                standing: Standing::Active,
                created_at: Timestamp::from_millis(0),
            }))
        };
        for names in [&["a", "b", "c"][..], &[], &["a"], &["a", "b"]] {
            let noun = of(names);
            directory.apply(&Write::Put(noun.clone()));
            assert_eq!(
                directory.bytes(),
                noun.to_json().len() + names.len() * ACTION_BYTES
            );
        }
        directory.apply(&Write::Delete(of(&[])));
        assert_eq!(directory.bytes(), 0);
    }

    #[test]
    fn keys_and_attributes_count_for_each_of_their_values() {
        let attributes = |value| serde_json::from_value::<Attributes>(value).unwrap();
        let two = attributes(json!({"tier": "gold", "level": 3}));
        let keys = json!({"keys": [{"kty": "OKP"}], "unread": [0, 0]});
        let with_both = Agent {
            attributes: two.clone(),
            signing_keys: Some(Arc::new(keys)),
            ..agent(1, "planner")
        };
        let team = Team {
            name: Name::new("platform").unwrap(),
            attributes: two.clone(),
            quotas: Vec::new(),
        };
        let user = User {
            name: Name::new("ada").unwrap(),
            teams: BTreeSet::new(),
            attributes: two,
            roles: BTreeSet::new(),
        };
        for (noun, values) in [
            (Noun::Agent(Arc::new(agent(1, "planner"))), 0),
            // Two attributes; an object of five, with keys of eleven and a list of seven beside them.
            (Noun::Agent(Arc::new(with_both)), 2 + 5 + 11 + 7),
            (Noun::Team(Arc::new(team)), 2),
            (Noun::User(Arc::new(user)), 2),
        ] {
            let mut directory = directory();
            directory.apply(&Write::Put(noun.clone()));
            assert_eq!(directory.bytes(), noun.to_json().len() + values * VALUE_BYTES);
            directory.apply(&Write::Delete(noun));
            assert_eq!(directory.bytes(), 0);
        }
    }

    fn agent(number: u8, name: &str) -> Agent {
        Agent {
            id: AgentId::from_bytes([number; 16]),
            tenant: TenantId::from_bytes([1; 16]),
            name: Name::new(name).unwrap(),
            former_names: Vec::new(),
            environment: None,
            team: None,
            owner: None,
            risk_tier: RiskTier::Low,
            tools: ToolAccess::All,
            attributes: Attributes::default(),
            standing: Standing::Active,
            limits: crate::quota::LimitTerms::default(),
            signing_keys: None,
            created_at: Timestamp::from_millis(0),
        }
    }

    fn put(directory: &mut Directory, agent: &Agent) {
        directory.apply(&Write::Put(Noun::Agent(Arc::new(agent.clone()))));
    }

    fn token(agent: u8, id: u8) -> AgentToken {
        AgentToken {
            id: TokenId::from_bytes([id; 16]),
            agent: AgentId::from_bytes([agent; 16]),
            digest: Digest::of(&[id]),
            created_at: Timestamp::from_millis(0),
            expires_at: None,
        }
    }

    #[test]
    fn an_agent_has_the_tokens_that_were_put_for_it_and_are_not_deleted() {
        let noun = |agent, id| Noun::Token(Arc::new(token(agent, id)));
        let put = |directory: &mut Directory, agent, id| directory.apply(&Write::Put(noun(agent, id)));
        let mut directory = directory();
        // The first and the last of all ids among them.
        for (agent, id) in [(1, 0xff), (2, 0), (2, 3), (3, 1), (1, 4), (1, 4)] {
            put(&mut directory, agent, id);
        }
        let ids_of = |directory: &Directory, agent: u8| -> Vec<u8> {
            let tokens = directory.tokens_of(AgentId::from_bytes([agent; 16]));
            tokens.map(|token| token.id.as_bytes()[0]).collect()
        };
        assert_eq!([1, 2].map(|agent| ids_of(&directory, agent)), [[4, 0xff], [0, 3]]);
        assert_eq!(ids_of(&directory, 3), [1]);
        assert!(ids_of(&directory, 4).is_empty());
        // What is put or deleted is what has its id, whoever's that was.
        put(&mut directory, 3, 3);
        assert_eq!(
            [2, 3].map(|agent| ids_of(&directory, agent)),
            [vec![0], vec![1, 3]]
        );
        directory.apply(&Write::Delete(noun(2, 1)));
        directory.apply(&Write::Delete(noun(1, 4)));
        assert_eq!([1, 3].map(|agent| ids_of(&directory, agent)), [[0xff], [3]]);
        assert_eq!(directory.tokens_by_agent.len(), directory.tokens.len());
    }

    #[test]
    fn a_team_has_the_members_that_were_put_into_it_and_are_not_moved_or_deleted() {
        let name = |text: &str| Name::new(text).unwrap();
        let put_agent = |directory: &mut Directory, number, team: Option<&str>| {
            let team = team.map(name);
            put(
                directory,
                &Agent {
                    team,
                    ..agent(number, "planner")
                },
            );
        };
        let user = |teams: &[&str]| {
            let (name, teams) = (name("ada"), teams.iter().map(|team| name(team)).collect());
            Noun::User(Arc::new(User {
                name,
                teams,
                attributes: Attributes::default(),
                roles: BTreeSet::new(),
            }))
        };
        let mut directory = directory();
        let members = |directory: &Directory| {
            ["a", "b"].map(|team| (directory.agents_in(&name(team)), directory.users_in(&name(team))))
        };
        for (number, team) in [
            (1, Some("a")),
            (1, Some("a")),
            (2, Some("a")),
            (3, Some("b")),
            (4, None),
        ] {
            put_agent(&mut directory, number, team);
        }
        directory.apply(&Write::Put(user(&["a", "b"])));
        assert_eq!(members(&directory), [(2, 1), (1, 1)]);
        put_agent(&mut directory, 2, Some("b"));
        directory.apply(&Write::Put(user(&["b"])));
        assert_eq!(members(&directory), [(1, 0), (2, 1)]);
        put_agent(&mut directory, 3, None);
        assert_eq!(members(&directory), [(1, 0), (1, 1)]);
        // A delete removes what is stored under the id, whatever else the write carries.
        for gone in [Noun::Agent(Arc::new(agent(2, "planner"))), user(&["a"])] {
            directory.apply(&Write::Delete(gone.clone()));
            directory.apply(&Write::Delete(gone));
        }
        assert_eq!(members(&directory), [(1, 0), (0, 0)]);
        assert_eq!(directory.agents_in(&name("c")), 0);
    }

    #[test]
    fn a_run_counts_as_what_it_is_now() {
        let now = Timestamp::from_millis(1);
        let (frozen, revoked) = (
            Standing::Active.freeze("odd", now).unwrap(),
            Standing::Active.revoke("odd", now),
        );
        let run = |name: &str, standing: &Standing| {
            Noun::Run(Arc::new(StoppedRun {
                run_id: Name::new(name).unwrap(),
                standing: standing.clone(),
            }))
        };
        let mut directory = directory();
        for (write, count) in [
            (Write::Put(run("a", &frozen)), (1, 0)),
            (Write::Put(run("b", &revoked)), (1, 1)),
            (Write::Put(run("b", &revoked)), (1, 1)),
            (Write::Put(run("a", &revoked)), (0, 2)),
            // A delete removes what is stored under the id, whatever else the write carries.
            (Write::Delete(run("a", &frozen)), (0, 1)),
            (Write::Delete(run("a", &frozen)), (0, 1)),
            (Write::Put(run("b", &frozen)), (1, 0)),
            (Write::Delete(run("b", &revoked)), (0, 0)),
        ] {
            directory.apply(&write);
            assert_eq!(
                (directory.frozen_runs(), directory.revoked_runs()),
                count,
                "{write:?}"
            );
        }
    }

    #[test]
    fn a_name_leads_to_the_agent_that_had_it() {
        let mut directory = directory();
        let planner = agent(1, "planner");
        let retired = planner.rename(&Name::new("retired").unwrap());
        for agent in [&planner, &retired, &retired] {
            put(&mut directory, agent);
        }
        for name in ["planner", "retired"] {
            assert_eq!(directory.agent_named(name).unwrap().id, planner.id, "{name}");
        }
        assert_eq!(directory.agent_names.len(), 2);
        directory.apply(&Write::Delete(Noun::Agent(Arc::new(retired))));
        assert!(directory.agent_names.is_empty());
    }

    #[test]
    fn whoever_is_called_so_comes_before_whoever_was_in_any_order() {
        let had = agent(1, "planner").rename(&Name::new("retired").unwrap());
        let has = agent(2, "planner");
        for order in [[&had, &has, &had], [&has, &had, &has]] {
            let mut directory = directory();
            for agent in order {
                put(&mut directory, agent);
            }
            assert_eq!(directory.agent_named("planner").unwrap().id, has.id);
            assert_eq!(directory.agent_named("retired").unwrap().id, had.id);
        }
    }

    #[test]
    fn an_id_leads_to_its_agent_and_to_one_that_is_named_so() {
        let mut directory = directory();
        let planner = agent(1, "planner");
        let id = Name::new(&planner.id.to_string()).unwrap();
        let twin = agent(2, id.as_str());
        for agent in [&twin, &planner] {
            put(&mut directory, agent);
        }
        let called =
            |name: &Name| -> Vec<AgentId> { directory.agents_called(name).map(|agent| agent.id).collect() };
        assert_eq!(called(&id), [planner.id, twin.id]);
        assert_eq!(directory.agent_called(&id).unwrap().id, planner.id);
        assert_eq!(called(&planner.name), [planner.id]);
        assert!(called(&Name::new("nobody").unwrap()).is_empty());
    }

    #[test]
    fn a_noun_is_found_by_its_kind_and_id() {
        let mut directory = directory();
        let planner = agent(1, "planner");
        put(&mut directory, &planner);
        directory.apply(&Write::Put(team("planner")));
        let nouns = [
            Noun::Tenant(Arc::clone(&directory.tenant)),
            Noun::Agent(Arc::new(planner)),
            team("planner"),
        ];
        for noun in &nouns {
            let found = directory.noun(noun.kind(), &noun.id()).unwrap();
            assert_eq!((found.kind(), found.to_json()), (noun.kind(), noun.to_json()));
            // Nothing else of any kind has this id, or none at all.
            for &kind in NounKind::ALL {
                let is_its_own = nouns
                    .iter()
                    .any(|own| own.kind() == kind && own.id() == noun.id());
                assert_eq!(directory.noun(kind, &noun.id()).is_some(), is_its_own, "{kind:?}");
                assert!(directory.noun(kind, "nobody").is_none());
            }
        }
    }

    #[test]
    fn a_noun_is_the_same_after_storage() {
        let noun = Noun::Tenant(directory().tenant);
        let again = Noun::from_json(noun.kind(), &noun.to_json()).unwrap();
        assert_eq!(again.to_json(), noun.to_json());
        assert_eq!(NounKind::from_word(noun.kind().as_str()), Some(noun.kind()));
    }
}
