//! Commits to an SQLite file at full durability: batches of 1, 32 and 128 decisions, three rows and a request id each.
//!
//! What is timed is the store alone, from a batch in memory to its fsync; the batches are made before. Every timed run
//! ends by asserting that the ledger ends where the batches said.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use store::conformance::sample::{Ask, Chain, agent_id};
use store::conformance::try_commit;
use store::{Batch, Directories};
use store_sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const BATCHES: [u64; 3] = [1, 32, 128];
const AGENTS: u64 = 100;
/// What the body of an entry and a receipt come to for a decision with a few parameters.
const BODY_TEXT_BYTES: usize = 560;
const RECEIPT_BYTES: usize = 700;

/// A ledger that grows. The folder goes when the value does.
struct Ledger {
    store: SqliteStore,
    chain: Chain,
    recorded: u64,
    _folder: TempDir,
}

impl Ledger {
    async fn new() -> Self {
        // On the disk that is built on, not in memory: the fsync is what this bench is about.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the folder was made by cargo");
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        Self {
            store: SqliteStore::open(&url).await.expect("a new file can be opened"),
            chain: Chain::new(1),
            recorded: 0,
            _folder: folder,
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
            try_commit(&self.store, batch).await.expect("the disk has room");
        }
        let time = begin.elapsed();
        let tenants = self.store.load(None).await.expect("the file can be read");
        assert_eq!(tenants[0].place.head(), self.chain.head());
        time
    }
}

/// Spreads numbers out (the constant is that of splitmix64), because callers' request ids come in no order.
fn scatter(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn commits(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("threads can be started");
    let mut group = criterion.benchmark_group("store_commit");
    for decisions in BATCHES {
        group.throughput(Throughput::Elements(decisions));
        let mut ledger = runtime.block_on(Ledger::new());
        group.bench_function(BenchmarkId::from_parameter(decisions), |bencher| {
            bencher.iter_custom(|times| runtime.block_on(ledger.commit(times, decisions)));
        });
    }
    group.finish();
}

criterion_group!(benches, commits);
criterion_main!(benches);
