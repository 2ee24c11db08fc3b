//! Changing the directory: one way for all endpoints.
//!
//! A change is worked out on a copy of the directory, its policies are compiled where it touches them, and the result is
//! recorded with its ledger entry in one commit. If the directory moved in between, it is worked out again. When the
//! call returns, the change is in force on this gateway.

mod change_locks;
mod draft_turns;
mod force;
mod size;

use change_locks::{ChangeLock, KeptLock};
pub use change_locks::{ChangeLocks, Order};
pub(crate) use draft_turns::DraftTurns;
use force::{Fitted, Fitting, Wanted};
pub use force::{Force, ForceQuery};
pub(crate) use size::WritingRoom;

use crate::compiling;
use crate::directory::check_in_use;
use crate::fair_semaphore::Permit;
use crate::gateway::Gateway;
use crate::http::{Code, Person, Refusal};
use crate::sequencer::{CommitStatus, FOLLOW_MAX};
use engine::proposal::{Change, Intent};
use engine::{Conflict, EntryKind, Proposal, ProposedEntry, TenantSnapshot};
use model::{ApiKey, Directory, Name, Noun, TenantId, Timestamp, Write};
use policy::{Compiler, Diagnostic, Diagnostics, PolicySet};
use serde_json::{Value, json};
use std::ops::Deref;
use std::sync::Arc;
use store::StoreError;
use tokio::runtime::Handle;

/// How often a change is worked out, the first time included, before it gives up. Those of one tenant wait for each
/// other on a gateway; quarantines, freezes and other gateways move the directory in between, and of several that change
/// the same tenant each time one gets through.
pub(crate) const CHANGE_ATTEMPTS_MAX: usize = 64;
/// After how many attempts those that have to hold at once wait for each further attempt of a change in turn, which has
/// nothing compiled any more.
const PATIENT_MAX: usize = 4;

