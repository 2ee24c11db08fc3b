//! What the directory promises: nouns come back as they were put, under unique names.

use super::sample::{Ask, Chain, agent, agent_id, name};
use super::{Fixture, commit, load, refused};
use crate::{Batch, ChangedNoun, CommitError, Store};
use canon::Digest;
use model::{
    AgentToken, ApiKey, Attributes, KeyId, Noun, Policy, PolicyMode, PolicyText, Role, SlashFreeName, Team,
    Timestamp, TokenId, Tool, User, Write,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names that trip over quoting, joining, case or encoding.
const ODD_NAMES: [&str; 9] = [
    "it's",
    "\"quoted\"",
    "a;b--c",
    "%_\\",
    "ACME",
    "acme",
    "Zoë",
    "\u{1F600} \u{202E}",
    "${jndi:x}'); DROP TABLE tenants;--",
];

/// What one tenant's directory holds, as JSON, sorted.
async fn nouns(store: &dyn Store, chain: &Chain) -> Vec<String> {
    let tenants = load(store).await;
    let found = tenants.iter().find(|tenant| tenant.tenant == chain.tenant);
    let mut nouns: Vec<_> = found
        .map_or(&[][..], |tenant| &tenant.nouns)
        .iter()
        .map(Noun::to_json)
        .collect();
    nouns.sort();
    nouns
}

fn json(nouns: &[Noun]) -> Vec<String> {
    let mut json: Vec<_> = nouns.iter().map(Noun::to_json).collect();
    json.sort();
    json
}

/// One noun of every kind, and more with odd names.
fn one_of_each(chain: &Chain) -> Vec<Noun> {
    let at = Timestamp::from_millis(7);
    let mut nouns = vec![
        chain.noun(),
        agent(chain.tenant, 1, "builder"),
        Noun::Key(Arc::new(ApiKey {
            id: KeyId::from_bytes([1; 16]),
            tenant: chain.tenant,
            name: name("console"),
            role: Role::Auditor,
            user: Some(name("u-17")),
            digest: Digest::of(b"key"),
            created_at: at,
            expires_at: None,
        })),
        Noun::DeletedKey(Arc::new(model::DeletedKey {
            digest: Digest::of(b"deleted"),
            deleted_at: at,
        })),
        Noun::FormerIssuer(Arc::new(model::FormerIssuer {
            issuer: name("https://before.example.com"),
            deleted_at: at,
        })),
        Noun::Token(Arc::new(AgentToken {
            id: TokenId::from_bytes([1; 16]),
            agent: agent_id(1),
            digest: Digest::of(b"token"),
            created_at: at,
            expires_at: Some(at),
        })),
        Noun::Run(Arc::new(model::StoppedRun {
            run_id: name("run/1"),
            standing: model::Standing::Active
                .freeze("odd", Timestamp::from_millis(1))
                .expect("what is active can be frozen"),
        })),
        Noun::Issuer(Arc::new(model::Issuer {
            name: name("idp"),
            purpose: model::Purpose::Agents,
            issuer: name("https://idp.example.com"),
            audience: name("countersign"),
            jwks: Arc::new(serde_json::json!({"keys": []})),
            claim: Some(name("sub")),
            created_at: at,
        })),
        Noun::Rule(Arc::new(model::Rule {
            name: name("denied"),
            trigger: model::rule::Trigger::Denials,
            count: 3,
            window_seconds: 60,
            effect: model::rule::Effect::Freeze,
            enabled: true,
            since: at,
            fired: BTreeMap::new(),
            fired_tools: BTreeMap::new(),
            counted_through: 0,
        })),
        Noun::User(Arc::new(User {
            name: name("u-17"),
            teams: BTreeSet::from([name("platform")]),
            attributes: Attributes::default(),
            roles: std::collections::BTreeSet::new(),
        })),
        Noun::Tool(Arc::new(Tool {
            name: SlashFreeName::new("github").expect("it has no slash"),
            actions: BTreeMap::new(),
            canary: true,
            standing: model::Standing::Active,
            created_at: at,
        })),
    ];
    let text = PolicyText {
        cedar: "@id(\"one\") permit (principal, action, resource);".into(),
        ..PolicyText::default()
    };
    let called = SlashFreeName::new("mail").expect("it has no slash");
    nouns.push(Noun::Policy(Arc::new(Policy::new(
        called,
        text,
        PolicyMode::Enforced,
        at,
    ))));
    nouns.extend(ODD_NAMES.map(team));
    nouns
}

fn team(called: &str) -> Noun {
    Noun::Team(Arc::new(Team {
        name: name(called),
        attributes: Attributes::default(),
        quotas: Vec::new(),
    }))
}

/// Every kind of noun survives storage, whatever it is called.
pub async fn nouns_of_every_kind_are_loaded_as_they_were_put(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let expected = one_of_each(&chain);
    let mut batch = Batch::default();
    for noun in &expected {
        chain.write(&mut batch, Write::Put(noun.clone()));
    }
    commit(&*store, &batch).await;
    assert_eq!(nouns(&*store, &chain).await, json(&expected));
    assert_eq!(load(&*store).await[0].position.revision, chain.revision);
}

/// The last put counts, and a noun that was taken away is gone; also one that was never there.
pub async fn a_noun_is_replaced_and_taken_away(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 1, "builder");
    chain.put_agent(&mut batch, 2, "tester");
    commit(&*store, &batch).await;

    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 1, "renamed");
    chain.write(&mut batch, Write::Delete(agent(chain.tenant, 2, "tester")));
    chain.write(&mut batch, Write::Delete(team("never there")));
    commit(&*store, &batch).await;
    assert_eq!(
        nouns(&*store, &chain).await,
        json(&[agent(chain.tenant, 1, "renamed")])
    );
}

