//! The solver, and the bounds that it works within: how many comparisons at once, how long a question takes and how long
//! all of them.
//!
//! Whatever goes wrong with a solver, the question stays open: it is never taken for a no.

use crate::process::Process;
use cedar_policy_symcc::err::{Error, SolverError};
use cedar_policy_symcc::{CedarSymCompiler, Env, WellFormedAsserts};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a solver takes to say which it is: it only has to be loaded.
const VERSION_MAX: Duration = Duration::from_secs(5);

/// What a comparison may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// One question to the solver.
    pub question: Duration,
    /// All of them, and everything around them.
    pub all: Duration,
    /// How many kinds of actions are looked at: those that policies cannot tell apart are one kind.
    pub kinds_max: usize,
    /// How many policies may be about one action, in each set.
    pub policies_max: usize,
    /// How many examples are given in each direction.
    pub examples_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            // Most questions take a hundredth of a second; one that takes longer than this is unlikely to end.
            question: Duration::from_secs(5),
            // Somebody waits for the answer.
            all: Duration::from_secs(30),
            kinds_max: 200,
            policies_max: 1_000,
            examples_max: 20,
        }
    }
}

/// Where a solver is, and how many may run.
#[derive(Debug, Clone)]
pub struct Prover {
    program: PathBuf,
    turns: Arc<Semaphore>,
    bounds: Bounds,
}

/// The right to run a solver. One runs for as long as somebody has it.
#[derive(Debug)]
pub struct Turn {
    program: PathBuf,
    bounds: Bounds,
    _permit: OwnedSemaphorePermit,
}

/// Why there is no solver.
#[derive(Debug, thiserror::Error)]
#[error("cvc5 could not be run: {0}; install it, or say with --cvc5 where it is")]
pub(crate) struct Absent(#[source] io::Error);

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Open {
    /// It took too long.
    #[error("the solver found no answer in time")]
    Time,
    /// Others took too long, or there were too many.
    #[error("there was no time left to look at it")]
    NoTimeLeft,
    /// The solver gave up.
    #[error("the solver does not know")]
    Undecided,
    /// It cannot be asked.
    #[error("{0}")]
    Beyond(String),
    /// Something does not work as it should.
    #[error("the solver could not be asked: {0}")]
    Fault(String),
}

impl Prover {
    /// At most `at_once` solvers from this program.
    pub fn new(program: PathBuf, at_once: usize, bounds: Bounds) -> Self {
        Self {
            program,
            turns: Arc::new(Semaphore::new(at_once)),
            bounds,
        }
    }

    /// The right to run a solver; `None` if as many run as may.
    pub fn turn(&self) -> Option<Turn> {
        let permit = Arc::clone(&self.turns).try_acquire_owned().ok()?;
        Some(self.turn_with(permit))
    }

    /// The right to run a solver for whoever waits so long, behind those who wait already; `None` if none came in that time.
    pub async fn turn_within(&self, patience: Duration) -> Option<Turn> {
        let permit = Arc::clone(&self.turns).acquire_owned();
        let permit = tokio::time::timeout(patience, permit).await.ok()?.ok()?;
        Some(self.turn_with(permit))
    }

    fn turn_with(&self, permit: OwnedSemaphorePermit) -> Turn {
        Turn {
            program: self.program.clone(),
            bounds: self.bounds,
            _permit: permit,
        }
    }
}

impl Turn {
    /// What the solver calls itself.
    pub(crate) async fn version(&self) -> Result<String, Absent> {
        let asked = tokio::time::timeout(VERSION_MAX, Process::version(&self.program));
        let answer = asked.await.map_err(|late| Absent(late.into()))?;
        answer.map_err(Absent)
    }

    pub(crate) const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// A session with the solver that begins now.
    pub(crate) fn session(&self) -> Session<'_> {
        Session {
            turn: self,
            until: Instant::now() + self.bounds.all,
            solver: None,
        }
    }
}

/// Questions to one solver, one after the other.
pub(crate) struct Session<'t> {
    turn: &'t Turn,
    until: Instant,
    solver: Option<CedarSymCompiler<Process>>,
}

