//! The terms of a decision: numbers for what it is found by. Two decisions have a term in common if, and as good as only if, they
//! have in common what it stands for.
//!
//! Words are found by how they begin, so each beginning of a word is a term. What stands for a single decision only, such as
//! its id and digests, is not in its words: everybody who knows it looks the decision up by it.
//!
//! Blocks that were put before a change of this are of an earlier [`version`](super::version).

use model::Name;
use serde::Deserialize;
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::collections::HashSet;
use store::{DecisionFilter, StoredDecision};

/// How many characters of a word count.
const WORD_CHARS_MAX: usize = 12;
/// How many words of one decision count: whoever has long parameters kept gets the first of them.
const WORDS_MAX: usize = 256;
/// How many beginnings the words of one decision have: each is a row of the index. A call with an event or a mail in it
/// has some 230.
const BEGINNINGS_MAX: usize = 400;

/// What a term stands for. A number is never given to something else: indexes are kept.
#[derive(Clone, Copy)]
enum Field {
    Agent = 1,
    Tool = 2,
    Action = 3,
    Verdict = 4,
    Reason = 5,
    Run = 6,
    User = 7,
    Word = 8,
}

/// The members of a body that have words in them.
#[derive(Default, Deserialize)]
struct SearchedBody<'a> {
    #[serde(borrow)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow)]
    resource: Option<Cow<'a, str>>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow)]
    environment: Option<Cow<'a, str>>,
    #[serde(default)]
    matched_policies: Vec<String>,
    #[serde(default, deserialize_with = "canon::foreign")]
    parameters: Option<Value>,
}

/// What somebody looks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    filter: DecisionFilter,
    user: Option<Name>,
    words: Vec<String>,
    terms: Vec<u64>,
    /// What stands in the body of every decision that matches.
    marks: Marks,
}

/// What a body has to contain, byte by byte, so that it is worth reading. Where the index is not there yet, most are not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Marks {
    /// The member that names the user.
    user: Option<String>,
    /// Words without anything that has another form in lower case than its letters tell.
    words: Vec<String>,
}

impl Marks {
    fn of(user: Option<&Name>, words: &[String]) -> Self {
        let member = |user: &Name| {
            let mut member = String::from("\"user\":");
            canon::write_string(&mut member, user.as_str());
            member
        };
        Self {
            user: user.map(member),
            words: words.iter().filter(|word| word.is_ascii()).cloned().collect(),
        }
    }

    /// Whether a decision may match. One whose body was erased, or has letters beyond ASCII, always may.
    fn are_in(&self, decision: &StoredDecision) -> bool {
        let body = &decision.body;
        if body.is_empty() {
            return true;
        }
        if self.user.as_ref().is_some_and(|user| !body.contains(user)) {
            return false;
        }
        if self.words.is_empty() || !body.is_ascii() {
            return true;
        }
        let row = [
            decision.tool.as_str(),
            decision.action.as_str(),
            decision.reason.as_str(),
        ];
        let texts = row.map(str::to_lowercase);
        let body = body.to_ascii_lowercase();
        let is_in = |word: &String| body.contains(word) || texts.iter().any(|text| text.contains(word));
        self.words.iter().all(is_in)
    }
}

impl Query {
    /// Decisions that match a filter, were asked for this user, and have a word that begins with each of these. What the filter
    /// says of time is left to others: the ledger is ordered by it.
    pub fn new(filter: &DecisionFilter, user: Option<&Name>, words: &[String]) -> Self {
        let fields = [
            filter.agent.map(|agent| term(Field::Agent, &agent.to_string())),
            filter.tool.as_ref().map(|tool| term(Field::Tool, tool.as_str())),
            filter
                .action
                .as_ref()
                .map(|action| term(Field::Action, action.as_str())),
            filter
                .verdict
                .map(|verdict| term(Field::Verdict, verdict.as_str())),
            filter.reason.map(|reason| term(Field::Reason, reason.as_str())),
            filter.run_id.as_ref().map(|run| term(Field::Run, run.as_str())),
            user.map(|user| term(Field::User, user.as_str())),
        ];
        let of_words = words.iter().map(|word| term(Field::Word, word));
        let mut terms: Vec<u64> = fields.into_iter().flatten().chain(of_words).collect();
        terms.sort_unstable();
        terms.dedup();
        Self {
            filter: filter.clone(),
            user: user.cloned(),
            words: words.to_vec(),
            terms,
            marks: Marks::of(user, words),
        }
    }

