//! The mix of asks: reads and mutations, from sources of all kinds, so that every verdict occurs.
//!
//! Each ask knows the verdict that the base policies give it. An answer that differs is a fault of the run: a load
//! test that times denials and calls them allows measures nothing.

use crate::http::Format;
use model::{Trust, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

use super::message;

/// The tool that is registered for the run.
pub(super) const TOOL: &str = "github";

/// One ask, ready to be sent under any request id.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    /// What the base policies say to it.
    pub(super) expected: Verdict,
    /// What it is written in.
    format: Format,
    /// What stands behind the `request_id`. In JSON it is the text from the comma to the closing brace.
    rest: Vec<u8>,
}

/// How many members an ask has, its `request_id` included.
const MEMBERS: usize = 4;

impl Ask {
    /// Writes the whole body, replacing what is in the buffer.
    pub(super) fn write(&self, connection: usize, turn: usize, body: &mut Vec<u8>) {
        use std::io::Write as _;
        body.clear();
        match self.format {
            Format::Json => {
                write!(body, "{{\"request_id\":\"load-{connection}-{turn}\"").expect("a vector grows");
            }
            Format::MessagePack => {
                body.push(message::map_head(MEMBERS));
                message::write_text(body, "request_id");
                message::write_text(body, &format!("load-{connection}-{turn}"));
            }
        }
        body.extend_from_slice(&self.rest);
    }
}

/// Which asks are sent, and in which proportion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// Of every kind as many: half are allowed, three in ten are denied, and the others need approval.
    All,
    /// 14 reads in 20, 5 changes that are allowed, and a denial.
    Mixed,
}

impl Mix {
    /// The kinds, in turn.
    fn kinds(self) -> Vec<&'static Kind> {
        let [read, .., denial] = &KINDS;
        let change = &KINDS[CHANGE];
        match self {
            Self::All => KINDS.iter().collect(),
            // Spread evenly, so that any stretch has about the same proportion.
            Self::Mixed => (0..20)
                .map(|place| match place {
                    1 | 5 | 9 | 13 | 17 => change,
                    10 => denial,
                    _ => read,
                })
                .collect(),
        }
    }
}

/// The place of a change that is allowed.
const CHANGE: usize = 4;

/// A kind of ask, in the proportion of its lines.
struct Kind {
    action: &'static str,
    base_branch: &'static str,
    source: Trust,
    expected: Verdict,
}

const fn kind(action: &'static str, base_branch: &'static str, source: Trust, expected: Verdict) -> Kind {
    Kind {
        action,
        base_branch,
        source,
        expected,
    }
}

const KINDS: [Kind; 10] = [
    kind(
        "get_pull_request",
        "main",
        Trust::TrustedInternalSigned,
        Verdict::Allow,
    ),
    kind(
        "get_pull_request",
        "main",
        Trust::TrustedInternalUnsigned,
        Verdict::Allow,
    ),
    kind(
        "get_pull_request",
        "main",
        Trust::SemiTrustedCustomer,
        Verdict::Allow,
    ),
    kind(
        "get_pull_request",
        "main",
        Trust::UntrustedExternal,
        Verdict::Allow,
    ),
    kind(
        "merge_pull_request",
        "feature",
        Trust::TrustedInternalUnsigned,
        Verdict::Allow,
    ),
    kind(
        "merge_pull_request",
        "main",
        Trust::TrustedInternalUnsigned,
        Verdict::RequireApproval,
    ),
    kind(
        "merge_pull_request",
        "feature",
        Trust::SemiTrustedCustomer,
        Verdict::RequireApproval,
    ),
    kind(
        "merge_pull_request",
        "feature",
        Trust::UntrustedExternal,
        Verdict::Deny,
    ),
    kind(
        "merge_pull_request",
        "feature",
        Trust::MaliciousSuspected,
        Verdict::Deny,
    ),
    kind("merge_pull_request", "feature", Trust::Unknown, Verdict::Deny),
];