/// In whose name something changes.
#[derive(Debug, Clone, Copy)]
pub enum By<'a> {
    /// The holder of a key, as long as the key works.
    Key(&'a ApiKey),
    /// A person whom a registered issuer has signed in, as long as the person may do the same.
    Person(&'a Person),
    /// The program itself, under a key that is not stored, or not yet.
    Unstored(&'a ApiKey),
    /// A containment rule.
    Rule(&'a Name),
    /// A setting of the tenant.
    Setting(&'static str),
    /// Whoever keeps the file with the keys of this issuer.
    File(&'a Name),
    /// Whoever may send signals to the process.
    Signal(&'static str),
    /// Another gateway over the same database.
    Gateway,
    /// Whoever started the process.
    Start,
}

/// A change that was worked out.
pub enum Plan<T> {
    /// Nothing needs to change, and nothing is recorded. This is what the caller gets.
    Nothing(T),
    /// What is written, and what the ledger says about it.
    Change {
        /// The kind of the entry.
        kind: EntryKind,
        /// What the entry says, beside who did it. No secrets and no digests of secrets.
        facts: Value,
        /// What is written; something always is.
        writes: Vec<Write>,
        /// What the caller gets.
        answer: T,
    },
}

impl<T> Plan<T> {
    /// Nothing needs to change.
    pub const fn nothing(answer: T) -> Self {
        Self::Nothing(answer)
    }
}

#[cfg(test)]
impl<T> Plan<T> {
    /// What the ledger would say, where something changes.
    pub(crate) fn facts(&self) -> &Value {
        match self {
            Self::Nothing(_) => panic!("nothing needs to change"),
            Self::Change { facts, .. } => facts,
        }
    }

    /// What would be written.
    pub(crate) fn writes(&self) -> &[Write] {
        match self {
            Self::Nothing(_) => &[],
            Self::Change { writes, .. } => writes,
        }
    }
}

impl By<'_> {
    /// What the ledger says.
    pub(crate) fn to_json(self) -> Value {
        match self {
            Self::Key(key) | Self::Unstored(key) => {
                let mut by = json!({"key": key.id, "role": key.role});
                if let Some(user) = &key.user {
                    by["user"] = json!(user);
                }
                by
            }
            Self::Person(person) => json!({
                "issuer": person.signed_in.issued_by(), "roles": person.user.roles, "user": person.user.name,
            }),
            Self::Rule(rule) => json!({"rule": rule}),
            Self::Setting(setting) => json!({"setting": setting}),
            Self::File(issuer) => json!({"file": format!("{issuer}.json")}),
            Self::Signal(signal) => json!({"signal": signal}),
            Self::Gateway => json!({"gateway": "another"}),
            Self::Start => json!({"start": true}),
        }
    }
}

impl Gateway {
    /// Makes a change in a tenant, for the program itself under this key. `plan` may be called more than once, each time with the
    /// directory as it is.
    pub async fn change_tenant<T>(
        &self,
        tenant: TenantId,
        key: &ApiKey,
        plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
    ) -> Result<T, Refusal> {
        self.change_by(By::Unstored(key), Force::No, tenant, plan).await
    }

    /// Changes a tenant in anybody's name, perhaps with force, in turn. Whoever may not change anything any more is
    /// refused by the directory that the change is made from.
    pub async fn change_by<T>(
        &self,
        by: By<'_>,
        force: Force,
        tenant: TenantId,
        plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
    ) -> Result<T, Refusal> {
        self.change_in(Order::InTurn, by, force, tenant, plan).await
    }

    /// Changes a tenant when it is its turn in this order; `change_tenant` and `change_by` end here.
    pub async fn change_in<T>(
        &self,
        order: Order,
        by: By<'_>,
        force: Force,
        tenant: TenantId,
        plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
    ) -> Result<T, Refusal> {
        let lock = self.change_locks.lock(tenant, order).await?;
        let (mut fitted, mut alone) = (Fitted::default(), None);
        // It is made at the time at which it got its lock in each attempt: with another time in it, what it makes of
        // the directory would be compiled again.
        let now = self.clock.now();
        for attempt in 1..=CHANGE_ATTEMPTS_MAX {
            let snapshot = self.snapshot.load_full();
            by.check(&snapshot, self.clock.now())?;
            let before = crate::gateway::tenant(&snapshot, tenant)?;
            self.check_has_all(tenant)?;
            let plan = plan(&before.directory, now)?;
            let (kind, facts, writes, answer) = match plan {
                Plan::Change {
                    kind,
                    facts,
                    writes,
                    answer,
                } => (kind, facts, writes, answer),
                Plan::Nothing(answer) => {
                    // It may have to follow another gateway.
                    drop(alone.take());
                    if self.is_latest(before, Some(lock.kept())).await? {
                        return Ok(answer);
                    }
                    continue;
                }
            };
            // INVARIANT: a plan that has nothing to write says that nothing needs to change.
            debug_assert!(!writes.is_empty(), "{kind:?} writes nothing");
            size::check(&writes)?;
            let wanted = Wanted::of(snapshot.compiler(), &before.directory, &writes);
            let directories = size::Directories {
                before: &wanted.before,
                after: &wanted.after,
            };
            directories.check_kept(by, kind, self.options.directory_bytes_max)?;
            let fitting = if let Some(fitting) = fitted.find(&wanted) {
                fitting
            } else {
                // What has to hold at once waits for nothing that is compiled.
                alone = None;
                fitted.fit(wanted, &lock, &writes, force).await?
            };
            let change = change(before, by, (kind, facts, writes), fitting)?;
            // Compiling may have taken long.
            self.current_for(by)?;
            self.check_has_all(tenant)?;
            let proposal = Proposal {
                tenant,
                revision: before.revision,
                base: snapshot.base_digest(),
                intent: Intent::Change(change),
            };
            let recorded = self.sequencer.record_without_following(proposal).await?;
            match recorded {
                CommitStatus::Recorded(_) => return Ok(answer),
                CommitStatus::Conflict(Conflict::DirectoryMoved { .. }) => {
                    // Those that have to hold at once may come without rest: once they are let through, they wait for
                    // one attempt, and not until this gateway has followed another one, which may compile.
                    drop(alone.take());
                    self.sequencer.follow(&recorded).await?;
                    if order == Order::InTurn && attempt >= PATIENT_MAX {
                        alone = Some(self.change_locks.lock(tenant, Order::AtOnce).await?);
                    }
                }
                CommitStatus::Repeated(_) | CommitStatus::Conflict(_) => return Err(unexpected()),
            }
        }
        Err(Refusal::contended())
    }

    /// Whether a tenant has not been changed any more: what writes nothing is compared by no commit, and whoever is
    /// told that it is so already relies on that. Where it has been, by another gateway or by a commit of unknown
    /// outcome, what it is now is in force when this returns. The lock of a caller that may hang up is kept until the
    /// look is over.
    pub(crate) async fn is_latest(
        &self,
        known: &TenantSnapshot,
        kept: Option<KeptLock>,
    ) -> Result<bool, Refusal> {
        let tenant = known.directory.tenant.id;
        let revision = self.revision_in_turn(tenant, kept).await?;
        if revision == known.revision {
            return Ok(true);
        }
        self.follower.wake();
        if revision > known.revision && self.snapshot.reaches(tenant, revision, FOLLOW_MAX).await {
            return Ok(false);
        }
        tell_unlike(tenant, known.revision, revision);
        Err(Refusal::ledger_unavailable())
    }

    /// The revision of a tenant, as a turn finds it, which waits for whatever is being committed, also where nobody knows
    /// that any more. It goes on when its caller hangs up, because in the server it does so anyway: its place among the few
    /// that look is taken until it is over, and so is the lock, or else one tenant would have all of these places.
    async fn revision_in_turn(&self, tenant: TenantId, kept: Option<KeptLock>) -> Result<u64, Refusal> {
        let look = self.change_locks.look().await;
        let store = Arc::clone(&self.store);
        let looking = tokio::spawn(async move {
            let turn = store.begin(&[tenant]).await?;
            let revision = turn
                .positions()
                .get(&tenant)
                .map_or(0, |position| position.revision);
            drop((turn, look, kept));
            Ok::<_, StoreError>(revision)
        });
        let revision = looking.await.map_err(|error| {
            let detail = "it was not found out whether this is so already; try again";
            Refusal::broken_off(&error, "a look at a tenant broke off", detail)
        })?;
        Ok(revision?)
    }

    /// Makes a new tenant, for the program itself under this key.
    pub async fn create_tenant(&self, key: &ApiKey, tenant: &Arc<model::Tenant>) -> Result<(), Refusal> {
        self.create_tenant_by(By::Unstored(key), tenant).await
    }

    /// Makes a new tenant: an entry in the system tenant's chain, and the first entry of its own, in one commit.
    pub async fn create_tenant_by(&self, by: By<'_>, tenant: &Arc<model::Tenant>) -> Result<(), Refusal> {
        let lock = self.change_locks.lock(TenantId::SYSTEM, Order::InTurn).await?;
        for _ in 0..CHANGE_ATTEMPTS_MAX {
            let snapshot = self.snapshot.load_full();
            by.check(&snapshot, self.clock.now())?;
            self.check_has_all(TenantId::SYSTEM)?;
            let compiling = compile(
                snapshot.compiler(),
                Directory::new(Arc::clone(tenant)),
                None,
                lock.kept(),
            );
            let policies = compiling
                .await?
                .map_err(|diagnostics| invalid_policies(&diagnostics))?;
            by.check(&self.snapshot.load_full(), self.clock.now())?;
            self.check_has_all(TenantId::SYSTEM)?;
            let facts = json!({"id": tenant.id, "name": tenant.name, "settings": tenant.settings});
            let change = Change {
                entry: entry(EntryKind::TenantCreated, by, facts.clone())?,
                writes: vec![Write::Put(Noun::Tenant(Arc::clone(tenant)))],
                policies: Some(policies),
            };
            let proposal = Proposal {
                tenant: TenantId::SYSTEM,
                revision: snapshot.revision(TenantId::SYSTEM),
                base: snapshot.base_digest(),
                intent: Intent::NewTenant {
                    tenant: tenant.id,
                    announcement: entry(EntryKind::TenantCreated, by, facts)?,
                    change,
                },
            };
            match self.sequencer.record(proposal).await? {
                CommitStatus::Recorded(_) => return Ok(()),
                CommitStatus::Conflict(Conflict::DirectoryMoved { .. }) => {}
                CommitStatus::Repeated(_) | CommitStatus::Conflict(_) => return Err(unexpected()),
            }
        }
        Err(Refusal::contended())
    }

    /// What `make` makes of the policies of what `draft` makes of a tenant's directory, and nobody wants to have in force
    /// yet, compiled when it is its turn. All of it is done where nobody waits for a decision, and what both keep is
    /// dropped there: a set of thousands takes long to be laid out and to be dropped, too. Other tenants have their
    /// turns in between where compiling takes long, and it ends when the caller hangs up.
    pub(crate) async fn compile_draft<T: Send + 'static>(
        &self,
        tenant: TenantId,
        draft: impl FnOnce(&Directory) -> Result<Directory, Refusal> + Send + 'static,
        make: impl FnOnce(Drafted) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        // Whoever is refused, or hangs up in line, leaves behind what it would be made of.
        let draft = DroppedAside::new(draft);
        let permit = self.drafts.acquire(tenant).await?;
        // One snapshot for all of it: base policies that came into force meanwhile are no part of what is drafted.
        let snapshot = self.snapshot.load_full();
        let tenant = Arc::clone(crate::gateway::tenant(&snapshot, tenant)?);
        check_in_use(&tenant.directory.tenant)?;
        let compiler = Arc::clone(snapshot.compiler());
        self.in_turns(permit, move |goes_on| -> Result<T, Refusal> {
            let directory = draft.into_inner()(&tenant.directory)?;
            let before = Some(&tenant.directory);
            let policies = compiling::compile_new_while(&compiler, &directory, before, goes_on).map(Arc::new);
            Ok(make(Drafted {
                tenant,
                compiler,
                directory,
                policies,
            }))
        })
        .await?
    }

    /// What comes of work on a draft that begins with this permit, where nobody waits for a decision. The work asks
    /// between its parts whether it goes on: other tenants have their turns then where it takes long, and it need not
    /// when the caller has hung up.
    pub(crate) async fn in_turns<T: Send + 'static>(
        &self,
        permit: Permit,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (turns, _waiting) = DraftTurns::begin(&self.drafts, permit);
        // The permit is kept until it is done, also if nobody waits for it any more.
        off_the_workers(move || work(&|| turns.goes_on())).await
    }
}

/// What somebody would make of a tenant.
pub(crate) struct Drafted {
    /// The tenant as it was when it was its turn.
    pub(crate) tenant: Arc<TenantSnapshot>,
    /// By what the policies before and after are compiled.
    pub(crate) compiler: Arc<Compiler>,
    /// The directory after it.
    pub(crate) directory: Directory,
    /// The policies after it.
    pub(crate) policies: Result<Arc<PolicySet>, Diagnostics>,
}

/// Says why it is not known how a tenant is now: the store has another revision of it than is in force here, and
/// nothing has brought the two together.
fn tell_unlike(tenant: TenantId, known: u64, found: u64) {
    if found < known {
        // A store that is behind has lost what is known here.
        tracing::error!(
            %tenant,
            known,
            found,
            "the store holds revision {found} of {tenant}, and {known} was loaded from it: it is damaged, or has lost changes"
        );
    } else {
        tracing::error!(
            %tenant,
            known,
            found,
            "the store holds revision {found} of {tenant}, and {known} is still in force here after {FOLLOW_MAX:?}: changes are not followed, or it is damaged"
        );
    }
}

/// What a planned change comes to once the policies fit what it makes of the directory.
fn change(
    before: &TenantSnapshot,
    by: By<'_>,
    (kind, mut facts, mut writes): (EntryKind, Value, Vec<Write>),
    fitting: Fitting,
) -> Result<Change, Refusal> {
    if !fitting.deactivated.is_empty() {
        facts["deactivated_policies"] = json!(fitting.deactivated);
        writes.extend(fitting.writes);
    }
    if let Some(policies) = &fitting.policies
        && policies.digest() != before.policies.digest()
    {
        facts["policy_digests"] = json!({
            "before": before.policies.digest(),
            "after": policies.digest(),
        });
    }
    Ok(Change {
        entry: entry(kind, by, facts)?,
        writes,
        policies: fitting.policies,
    })
}

/// The policies of a directory, compiled where nobody waits for a decision. The lock is given back no sooner, whoever hangs up.
async fn compile(
    compiler: &Arc<Compiler>,
    directory: Directory,
    before: Option<Directory>,
    lock: KeptLock,
) -> Result<Result<Arc<PolicySet>, Diagnostics>, Refusal> {
    let compiler = Arc::clone(compiler);
    off_the_workers(move || {
        let policies = compiling::compile_new(&compiler, &directory, before.as_ref()).map(Arc::new);
        drop(lock);
        policies
    })
    .await
}

/// Does what takes long where nobody waits for a decision.
pub(crate) async fn off_the_workers<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let work = tokio::task::spawn_blocking(work);
    work.await.map_err(|error| {
        let detail = "the policies could not be worked on; nothing was changed";
        Refusal::broken_off(&error, "work on policies broke off", detail)
    })
}

/// Something that takes long to be dropped, such as policies that are compiled. It is dropped where nobody waits for a
/// decision, if nobody else has it any more.
pub(crate) struct DroppedAside<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> DroppedAside<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Some(value))
    }

    /// What is dropped by somebody else then.
    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect(STILL_THERE)
    }
}