    /// What a decision must have, all of it.
    pub fn terms(&self) -> &[u64] {
        &self.terms
    }

    /// Whether a decision is what is looked for: what it says is compared, not the terms, which another text may have too.
    pub fn matches(&self, decision: &StoredDecision) -> bool {
        if !self.fits_row(decision) || !self.marks.are_in(decision) {
            return false;
        }
        if self.user.is_none() && self.words.is_empty() {
            return true;
        }
        let body = SearchedBody::by(decision);
        let is_for_another = |user: &Name| body.user.as_deref() != Some(user.as_str());
        if self.user.as_ref().is_some_and(is_for_another) {
            return false;
        }
        let (has, _) = counted(decision, &body);
        let begins_one = |wanted: &String| has.iter().any(|word| word.starts_with(wanted.as_str()));
        self.words.iter().all(begins_one)
    }

    /// Whether the row of a decision says what is looked for.
    fn fits_row(&self, decision: &StoredDecision) -> bool {
        let DecisionFilter {
            agent,
            tool,
            action,
            verdict,
            reason,
            run_id,
            // The ledger is ordered by these.
            from: _,
            to: _,
            after_seq: _,
        } = &self.filter;
        agent.is_none_or(|agent| agent == decision.agent)
            && tool.as_ref().is_none_or(|tool| *tool == decision.tool)
            && action.as_ref().is_none_or(|action| *action == decision.action)
            && verdict.is_none_or(|verdict| verdict == decision.reason.verdict())
            && reason.is_none_or(|reason| reason == decision.reason)
            && run_id
                .as_ref()
                .is_none_or(|run| Some(run) == decision.run_id.as_ref())
    }
}

impl<'a> SearchedBody<'a> {
    /// What the body of a decision tells; nothing if it was erased.
    fn by(decision: &'a StoredDecision) -> Self {
        serde_json::from_str(&decision.body).unwrap_or_default()
    }
}

/// The words of a text: letters and digits in a row, in lower case, as far as they count. There is one sigma: which of
/// two it is in lower case depends on what follows, and that is not known of how a word begins.
pub fn words(text: &str) -> Vec<String> {
    let lowercase = text.to_lowercase();
    let words = lowercase.split(|character: char| !character.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let letter = |character: char| if character == 'ς' { 'σ' } else { character };
    words
        .map(|word| word.chars().take(WORD_CHARS_MAX).map(letter).collect())
        .collect()
}

/// The terms of a decision, each once, going up. One whose body was erased has those of its row.
pub(super) fn of(decision: &StoredDecision) -> Vec<u64> {
    let body = SearchedBody::by(decision);
    let mut terms = vec![
        term(Field::Agent, &decision.agent.to_string()),
        term(Field::Tool, decision.tool.as_str()),
        term(Field::Action, decision.action.as_str()),
        term(Field::Verdict, decision.reason.verdict().as_str()),
        term(Field::Reason, decision.reason.as_str()),
    ];
    terms.extend(decision.run_id.as_ref().map(|run| term(Field::Run, run.as_str())));
    terms.extend(body.user.as_deref().map(|user| term(Field::User, user)));
    let (_, beginnings) = counted(decision, &body);
    terms.extend(beginnings);
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// The words of a decision that count, and the terms of how they begin. What the gateway and the tenant say comes
/// first, so that nobody who asks can fill the room for it. Numbers come last: most are amounts and places, and take no
/// room from texts.
fn counted(decision: &StoredDecision, body: &SearchedBody<'_>) -> (Vec<String>, HashSet<u64>) {
    let mut texts: Vec<&str> = vec![decision.reason.as_str()];
    texts.extend(body.matched_policies.iter().map(String::as_str));
    texts.extend(body.reason.as_deref());
    texts.extend(body.environment.as_deref());
    texts.extend([decision.tool.as_str(), decision.action.as_str()]);
    texts.extend(body.resource.as_deref());
    let mut numbers = Vec::new();
    if let Some(parameters) = &body.parameters {
        push_texts(parameters, &mut texts, &mut numbers);
    }
    let of_numbers = numbers.into_iter().flat_map(|number| words(&written(number)));
    let all = texts.into_iter().flat_map(words).chain(of_numbers);
    let (mut kept, mut beginnings) = (Vec::new(), HashSet::new());
    for word in all.take(WORDS_MAX) {
        if beginnings.len() + WORD_CHARS_MAX > BEGINNINGS_MAX {
            break;
        }
        add_beginnings(&word, &mut beginnings);
        kept.push(word);
    }
    (kept, beginnings)
}

/// The names and texts in parameters, and the numbers. They are as deep as an ask may be, so this does not run out of stack.
fn push_texts<'v>(value: &'v Value, texts: &mut Vec<&'v str>, numbers: &mut Vec<&'v Number>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| push_texts(item, texts, numbers)),
        Value::Object(members) => {
            for (name, member) in members {
                texts.push(name);
                push_texts(member, texts, numbers);
            }
        }
        Value::Number(number) => numbers.push(number),
        Value::Null | Value::Bool(_) => {}
    }
}

