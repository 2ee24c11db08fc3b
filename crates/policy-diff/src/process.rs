//! A solver in a process of its own, which is killed when nobody needs it any more. Its memory has a bound, and so has
//! what is read of its answers. Of the gateway's environment it is shown where programs and libraries are.

use crate::script::Script;
use cedar_policy_symcc::SmtLibScript;
use cedar_policy_symcc::solver::{Decision, DecisionWithModel, Solver, SolverError};
use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter, Take};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The most memory that a solver may take, in KiB: its questions take a hundredth of it, but for those without an end.
const MEMORY_KIB_MAX: u32 = 1 << 20;
/// How a shell becomes a program under a bound of memory, with nothing of the gateway's environment, in which there are
/// keys and passwords, but where programs and their libraries are. It is in no folder of the gateway's and can write to
/// no file, and what it has in memory goes to no core file. It is a second shell that becomes it, because `env` takes a
/// path with a `=` for a variable.
const BECOMING: &str = r#"exec env -i PATH="$PATH" ${LD_LIBRARY_PATH+LD_LIBRARY_PATH="$LD_LIBRARY_PATH"} \
sh -c 'ulimit -c 0; cd / && ulimit -f 0 && ulimit -v "$1" && shift && exec "$@"' sh "$@""#;
/// The most that is read of everything that one process says, in bytes.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// A running cvc5.
#[derive(Debug)]
pub(crate) struct Process {
    /// Dropping it kills the process.
    child: Child,
    input: Script<BufWriter<ChildStdin>>,
    output: BufReader<Take<ChildStdout>>,
}

impl Process {
    /// Starts it. It gives up on a question after this time.
    pub(crate) fn start(program: &Path, question: Duration) -> io::Result<Self> {
        let mut child = bounded(program)
            // Older ones leave out what `like` needs unless they are told not to.
            .args(["--lang=smt2.6", "--quiet", "--strings-exp"])
            .arg(format!("--tlimit-per={}", question.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let missing = || io::Error::other("the solver has no standard input and output");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        Ok(Self {
            child,
            input: Script::new(BufWriter::new(input)),
            output: BufReader::new(output.take(OUTPUT_BYTES_MAX)),
        })
    }

    /// What the program says of its version, in one line.
    pub(crate) async fn version(program: &Path) -> io::Result<String> {
        let output = bounded(program)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("This is "));
        let line = lines.find(|line| line.starts_with("cvc5"));
        match line.filter(|_| output.status.success()) {
            Some(line) => Ok(line.split(" [").next().unwrap_or(line).trim().to_owned()),
            None => Err(io::Error::other(match output.status.code() {
                Some(126 | 127) => "the program is not there or cannot be run",
                _ => "the program does not say that it is cvc5",
            })),
        }
    }

    /// Kills it, and waits until nothing of it is left.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// The next line of what it says; an error if there is none.
    async fn line(&mut self) -> Result<String, SolverError> {
        let mut line = String::new();
        if self.output.read_line(&mut line).await? == 0 {
            return Err(fault("it has ended, or said too much"));
        }
        Ok(line)
    }
}

/// The program, which a shell becomes, so that killing one kills the other.
fn bounded(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", BECOMING, "sh"])
        .arg(MEMORY_KIB_MAX.to_string())
        .arg(&*from_anywhere(program))
        .kill_on_drop(true);
    command
}

/// What the program is called in any folder. One that is looked for in `PATH` is called the same.
fn from_anywhere(program: &Path) -> Cow<'_, Path> {
    let is_looked_for = program.components().count() == 1;
    match std::path::absolute(program) {
        Ok(absolute) if !is_looked_for => Cow::Owned(absolute),
        _ => Cow::Borrowed(program),
    }
}

/// Something is wrong with a solver, in our own words: what it says itself may be of things that are nobody's business.
fn fault(words: &'static str) -> SolverError {
    SolverError::Solver(words.to_owned())
}

impl Solver for Process {
    fn smtlib_input(&mut self) -> &mut (dyn tokio::io::AsyncWrite + Unpin + Send) {
        &mut self.input
    }

    async fn enable_models(&mut self) -> Result<(), SolverError> {
        Ok(self.smtlib_input().set_option("produce-models", "true").await?)
    }

    async fn check_sat(&mut self) -> Result<Decision, SolverError> {
        self.smtlib_input().check_sat().await?;
        self.input.flush().await?;
        let line = self.line().await?;
        match line.trim() {
            "sat" => Ok(Decision::Sat),
            "unsat" => Ok(Decision::Unsat),
            "unknown" => Ok(Decision::Unknown),
            complaint if complaint.starts_with("(error") => Err(fault("it complains of the question")),
            _ => Err(fault("it says what is no answer")),
        }
    }

    async fn check_sat_with_model(&mut self) -> Result<DecisionWithModel, SolverError> {
        match self.check_sat().await? {
            Decision::Unsat => return Ok(DecisionWithModel::Unsat),
            Decision::Unknown => return Ok(DecisionWithModel::Unknown),
            Decision::Sat => {}
        }
        self.smtlib_input().get_model().await?;
        self.input.flush().await?;
        let mut model = self.line().await?;
        if model.trim() != "(" {
            return Err(fault("it shows no model"));
        }
        loop {
            let line = self.line().await?;
            model.push_str(&line);
            if line.trim() == ")" {
                return Ok(DecisionWithModel::Sat { model });
            }
        }
    }
}
