//! The command line and the environment. Nothing else reads the environment, but for what a PostgreSQL URL leaves out.

mod several;

pub use several::Several;

use crate::cosigning::Witness;
use crate::gateway::DIRECTORY_BYTES_MAX;
use crate::http::json::TEXT_BYTES_MAX;
use crate::listeners::{self, Address};
use anyhow::Context;
use axum::http::Uri;
use axum::http::uri::Authority;
use clap::builder::{BoolishValueParser, RangedU64ValueParser};
use clap::{Args, Parser, Subcommand, value_parser};
use ledger::VerifierKey;
use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// For how long answers to named requests may be kept. A day at least, which is as long as anything is held: so what
/// settles it can be repeated as long. A year is longer than anybody repeats.
const REPLIES_KEPT_HOURS: RangeInclusive<i64> = 24..=8_760;
/// Which log lines are printed of what is not named.
const PRINTED_ANYWAY: &str = "warn";
/// What is not printed whatever is named: these lines have all bytes that are sent to witnesses, and a password may be
/// among those.
const NEVER_PRINTED: &str = "ureq_proto::util=off";
/// How many threads tasks run on, in the words of the runtime.
const WORKERS: &str = "TOKIO_WORKER_THREADS";
/// Our crates that have log lines.
const PRINTING: [&str; 3] = ["gateway", "store_sqlite", "store_postgres"];

/// An authorization gateway for AI agents.
#[derive(Debug, Parser)]
#[command(name = "countersign", version, about)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How many threads tasks run on: as many as there are cores, unless the variable of the runtime says otherwise.
///
/// # Errors
/// It says no number of threads.
pub fn workers() -> anyhow::Result<usize> {
    workers_of(std::env::var_os(WORKERS).as_deref())
}

/// How many, where that is what the variable says.
fn workers_of(told: Option<&OsStr>) -> anyhow::Result<usize> {
    let Some(told) = told else {
        return Ok(std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
    };
    let count = told.to_str().and_then(|told| told.parse::<NonZeroU16>().ok());
    let count = count.with_context(|| format!("`{WORKERS}` has to be a number from 1 to {}", u16::MAX))?;
    Ok(count.get().into())
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the API.
    Serve(Serve),
    /// Say whether `serve` would start with the same options, without serving. It does not try to listen, and makes no
    /// signing key.
    CheckConfig(Serve),
    /// Bring the schema of a database up to date; `serve` does it too, where its role may.
    Migrate(Database),
    /// Copy everything from one database to another, empty one, and verify it on both ends.
    Copy(Copy),
    /// Show what the gateway does, on a store of its own.
    #[command(subcommand)]
    Demo(DemoCommand),
    /// Look after budgets.
    #[command(subcommand)]
    Budgets(BudgetsCommand),
    /// Work on policies, without a gateway.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Add a signing key to the file of a gateway, which signs from its next start on.
    RotateKey(RotateKey),
    /// Verify an exported ledger, or evidence, without a gateway.
    Verify(Verify),
    /// Be a witness for the ledgers of others: cosign their checkpoints as long as they continue each other.
    Witness(RunWitness),
}

/// What can be shown.
#[derive(Debug, Subcommand)]
pub enum DemoCommand {
    /// An agent that loops over paid calls, unguarded for half a minute, and then stopped by a budget, a rate limit, a
    /// quota and a policy.
    Runaway,
}

/// What can be done with budgets.
#[derive(Debug, Subcommand)]
pub enum BudgetsCommand {
    /// Count every balance again from the ledger, and compare with what is stored.
    Verify(Database),
}

/// What can be done with policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Run the tests in folders with `policy.cedar`, `tools.json` and `tests.json`.
    Test(PolicyTest),
}

/// Which tests to run.
#[derive(Debug, Args)]
pub struct PolicyTest {
    /// Folders with tests, or with such folders in them.
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// A file with base policies, in place of those in the program.
    #[arg(long, env = "COUNTERSIGN_POLICIES", value_name = "FILE")]
    pub policies: Option<PathBuf>,
}

/// Where everything is kept.
#[derive(Debug, Args)]
pub struct Database {
    /// Where everything is kept: `sqlite:PATH` or `postgres://USER:PASSWORD@HOST/DATABASE`.
    #[arg(
        long = "database-url",
        env = "COUNTERSIGN_DATABASE_URL",
        hide_env_values = true,
        default_value = "sqlite:./countersign.db",
        value_name = "URL"
    )]
    pub url: String,
}

/// Whose key to replace. `--log-name` is accepted and not used, and `--signing-key` only to say that such a key is
/// replaced elsewhere: both may be set in the environment for the gateway.
#[derive(Debug, Args)]
#[command(mut_arg("key", |key| key.hide(true)), mut_arg("log_name", |name| name.hide(true)))]
pub struct RotateKey {
    /// Where everything is kept: the file of keys is beside it.
    #[command(flatten)]
    pub database: Database,
    /// What the ledger is signed with.
    #[command(flatten)]
    pub signing: Signing,
}

