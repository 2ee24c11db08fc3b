//! Whether a ledger on SQLite is written as fast when it is large: commits of 64 decisions at one size after another,
//! and the bytes that a decision takes.
//!
//! Bodies and answers are made of the members that the gateway writes, signed and chained as there, with a request id
//! each, which come in no order. They are committed straight to the store, so that ten million take minutes:
//! `cargo bench -p benches --bench growth -- --sizes 10000,10000000`. There is a ledger of each size, and they are
//! timed in turn, many times, because a machine's speed changes within seconds. It fails when the last is slower than
//! the first by more than `--slower-max` per cent.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use canon::{Canonical, Digest, ObjectWriter};
use clap::Parser;
use ledger::receipt::{Receipt, ReceiptBatch};
use ledger::{SignatureKind, SigningKey};
use model::{AgentId, DecisionId, Timestamp};
use store::conformance::sample::{Ask, Chain, agent_id};
use store::conformance::try_commit;
use store::{Batch, Records, Store};
use store_sqlite::SqliteStore;

const AGENTS: u64 = 100;
/// Decisions in a commit while the ledger grows.
const BUILDING: u64 = 1_000;
/// Decisions in a commit that is timed: a batch of a gateway with 64 callers.
const TIMED: u64 = 64;
/// Commits that are timed in a round: a tenth of a second and more.
const COMMITS: u64 = 100;
/// Commits before those, so that the ledger before is out of the way.
const WARM_UP: u64 = 20;
/// Rounds, of which the median counts.
const ROUNDS: usize = 21;

/// How large to let it grow.
#[derive(Debug, Parser)]
struct Options {
    /// The sizes at which it is timed, going up. One alone is compared with nothing: among all other benches it only has to run.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000])]
    sizes: Vec<u64>,
    /// By how much the last size may be slower than the first, in per cent.
    #[arg(long, default_value_t = 20.0)]
    slower_max: f64,
    /// Ask without request ids, to see what they cost.
    #[arg(long)]
    without_request_ids: bool,
    /// Where the ledgers are kept, to be timed again and grown further. Otherwise they are gone afterwards.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A ledger that grows.
struct Ledger {
    store: SqliteStore,
    chain: Chain,
    key: SigningKey,
    recorded: u64,
    with_request_ids: bool,
}

impl Ledger {
    async fn new(folder: &Path, size: u64, with_request_ids: bool) -> Self {
        let url = format!("sqlite:{}/ledger-{size}.db", folder.display());
        let store = SqliteStore::open(&url)
            .await
            .expect("a file of ours can be opened");
        let mut chain = Chain::new(1);
        chain.tip = store.tip(chain.tenant).await.expect("the file can be read");
        Self {
            store,
            recorded: chain.head().seq,
            chain,
            key: SigningKey::from_seed("log.example", SignatureKind::Note, &[1; 32])
                .expect("a plain word is a name"),
            with_request_ids,
        }
    }

    fn batch(&mut self, decisions: u64) -> Batch {
        let (mut batch, mut receipts) = (Batch::default(), ReceiptBatch::default());
        let mut answers = Vec::new();
        for _ in 0..decisions {
            self.recorded += 1;
            let decision = Sample::of(self.recorded);
            let answer = decision.answer();
            let digest = Digest::of(answer.as_bytes());
            self.chain
                .entry(&mut batch, "decision", decision.at, decision.body(&digest));
            let mut row = self.chain.decision_row(&decision.ask());
            row.id = decision.id;
            row.request = row.request.filter(|_| self.with_request_ids);
            batch.decisions.push(row);
            receipts.push(&self.chain.head().hash, &digest);
            answers.push(answer);
        }
        let sealed = receipts.seal(&self.key).expect("there are answers");
        let tenant = self.chain.tenant.to_string();
        let rows = batch.decisions.iter_mut().zip(&batch.entries).zip(answers);
        for (index, ((row, entry), mut answer)) in rows.enumerate() {
            answer.truncate(answer.len() - 1);
            answer.push_str(",\"receipt\":");
            let receipt = Receipt {
                tenant: &tenant,
                seq: entry.seq,
                at: &entry.at.to_string(),
                hash: entry.hash,
                prev: entry.prev,
                body: entry.body.digest(),
            };
            sealed.write_receipt(index, &receipt, &mut answer);
            answer.push('}');
            row.receipt = answer.into();
        }
        batch
    }

    async fn grow(&mut self, size: u64) {
        while self.recorded < size {
            let batch = self.batch(BUILDING.min(size - self.recorded));
            self.commit(&batch).await;
        }
    }

    async fn commit(&self, batch: &Batch) {
        try_commit(&self.store, batch).await.expect("the disk has room");
    }