/// The actions of [`TOOL`], as they are registered.
pub(super) fn actions() -> Value {
    let input_schema = json!({
        "type": "object",
        "properties": {
            "base_branch": { "type": "string" },
            "number": { "type": "integer" },
            "comment": { "type": "string" },
        },
        "required": ["base_branch", "number"],
    });
    json!([
        { "name": "get_pull_request", "mutates_state": false, "risk": "low", "input_schema": input_schema },
        { "name": "merge_pull_request", "mutates_state": true, "risk": "high", "input_schema": input_schema },
    ])
}

/// This many asks with different parameters, the kinds of the mix in turn.
pub(super) fn asks(distinct: usize, mix: Mix, format: Format) -> Vec<Ask> {
    mix.kinds()
        .into_iter()
        .cycle()
        .take(distinct)
        .enumerate()
        .map(|(number, kind)| ask(kind, number, format))
        .collect()
}

fn ask(kind: &Kind, number: usize, format: Format) -> Ask {
    let fields = json!({
        "tool_call": {
            "tool": TOOL,
            "action": kind.action,
            "resource": format!("repo:acme/widgets#{number}"),
            "parameters": {
                "base_branch": kind.base_branch,
                "number": number,
                "comment": format!("asked for by the release plan, step {number}"),
            },
        },
        "context": { "source_trust": kind.source.as_str() },
        "trace": { "run_id": format!("run-{}", number % 100) },
    });
    let rest = match format {
        Format::Json => fields.to_string().replacen('{', ",", 1).into_bytes(),
        Format::MessagePack => {
            let mut message = Vec::new();
            message::write(&mut message, &fields);
            // Without its head: its members are those of the ask.
            message.split_off(1)
        }
    };
    Ask {
        expected: kind.expected,
        format,
        rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_verdict_is_expected_of_some_ask() {
        let expected: HashSet<_> = asks(KINDS.len(), Mix::All, Format::Json)
            .iter()
            .map(|ask| ask.expected)
            .collect();
        assert_eq!(
            expected,
            HashSet::from([Verdict::Allow, Verdict::Deny, Verdict::RequireApproval])
        );
    }

    #[test]
    fn a_mixed_run_reads_changes_and_is_denied_as_often_as_it_says() {
        let asks = asks(100, Mix::Mixed, Format::Json);
        let count = |expected| asks.iter().filter(|ask| ask.expected == expected).count();
        assert_eq!((count(Verdict::Allow), count(Verdict::Deny)), (95, 5));
        let is_read = |ask: &&Ask| String::from_utf8_lossy(&ask.rest).contains("get_pull_request");
        let reads = asks.iter().filter(is_read);
        assert_eq!(reads.count(), 70);
    }

    #[test]
    fn asks_differ_in_their_parameters_and_are_json_under_any_request_id() {
        let mut seen = HashSet::new();
        let mut body = Vec::new();
        for ask in asks(250, Mix::All, Format::Json) {
            ask.write(3, 14, &mut body);
            let read: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(read["request_id"], "load-3-14");
            assert!(seen.insert(read["tool_call"]["parameters"].to_string()));
        }
        assert_eq!(seen.len(), 250);
    }

    #[test]
    fn an_ask_is_the_same_in_either_format() {
        let limits = canon::Limits {
            bytes_max: 1 << 10,
            depth_max: 8,
        };
        let (mut text, mut message) = (Vec::new(), Vec::new());
        let texts = asks(50, Mix::All, Format::Json);
        for (json, messagepack) in texts.iter().zip(asks(50, Mix::All, Format::MessagePack)) {
            json.write(3, 14, &mut text);
            messagepack.write(3, 14, &mut message);
            assert_eq!(
                canon::canonicalize(&text, limits).unwrap(),
                canon::canonicalize_messagepack(&message, limits).unwrap()
            );
        }
    }
}