/// What the ledger is signed with.
#[derive(Debug, Args)]
pub struct Signing {
    /// A file with signing keys, a line each, of which the last one signs. `serve` makes it if it is not there. Without this
    /// option it is the file of the database with `.key` behind its name, or `countersign.key` where the database is no file.
    #[arg(
        long = "signing-key-file",
        env = "COUNTERSIGN_SIGNING_KEY_FILE",
        value_name = "FILE"
    )]
    pub key_file: Option<PathBuf>,
    /// The signing key itself, in place of a file.
    #[arg(
        long = "signing-key",
        env = "COUNTERSIGN_SIGNING_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub key: Option<Hidden>,
    /// The name of the log, for the first key that is made: something that no other log is called. A random one without it.
    #[arg(long, env = "COUNTERSIGN_LOG_NAME", value_name = "NAME")]
    pub log_name: Option<String>,
}

/// A text that is not shown.
#[derive(Clone)]
pub struct Hidden(String);

impl Hidden {
    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// What to copy.
#[derive(Debug, Args)]
pub struct Copy {
    /// The database to copy from; no gateway may be writing to it.
    #[arg(long, value_name = "URL")]
    pub from: String,
    /// The database to copy to; it has to be empty.
    #[arg(long, value_name = "URL")]
    pub to: String,
}

/// An absolute URL with `https` and nothing behind its authority: what is published for one with a path stands elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is no public URL.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error(
    "it is an absolute URL with `https`, such as `https://authorize.example` or `https://authorize.example:8443`, without a path, a query, a fragment or a name of a user"
)]
pub struct NoPublicUrl;

impl FromStr for PublicUrl {
    type Err = NoPublicUrl;

    fn from_str(text: &str) -> Result<Self, NoPublicUrl> {
        let url: Uri = text.parse().map_err(|_| NoPublicUrl)?;
        let is_public = url.scheme_str() == Some("https") && url.authority().is_some_and(is_place);
        if is_public && matches!(url.path(), "" | "/") && url.query().is_none() && !text.contains('#') {
            Ok(Self(text.trim_end_matches('/').to_owned()))
        } else {
            Err(NoPublicUrl)
        }
    }
}

/// Whether it is a host, with a port that there can be or with none, and without a user.
fn is_place(authority: &Authority) -> bool {
    let text = authority.as_str();
    if text.contains('@') || authority.host().is_empty() {
        return false;
    }
    let is_number = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = |port: &str| is_number(port) && port.parse::<NonZeroU16>().is_ok();
    let behind = text.strip_prefix(authority.host()).unwrap_or(text);
    behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port)
}

/// Which log lines to print: warnings, and what a text adds to them or takes away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// What lets these lines through.
    pub fn to_env_filter(&self) -> EnvFilter {
        // Of two words about one target the later one counts.
        let words = format!("{},{NEVER_PRINTED}", self.0);
        EnvFilter::try_new(words).expect("each word of it was tried when it was read")
    }
}

/// Why a text is no such filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither a level (`off`, `error`, `warn`, `info`, `debug`, `trace`) nor a target with one, such as `gateway=debug`"
)]
pub struct NoLogFilter(String);

impl FromStr for LogFilter {
    type Err = NoLogFilter;

    fn from_str(text: &str) -> Result<Self, NoLogFilter> {
        // A level that comes later for everything takes the place of this one.
        let mut filter = PRINTED_ANYWAY.to_owned();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if is_misspelt(word) || EnvFilter::try_new(word).is_err() {
                return Err(NoLogFilter(word.to_owned()));
            }
            filter.push(',');
            filter.push_str(word);
        }
        Ok(Self(filter))
    }
}

/// A word alone that is no level is a target, of which everything is printed. Nobody means one of which there is nothing.
fn is_misspelt(word: &str) -> bool {
    let is_alone = !word.contains(['=', '[']);
    let is_level = word.parse::<LevelFilter>().is_ok();
    let is_ours = word.split("::").next().is_some_and(|of| PRINTING.contains(&of));
    is_alone && !is_level && !is_ours
}