impl Session<'_> {
    pub(crate) const fn bounds(&self) -> &Bounds {
        self.turn.bounds()
    }

    /// Whether there is time left for another question.
    pub(crate) fn check(&self) -> Result<(), Open> {
        if Instant::now() < self.until {
            Ok(())
        } else {
            Err(Open::NoTimeLeft)
        }
    }

    /// Whether there is time left for what cannot be broken off. Where nobody waits for the answer any more, this is where
    /// it is noticed.
    pub(crate) async fn pause(&self) -> Result<(), Open> {
        tokio::task::yield_now().await;
        self.check()
    }

    /// Something that makes all of these true; `None` if nothing does. They are made only if there is time left.
    pub(crate) async fn find<'a>(
        &mut self,
        asserts: impl FnOnce() -> WellFormedAsserts<'a>,
    ) -> Result<Option<Env>, Open> {
        self.pause().await?;
        let asserts = asserts();
        let mut solver = match self.solver.take() {
            Some(solver) => solver,
            None => self.start()?,
        };
        // The solver minds its own time; this is for one that does not.
        let patience = self.bounds().question + Duration::from_secs(1);
        let left = self.until.saturating_duration_since(Instant::now());
        let Ok(found) = tokio::time::timeout(patience.min(left), solver.check_sat(&asserts)).await else {
            return Err(Open::Time);
        };
        let found = found.map_err(open);
        // After a fault nobody knows what else it would say, and it is killed.
        if matches!(found, Ok(_) | Err(Open::Undecided)) {
            self.solver = Some(solver);
        }
        found
    }

    /// Ends the solver. One that cannot be ended is killed when it is dropped.
    pub(crate) async fn end(mut self) {
        if let Some(solver) = &mut self.solver {
            drop(solver.solver_mut().end().await);
        }
    }

    fn start(&self) -> Result<CedarSymCompiler<Process>, Open> {
        let process = Process::start(&self.turn.program, self.bounds().question);
        let process = process.map_err(|error| Open::Fault(error.to_string()))?;
        CedarSymCompiler::new(process).map_err(open)
    }
}

/// Why there is no answer, in our own words. Errors repeat what a solver has said, which is neither told nor logged: it
/// may be of things that are nobody's business.
pub(crate) fn open(error: Error) -> Open {
    match error {
        Error::SolverUnknown => Open::Undecided,
        // It is what `Process` says of the solver.
        Error::SolverError(SolverError::Solver(words)) => Open::Fault(words),
        Error::SolverError(SolverError::UnrecognizedSolverOutput(_)) => {
            Open::Fault("it says what is no answer".to_owned())
        }
        Error::DecodeModel(_) | Error::ConcretizeError(_) | Error::ModelInvalid { .. } => {
            Open::Fault("its model cannot be read".to_owned())
        }
        // Of these none has words of the solver.
        other @ (Error::IncompleteSchema(_)
        | Error::ActionNotInSchema(_)
        | Error::CompileError(_)
        | Error::EncodeError(_)
        | Error::SolverError(SolverError::Io(_) | SolverError::SolverMarkedFailed)
        | Error::PolicyNotWellTyped { .. }
        | Error::NoPolicies) => Open::Fault(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_made_for_a_question_that_there_is_no_time_for() {
        let bounds = Bounds {
            all: Duration::ZERO,
            ..Bounds::default()
        };
        let turn = Prover::new(PathBuf::from("cvc5"), 1, bounds).turn().unwrap();
        let found = turn.session().find(|| unreachable!("there is no time")).await;
        assert!(matches!(found, Err(Open::NoTimeLeft)));
    }

    /// What is beside a comparison in a `select!` is looked at then: whether somebody waits for it.
    #[tokio::test]
    async fn others_have_their_turn_before_what_cannot_be_broken_off() {
        let turn = Prover::new(PathBuf::from("cvc5"), 1, Bounds::default())
            .turn()
            .unwrap();
        let session = turn.session();
        let is_first = tokio::select! {
            biased;
            _ = session.pause() => true,
            () = std::future::ready(()) => false,
        };
        assert!(!is_first);
    }
}