/// A number as it stands in the body.
fn written(number: &Number) -> String {
    canon::of(number).map_or_else(|_| number.to_string(), canon::Canonical::into_string)
}

/// A term for each beginning of a word, itself among them.
fn add_beginnings(word: &str, terms: &mut HashSet<u64>) {
    let mut hash = start(Field::Word);
    let mut bytes = [0; 4];
    for character in word.chars() {
        hash = mix(hash, character.encode_utf8(&mut bytes).as_bytes());
        terms.insert(hash);
    }
}

fn term(field: Field, text: &str) -> u64 {
    mix(start(field), text.as_bytes())
}

/// FNV-1a, because it is the same everywhere and for ever, and every beginning of a word is one step. Whoever makes two texts
/// collide makes a search look at a decision in vain.
fn start(field: Field) -> u64 {
    mix(0xcbf2_9ce4_8422_2325, &[field as u8])
}

fn mix(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Digest;
    use model::{AgentId, DecisionId, ReasonCode, Timestamp, Verdict};

    const BODY: &str = r#"{"environment":"production","matched_policies":["base/merge-to-main"],"parameters":{"title":"Fünf ÄPFEL","list":[{"deep":"grüße"}]},"reason":"Production merges need approval","resource":"repo:acme/widgets#42","user":"u-17"}"#;

    fn decision(body: &str) -> StoredDecision {
        StoredDecision {
            seq: 7,
            id: DecisionId::from_bytes([1; 16]),
            at: Timestamp::from_millis(0),
            agent: AgentId::from_bytes([2; 16]),
            tool: Name::new("github").unwrap(),
            action: Name::new("merge_pull_request").unwrap(),
            reason: ReasonCode::PolicyRequiresApproval,
            run_id: Some(Name::new("run-1").unwrap()),
            ask: None,
            hash: Digest::ZERO,
            body: body.to_owned(),
        }
    }

    fn finds(text: &str) -> bool {
        Query::new(&DecisionFilter::default(), None, &words(text)).matches(&decision(BODY))
    }

    #[test]
    fn a_decision_is_found_by_how_its_words_begin_whatever_their_case_and_order() {
        for text in [
            "github",
            "GIT",
            "merge pull",
            "request_merge",
            "repo:acme/widgets#42",
            "42 wid",
            "production",
            "äpfel",
            "FÜNF ä",
            "grüße deep",
            "title",
            "merge-to-main",
            "policy_requires_approval",
            "",
        ] {
            assert!(finds(text), "{text}");
        }
        for text in ["hub", "github gitlab", "widgets 43", "widgetsx", "run-1", "u-17"] {
            assert!(!finds(text), "{text}");
        }
    }

    /// What a body is passed over for before it is read is nothing that would be found in it.
    #[test]
    fn nothing_is_passed_over_that_has_the_terms() {
        let body = r#"{"agent":"agt_1","parameters":{"Title":"A \"quoted\"\nlineBreak","n":17},"reason":"Reads are permitted","resource":"repo:Acme/widgets#42","user":"o\"neil"}"#;
        let stored = decision(body);
        let terms = of(&stored);
        let mut found = 0;
        for text in [
            "quoted",
            "QUO",
            "linebreak",
            "nlinebreak",
            "title",
            "acme 42",
            "reads",
            "github",
            "merge",
            "agt",
            "17",
            "neil",
            "policy_requires_approval",
            "\u{212A}",
            "wid\u{130}",
            "",
        ] {
            let query = Query::new(&DecisionFilter::default(), None, &words(text));
            let has_terms = query.terms.iter().all(|term| terms.binary_search(term).is_ok());
            assert_eq!(query.matches(&stored), has_terms, "{text}");
            found += u32::from(has_terms);
        }
        assert_eq!(found, 11);
        for (user, is_found) in [("o\"neil", true), ("o", false), ("neil", false)] {
            let user = Name::new(user).unwrap();
            let query = Query::new(&DecisionFilter::default(), Some(&user), &[]);
            assert_eq!(query.matches(&stored), is_found, "{user:?}");
        }
    }

    /// As the index proposes it, and as it is compared.
    fn assert_found(stored: &StoredDecision, text: &str, is_found: bool) {
        let query = Query::new(&DecisionFilter::default(), None, &words(text));
        let terms = of(stored);
        let has_terms = query.terms.iter().all(|term| terms.binary_search(term).is_ok());
        assert_eq!((has_terms, query.matches(stored)), (is_found, is_found), "{text}");
    }

    #[test]
    fn a_number_in_the_parameters_is_found_as_it_is_written() {
        let body = r#"{"parameters":{"amount":98.7656,"deep":[{"invoice":987654}],"is_paid":true,"large":1e+21,"whole":100000000000000000000,"x":-42}}"#;
        let stored = decision(body);
        for text in [
            "987654",
            "9876",
            "invoice 987654",
            "98.7656",
            "7656",
            "-42",
            "1e+21",
            "100000000000000000000",
        ] {
            assert_found(&stored, text, true);
        }
        for text in ["87654", "98.76567", "true", "43"] {
            assert_found(&stored, text, false);
        }
    }

    /// Under that name `serde_json` would read what is in its text.
    #[test]
    fn a_text_with_json_in_it_is_found_as_the_text_that_it_is() {
        let body = r#"{"parameters":{"$serde_json::private::RawValue":"{\"a\":\"\\u0068idden\"}"}}"#;
        let stored = decision(body);
        for text in ["rawvalue", "serde_json", "u0068idden"] {
            assert_found(&stored, text, true);
        }
        assert_found(&stored, "hidden", false);
    }

    #[test]
    fn numbers_take_no_room_from_texts() {
        let numbers: Vec<String> = (0..1_000_u64)
            .map(|n| (n * 7_919 + 100_000).to_string())
            .collect();
        let body = format!(r#"{{"parameters":{{"a":[{}],"b":"behind"}}}}"#, numbers.join(","));
        let stored = decision(&body);
        assert_found(&stored, "behind", true);
        assert_found(&stored, &numbers[0], true);
        assert!(of(&stored).len() <= BEGINNINGS_MAX + 7);
    }

    #[test]
    fn a_greek_word_is_found_by_how_it_begins_wherever_its_sigmas_are() {
        let stored = decision(r#"{"parameters":{"one":"ΟΔΟΣΑΡΙ","other":"Δρόμος"}}"#);
        for text in ["ΟΔΟΣ", "οδος", "οδοσ", "οδοσα", "ΔΡΌΜΟΣ", "δρόμος", "δρόμοσ"]
        {
            assert_found(&stored, text, true);
        }
        assert_found(&stored, "οδοσυ", false);
    }

    #[test]
    fn a_run_whose_name_has_the_term_of_another_is_another_run() {
        let [one, other] = ["run-30-YTXR7Go-JUP", "run-30-IKOPBEJ5Kci"];
        assert_eq!(term(Field::Run, one), term(Field::Run, other));
        let stored = StoredDecision {
            run_id: Some(Name::new(one).unwrap()),
            ..decision(BODY)
        };
        for (run, is_found) in [(one, true), (other, false)] {
            let filter = DecisionFilter {
                run_id: Some(Name::new(run).unwrap()),
                ..DecisionFilter::default()
            };
            assert_eq!(Query::new(&filter, None, &[]).matches(&stored), is_found, "{run}");
        }
    }

    #[test]
    fn a_decision_has_so_many_terms_at_most_and_is_found_by_these() {
        let word = |n: u64| format!("{:012x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16);
        let resource: Vec<String> = (0..157).map(word).collect();
        let resource = resource.join(" ");
        let body =
            format!(r#"{{"environment":"production","reason":"Merges wait","resource":"{resource}"}}"#);
        let stored = decision(&body);
        let terms = of(&stored);
        assert!(terms.len() <= BEGINNINGS_MAX + 7, "{}", terms.len());
        let found = |text: &str| {
            let query = Query::new(&DecisionFilter::default(), None, &words(text));
            let has_terms = query.terms.iter().all(|term| terms.binary_search(term).is_ok());
            assert_eq!(query.matches(&stored), has_terms, "{text}");
            has_terms
        };
        assert!(found("production merges wait github policy_requires_approval"));
        let count = (0..157).filter(|n| found(&word(*n))).count();
        assert!((20..157).contains(&count), "{count}");
    }

    #[test]
    fn as_many_characters_of_a_word_count_as_are_kept() {
        assert_eq!(words("Configuration-x"), ["configuratio", "x"]);
        assert_eq!(words(" ,;% "), Vec::<String>::new());
        assert_eq!(words("ΑΣ 東京"), ["ασ", "東京"]);
    }

    #[test]
    fn every_field_is_told_from_every_other() {
        let name = |text: &str| Name::new(text).unwrap();
        let plain = DecisionFilter::default;
        let found = |filter: DecisionFilter, user: Option<&str>| {
            Query::new(&filter, user.map(name).as_ref(), &[]).matches(&decision(BODY))
        };
        assert!(found(plain(), Some("u-17")));
        assert!(!found(plain(), Some("u-1")));
        assert!(found(
            DecisionFilter {
                tool: Some(name("github")),
                ..plain()
            },
            None
        ));
        assert!(!found(
            DecisionFilter {
                action: Some(name("github")),
                ..plain()
            },
            None
        ));
        assert!(!found(
            DecisionFilter {
                tool: Some(name("GitHub")),
                ..plain()
            },
            None
        ));
        assert!(found(
            DecisionFilter {
                run_id: Some(name("run-1")),
                ..plain()
            },
            None
        ));
        assert!(found(
            DecisionFilter {
                verdict: Some(Verdict::RequireApproval),
                ..plain()
            },
            None
        ));
        assert!(!found(
            DecisionFilter {
                verdict: Some(Verdict::Allow),
                ..plain()
            },
            None
        ));
        let both = DecisionFilter {
            verdict: Some(Verdict::Deny),
            reason: Some(ReasonCode::PolicyRequiresApproval),
            ..plain()
        };
        assert!(!found(both, None), "they exclude each other");
    }

    #[test]
    fn what_has_lost_its_body_is_found_by_its_row() {
        let filter = DecisionFilter {
            agent: Some(AgentId::from_bytes([2; 16])),
            ..DecisionFilter::default()
        };
        let erased = decision("");
        assert!(Query::new(&filter, None, &[]).matches(&erased));
        assert!(!Query::new(&filter, None, &words("widgets")).matches(&erased));
    }
}