/// How to serve.
#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen: `ADDRESS:PORT`, or `unix:/PATH` for a socket. May be given several times; in the environment with white
    /// space between them.
    #[arg(
        long,
        env = "COUNTERSIGN_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    pub listen: Vec<Several<Address>>,
    /// The permissions of sockets, in octal digits: who may write to one is let in, and then needs a credential.
    #[arg(
        long,
        env = "COUNTERSIGN_SOCKET_MODE",
        value_parser = listeners::parse_mode,
        default_value = "600",
        value_name = "MODE"
    )]
    pub socket_mode: u32,
    /// Where everything is kept.
    #[command(flatten)]
    pub database: Database,
    /// A file with base policies, in place of those in the program.
    #[arg(long, env = "COUNTERSIGN_POLICIES", value_name = "FILE")]
    pub policies: Option<PathBuf>,
    /// An operator key to install, in place of a random one that is printed once.
    #[arg(
        long,
        env = "COUNTERSIGN_OPERATOR_KEY",
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub operator_key: Option<String>,
    /// What the ledger is signed with.
    #[command(flatten)]
    pub signing: Signing,
    /// Also make a demo tenant with an agent and tools, and print a curl that asks for a decision.
    #[arg(long, env = "COUNTERSIGN_DEMO", value_parser = BoolishValueParser::new())]
    pub demo: bool,
    /// The solver that compares sets of policies; it is looked for when one is compared.
    #[arg(
        long,
        env = "COUNTERSIGN_CVC5",
        default_value = "cvc5",
        value_name = "PROGRAM"
    )]
    pub cvc5: PathBuf,
    /// A folder with the keys of issuers that are kept in files, `TENANT/ISSUER.json`; they are read again when they change.
    #[arg(long, env = "COUNTERSIGN_ISSUER_KEYS", value_name = "FOLDER")]
    pub issuer_keys: Option<PathBuf>,
    /// The URL under which callers reach the gateway, where it is behind a proxy: `https://NAME`, perhaps with a port.
    /// What is published for AuthZEN names it.
    #[arg(long, env = "COUNTERSIGN_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<PublicUrl>,
    /// The largest body of a request, in bytes, at most 8 MiB.
    #[arg(
        long,
        env = "COUNTERSIGN_BODY_BYTES_MAX",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=TEXT_BYTES_MAX as u64),
        default_value_t = 256 * 1024,
        value_name = "BYTES"
    )]
    pub body_bytes_max: usize,
    /// How many bytes what a tenant registers may have: its keys, agents, tokens, tools, teams and users, which are all
    /// in memory; each value in a schema, a key set or attributes counts for 72 more, and each action for 2048. What
    /// makes it less and what stops somebody is done even beyond, and with changed definitions that an import holds it
    /// may come to twice that.
    #[arg(
        long,
        env = "COUNTERSIGN_DIRECTORY_BYTES_MAX",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..),
        default_value_t = DIRECTORY_BYTES_MAX,
        value_name = "BYTES"
    )]
    pub directory_bytes_max: usize,
    /// How many hours an answer is kept that is given again to whoever repeats its `Idempotency-Key`.
    #[arg(
        long,
        env = "COUNTERSIGN_REPLIES_KEPT_HOURS",
        value_parser = value_parser!(u32).range(REPLIES_KEPT_HOURS),
        default_value_t = 72,
        value_name = "HOURS"
    )]
    pub replies_kept_hours: u32,
    /// A witness of the ledgers: where it is asked, and its verifier key. May be given several times; in the environment with
    /// white space between them.
    #[arg(
        long = "witness",
        env = "COUNTERSIGN_WITNESSES",
        hide_env_values = true,
        value_name = "URL#VKEY"
    )]
    pub witnesses: Vec<Several<Witness>>,
    /// How many witnesses make a checkpoint a witnessed one.
    #[arg(
        long,
        env = "COUNTERSIGN_WITNESS_QUORUM",
        default_value = "1",
        value_name = "COUNT"
    )]
    pub witness_quorum: NonZeroUsize,
    /// How many seconds to rest before witnesses are asked again.
    #[arg(
        long,
        env = "COUNTERSIGN_WITNESS_SECONDS",
        default_value = "10",
        value_name = "SECONDS"
    )]
    pub witness_seconds: NonZeroU64,
    /// What to print.
    #[command(flatten)]
    pub logging: Logging,
}

