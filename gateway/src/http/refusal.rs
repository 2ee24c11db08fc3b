//! Every way to say no, in one table: the code, its status and its title; and how it is written (RFC 9457).
//!
//! A refusal is about the request (4xx), a fault is ours (5xx). A denial is neither: it is a decision and a 200.

use super::writing;
use crate::locks::lock;
use crate::seldom::Seldom;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use store::StoreError;
use tokio::task::JoinError;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:ident, $title:literal;)*) => {
        /// What is wrong, as a stable word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word of the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The status that goes with it.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// What kind of problem it is, in words that do not change from one occurrence to the next.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    /// The body is not I-JSON.
    MalformedJson = "malformed_json", BAD_REQUEST, "The body is not valid JSON";
    /// A member that the contract does not know.
    UnknownField = "unknown_field", BAD_REQUEST, "The request has a field that is not known";
    /// A member is missing, or has a wrong type or value.
    InvalidField = "invalid_field", BAD_REQUEST, "A field of the request is missing or wrong";
    /// A header or a query parameter is wrong.
    InvalidParameter = "invalid_parameter", BAD_REQUEST, "A header, a path or a query parameter is wrong";
    /// An operator did not say which tenant is meant.
    TenantRequired = "tenant_required", BAD_REQUEST, "The request does not say which tenant is meant";
    /// Nobody is registered who could have signed the ask's provenance token.
    ProvenanceNotVerifiable = "provenance_not_verifiable", BAD_REQUEST, "The provenance cannot be verified";
    /// The ask's provenance token is not good, or not for this ask.
    ProvenanceInvalid = "provenance_invalid", BAD_REQUEST, "The provenance is not good";
    /// No credential, or one that does not work.
    InvalidToken = "invalid_token", UNAUTHORIZED, "The credential is missing or does not work";
    /// The agent signs its requests, and this one is not.
    SignatureRequired = "signature_required", UNAUTHORIZED, "The request has to be signed";
    /// It is not a signature of this request by a key of the agent, or not of now.
    SignatureInvalid = "signature_invalid", UNAUTHORIZED, "The signature of the request is not good";
    /// The signed request was sent before.
    SignatureReplayed = "signature_replayed", UNAUTHORIZED, "The signed request was sent before";
    /// The credential does not open this door.
    Forbidden = "forbidden", FORBIDDEN, "The credential does not open this door";
    /// The ask names another agent than the credential.
    AgentMismatch = "agent_mismatch", FORBIDDEN, "The ask names another agent";
    /// The token says for whom the agent acts, and the ask names somebody else.
    UserMismatch = "user_mismatch", FORBIDDEN, "The ask names another user";
    /// It is asked in the name of too many.
    DelegationTooDeep = "delegation_too_deep", BAD_REQUEST, "The chain of delegation is too long";
    /// The agent is registered for another environment.
    EnvironmentNotAllowed = "environment_not_allowed", FORBIDDEN, "The agent may not act in this environment";
    /// This person does not vote on this.
    NotAnApprover = "not_an_approver", FORBIDDEN, "This person cannot vote on this approval";
    /// The tenant does not permit observing.
    ObserveNotPermitted = "observe_not_permitted", FORBIDDEN, "Observing is not permitted";
    /// Only an operator takes policies out of use by force.
    ForceNotPermitted = "force_not_permitted", FORBIDDEN, "Force is for operators";
    /// No such object, or not yours.
    NotFound = "not_found", NOT_FOUND, "There is no such object";
    /// No budget in this unit.
    BudgetNotFound = "budget_not_found", NOT_FOUND, "There is no budget in this unit";
    /// No such route.
    NoSuchRoute = "no_such_route", NOT_FOUND, "There is no such route";
    /// The route has other methods.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "The route does not have this method";
    /// The name is taken.
    NameTaken = "name_taken", CONFLICT, "The name is taken";
    /// What is revoked stays so.
    RevokedForGood = "revoked_for_good", CONFLICT, "A revocation is for good";
    /// The object is in a state that does not allow this.
    Conflict = "conflict", CONFLICT, "The object does not allow this now";
    /// The decision has an outcome already.
    OutcomeReported = "outcome_reported", CONFLICT, "The decision has an outcome already";
    /// A budget has not enough left.
    BudgetExceeded = "budget_exceeded", CONFLICT, "A budget has not enough left";
    /// A budget is frozen.
    BudgetFrozen = "budget_frozen", CONFLICT, "The budget is frozen";
    /// There is an open budget for the same.
    BudgetExists = "budget_exists", CONFLICT, "There is a budget for this already";
    /// Something else has become of the reservation.
    ReservationSettled = "reservation_settled", CONFLICT, "The reservation is settled already";
    /// The approval cannot be used for this.
    ApprovalNotUsable = "approval_not_usable", CONFLICT, "The approval cannot be used";
    /// The reservation was not settled in time.
    ReservationExpired = "reservation_expired", GONE, "The reservation has expired";
    /// The body did not come in time.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, "The body did not come in time";
    /// The body is too large.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "The body is too large";
    /// The body is not JSON by its content type.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "The body is not JSON";
    /// The request id was used for another ask.
    IdempotencyKeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY, "The request id was used for another ask";
    /// The reservation was committed with another amount.
    AmountMismatch = "amount_mismatch", UNPROCESSABLE_ENTITY, "The reservation was committed with another amount";
    /// The reservation is in another unit.
    UnitMismatch = "unit_mismatch", UNPROCESSABLE_ENTITY, "The amount is in another unit";
    /// A sum of amounts would be too large.
    AmountOverflow = "amount_overflow", UNPROCESSABLE_ENTITY, "A sum of amounts would be too large";
    /// The policies do not compile against the registry as it would be.
    PolicyInvalid = "policy_invalid", UNPROCESSABLE_ENTITY, "The policies, or the schemas that they are about, would not be valid";
    /// The file with base policies cannot be read, or holds none.
    PoliciesFileUnusable = "policies_file_unusable", UNPROCESSABLE_ENTITY, "The file with base policies cannot be used";
    /// A range that holds nothing.
    EmptyRange = "empty_range", UNPROCESSABLE_ENTITY, "The range holds no entries";
    /// A bucket is empty.
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "Too many asks";
    /// As many calls were allowed in a window as may be.
    QuotaExceeded = "quota_exceeded", TOO_MANY_REQUESTS, "The quota is used up";
    /// Others judge recorded decisions again already.
    ReplayRunning = "replay_running", TOO_MANY_REQUESTS, "Too many replays at once";
    /// As many comparisons of policies as there may be are running.
    DiffRunning = "diff_running", TOO_MANY_REQUESTS, "Too many comparisons at once";
    /// As many streams of events, or exports, evidence and replays in lines, are on their way as there may be.
    TooManyStreams = "too_many_streams", TOO_MANY_REQUESTS, "Too many streams";
    /// Somebody else changed it in between.
    PreconditionFailed = "precondition_failed", PRECONDITION_FAILED, "It is not in the state that was expected";
    /// There is no room for it, or others were in the way each time it was tried.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, "The gateway has more to do than it can";
    /// The answer would come later than the caller waits.
    DeadlineExceeded = "deadline_exceeded", SERVICE_UNAVAILABLE, "The answer would come too late";
    /// Nothing can be recorded.
    LedgerUnavailable = "ledger_unavailable", SERVICE_UNAVAILABLE, "The ledger cannot be written or read";
    /// A witness has seen another ledger.
    LedgerForked = "ledger_forked", SERVICE_UNAVAILABLE, "A witness has seen another ledger than this one";
    /// A ledger is not what was recorded.
    LedgerFault = "ledger_fault", SERVICE_UNAVAILABLE, "The ledger is not what was recorded";
    /// A mistake of ours.
    Internal = "internal", INTERNAL_SERVER_ERROR, "The gateway made a mistake";
}

