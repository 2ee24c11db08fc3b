//! An answer with everything that led to it: the policies that the ask is about, what came of each, and the question as
//! Cedar saw it. For people who try policies; nothing here is recorded, and it shows what the ask holds.

use crate::annotations::PolicyEffect;
use crate::case::{Case, Evaluated, Known};
use crate::diagnostics::Place;
use crate::evaluate::Asked;
use crate::question::{Question, Unanswerable};
use crate::read_set::ReadSet;
use crate::rule::findings::{said, unknown_action};
use crate::rule::whose;
use crate::ruling::{PolicyId, Ruling};
use crate::set::{PolicySet, World};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// How long what is told of policies may be for one principal of an ask on one side, in bytes: an explanation has four
/// such lists at most.
const OUTCOMES_BYTES_MAX: usize = 1 << 19;

/// An answer with everything that led to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The answer.
    pub ruling: Ruling,
    /// What it would be if everything on trial were enforced; absent if nothing is on trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Ruling>,
    /// The policies whose scope is about the ask, sorted by id. Others cannot match it.
    pub policies: Vec<PolicyOutcome>,
    /// How many more there are, if what is told of those would be too long; absent if all are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_policies: Option<usize>,
    /// The question as Cedar saw it; absent where no policy knows the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// What came of it for the user for whom the agent acts, who has to be allowed it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_user: Option<ForUser>,
    /// What came of it as the action is registered, if the caller claims that a read changes something: it has to be
    /// allowed, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_registered: Option<AsRegistered>,
}

/// What came of a question as the action is registered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AsRegistered {
    /// The policies whose scope is about the ask as a read, sorted by id.
    pub policies: Vec<PolicyOutcome>,
    /// How many more there are, if what is told of those would be too long; absent if all are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_policies: Option<usize>,
    /// The question as Cedar saw it.
    pub request: Request,
    /// What came of it for the user for whom the agent acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_user: Option<ForUser>,
}

/// What came of a question about the user for whom the agent acts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForUser {
    /// The policies whose scope is about the user and the ask, sorted by id.
    pub policies: Vec<PolicyOutcome>,
    /// How many more there are, if what is told of those would be too long; absent if all are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_policies: Option<usize>,
    /// The question as Cedar saw it.
    pub request: Request,
}

/// What came of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyOutcome {
    /// Which.
    pub id: PolicyId,
    /// `permit` or `forbid`.
    pub effect: &'static str,
    /// `enforced`, `shadow` or `canary`.
    pub mode: &'static str,
    /// Its annotations but for the id.
    pub annotations: BTreeMap<&'static str, String>,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Whether it made the ruling what it is and is named there.
    pub determines: bool,
    /// Where it is in its text.
    #[serde(flatten)]
    pub place: Option<Place>,
}

/// Whether a policy's conditions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// They do.
    Satisfied,
    /// They do not.
    Unsatisfied,
    /// They could not be evaluated.
    Failed,
}

/// A question in Cedar's terms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
    /// The agent, or the user for whom it acts, as Cedar writes it.
    pub principal: String,
    /// The action.
    pub action: String,
    /// The resource.
    pub resource: String,
    /// The context in Cedar's JSON form; absent if it has none, because a parameter or an attribute has a name that this form
    /// keeps for itself, such as `__entity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
    /// The entities in Cedar's JSON form.
    pub entities: Value,
}

/// A case, and what came of its policies.
struct Seen<'s> {
    case: Case<'s>,
    evaluated: Vec<Evaluated<'s>>,
}

impl<'s> Seen<'s> {
    fn of(case: Case<'s>) -> Self {
        let evaluated = case.evaluate(|_| true);
        Self { case, evaluated }
    }

    fn ruling(&self, world: World<'_>) -> Ruling {
        self.case.ruling(&self.evaluated, world)
    }
}

/// What came of the policies for the agent, and for the user for whom it acts.
struct Together<'s> {
    agent: Seen<'s>,
    user: Option<Seen<'s>>,
}

impl<'s> Together<'s> {
    fn of(case: Case<'s>, question: &Question<'_>) -> Result<Self, Unanswerable> {
        let user = case.of_user(question, ReadSet::ALL)?.map(Seen::of);
        let agent = Seen::of(case);
        Ok(Self { agent, user })
    }

    fn ruling(&self, question: &Question<'_>, world: World<'_>) -> Ruling {
        let agent = self.agent.ruling(world);
        match &self.user {
            None => agent,
            Some(user) => agent.and(user.ruling(world), &whose(question)),
        }
    }
}

impl PolicySet {
    /// The answer to this question, and everything that led to it.
    pub fn explain(&self, question: &Question<'_>) -> Result<Explanation, Unanswerable> {
        self.explain_known(Known::read(&self.contents, question)?, question)
    }