/// INVARIANT: only dropping it, or giving it up, takes out what is in it.
const STILL_THERE: &str = "it is there until it is dropped";

impl<T: Send + 'static> Deref for DroppedAside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(STILL_THERE)
    }
}

impl<T: Send + 'static> Drop for DroppedAside<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            drop(runtime.spawn_blocking(move || drop(value)));
        }
    }
}

/// The entry of a change: what happened, and who did it.
pub(crate) fn entry(kind: EntryKind, by: By<'_>, facts: Value) -> Result<ProposedEntry, Refusal> {
    let mut body = match facts {
        Value::Object(members) => members,
        _ => serde_json::Map::new(),
    };
    body.insert("by".to_owned(), by.to_json());
    let body = canon::of(&body).map_err(|error| {
        tracing::error!(%error, kind = kind.as_str(), "the body of an entry could not be written");
        Refusal::new(
            Code::Internal,
            "the change could not be written down, so it was not made",
        )
    })?;
    Ok(ProposedEntry::new(kind, body))
}

fn invalid_policies(diagnostics: &Diagnostics) -> Refusal {
    let detail = match diagnostics.0.as_slice() {
        [first, others @ ..] if diagnostics.are_about_schemas() => about_schemas(first, others.len()),
        _ => "the policies in force would not be valid after this change, so nothing was changed".to_owned(),
    };
    Refusal::new(Code::PolicyInvalid, detail).with_diagnostics(json!(diagnostics))
}