/// The member of a problem that says what `Retry-After` does.
const RETRY_AFTER_SECONDS: &str = "retry_after_seconds";

/// A refusal or a fault: what a problem document is made of. Its code says which (4xx or 5xx). Boxed, so that a
/// `Result` that may hold one stays small on the way to a yes.
#[derive(Debug, Clone)]
pub struct Refusal(Box<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    code: Code,
    detail: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    diagnostics: Option<Value>,
    members: Map<String, Value>,
}

/// How the refusal looks on the wire.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'static str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnostics: Option<&'a Value>,
    #[serde(flatten)]
    members: &'a Map<String, Value>,
}

impl Refusal {
    /// A refusal with this code. `detail` says what was wrong in this request and what to do about it.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Parts {
            code,
            detail: detail.into(),
            headers: Vec::new(),
            diagnostics: None,
            members: serde_json::Map::new(),
        }))
    }

    /// There is no such object in the caller's tenant.
    pub fn not_found(what: &str, id: &str) -> Self {
        let id: String = id.chars().take(128).collect();
        Self::new(Code::NotFound, format!("there is no {what} `{id}`"))
    }

    /// The ledger cannot be written or read now.
    pub fn ledger_unavailable() -> Self {
        Self::new(
            Code::LedgerUnavailable,
            "nothing can be recorded or read now, so nothing is allowed; try again later",
        )
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// A row of the database is damaged that this, or something of the same tenant in its commit, depends on.
    pub fn unreadable() -> Self {
        Self::new(
            Code::LedgerUnavailable,
            "something of this tenant in the database cannot be read, so nothing is allowed; the log of the gateway says what it is",
        )
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// The keys of the log cannot be told, so nobody could check a signature. It does not pass by itself.
    pub fn unreadable_keys(what: &str) -> Self {
        Self::new(
            Code::LedgerUnavailable,
            format!("the keys of the log cannot be read, so no signature can be checked: {what}"),
        )
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// The signing key has been replaced, and its time is over.
    pub fn key_ended() -> Self {
        Self::new(
            Code::LedgerUnavailable,
            "the signing key of this gateway has been replaced, so nothing is signed; start it with the one that replaced it",
        )
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// What other gateways have changed is not known, so nobody can be trusted with what they had before.
    pub fn snapshot_stale() -> Self {
        Self::new(
            Code::LedgerUnavailable,
            "this gateway cannot find out what others have changed, so nothing is allowed; try again later",
        )
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// Changes of the tenant that are in force here, or of the system tenant, are not in the database any more. Nothing
    /// but a restart helps, so nobody is told to try again.
    pub fn changes_lost() -> Self {
        Self::new(
            Code::LedgerUnavailable,
            "the database has lost changes of this tenant, or of the system tenant, that are in force on this gateway, so nothing is done by them; restart it, and make them again",
        )
    }

    /// The gateway has more to do than it can: there is no place, or no room in a line.
    pub fn overloaded() -> Self {
        Self::overloaded_by("the queue is full; try again later")
    }

    /// It was tried as often as it may be, and each time others had changed what it is made from.
    pub fn contended() -> Self {
        Self::overloaded_by(
            "others changed what this depends on each time it was tried, so nothing was done; try again later",
        )
    }

    /// As many nonces of signed requests are remembered as may be.
    pub fn no_room_for_nonces() -> Self {
        Self::overloaded_by(
            "there is no room to remember the nonce of another signed request; try again later",
        )
    }

    /// The system gives no thread for it.
    pub fn no_thread() -> Self {
        Self::overloaded_by("this gateway could not start another thread; try again later")
    }

    /// The gateway has more to do than it can, and whoever is told so may try again in a moment.
    pub(crate) fn overloaded_by(detail: &'static str) -> Self {
        Self::new(Code::Overloaded, detail).with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// The answer would come later than the caller waits, and nothing was recorded.
    pub fn deadline_exceeded() -> Self {
        let detail = "the answer would come later than `X-Request-Timeout-Ms` allows, so nothing was recorded; ask again";
        Self::new(Code::DeadlineExceeded, detail)
            .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// A task of the gateway has panicked. It is logged here, once, in these words; the caller learns only what was not done.
    pub fn broken_off(error: &JoinError, message: &str, detail: &'static str) -> Self {
        tracing::error!(%error, "{message}");
        Self::new(Code::Internal, detail)
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// With the places in policies that are wrong.
    #[must_use]
    pub fn with_diagnostics(mut self, diagnostics: Value) -> Self {
        self.0.diagnostics = Some(diagnostics);
        self
    }

    /// With one more member (RFC 9457, section 3.2).
    #[must_use]
    pub fn with_member(mut self, name: &str, value: Value) -> Self {
        self.0.members.insert(name.to_owned(), value);
        self
    }

    /// To be asked again after so many seconds: in the header, and in the problem for items of a batch, which have no headers.
    #[must_use]
    pub fn with_retry_after(self, seconds: u64) -> Self {
        self.with_header(header::RETRY_AFTER, HeaderValue::from(seconds))
            .with_member(RETRY_AFTER_SECONDS, seconds.into())
    }

    /// After how many seconds it is to be asked again, where the problem says so.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.0.members.get(RETRY_AFTER_SECONDS)?.as_u64()
    }

    /// What is wrong, in one word.
    pub const fn code(&self) -> Code {
        self.0.code
    }

    /// What was wrong in this request, and what to do about it.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The first error that was found in policies, and where, if it comes of one and the detail does not say it already.
    pub fn first_finding(&self) -> Option<String> {
        let findings = self.0.diagnostics.as_ref()?.as_array()?;
        let is_error = |finding: &&Value| finding["severity"] == "error";
        let first = findings.iter().find(is_error).or_else(|| findings.first())?;
        let message = first["message"].as_str()?;
        if self.0.detail.contains(message) {
            return None;
        }
        let place = |word: &str| match &first[word] {
            Value::String(text) => Some(format!("{word} `{text}`")),
            Value::Number(number) => Some(format!("{word} {number}")),
            _ => None,
        };
        let places: Vec<String> = ["tenant", "policy", "line", "column"]
            .into_iter()
            .filter_map(place)
            .collect();
        if places.is_empty() {
            return Some(message.to_owned());
        }
        Some(format!("{}: {message}", places.join(", ")))
    }

    /// The value of a header that goes with it.
    pub fn header(&self, name: &HeaderName) -> Option<&HeaderValue> {
        let header = self.0.headers.iter().find(|(header, _)| header == name);
        header.map(|(_, value)| value)
    }

    /// The problem document, also for an item of a batch.
    pub fn to_problem(&self, request_id: &str) -> String {
        serde_json::to_string(&self.problem(request_id)).expect("strings and numbers always serialize")
    }

    fn problem<'a>(&'a self, request_id: &'a str) -> Problem<'a> {
        Problem {
            // RFC 9457 lets a type be a relative reference; it is resolved against the gateway's own documentation.
            r#type: format!("/problems/{}", self.0.code.as_str()),
            title: self.0.code.title(),
            status: self.0.code.status().as_u16(),
            detail: &self.0.detail,
            code: self.0.code.as_str(),
            request_id,
            diagnostics: self.0.diagnostics.as_ref(),
            members: &self.0.members,
        }
    }

    /// Whether it may be long: of what is wrong in policies there may be thousands of findings.
    pub(super) const fn may_be_long(&self) -> bool {
        self.0.diagnostics.is_some()
    }

    /// The whole response.
    pub fn render(&self, request_id: &str) -> Response {
        let mut response = self.to_problem(request_id).into_response();
        self.set_head(&mut response);
        response
    }

    /// The whole response, as an answer is written: beside the workers, when its turn has come, if it is long.
    pub(super) fn render_in_turn(self, request_id: &str) -> Response {
        let (refusal, request_id) = (Arc::new(self), request_id.to_owned());
        let written = Arc::clone(&refusal);
        let mut response = writing::response(move |text| {
            serde_json::to_writer(text, &written.problem(&request_id)).map_err(io::Error::from)
        });
        refusal.set_head(&mut response);
        response
    }

    fn set_head(&self, response: &mut Response) {
        *response.status_mut() = self.0.code.status();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if self.0.code.status() == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        for (name, value) in &self.0.headers {
            headers.append(name, value.clone());
        }
    }
}

/// Travels as an extension of the response until [`super::request_id`] renders it, which knows the request's id.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = self.0.code.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<engine::Refusal> for Refusal {
    fn from(refusal: engine::Refusal) -> Self {
        use engine::{ProvenanceError, Refusal as Engine};
        let code = match refusal {
            Engine::AgentMismatch => Code::AgentMismatch,
            Engine::UserMismatch { .. } => Code::UserMismatch,
            Engine::DelegationTooDeep(_) => Code::DelegationTooDeep,
            Engine::EnvironmentNotAllowed { .. } => Code::EnvironmentNotAllowed,
            Engine::ObserveNotPermitted => Code::ObserveNotPermitted,
            Engine::ApprovalNotUsable { .. } => Code::ApprovalNotUsable,
            Engine::Provenance(ProvenanceError::NoIssuers | ProvenanceError::UnknownIssuer(_)) => {
                Code::ProvenanceNotVerifiable
            }
            Engine::Provenance(_) => Code::ProvenanceInvalid,
            Engine::MistypedAttribute { .. } => Code::InvalidField,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<canon::ReadError> for Refusal {
    fn from(error: canon::ReadError) -> Self {
        let code = if error.is_unknown_field {
            Code::UnknownField
        } else {
            Code::InvalidField
        };
        Self::new(code, error.to_string())
    }
}

impl From<engine::AskError> for Refusal {
    fn from(error: engine::AskError) -> Self {
        error.0.into()
    }
}

impl From<canon::Error> for Refusal {
    fn from(error: canon::Error) -> Self {
        let code = match error.kind {
            canon::ErrorKind::TooLarge { .. } | canon::ErrorKind::SaysTooMuch { .. } => Code::BodyTooLarge,
            _ => Code::MalformedJson,
        };
        Self::new(code, error.to_string())
    }
}

impl From<model::standing::RevokedForGood> for Refusal {
    fn from(error: model::standing::RevokedForGood) -> Self {
        Self::new(Code::RevokedForGood, error.to_string())
    }
}

/// When the log said last, of whichever caller, that the store does not answer.
static SILENT_TOLD: Mutex<Seldom> = Mutex::new(Seldom::new());

/// Reading from storage failed. It is logged here, once, and once a second at most while the store does not answer; the
/// caller learns only that it failed.
impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let left_out = admit(&error, &mut lock(&SILENT_TOLD), Instant::now());
        if let Some(left_out) = left_out {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                left_out,
                "the ledger could not be read"
            );
        }
        Self::ledger_unavailable()
    }
}

/// If a failed read may be logged now, how many were left out since the line before. What is unreadable is always
/// logged: it names a row, and the next one may name another.
fn admit(error: &StoreError, silent_told: &mut Seldom, now: Instant) -> Option<u64> {
    match error {
        StoreError::Unavailable(_) => silent_told.admit(now),
        StoreError::Corrupt { .. } => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_two_refusals_share_a_code() {
        let words: std::collections::BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
    }

    #[test]
    fn a_problem_says_what_where_and_which_request() {
        let problem = Refusal::not_found("agent", "agt_1").to_problem("req-7");
        assert_eq!(
            problem,
            r#"{"type":"/problems/not_found","title":"There is no such object","status":404,"detail":"there is no agent `agt_1`","code":"not_found","request_id":"req-7"}"#
        );
    }

    #[test]
    fn whoever_waits_behind_no_queue_is_not_told_that_it_is_full() {
        assert!(Refusal::overloaded().detail().contains("queue"));
        for other in [
            Refusal::contended(),
            Refusal::no_room_for_nonces(),
            Refusal::no_thread(),
        ] {
            assert!(!other.detail().contains("queue"), "{}", other.detail());
            let response = other.render("req-7");
            assert_eq!(response.status(), 503);
            assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        }
    }

    #[test]
    fn a_store_that_does_not_answer_is_told_of_seldom_and_what_is_unreadable_each_time() {
        let away = || StoreError::Unavailable("away".into());
        let damaged = || StoreError::Corrupt { what: "row 7".into() };
        let (mut told, begin) = (Seldom::new(), Instant::now());
        let mut admit = |error: StoreError, millis| {
            super::admit(&error, &mut told, begin + Duration::from_millis(millis))
        };
        assert_eq!(admit(away(), 0), Some(0));
        assert_eq!(admit(away(), 1), None);
        assert_eq!(admit(damaged(), 2), Some(0));
        assert_eq!(admit(damaged(), 3), Some(0));
        assert_eq!(admit(away(), 4), None);
        assert_eq!(admit(away(), 1_000), Some(2));
    }

    #[test]
    fn a_401_says_how_to_sign_in() {
        let response = Refusal::new(Code::InvalidToken, "no").render("req-7");
        assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "application/problem+json"
        );
    }
}