/// Two agents of one tenant cannot share a name, whichever way it comes about; agents of two tenants can.
pub async fn an_agents_name_is_unique_within_its_tenant(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut batch = Batch::default();
    one.put_agent(&mut batch, 1, "builder");
    one.put_agent(&mut batch, 2, "tester");
    two.put_agent(&mut batch, 3, "builder");
    commit(&*store, &batch).await;

    for number in [2, 4] {
        let mut batch = Batch::default();
        one.clone().put_agent(&mut batch, number, "builder");
        let error = refused(&*store, &batch).await;
        assert!(matches!(error, CommitError::NotWritten(_)), "{error:?}");
    }
    let mut batch = Batch::default();
    one.put_agent(&mut batch, 4, "Builder");
    commit(&*store, &batch).await;
}

/// A name that one write of a batch gives up, the next one can take.
pub async fn writes_of_one_batch_take_effect_in_order(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 1, "builder");
    chain.put_agent(&mut batch, 1, "retired");
    chain.put_agent(&mut batch, 2, "builder");
    chain.write(&mut batch, Write::Delete(agent(chain.tenant, 2, "builder")));
    chain.put_agent(&mut batch, 3, "builder");
    commit(&*store, &batch).await;
    let expected = [
        agent(chain.tenant, 1, "retired"),
        agent(chain.tenant, 3, "builder"),
    ];
    assert_eq!(nouns(&*store, &chain).await, json(&expected));
}

/// Deleting the tenant's own noun does nothing, as in memory.
pub async fn a_tenant_stays_in_its_own_directory(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    let noun = chain.noun();
    chain.write(&mut batch, Write::Put(noun.clone()));
    chain.write(&mut batch, Write::Delete(noun.clone()));
    commit(&*store, &batch).await;
    assert_eq!(nouns(&*store, &chain).await, json(&[noun]));
}

/// The ones that are named, as far as they are there, each with all that it has.
pub async fn only_the_tenants_that_are_named_are_loaded(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut one, mut two, never) = (Chain::new(1), Chain::new(2), Chain::new(3));
    let mut batch = Batch::default();
    one.put_agent(&mut batch, 1, "builder");
    two.put_agent(&mut batch, 2, "tester");
    two.put_agent(&mut batch, 3, "reviewer");
    commit(&*store, &batch).await;
    let found = store.load(Some(&[two.tenant, never.tenant])).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].tenant, found[0].nouns.len()), (two.tenant, 2));
    assert_eq!(
        (found[0].position.head(), found[0].position.revision),
        (two.head(), 2)
    );
    assert!(store.load(Some(&[])).await.unwrap().is_empty());
    let all = load(&*store).await;
    let all: Vec<_> = all
        .iter()
        .map(|tenant| (tenant.position.head(), tenant.nouns.len()))
        .collect();
    assert_eq!(all, [(one.head(), 1), (two.head(), 2)]);
}

