//! Files of entries: what is whole, and everything that can be done to one.

use canon::Digest;
use ledger::export::{ExportReport, ExportVerifier};
use ledger::{Entry, EntryHeader, EntryRange, SigningKey, TrustedCheckpoint, Unverified};
use serde::Serialize;

use crate::log::{
    ENTRIES, LOG, Log, OTHER_TENANT, TENANT, TrustCase, end, foreign_key, logs, new_key, old_key, witness_key,
};
use crate::{Found, agrees, base64};

#[derive(Serialize)]
struct Case {
    name: &'static str,
    finds: Found,
    /// At which entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    /// `seq` of the last entry that was right.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<TrustCase>,
    /// Notes of checkpoints that the verifier has from elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<(u64, u64)>,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reports: Option<Reports>,
}

#[derive(Serialize)]
struct Reports {
    tenant: String,
    first: u64,
    last: u64,
    hash: String,
    erased: u64,
    left_out: u64,
    untold: u64,
    answers: u64,
    /// Decisions with a body and without an answer.
    unanswered: u64,
    has_end: bool,
    /// Whether the file begins with the first entry or with a start.
    is_anchored: bool,
    /// The size and root of the checkpoint that is trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<(u64, String)>,
}

impl From<ExportReport> for Reports {
    fn from(report: ExportReport) -> Self {
        let tree = report.checkpoint.as_ref().map(TrustedCheckpoint::checkpoint);
        let entries = report.entries;
        Self {
            checkpoint: tree.map(|tree| (tree.size, base64(tree.root.as_bytes()))),
            tenant: entries.tenant,
            first: entries.first,
            last: entries.head.seq,
            hash: entries.head.hash.to_string(),
            erased: entries.erased,
            left_out: report.left_out,
            untold: report.untold,
            answers: report.answers,
            unanswered: report.unanswered,
            has_end: report.has_end,
            is_anchored: !matches!(entries.anchor, ledger::Anchor::None { .. }),
        }
    }
}

impl Case {
    fn whole(name: &'static str, lines: &[String]) -> Self {
        Self {
            name,
            finds: None,
            at: None,
            since: None,
            trust: None,
            held: Vec::new(),
            tenant: None,
            range: None,
            file: lines.concat(),
            reports: None,
        }
    }

    fn broken(name: &'static str, finds: &'static str, at: impl Into<Option<u64>>, lines: &[String]) -> Self {
        Self {
            finds: Some(finds),
            at: at.into(),
            ..Self::whole(name, lines)
        }
    }

    fn trusting(self, trust: TrustCase) -> Self {
        let trust = Some(trust);
        Self { trust, ..self }
    }

    fn signed(self) -> Self {
        self.trusting(TrustCase::log())
    }

    fn against(mut self, held: String) -> Self {
        self.held.push(held);
        Self {
            trust: Some(TrustCase::log()),
            ..self
        }
    }

    fn of(self, tenant: &'static str) -> Self {
        let tenant = Some(tenant);
        Self { tenant, ..self }
    }

    fn over(self, from: u64, to: u64) -> Self {
        let range = Some((from, to));
        Self { range, ..self }
    }

    fn verify(&self) -> Result<ExportReport, (&'static str, Option<u64>, Option<u64>)> {
        let trust = self.trust.as_ref().map(TrustCase::read);
        let mut verifier = ExportVerifier::new();
        if let Some((from, to)) = self.range {
            let range = EntryRange::new(from, to).map_err(|error| (error.code(), None, None))?;
            verifier = verifier.over(range);
        }
        if let Some(tenant) = self.tenant {
            verifier = verifier.of_tenant(tenant);
        }
        if let Some(trust) = &trust {
            verifier = verifier.trusting(trust);
            for note in &self.held {
                verifier = verifier.against(trust.open(note.as_bytes()).unwrap());
            }
        }
        for line in self.file.split_inclusive('\n') {
            if verifier.push_line(line.as_bytes()).is_err() {
                break;
            }
        }
        verifier.finish().map_err(|unverified| {
            let since = match &unverified {
                Unverified::Broken(broken) => broken.since.map(|good| good.seq),
                _ => None,
            };
            (unverified.code(), unverified.seq(), since)
        })
    }