/// What to print.
#[derive(Debug, Args)]
pub struct Logging {
    /// Which log lines to print, such as `info` or `gateway=debug`. Warnings are printed of what it does not name.
    #[arg(
        long = "log",
        env = "COUNTERSIGN_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub filter: LogFilter,
    /// Print log lines as JSON.
    #[arg(long = "log-json", env = "COUNTERSIGN_LOG_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// How to be a witness.
#[derive(Debug, Args)]
pub struct RunWitness {
    /// Where to listen.
    #[arg(long, env = "COUNTERSIGN_WITNESS_LISTEN", default_value = "127.0.0.1:8090")]
    pub listen: SocketAddr,
    /// Where to keep what was cosigned. It is made if it is not there, and has the lock of the witness in it, evidence
    /// against logs, and its key unless that is elsewhere.
    #[arg(
        long,
        env = "COUNTERSIGN_WITNESS_FOLDER",
        default_value = "countersign-witness",
        value_name = "DIR"
    )]
    pub folder: PathBuf,
    /// A file with keys of the witness, a line each, all of which sign. It is made if it is not there. Without this option it is
    /// `key` in the folder.
    #[arg(long, env = "COUNTERSIGN_WITNESS_KEY_FILE", value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The name of the witness, for the first key that is made. A random one without it.
    #[arg(long, env = "COUNTERSIGN_WITNESS_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// A public key of a log whose tenants' ledgers are cosigned, as `keys.json` has it. May be given several times; in the
    /// environment with white space between them.
    #[arg(
        long = "log-key",
        env = "COUNTERSIGN_WITNESS_LOG_KEYS",
        required = true,
        value_name = "VKEY"
    )]
    pub logs: Vec<Several<VerifierKey>>,
    /// What to print.
    #[command(flatten)]
    pub logging: Logging,
}

/// What to verify.
#[derive(Debug, Args)]
pub struct Verify {
    /// An export of `GET /v1/ledger/export`, or evidence of `GET /v1/ledger/evidence`; `-` for standard input.
    pub file: PathBuf,
    /// A public key of the log, as `keys.json` has it; may be given several times.
    #[arg(long, value_name = "VKEY")]
    pub key: Vec<VerifierKey>,
    /// A file with the log's public keys: what it publishes at `/.well-known/countersign/keys.json`.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// A file with a checkpoint that was kept elsewhere; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub held: Vec<PathBuf>,
    /// A public key of a witness; may be given several times.
    #[arg(long, value_name = "VKEY")]
    pub witness: Vec<VerifierKey>,
    /// How many of these witnesses must have cosigned each checkpoint; all of them without it.
    #[arg(long, value_name = "COUNT", requires = "witness")]
    pub quorum: Option<NonZeroUsize>,
    /// Only whether the file agrees with itself, whoever has made it: compared with no key, it proves nothing.
    #[arg(long, conflicts_with_all = ["key", "keys", "held", "witness"])]
    pub unsigned: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn help_shows_no_variable_that_may_have_a_secret_in_it() {
        let program = CommandLine::command();
        for command in ["serve", "check-config"] {
            let command = program.find_subcommand(command).unwrap();
            for option in ["database-url", "operator-key", "signing-key", "witness"] {
                let mut arguments = command.get_arguments();
                let argument = arguments.find(|argument| argument.get_long() == Some(option));
                assert!(argument.unwrap().is_hide_env_values_set(), "{option}");
            }
        }
    }

    #[test]
    fn there_is_a_worker_for_each_core_unless_the_runtime_is_told_otherwise() {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        assert_eq!(workers_of(None).unwrap(), cores);
        assert_eq!(workers_of(Some(OsStr::new("3"))).unwrap(), 3);
        for wrong in ["", "0", "-1", "many", "65536"] {
            let told = workers_of(Some(OsStr::new(wrong))).unwrap_err().to_string();
            assert_eq!(told, "`TOKIO_WORKER_THREADS` has to be a number from 1 to 65535");
        }
    }

    #[test]
    fn a_log_filter_leaves_warnings_of_what_it_does_not_name() {
        for (text, printed) in [
            ("info", "info"),
            ("", "warn"),
            ("off", "off"),
            ("gateway=debug", "gateway=debug,warn"),
            ("gateway=debug, error", "gateway=debug,error"),
            ("gateway::http", "gateway::http=trace,warn"),
        ] {
            let filter: LogFilter = text.parse().unwrap();
            let printed = format!("{NEVER_PRINTED},{printed}");
            assert_eq!(filter.to_env_filter().to_string(), printed, "{text}");
        }
    }

    #[test]
    fn no_log_filter_lets_through_what_is_sent_to_witnesses() {
        for text in ["trace", "ureq_proto=trace", "ureq_proto::util=trace"] {
            let filter: LogFilter = text.parse().unwrap();
            let words = filter.to_env_filter().to_string();
            assert_eq!(words.split(',').next(), Some(NEVER_PRINTED), "{text}: {words}");
            assert_eq!(words.matches("ureq_proto::util").count(), 1, "{text}: {words}");
        }
    }

    #[test]
    fn a_misspelt_level_is_no_log_filter() {
        for (text, word) in [
            ("warning", "warning"),
            ("warn,inof", "inof"),
            ("gateway=inof", "gateway=inof"),
            ("gatewya", "gatewya"),
            ("a=b=c", "a=b=c"),
        ] {
            let refused = NoLogFilter(word.to_owned());
            assert_eq!(text.parse::<LogFilter>(), Err(refused), "{text}");
        }
    }
}