    /// Decisions a second, in commits of [`TIMED`]. Making them is not counted.
    async fn timed(&mut self) -> f64 {
        let mut took = Duration::ZERO;
        for commit in 0..WARM_UP + COMMITS {
            let batch = self.batch(TIMED);
            let begin = Instant::now();
            self.commit(&batch).await;
            if commit >= WARM_UP {
                took += begin.elapsed();
            }
        }
        f64::from(u32::try_from(COMMITS * TIMED).expect("there are few")) / took.as_secs_f64()
    }
}

/// A decision as the gateway would record it.
struct Sample {
    number: u64,
    id: DecisionId,
    agent: AgentId,
    at: Timestamp,
}

impl Sample {
    fn of(number: u64) -> Self {
        let millis = 1_800_000_000_000 + number / 10;
        let id = u128::from(millis) << 80 | u128::from(scatter(number));
        Self {
            number,
            id: DecisionId::from_bytes(id.to_be_bytes()),
            agent: agent_id(u8::try_from(number % AGENTS).expect("there are few agents")),
            at: Timestamp::from_millis(i64::try_from(millis).expect("it is this century")),
        }
    }

    fn ask(&self) -> Ask {
        Ask {
            agent: self.agent,
            at: self.at,
            ..Ask::named(&self.request_id())
        }
    }

    /// Callers' ids come in no order.
    fn request_id(&self) -> String {
        format!("call-{:016x}", scatter(self.number))
    }

    /// A digest that is one of so many.
    fn digest(&self, what: &str, of: u64) -> Digest {
        Digest::of(format!("{what}{}", self.number % of).as_bytes())
    }

    fn answer(&self) -> String {
        format!(
            r#"{{"decision_id":"{}","decision":"allow","reason_code":"policy_permits","reason":"permitted by `base/mutation-from-trusted-source`","matched_policies":["base/mutation-from-trusted-source"],"obligations":[],"risk_level":"high","trust":{{"claimed":"trusted_internal_unsigned","effective":"trusted_internal_unsigned"}},"action_hash":"{}","policy":{{"revision":107,"digest":"{}"}}}}"#,
            self.id,
            self.digest("action", 1_000),
            self.digest("policies", 1),
        )
    }

    fn body(&self, answer: &Digest) -> Canonical {
        let mut body = ObjectWriter::with_capacity(1_280);
        body.string("action", "merge_pull_request");
        body.digest("action_hash", &self.digest("action", 1_000));
        body.string("agent", &self.agent.to_string());
        body.digest("answer_hash", answer);
        body.string("decision", "allow");
        body.string("decision_id", &self.id.to_string());
        body.object("facts", |facts| {
            facts.digest("action", &self.digest("verb", 4));
            facts.digest("agent", &self.digest("agent", AGENTS));
            facts.digest("parameters", &self.digest("parameters", 1_000));
        });
        body.string("judged_at", &self.at.to_string());
        body.strings("matched_policies", ["base/mutation-from-trusted-source"]);
        body.boolean("mutates_state", true);
        body.digest("policy_digest", &self.digest("policies", 1));
        body.string("reason", "permitted by `base/mutation-from-trusted-source`");
        body.string("reason_code", "policy_permits");
        body.string("request_id", &self.request_id());
        body.string("resource", "repo:acme/widgets#42");
        body.unsigned("revision", 107);
        body.string("risk_level", "high");
        body.string(
            "salt",
            &format!("{:024x}", u128::from(scatter(self.number)) << 32),
        );
        body.string("tool", "github");
        body.object("trust", |trust| {
            trust.string("claimed", "trusted_internal_unsigned");
            trust.string("effective", "trusted_internal_unsigned");
        });
        body.finish()
    }
}

/// Spreads numbers out (the constant is that of splitmix64).
fn scatter(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What was found at one size.
struct Found {
    size: u64,
    /// Of each round.
    per_second: Vec<f64>,
}

impl Found {
    fn median(&self) -> f64 {
        let mut sorted = self.per_second.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

async fn run(options: &Options, folder: &Path) -> Vec<Found> {
    let mut ledgers = Vec::new();
    for size in &options.sizes {
        let began = Instant::now();
        let mut ledger = Ledger::new(folder, *size, !options.without_request_ids).await;
        ledger.grow(*size).await;
        println!("{size:>10} entries  grown in {} s", began.elapsed().as_secs());
        let found = Found {
            size: *size,
            per_second: Vec::new(),
        };
        ledgers.push((ledger, found));
    }
    for _ in 0..ROUNDS {
        for (ledger, found) in &mut ledgers {
            found.per_second.push(ledger.timed().await);
        }
    }
    let mut all = Vec::new();
    for (ledger, found) in ledgers {
        let bytes = ledger.store.size_bytes().await.expect("the file can be read") / ledger.recorded;
        println!(
            "{:>10} entries  {:>8.0} decisions/s in commits of {TIMED}  {bytes} bytes a decision",
            found.size,
            found.median(),
        );
        ledger.store.close().await;
        all.push(found);
    }
    all
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    // On the disk that is built on, not in memory: the commit is what this is about.
    let passing = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the folder was made by cargo");
    let folder = options.folder.as_deref().unwrap_or(passing.path());
    let found = run(&options, folder).await;
    let (Some(first), Some(last)) = (found.first(), found.last()) else {
        return ExitCode::SUCCESS;
    };
    let slower = (1.0 - last.median() / first.median()) * 100.0;
    println!(
        "{} entries are {slower:.1} % slower than {}",
        last.size, first.size
    );
    if slower > options.slower_max {
        println!("that is more than {} %", options.slower_max);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