    fn checked(mut self) -> Self {
        match self.verify() {
            Ok(report) => {
                assert_eq!(self.finds, None, "{}", self.name);
                self.reports = Some(report.into());
            }
            Err((found, at, since)) => {
                assert_eq!((Some(found), at), (self.finds, self.at), "{}", self.name);
                self.since = since;
            }
        }
        self
    }
}

fn with(mut lines: Vec<String>, more: String) -> Vec<String> {
    lines.push(more);
    lines
}

/// All entries of a ledger, and what a file that is right ends with.
fn whole(log: &Log) -> Vec<String> {
    with(log.lines(1, ENTRIES), log.end(ENTRIES, ENTRIES, &new_key()))
}

fn right(log: &Log) -> Vec<Case> {
    let entries = log.lines(1, ENTRIES);
    let mut erased = entries.clone();
    erased[3] = log.stored(4).line_with(None);
    let answered = with(
        log.lines_with_answers(1, ENTRIES),
        log.end(ENTRIES, ENTRIES, &new_key()),
    );
    let told = log.erasing(8, r#"{"seqs":[[3,4],[6,6]]}"#);
    let mut erased_answered = with(told.lines_with_answers(1, 7), told.lines(8, 13).concat());
    erased_answered.push(told.end(13, 13, &new_key()));
    erased_answered[2] = log.stored(3).line_with(None);
    let resumed = [
        log.lines_with_answers(1, 5),
        vec![log.start(5)],
        log.lines_with_answers(6, ENTRIES),
        vec![log.end(ENTRIES, ENTRIES, &new_key())],
    ];
    let mut left_out = answered.clone();
    left_out[0] = log.stored(1).line_left_out();
    let mut range = vec![log.start(5)];
    range.extend(log.lines_with_answers(6, 9));
    let mut note = log.checkpoint(ENTRIES).sign(&[&new_key()]).unwrap();
    note.push(log.checkpoint(ENTRIES).cosign(&witness_key(2), 1_782_907_220));
    let witnessed = with(entries.clone(), end(&note.to_string(), &[]));
    vec![
        Case::whole("all entries", &entries),
        Case::whole("all entries and a checkpoint", &whole(log)).signed(),
        Case::whole(
            "a checkpoint, and nobody known who could have signed it",
            &whole(log),
        ),
        Case::whole("all entries and answers", &answered).signed(),
        Case::whole("all entries and answers, and nobody known", &answered),
        Case::whole("an erased body", &erased).of(TENANT).over(1, ENTRIES),
        Case::whole("an erased body beside its answer", &erased_answered).signed(),
        Case::whole(
            "an erased body that is told of behind the file",
            &with(erased[..7].to_vec(), log.end(7, 13, &new_key())),
        )
        .signed(),
        Case::whole("a body that is left out", &left_out).signed(),
        Case::whole("continued where it was cut", &resumed.concat()).signed(),
        Case::whole(
            "a range with its start and a later checkpoint",
            &with(range.clone(), log.end(9, 13, &new_key())),
        )
        .signed()
        .over(6, 9),
        Case::whole(
            "a range that ends where the checkpoint does",
            &with(range, log.end(9, 9, &old_key())),
        )
        .signed(),
        Case::whole("a range that says nothing of what is before it", &log.lines(6, 9)),
        Case::whole(
            "the first entries and a later checkpoint",
            &with(log.lines(1, 6), log.end(6, 13, &new_key())),
        )
        .signed(),
        Case::whole("against checkpoints held elsewhere", &entries)
            .against(log.note(3, &old_key()))
            .against(log.note(13, &new_key())),
        Case::whole(
            "held checkpoints of the start and of the last entry",
            &[vec![log.start(5)], log.lines(6, 9)].concat(),
        )
        .against(log.note(5, &old_key()))
        .against(log.note(9, &old_key())),
        Case::whole("with a witness", &witnessed).trusting(TrustCase::witnessed(1)),
        Case::whole(
            "without a newline at the end",
            &[whole(log).concat().trim_end().to_owned()],
        )
        .signed(),
    ]
}

/// One line is not what it was.
fn changed_lines(log: &Log) -> Vec<Case> {
    let entries = log.lines(1, 7);
    let line = |seq: u64, from: &str, to: &str| {
        let mut lines = entries.clone();
        let place = usize::try_from(seq).unwrap() - 1;
        let changed = lines[place].replacen(from, to, 1);
        assert_ne!(changed, lines[place], "{from}");
        lines[place] = changed;
        lines
    };
    let order = |places: &[usize]| {
        places
            .iter()
            .map(|place| entries[*place].clone())
            .collect::<Vec<_>>()
    };
    let hash = log.stored(6).hash.to_string();
    vec![
        Case::broken(
            "a changed time",
            "wrong_hash",
            5,
            &line(5, "12:00:05", "12:00:06"),
        ),
        Case::broken(
            "a changed kind",
            "wrong_hash",
            5,
            &line(5, "\"kind\":\"decision\"", "\"kind\":\"recision\""),
        ),
        Case::broken(
            "a changed digest of a body",
            "wrong_hash",
            5,
            &line(5, "\"body\":\"sha256:", "\"body\":\"sha256:0")
                .map_line(4, |text| shorten(text, "\"body\":\"sha256:")),
        ),
        Case::broken("a changed body", "wrong_body", 5, &line(5, "agt_1", "agt_2")),
        Case::broken(
            "a body swapped with that of the next entry",
            "wrong_body",
            4,
            &swapped_bodies(log),
        ),
        Case::broken(
            "a changed hash",
            "wrong_hash",
            6,
            &line(6, &hash, &log.stored(7).hash.to_string()),
        ),
        Case::broken(
            "a changed hash of the entry before",
            "wrong_prev",
            6,
            &line(6, &log.stored(6).prev.to_string(), &hash),
        ),
        Case::broken("entries swapped", "wrong_seq", 6, &order(&[0, 1, 2, 3, 5, 4, 6])),
        Case::broken("an entry missing", "wrong_seq", 6, &order(&[0, 1, 2, 3, 5, 6])),
        Case::broken("an entry twice", "wrong_seq", 4, &order(&[0, 1, 2, 3, 3, 4])),
        Case::broken(
            "another tenant's name",
            "wrong_tenant",
            5,
            &line(5, TENANT, OTHER_TENANT),
        ),
        Case::broken(
            "formatted anew",
            "malformed_line",
            5,
            &line(5, ",\"hash\"", ", \"hash\""),
        ),
        Case::broken(
            "members in another order",
            "malformed_line",
            1,
            &line(1, "\"v\":1}", "\"w\":1,\"v\":1}"),
        ),
        Case::broken(
            "a leading zero",
            "malformed_line",
            5,
            &line(5, "\"seq\":5", "\"seq\":05"),
        ),
        Case::broken(
            "an empty line",
            "malformed_line",
            6,
            &[entries[..5].concat(), "\n".to_owned()],
        ),
        Case::broken(
            "a line cut off",
            "malformed_line",
            7,
            &[entries.concat().trim_end().trim_end_matches('}').to_owned()],
        ),
    ]
}

trait MapLine {
    fn map_line(self, place: usize, change: impl Fn(&str) -> String) -> Self;
}

impl MapLine for Vec<String> {
    fn map_line(mut self, place: usize, change: impl Fn(&str) -> String) -> Self {
        self[place] = change(&self[place]);
        self
    }
}

/// Takes one digit off the end of the digest that begins behind `start`, so that it is as long as it was.
fn shorten(text: &str, start: &str) -> String {
    let at = text.find(start).unwrap() + start.len() + 64;
    format!("{}{}", &text[..at], &text[at + 1..])
}

fn swapped_bodies(log: &Log) -> Vec<String> {
    let mut lines = log.lines(1, 6);
    lines[3] = log.stored(4).line_with(Some(&log.stored(5).body));
    lines[4] = log.stored(5).line_with(Some(&log.stored(4).body));
    lines
}

/// Everything is computed anew, by somebody who can write the store.
fn rewritten(log: &Log) -> Vec<Case> {
    let forged = log.rewritten(5, |stored| {
        if stored.seq == 5 {
            stored.body = stored.body.replace("agt_1", "agt_2");
        }
    });
    let entries = forged.lines(1, ENTRIES);
    let at = |seq: u64| log.note(seq, &old_key());
    let mut single = log.lines(1, 7);
    single[4] = forged.lines(5, 5).remove(0);
    let backwards = log.rewritten(5, |stored| {
        if stored.seq == 6 {
            stored.at.replace_range(.., "2026-07-01T12:00:04.999Z");
        }
    });
    let spelt = log.rewritten(5, |stored| {
        if stored.seq == 5 {
            stored.body = stored.body.replace("{\"agent\"", "{ \"agent\"");
        }
    });
    let twice = log.rewritten(5, |stored| {
        if stored.seq == 5 {
            stored.body = stored
                .body
                .replace("{\"agent\"", "{\"agent\":\"agt_2\",\"agent\"");
        }
    });
    let genuine = log.end(ENTRIES, ENTRIES, &new_key());
    let own = forged.end(ENTRIES, ENTRIES, &foreign_key());
    vec![
        Case::broken("one entry computed anew", "wrong_prev", 6, &single),
        Case::whole(
            "a ledger rewritten as a whole, which nothing in it shows",
            &entries,
        ),
        Case::broken(
            "rewritten, against checkpoints held elsewhere",
            "wrong_root",
            8,
            &entries,
        )
        .against(at(3))
        .against(at(8)),
        Case::broken(
            "rewritten behind a checkpoint held elsewhere",
            "unsigned",
            None,
            &entries,
        )
        .against(at(3)),
        Case::broken(
            "rewritten, beside the checkpoint that was signed",
            "wrong_root",
            None,
            &with(entries.clone(), genuine),
        )
        .signed(),
        Case::broken(
            "rewritten and signed by a foreign key",
            "unknown_key",
            13,
            &with(entries.clone(), own),
        )
        .signed(),
        Case::broken(
            "rewritten and signed by an old key",
            "key_not_valid",
            13,
            &with(entries, forged.end(13, 13, &old_key())),
        )
        .signed(),
        Case::broken("time runs backwards", "wrong_time", 6, &backwards.lines(1, 7)),
        Case::broken(
            "a body with white space",
            "body_not_canonical",
            5,
            &spelt.lines(1, 7),
        ),
        Case::broken(
            "a body with a member twice",
            "body_not_canonical",
            5,
            &twice.lines(1, 7),
        ),
    ]
}

/// The tail, the beginning, or everything is not there.
fn cut(log: &Log) -> Vec<Case> {
    let first_eight = log.lines(1, 8);
    let newest = || log.note(13, &new_key());
    let without_start = with(log.lines(6, 13), log.end(13, 13, &new_key()));
    let end_only = [log.end(13, 13, &new_key())];
    vec![
        Case::broken(
            "the tail cut off, against a checkpoint held elsewhere",
            "cut",
            None,
            &first_eight,
        )
        .against(newest()),
        Case::broken(
            "the tail cut off, the checkpoint left",
            "wrong_proof_length",
            None,
            &with(first_eight.clone(), log.end(13, 13, &new_key())),
        )
        .signed(),
        Case::broken(
            "the tail cut off, an older checkpoint and a held one",
            "cut",
            None,
            &with(first_eight.clone(), log.end(8, 8, &old_key())),
        )
        .against(newest()),
        Case::broken("fewer than asked for", "wrong_range", None, &first_eight).over(1, 13),
        Case::broken("more than asked for", "wrong_range", None, &log.lines(1, 9)).over(1, 8),
        Case::broken("later than asked for", "wrong_range", None, &log.lines(6, 9)).over(5, 9),
        Case::broken("a range that is upside down", "invalid_range", None, &first_eight).over(5, 3),
        Case::broken("a range from zero", "invalid_range", None, &first_eight).over(0, 8),
        Case::broken("an empty file", "empty", None, &[]),
        Case::broken("an empty file, and whom to trust", "empty", None, &[]).signed(),
        Case::broken("nothing but a checkpoint", "empty", None, &end_only).signed(),
        Case::broken("nothing but a start", "empty", None, &[log.start(5)]),
        Case::broken("the beginning missing", "not_compared", None, &without_start).signed(),
        Case::broken(
            "a held checkpoint before the first entry",
            "not_compared",
            None,
            &log.lines(6, 13),
        )
        .against(log.note(3, &old_key())),
        Case::broken(
            "no checkpoint, and whom to trust",
            "unsigned",
            None,
            &log.lines(1, 13),
        )
        .signed(),
        Case::broken(
            "a held checkpoint of the start",
            "unsigned",
            None,
            &[vec![log.start(5)], log.lines(6, 9)].concat(),
        )
        .against(log.note(5, &old_key())),
        Case::broken(
            "entries behind the last checkpoint that is held",
            "unsigned",
            None,
            &first_eight,
        )
        .against(log.note(3, &old_key())),
    ]
}

/// Start and end are not those of the entries.
#[expect(clippy::too_many_lines, reason = "a list of alike cases")]
fn misled(log: &Log, other: &Log) -> Vec<Case> {
    let range = |start: String, end: String| {
        let mut lines = vec![start];
        lines.extend(log.lines(6, 9));
        lines.push(end);
        lines
    };
    let good_end = || log.end(9, 13, &new_key());
    let start = log.start(5);
    let wrong_hash = start.replace(&log.stored(5).hash.to_string(), &log.stored(4).hash.to_string());
    let (before, edge) = start.split_once("\"edge\":[\"").unwrap();
    let wrong_edge = format!(
        "{before}\"edge\":[\"{}{}",
        &base64(log.stored(1).hash.as_bytes()),
        &edge[44..]
    );
    let short_edge = format!("{before}\"edge\":[\"{}", &edge[47..]);
    let mut late_start = log.lines(1, 5);
    late_start.push(log.start(4));
    let mut unseen_start = log.lines(3, 5);
    unseen_start.push(log.start(5));
    let behind = with(whole(log), log.lines(13, 13).remove(0));
    let of_other = with(log.lines(1, 13), end(&other.note(13, &new_key()), &[]));
    let elsewhere = log.checkpoint(13).to_string().replace(LOG, "ledger.elsewhere");
    let elsewhere = ledger::Note::sign(&elsewhere, &[&new_key()]).unwrap().to_string();
    vec![
        Case::broken(
            "a start with another hash",
            "wrong_prev",
            6,
            &range(wrong_hash, good_end()),
        )
        .signed(),
        Case::broken(
            "a start with another edge",
            "wrong_root",
            None,
            &range(wrong_edge, good_end()),
        )
        .signed(),
        Case::broken(
            "a start whose edge is too short",
            "malformed_line",
            1,
            &range(short_edge, good_end()),
        ),
        Case::broken(
            "the start of another place",
            "wrong_seq",
            6,
            &range(log.start(4), good_end()),
        ),
        Case::broken(
            "a start in the middle that says something else",
            "malformed_line",
            6,
            &late_start,
        ),
        Case::broken(
            "a start in the middle where nobody knows what is before",
            "malformed_line",
            6,
            &unseen_start,
        ),
        Case::broken("an entry behind the end", "malformed_line", 14, &behind).signed(),
        Case::broken(
            "a proof for other sizes",
            "wrong_proof_length",
            None,
            &range(
                start.clone(),
                end(&log.note(13, &new_key()), &log.consistency(10, 13)),
            ),
        )
        .signed(),
        Case::broken(
            "an older checkpoint than the entries",
            "not_before",
            None,
            &range(start, end(&log.note(8, &old_key()), &[])),
        )
        .signed(),
        Case::broken("the checkpoint of another tenant", "wrong_tenant", 13, &of_other).signed(),
        Case::broken(
            "a checkpoint of another log",
            "wrong_origin",
            13,
            &with(log.lines(1, 13), end(&elsewhere, &[])),
        )
        .signed(),
        Case::broken(
            "no witness where one is needed",
            "too_few_witnesses",
            13,
            &whole(log),
        )
        .trusting(TrustCase::witnessed(1)),
        Case::broken(
            "a checkpoint that is not a note",
            "malformed_note",
            13,
            &with(log.lines(1, 13), end("13\n", &[])),
        ),
        Case::broken("another tenant's whole ledger", "wrong_tenant", 1, &whole(other))
            .signed()
            .of(TENANT),
        Case::broken(
            "against another tenant's checkpoint",
            "wrong_tenant",
            1,
            &whole(other),
        )
        .against(log.note(13, &new_key())),
        Case::broken(
            "an entry of another tenant in its place",
            "wrong_tenant",
            5,
            &[log.lines(1, 4), other.lines(5, 5)].concat(),
        ),
    ]
}

/// Answers are not those of their entries.
#[expect(clippy::too_many_lines, reason = "a list of alike cases")]
fn answered(log: &Log) -> Vec<Case> {
    let good = log.lines_with_answers(1, ENTRIES);
    let signed_end = log.end(ENTRIES, ENTRIES, &new_key());
    let answer = |seq: u64| log.stored(seq).answer_line().unwrap();
    let replaced = |seq: u64, line: String| {
        let lines = good.iter().map(|found| {
            if *found == answer(seq) {
                line.clone()
            } else {
                found.clone()
            }
        });
        with(lines.collect(), signed_end.clone())
    };
    let changed = |seq: u64, from: &str, to: &str| {
        let line = answer(seq).replacen(from, to, 1);
        assert_ne!(line, answer(seq), "{from}");
        replaced(seq, line)
    };
    let forge = |key: &SigningKey, trusted: &SigningKey| {
        let mut logs = logs();
        crate::log::commit(&mut logs, &[0], key);
        let mut lines = logs[0].lines_with_answers(1, 14);
        lines.push(logs[0].end(14, 14, trusted));
        lines
    };
    let after_no_decision = [log.lines(1, 1), vec![answer(3)]].concat();
    let twice = [log.lines_with_answers(1, 3), vec![answer(3)]].concat();
    let other_body = log.rewritten(3, |stored| {
        if stored.seq == 3 {
            stored.body = stored.body.replace("\"answer_hash\":", "\"answer_hush\":");
        }
    });
    let mut unnamed = other_body.lines(1, 3);
    unnamed.push(answer(3));
    vec![
        Case::broken(
            "an answer of another entry",
            "other_entry",
            4,
            &replaced(4, answer(5)),
        )
        .signed(),
        Case::broken(
            "a changed answer",
            "bad_signature",
            4,
            &changed(4, "permitted", "perhitted"),
        )
        .signed(),
        Case::broken(
            "a changed answer, and nobody known",
            "other_answer",
            4,
            &changed(4, "permitted", "perhitted"),
        ),
        Case::broken(
            "a receipt that says another place",
            "wrong_hash",
            4,
            &changed(4, "\"seq\":4", "\"seq\":5"),
        )
        .signed(),
        Case::broken(
            "a receipt signed by a foreign key",
            "unknown_key",
            14,
            &forge(&foreign_key(), &new_key()),
        )
        .signed(),
        Case::broken(
            "a receipt signed by a key that had ended",
            "key_not_valid",
            14,
            &forge(&old_key(), &new_key()),
        )
        .signed(),
        Case::broken(
            "an answer without receipt",
            "malformed_receipt",
            4,
            &replaced(4, "{\"answer\":{\"decision\":\"allow\"}}\n".to_owned()),
        ),
        Case::broken(
            "an answer that is not JSON",
            "malformed_answer",
            4,
            &changed(4, "{\"decision_id\"", "{{\"decision_id\""),
        ),
        Case::broken(
            "an answer behind no decision",
            "malformed_line",
            2,
            &after_no_decision,
        ),
        Case::broken("an answer twice", "malformed_line", 4, &twice),
        Case::broken(
            "an answer whose entry is another one now",
            "other_entry",
            3,
            &unnamed,
        ),
    ]
}

/// Bodies are gone, and nobody says who took them out.
fn untold(log: &Log) -> Vec<Case> {
    let erased = |log: &Log, seq: u64| {
        let mut lines = log.lines(1, ENTRIES);
        lines[usize::try_from(seq).unwrap() - 1] = log.stored(seq).line_with(None);
        with(lines, log.end(ENTRIES, ENTRIES, &new_key()))
    };
    let told = |body: &str| log.erasing(8, body);
    vec![
        Case::broken("a body that was taken away", "untold", 4, &erased(log, 4)).signed(),
        Case::broken(
            "a body that was taken away, against a checkpoint held elsewhere",
            "untold",
            4,
            &erased(log, 4)[..13],
        )
        .against(log.note(13, &new_key())),
        Case::broken(
            "an erasure that tells of other entries",
            "untold",
            4,
            &erased(&told(r#"{"seqs":[[1,3],[5,7]]}"#), 4),
        ),
        Case::broken(
            "an erasure that tells of what comes later",
            "untold",
            9,
            &erased(&told(r#"{"seqs":[[1,13]]}"#), 9),
        ),
        Case::broken(
            "an erasure that says nothing",
            "untold",
            4,
            &erased(&told(r#"{"seqs":"4"}"#), 4),
        ),
        Case::broken(
            "an erasure whose own body is gone",
            "untold",
            8,
            &erased(&told(r#"{"seqs":[[4,4]]}"#), 8),
        ),
        Case::broken(
            "an erasure of what is never erased",
            "untold",
            1,
            &erased(&told(r#"{"seqs":[[1,7]]}"#), 1),
        )
        .signed(),
        Case::broken(
            "a body that is gone and never erased, in a file that ends before the checkpoint does",
            "untold",
            6,
            &with(erased(log, 6)[..7].to_vec(), log.end(7, 13, &new_key())),
        )
        .signed(),
    ]
}

/// Two entries have the last number that there is, and the second follows the first by its `prev`.
fn beyond_numbers() -> Vec<Case> {
    let body = "{}";
    let (mut prev, mut lines) = (Digest::ZERO, Vec::new());
    for _ in 0..2 {
        let header = EntryHeader {
            tenant: TENANT,
            seq: u64::MAX,
            kind: "agent_frozen",
            at: "2026-07-01T12:00:01.000Z",
            prev,
            body: Digest::of(body.as_bytes()),
        };
        prev = header.hash(&mut String::new());
        let entry = Entry {
            header,
            hash: prev,
            body: Some(body),
        };
        let mut line = String::new();
        entry.write_line(&mut line);
        lines.push(line);
    }
    vec![Case::broken(
        "the last number that there is, twice",
        "wrong_seq",
        u64::MAX,
        &lines,
    )]
}

#[test]
fn the_vectors_of_exports_are_what_we_compute() {
    let [log, other] = logs();
    let cases = [
        right(&log),
        changed_lines(&log),
        rewritten(&log),
        cut(&log),
        misled(&log, &other),
        answered(&log),
        untold(&log),
        beyond_numbers(),
    ];
    let cases = cases.into_iter().flatten().map(Case::checked);
    agrees(
        "exports.json",
        "Files of entries, and what a verifier finds that knows what a case names: whom to trust, checkpoints held elsewhere, the tenant, the range.",
        cases.collect(),
    );
}