/// Nouns by kind and id, as storage keeps them.
type Known = BTreeMap<(&'static str, String), String>;

/// A tenant's revision, and all its nouns then.
async fn known(store: &dyn Store, chain: &Chain) -> (u64, Known) {
    let tenants = load(store).await;
    let tenant = tenants.iter().find(|tenant| tenant.tenant == chain.tenant);
    let tenant = tenant.expect("the tenant was written");
    let nouns = tenant.nouns.iter();
    let nouns = nouns.map(|noun| ((noun.kind().as_str(), noun.id()), noun.to_json()));
    (tenant.position.revision, nouns.collect())
}

/// Commits each of these batches by itself, and returns what was known before the first one and after each.
async fn states(store: &dyn Store, chain: &Chain, batches: &[Batch]) -> Vec<(u64, Known)> {
    let mut states = Vec::new();
    for batch in batches {
        commit(store, batch).await;
        states.push(known(store, chain).await);
    }
    states
}

/// Batches in which nouns come, change, go, come again, and come and go in one.
fn changing(chain: &mut Chain) -> Vec<Batch> {
    type Step = fn(&mut Chain, &mut Batch);
    let steps: [Step; 6] = [
        |chain, batch| {
            for noun in one_of_each(chain) {
                chain.write(batch, Write::Put(noun));
            }
        },
        |chain, batch| {
            chain.put_agent(batch, 1, "renamed");
            chain.put_agent(batch, 2, "builder");
        },
        |chain, batch| {
            for noun in one_of_each(chain) {
                chain.write(batch, Write::Delete(noun));
            }
        },
        |chain, batch| chain.write(batch, Write::Put(team("acme"))),
        |chain, batch| {
            chain.write(batch, Write::Put(team("for a moment")));
            chain.write(batch, Write::Delete(team("for a moment")));
            chain.write(batch, Write::Delete(team("never there")));
        },
        |chain, batch| {
            chain.put_agent(batch, 3, "last");
            // What is no change of the directory moves its head all the same.
            chain.decision(batch, &Ask::default());
        },
    ];
    let batch = |step: Step, chain: &mut Chain| {
        let mut batch = Batch::default();
        step(chain, &mut batch);
        batch
    };
    steps.into_iter().map(|step| batch(step, chain)).collect()
}

/// Whoever knows a tenant at some revision comes to what it is now by what has changed since, as far as the store tells.
pub async fn what_has_changed_since_leads_to_what_is_there(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let (mut chain, mut other) = (Chain::new(1), Chain::new(2));
    let batches = changing(&mut chain);
    let states = states(&*store, &chain, &batches).await;
    let mut batch = Batch::default();
    other.put_agent(&mut batch, 9, "of somebody else");
    commit(&*store, &batch).await;
    let (now, expected) = states.last().unwrap();
    for (revision, nouns) in [(0, Known::new())].iter().chain(&states) {
        let changed = store.changes(&[(chain.tenant, *revision)]).await.unwrap();
        // A store that nobody else writes to need not remember anything.
        let Some(changed) = changed.into_iter().next() else {
            assert!(!store.is_shared(), "nothing is remembered since {revision}");
            continue;
        };
        assert_eq!((changed.tenant, changed.position.revision), (chain.tenant, *now));
        assert_eq!(changed.position.tip, chain.tip);
        let mut nouns = nouns.clone();
        for noun in changed.nouns {
            match noun {
                ChangedNoun::There(noun) => nouns.insert((noun.kind().as_str(), noun.id()), noun.to_json()),
                ChangedNoun::Gone { kind, id } => nouns.remove(&(kind.as_str(), id)),
            };
        }
        assert_eq!(&nouns, expected, "since {revision}");
    }
    // Of a tenant that is not there, and of a revision that has not come, nothing is told.
    let never = [(Chain::new(3).tenant, 0), (chain.tenant, now + 1)];
    assert!(store.changes(&never).await.unwrap().is_empty());
    let both = store
        .changes(&[(chain.tenant, 0), (other.tenant, 0)])
        .await
        .unwrap();
    let nouns = both.iter().map(|changed| (changed.tenant, changed.nouns.len()));
    let of_other = nouns.filter(|(tenant, _)| *tenant == other.tenant);
    assert_eq!(of_other.count(), usize::from(store.is_shared()));
}

/// What tells that nothing has taken the place of the database.
pub async fn a_database_that_is_written_to_stays_the_same(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let before = store.incarnation().await.unwrap();
    let mut chain = Chain::new(1);
    let mut batch = Batch::default();
    chain.put_agent(&mut batch, 1, "builder");
    commit(&*store, &batch).await;
    assert_eq!(store.incarnation().await.unwrap(), before);
    drop(store);
    assert_eq!(fixture.reopen().await.incarnation().await.unwrap(), before);
}

/// What a gateway compares with what it knows.
pub async fn revisions_are_those_of_the_last_commits(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert!(store.revisions().await.unwrap().is_empty());
    let (mut one, mut two) = (Chain::new(1), Chain::new(2));
    let mut batch = two.decisions(1);
    one.put_agent(&mut batch, 1, "builder");
    commit(&*store, &batch).await;
    let mut batch = Batch::default();
    one.put_agent(&mut batch, 1, "tester");
    commit(&*store, &batch).await;
    let mut revisions = store.revisions().await.unwrap();
    revisions.sort();
    assert_eq!(revisions, [(one.tenant, 2), (two.tenant, 0)]);
}
