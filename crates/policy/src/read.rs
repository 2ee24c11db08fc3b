//! A question whose parameters were read and checked once, to be asked for several agents: what a schema says of them
//! may take long to check.
//!
//! In whose name it is asked, and what comes of all the answers, is not decided here. Who asks for one agent alone asks
//! the [`PolicySet`].

use crate::case::Known;
use crate::explain::Explanation;
use crate::question::{Question, Unanswerable};
use crate::ruling::{Ruling, Rulings};
use crate::set::PolicySet;
use model::{Agent, Team};

/// A question whose parameters were read. In what is made of it only who asks and what is claimed differ, so they are
/// the same there, and are not checked again.
#[derive(Clone)]
pub struct ReadQuestion<'s, 'q> {
    set: &'s PolicySet,
    /// `None` if no policy can know the action.
    known: Option<Known<'s>>,
    question: Question<'q>,
}

impl PolicySet {
    /// This question with its parameters read, if they are valid.
    pub fn read<'s, 'q>(&'s self, question: &Question<'q>) -> Result<ReadQuestion<'s, 'q>, Unanswerable> {
        Ok(ReadQuestion {
            set: self,
            known: Known::read(&self.contents, question)?,
            question: *question,
        })
    }
}

impl<'q> ReadQuestion<'_, 'q> {
    /// The question.
    pub const fn question(&self) -> &Question<'q> {
        &self.question
    }

    /// The question as if this agent asked it, whose team is this one; the parameters are not read again.
    #[must_use]
    pub fn asked_by(&self, agent: &'q Agent, team: Option<&'q Team>) -> Self {
        self.with(Question {
            agent,
            team,
            ..self.question
        })
    }

    /// The question about the action as it is registered, as [`Question::as_registered`] has it; the parameters are not
    /// read again.
    pub fn as_registered(&self) -> Option<Self> {
        Some(self.with(self.question.as_registered()?))
    }

    fn with(&self, question: Question<'q>) -> Self {
        Self {
            question,
            ..self.clone()
        }
    }

    /// What [`PolicySet::rule`] says.
    pub fn rule(&self) -> Result<Ruling, Unanswerable> {
        self.set.rule_known(self.known.clone(), &self.question)
    }

    /// What [`PolicySet::rule_with_shadow`] says.
    pub fn rule_with_shadow(&self) -> Result<Rulings, Unanswerable> {
        self.set
            .rule_known_with_shadow(self.known.clone(), &self.question)
    }

    /// What [`PolicySet::explain`] says.
    pub fn explain(&self) -> Result<Explanation, Unanswerable> {
        self.set.explain_known(self.known.clone(), &self.question)
    }
}

#[cfg(test)]
mod tests;
