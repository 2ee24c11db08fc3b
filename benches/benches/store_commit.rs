//! Commits at full durability: batches of 1, 32 and 128 decisions, three rows and a request id each, to an SQLite file, and to
//! the PostgreSQL server that `COUNTERSIGN_TEST_POSTGRES_URL` names where it is set (`scripts/with-postgres` sets it).
//!
//! What is timed is the store alone, from a batch in memory to its fsync; the batches are made before. Every timed run
//! ends by asserting that the ledger ends where the batches said.

use std::time::{Duration, Instant, SystemTime};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use model::TenantId;
use store::conformance::sample::{Ask, Chain, agent_id};
use store::{Batch, Store};
use store_postgres::PostgresStore;
use store_sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const BATCHES: [u64; 3] = [1, 32, 128];
const AGENTS: u64 = 100;
/// What the body of an entry and a receipt come to for a decision with a few parameters.
const BODY_TEXT_BYTES: usize = 560;
const RECEIPT_BYTES: usize = 700;

/// The ledger of a new tenant. It grows.
struct Ledger<'s> {
    store: &'s dyn Store,
    chain: Chain,
    recorded: u64,
}

impl<'s> Ledger<'s> {
    fn new(store: &'s dyn Store) -> Self {
        // A server may have tenants of an earlier run.
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970");
        let tenant = TenantId::from_bytes(now.as_nanos().to_be_bytes());
        Self {
            store,
            chain: Chain {
                tenant,
                ..Chain::new(1)
            },
            recorded: 0,
        }
    }

    fn batch(&mut self, decisions: u64) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..decisions {
            self.recorded += 1;
            let ask = Ask {
                agent: agent_id(u8::try_from(self.recorded % AGENTS).expect("there are few agents")),
                text: "x".repeat(BODY_TEXT_BYTES),
                ..Ask::named(&format!("call-{:x}", scatter(self.recorded)))
            };
            self.chain.decision(&mut batch, &ask);
        }
        for row in &mut batch.decisions {
            row.receipt = vec![b'r'; RECEIPT_BYTES].into();
        }
        batch
    }

    /// The time that so many commits take.
    async fn commit(&mut self, commits: u64, decisions: u64) -> Duration {
        let batches: Vec<_> = (0..commits).map(|_| self.batch(decisions)).collect();
        let begin = Instant::now();
        for batch in &batches {
            self.store.append(batch).await.expect("the disk has room");
        }
        let time = begin.elapsed();
        let tenants = self.store.load(Some(&[self.chain.tenant])).await;
        let tenants = tenants.expect("the store can be read");
        assert_eq!(tenants[0].position.head(), self.chain.head());
        time
    }
}

/// Spreads numbers out (the constant is that of splitmix64), because callers' request ids come in no order.
fn scatter(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn commits(criterion: &mut Criterion, runtime: &Runtime, name: &str, store: &dyn Store) {
    let mut group = criterion.benchmark_group(name);
    for decisions in BATCHES {
        group.throughput(Throughput::Elements(decisions));
        let mut ledger = Ledger::new(store);
        group.bench_function(BenchmarkId::from_parameter(decisions), |bencher| {
            bencher.iter_custom(|times| runtime.block_on(ledger.commit(times, decisions)));
        });
    }
    group.finish();
}

fn sqlite(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("threads can be started");
    // On the disk that is built on, not in memory: the fsync is what this bench is about.
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("the folder was made by cargo");
    let url = format!("sqlite:{}/ledger.db", folder.path().display());
    let store = runtime.block_on(SqliteStore::open(&url));
    let store = store.expect("a new file can be opened");
    commits(criterion, &runtime, "store_commit", &store);
}

#[expect(
    clippy::disallowed_methods,
    reason = "the environment says where the server is"
)]
fn postgres(criterion: &mut Criterion) {
    let Ok(url) = std::env::var("COUNTERSIGN_TEST_POSTGRES_URL") else {
        eprintln!("store_commit_postgres: skipped, because COUNTERSIGN_TEST_POSTGRES_URL is not set");
        return;
    };
    let runtime = Runtime::new().expect("threads can be started");
    let store = runtime.block_on(PostgresStore::open(&url));
    let store = store.expect("the server is there");
    commits(criterion, &runtime, "store_commit_postgres", &store);
}

criterion_group!(benches, sqlite, postgres);
criterion_main!(benches);