    /// [`Self::explain`] where the parameters were read already; `known` is `None` where no policy can know the action.
    pub(crate) fn explain_known(
        &self,
        known: Option<Known<'_>>,
        question: &Question<'_>,
    ) -> Result<Explanation, Unanswerable> {
        let Some(known) = known else {
            return Ok(Explanation {
                ruling: unknown_action(),
                shadow: self.has_trials().then(unknown_action),
                policies: Vec::new(),
                more_policies: None,
                request: None,
                for_user: None,
                as_registered: None,
            });
        };
        let case = Case::open(known, question, ReadSet::ALL)?;
        let registered = question.as_registered();
        let registered = registered
            .map(|registered| Together::of(case.again(&registered, ReadSet::ALL)?, &registered))
            .transpose()?;
        let asked = Together::of(case, question)?;
        let both = |world| {
            let asked = asked.ruling(question, world);
            match &registered {
                None => asked,
                Some(registered) => registered.ruling(question, world).with_claim(asked),
            }
        };
        let world = World::InForce(&question.agent.id);
        let ruling = both(world);
        let for_user = |user: &Seen<'_>| {
            let (policies, more_policies) = self.outcomes(user, world, &ruling);
            ForUser {
                policies,
                more_policies,
                request: Request::of(&user.case.asked),
            }
        };
        let as_registered = |registered: &Together<'_>| {
            let (policies, more_policies) = self.outcomes(&registered.agent, world, &ruling);
            AsRegistered {
                policies,
                more_policies,
                request: Request::of(&registered.agent.case.asked),
                for_user: registered.user.as_ref().map(for_user),
            }
        };
        let (policies, more_policies) = self.outcomes(&asked.agent, world, &ruling);
        Ok(Explanation {
            policies,
            more_policies,
            request: Some(Request::of(&asked.agent.case.asked)),
            for_user: asked.user.as_ref().map(for_user),
            as_registered: registered.as_ref().map(as_registered),
            shadow: self.has_trials().then(|| both(World::Promoted)),
            ruling,
        })
    }

    /// What came of the policies for one principal, where this is the ruling for all of them, and how many there are
    /// that are not told. What made the ruling what it is comes first then, and what does not hold last.
    fn outcomes(
        &self,
        seen: &Seen<'_>,
        world: World<'_>,
        ruling: &Ruling,
    ) -> (Vec<PolicyOutcome>, Option<usize>) {
        let own = seen.ruling(world);
        let mut all: Vec<_> = seen
            .evaluated
            .iter()
            .map(|evaluated| {
                let is_in = |ruling: &Ruling| ruling.matched.contains(&evaluated.statement.id);
                let counts = self.contents.counts(evaluated.presence, world);
                let determines = counts && is_in(&own) && is_in(ruling);
                (evaluated, determines)
            })
            .collect();
        all.sort_by_cached_key(|(evaluated, determines)| {
            let does_not_hold = matches!(evaluated.outcome(world), Ok(false));
            (!determines, does_not_hold, evaluated.statement.id.clone())
        });
        let mut bytes = 0;
        let told = all
            .iter()
            .map(|(evaluated, determines)| self.outcome(evaluated, world, *determines));
        // Of the others nothing is copied.
        let mut told: Vec<_> = told
            .take_while(|outcome| {
                let length = canon::length(outcome);
                bytes += length.expect("an outcome has string keys and no fallible serializers");
                bytes <= OUTCOMES_BYTES_MAX
            })
            .collect();
        let more = all.len() - told.len();
        // What is enforced comes before what would take its place.
        told.sort_by(|one, other| one.id.cmp(&other.id).then(other.mode.cmp(one.mode)));
        (told, (more > 0).then_some(more))
    }

    fn outcome(&self, evaluated: &Evaluated<'_>, world: World<'_>, determines: bool) -> PolicyOutcome {
        let statement = evaluated.statement;
        let outcome = evaluated.outcome(world);
        PolicyOutcome {
            id: statement.id.clone(),
            effect: match statement.annotations.effect {
                PolicyEffect::Forbid => "forbid",
                PolicyEffect::Permit | PolicyEffect::Approval(_) | PolicyEffect::Advice => "permit",
            },
            mode: self.contents.mode(evaluated.presence).as_str(),
            annotations: statement.annotations.to_texts(),
            outcome: match outcome {
                Ok(true) => Outcome::Satisfied,
                Ok(false) => Outcome::Unsatisfied,
                Err(_) => Outcome::Failed,
            },
            error: outcome.err().map(said),
            determines,
            place: statement.place(),
        }
    }
}

impl Request {
    fn of(asked: &Asked) -> Self {
        let [principal, action, resource] = [
            asked.request.principal(),
            asked.request.action(),
            asked.request.resource(),
        ]
        .map(|entry| entry.uid().map(ToString::to_string).unwrap_or_default());
        let context = asked.request.context();
        let context = context.and_then(|context| context.to_json_value().ok());
        Self {
            principal,
            action,
            resource,
            context,
            entities: entities(asked),
        }
    }
}

/// Cedar has entities and parents in the order of hashes.
fn entities(asked: &Asked) -> Value {
    let mut entities = asked.entities.to_json_value().expect("strings have a JSON form");
    let by_uid = |uid: &Value| [uid["type"].to_string(), uid["id"].to_string()];
    if let Some(entities) = entities.as_array_mut() {
        entities.sort_by_key(|entity| by_uid(&entity["uid"]));
        for entity in entities {
            if let Some(parents) = entity["parents"].as_array_mut() {
                parents.sort_by_key(by_uid);
            }
        }
    }
    entities
}