/// What is said of a change that brings in a schema that is not taken, and so many others.
fn about_schemas(first: &Diagnostic, others: usize) -> String {
    let first = &first.message;
    match others {
        0 => format!("{first}; mend the schema, nothing was changed"),
        _ => format!("{first}, and there are {others} more; mend the schemas, nothing was changed"),
    }
}

pub(crate) fn unexpected() -> Refusal {
    Refusal::new(
        Code::Conflict,
        "somebody else changed the same thing at the same time; try again",
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::gateway::Options;
    use crate::start::{self, Ingredients};
    use ledger::{SignatureKind, SigningKey};
    use model::SystemEntropy;
    use model::time::ManualClock;
    use policy::BasePolicies;
    use std::fs::{self, File};
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};
    use store_sqlite::SqliteStore;

    /// Says on which thread it is dropped.
    struct Dropped(mpsc::Sender<ThreadId>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    #[tokio::test]
    async fn what_takes_long_to_be_dropped_is_dropped_on_a_thread_that_nobody_waits_for() {
        let own = thread::current().id();
        let (told, telling) = mpsc::channel();
        drop(DroppedAside::new(Dropped(told.clone())));
        assert_ne!(telling.recv().unwrap(), own);
        drop(DroppedAside::new(Dropped(told)).into_inner());
        assert_eq!(telling.recv().unwrap(), own);
        assert!(telling.recv().is_err(), "each is dropped once");
    }

    pub(crate) const TENANT: TenantId = TenantId::from_bytes([1; 16]);

    /// A gateway on a new store in this folder, with a tenant.
    pub(crate) async fn gateway(folder: &tempfile::TempDir) -> Arc<Gateway> {
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let key = SigningKey::from_seed("log.example", SignatureKind::Note, &[1; 32]).unwrap();
        let ingredients = Ingredients {
            store: Arc::new(SqliteStore::open(&url).await.unwrap()),
            clock: Arc::new(ManualClock::at(Timestamp::from_millis(1_769_851_800_000))),
            entropy: Arc::new(SystemEntropy),
            signing_key: Arc::new(key),
            base_policies: BasePolicies::shipped(),
            base_file: None,
            options: Options::default(),
        };
        let (gateway, _) = start::start(ingredients).await.unwrap();
        let tenant = model::Tenant {
            id: TENANT,
            name: Name::new("acme").unwrap(),
            settings: model::Settings::default(),
            standing: model::Standing::Active,
            limits: model::LimitTerms::default(),
            created_at: gateway.clock.now(),
            deleted_at: None,
        };
        let tenant = Arc::new(tenant);
        let made = gateway.create_tenant_by(By::Start, &tenant).await;
        made.unwrap();
        gateway
    }

    #[tokio::test]
    async fn a_draft_is_laid_out_and_dropped_on_a_thread_that_nobody_waits_for() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(&folder).await;
        let own = thread::current().id();
        let (told, telling) = mpsc::channel();
        let draft = || {
            let body = Dropped(told.clone());
            move |directory: &Directory| {
                let Dropped(told) = &body;
                told.send(thread::current().id()).unwrap();
                Ok(directory.clone())
            }
        };
        let made = gateway.compile_draft(TENANT, draft(), |_| thread::current().id());
        assert_ne!(made.await.unwrap(), own);
        assert_ne!(telling.recv().unwrap(), own, "it is laid out");
        assert_ne!(telling.recv().unwrap(), own, "its body is dropped");

        let refused = gateway.compile_draft(TenantId::SYSTEM, draft(), |_| ());
        assert_eq!(refused.await.unwrap_err().code(), Code::NotFound);
        assert_ne!(telling.recv().unwrap(), own, "that of one that is refused, too");
    }

    #[test]
    fn a_store_with_another_revision_than_is_in_force_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let lines = tracing_subscriber::fmt()
            .json()
            .with_writer(File::create(&path).unwrap());
        tracing::subscriber::with_default(lines.finish(), || {
            tell_unlike(TenantId::SYSTEM, 7, 0);
            tell_unlike(TenantId::SYSTEM, 7, 8);
        });
        let log = fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2, "{log}");
        for (line, (found, words)) in lines
            .iter()
            .zip([(0, "has lost changes"), (8, "is still in force")])
        {
            let fields = &line["fields"];
            assert_eq!(
                (&fields["known"], &fields["found"]),
                (&json!(7), &json!(found)),
                "{line}"
            );
            assert_eq!(fields["tenant"], TenantId::SYSTEM.to_string(), "{line}");
            assert!(fields["message"].as_str().unwrap().contains(words), "{line}");
        }
    }
}
