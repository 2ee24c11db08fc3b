//! The ledgers of the vectors: two tenants of one log, whose decisions were committed together.

use canon::Digest;
use ledger::export::{write_answer_line, write_end_line, write_start_line};
use ledger::merkle::{Completed, Frontier, NodeId, ProofPlan};
use ledger::receipt::{Receipt, ReceiptBatch};
use ledger::{
    Checkpoint, Entry, EntryHeader, Head, KeySet, NewEntry, PublishedKey, SignatureKind, SigningKey, Tip,
    TrustPolicy, VerifierKey,
};
use serde::{Deserialize, Serialize};

pub(crate) const LOG: &str = "ledger.example";
pub(crate) const TENANT: &str = "tnt_01jz0000000000000000000000";
pub(crate) const OTHER_TENANT: &str = "tnt_01jz0000000000000000000001";
/// When the old key ends: after entry 9 of both ledgers.
pub(crate) const OLD_KEY_ENDS: &str = "2026-07-01T12:00:09.999Z";
const NEW_KEY_BEGINS: &str = "2026-07-01T12:00:10.000Z";
/// Entries of each ledger.
pub(crate) const ENTRIES: u64 = 13;

/// A key of the vectors. Its seed is 32 times one byte: it protects nothing.
pub(crate) fn key(name: &str, kind: SignatureKind, seed: u8) -> SigningKey {
    SigningKey::from_seed(name, kind, &[seed; 32]).unwrap()
}

/// The key of the log up to entry 9.
pub(crate) fn old_key() -> SigningKey {
    key(LOG, SignatureKind::Note, 1)
}

/// The key of the log from entry 10 on.
pub(crate) fn new_key() -> SigningKey {
    key(LOG, SignatureKind::Note, 2)
}

/// A key that nobody trusts, under the log's own name.
pub(crate) fn foreign_key() -> SigningKey {
    key(LOG, SignatureKind::Note, 3)
}

pub(crate) fn witness_key(number: u8) -> SigningKey {
    let name = format!("witness.example/{number}");
    key(&name, SignatureKind::Cosignature, 10 + number)
}

/// Whom a case trusts, as it is written in a file of vectors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TrustCase {
    pub(crate) keys: Vec<PublishedKey>,
    pub(crate) witnesses: Vec<VerifierKey>,
    pub(crate) quorum: usize,
}

impl TrustCase {
    /// Both keys of the log, for their times.
    pub(crate) fn log() -> Self {
        Self {
            keys: vec![
                PublishedKey {
                    vkey: old_key().verifier().clone(),
                    not_before: None,
                    not_after: Some(OLD_KEY_ENDS.parse().unwrap()),
                },
                PublishedKey {
                    vkey: new_key().verifier().clone(),
                    not_before: Some(NEW_KEY_BEGINS.parse().unwrap()),
                    not_after: None,
                },
            ],
            witnesses: Vec::new(),
            quorum: 0,
        }
    }

    /// The log, and so many of two witnesses.
    pub(crate) fn witnessed(quorum: usize) -> Self {
        Self {
            witnesses: [1, 2].map(|number| witness_key(number).verifier().clone()).into(),
            quorum,
            ..Self::log()
        }
    }

    pub(crate) fn read(&self) -> TrustPolicy {
        TrustPolicy {
            keys: KeySet::new(self.keys.clone()).unwrap(),
            witnesses: self.witnesses.clone(),
            quorum: self.quorum,
        }
    }
}

/// An entry with all that is kept of it.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) tenant: String,
    pub(crate) seq: u64,
    pub(crate) kind: String,
    pub(crate) at: String,
    pub(crate) prev: Digest,
    pub(crate) hash: Digest,
    pub(crate) body: String,
    pub(crate) completed: Completed,
    /// The answer with its receipt, of a decision.
    pub(crate) answer: Option<String>,
}

impl Stored {
    pub(crate) fn header(&self) -> EntryHeader<'_> {
        EntryHeader {
            tenant: &self.tenant,
            seq: self.seq,
            kind: &self.kind,
            at: &self.at,
            prev: self.prev,
            body: Digest::of(self.body.as_bytes()),
        }
    }

    pub(crate) fn header_text(&self) -> String {
        let mut text = String::new();
        self.header().write_to(&mut text);
        text
    }

    pub(crate) fn line(&self) -> String {
        self.line_with(Some(&self.body))
    }

    pub(crate) fn line_with(&self, body: Option<&str>) -> String {
        let mut line = String::new();
        let (header, hash) = (self.header(), self.hash);
        Entry { header, hash, body }.write_line(&mut line);
        line
    }

    /// The line of the entry where its body is left out.
    pub(crate) fn line_left_out(&self) -> String {
        let mut line = String::new();
        let (header, hash) = (self.header(), self.hash);
        Entry {
            header,
            hash,
            body: None,
        }
        .write_line_without_body(&mut line);
        line
    }

    pub(crate) fn answer_line(&self) -> Option<String> {
        let mut line = String::new();
        write_answer_line(self.answer.as_deref()?, &mut line);
        Some(line)
    }
}

/// A tenant's ledger.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) tenant: &'static str,
    pub(crate) tip: Tip,
    pub(crate) entries: Vec<Stored>,
}

impl Log {
    fn new(tenant: &'static str) -> Self {
        Self {
            tenant,
            tip: Tip::GENESIS,
            entries: Vec::new(),
        }
    }

    /// Appends an entry, its time given by its place: one a second.
    pub(crate) fn append(&mut self, kind: &str, body: String) -> &mut Stored {
        let at = format!("2026-07-01T12:00:{:02}.000Z", self.tip.head().seq + 1);
        self.append_at(kind, body, at)
    }

    pub(crate) fn append_at(&mut self, kind: &str, body: String, at: String) -> &mut Stored {
        let entry = NewEntry {
            tenant: self.tenant,
            kind,
            at: &at,
            body: Digest::of(body.as_bytes()),
        };
        let appended = self.tip.append(&entry, &mut String::new());
        self.entries.push(Stored {
            tenant: self.tenant.to_owned(),
            seq: appended.head.seq,
            kind: kind.to_owned(),
            at,
            prev: appended.prev,
            hash: appended.head.hash,
            body,
            completed: appended.completed,
            answer: None,
        });
        self.entries.last_mut().unwrap()
    }

    /// The same ledger up to an entry, and from there on another: what whoever rewrites it would make.
    pub(crate) fn rewritten(&self, from: u64, mut change: impl FnMut(&mut Stored)) -> Self {
        let mut log = Self::new(self.tenant);
        for stored in &self.entries {
            let mut stored = stored.clone();
            if stored.seq >= from {
                change(&mut stored);
            }
            log.append_at(&stored.kind, stored.body, stored.at).answer = stored.answer;
        }
        log
    }

    /// The same ledger, where this entry tells of an erasure, and no decision behind it has an answer.
    pub(crate) fn erasing(&self, at: u64, told: &str) -> Self {
        self.rewritten(at, |stored| {
            stored.answer = None;
            if stored.seq == at {
                "bodies_erased".clone_into(&mut stored.kind);
                told.clone_into(&mut stored.body);
            }
        })
    }

    /// The end of the ledger after so many entries.
    pub(crate) fn tip_at(&self, seq: u64) -> Tip {
        let hash = self.hash_at(seq);
        let nodes = Frontier::nodes(seq).map(|node| self.node(node)).collect();
        Tip::new(Head { seq, hash }, Frontier::new(seq, nodes).unwrap()).unwrap()
    }

    fn hash_at(&self, seq: u64) -> Digest {
        seq.checked_sub(1).map_or(Digest::ZERO, |place| {
            self.entries[usize::try_from(place).unwrap()].hash
        })
    }

    fn node(&self, node: NodeId) -> Digest {
        let row = usize::try_from(node.seq()).unwrap() - 1;
        self.entries[row].completed.get(node).unwrap()
    }

    pub(crate) fn prove(&self, plan: &ProofPlan) -> Vec<Digest> {
        let hashes: Vec<_> = plan.nodes().iter().map(|node| self.node(*node)).collect();
        plan.prove(&hashes).unwrap()
    }

    pub(crate) fn inclusion(&self, seq: u64, size: u64) -> Vec<Digest> {
        self.prove(&ProofPlan::inclusion(seq - 1, size).unwrap())
    }

    pub(crate) fn consistency(&self, from: u64, to: u64) -> Vec<Digest> {
        self.prove(&ProofPlan::consistency(from, to).unwrap())
    }

    pub(crate) fn checkpoint(&self, size: u64) -> Checkpoint {
        Checkpoint::new(LOG, self.tenant, size, self.tip_at(size).tree().root())
    }

    /// The note of a checkpoint, signed by one key.
    pub(crate) fn note(&self, size: u64, key: &SigningKey) -> String {
        self.checkpoint(size).sign(&[key]).unwrap().to_string()
    }

    pub(crate) fn start(&self, seq: u64) -> String {
        let mut line = String::new();
        write_start_line(&self.tip_at(seq), &mut line);
        line
    }

    /// The end of a file whose last entry is `last`, with the checkpoint of `size` entries.
    pub(crate) fn end(&self, last: u64, size: u64, key: &SigningKey) -> String {
        end(&self.note(size, key), &self.consistency(last, size))
    }

    /// The lines of entries `from` to `to`.
    pub(crate) fn lines(&self, from: u64, to: u64) -> Vec<String> {
        let places = usize::try_from(from).unwrap() - 1..usize::try_from(to).unwrap();
        self.entries[places].iter().map(Stored::line).collect()
    }

    /// The lines of entries `from` to `to`, each decision with its answer behind it.
    pub(crate) fn lines_with_answers(&self, from: u64, to: u64) -> Vec<String> {
        let places = usize::try_from(from).unwrap() - 1..usize::try_from(to).unwrap();
        let entries = self.entries[places].iter();
        entries
            .flat_map(|stored| [Some(stored.line()), stored.answer_line()])
            .flatten()
            .collect()
    }

    pub(crate) fn stored(&self, seq: u64) -> &Stored {
        &self.entries[usize::try_from(seq).unwrap() - 1]
    }
}

pub(crate) fn end(checkpoint: &str, proof: &[Digest]) -> String {
    let mut line = String::new();
    write_end_line(checkpoint, proof, &mut line);
    line
}

/// An answer without its receipt.
fn unsealed(tenant: &str, seq: u64) -> String {
    let decision = if seq.is_multiple_of(3) { "deny" } else { "allow" };
    format!(
        r#"{{"decision_id":"dec_{seq:026}","decision":"{decision}","reason_code":"permitted","reason":"Entry {seq} of {tenant}: \"ça va\"\n","matched_policies":["base/read"]}}"#
    )
}

/// One commit: a decision for each ledger named, in order, and one signature.
pub(crate) fn commit(logs: &mut [Log], decisions: &[usize], key: &SigningKey) {
    let mut batch = ReceiptBatch::default();
    let mut waiting = Vec::new();
    for which in decisions {
        let log = &mut logs[*which];
        let answer = unsealed(log.tenant, log.tip.head().seq + 1);
        let digest = Digest::of(answer.as_bytes());
        let body = format!(r#"{{"agent":"agt_1","answer_hash":"{digest}","tool":"github"}}"#);
        let stored = log.append("decision", body);
        waiting.push((*which, stored.seq, batch.push(&stored.hash, &digest), answer));
    }
    let sealed = batch.seal(key).unwrap();
    for (which, seq, index, answer) in waiting {
        let stored = &mut logs[which].entries[usize::try_from(seq).unwrap() - 1];
        let receipt = Receipt {
            tenant: &stored.tenant,
            seq,
            at: &stored.at,
            hash: stored.hash,
            prev: stored.prev,
            body: Digest::of(stored.body.as_bytes()),
        };
        let mut text = answer;
        text.pop();
        text.push_str(r#","receipt":"#);
        sealed.write_receipt(index, &receipt, &mut text);
        text.push('}');
        stored.answer = Some(text);
    }
}

/// Two ledgers of thirteen entries: commits of one, four, three and eight decisions; the last signed by the new key.
pub(crate) fn logs() -> [Log; 2] {
    let mut logs = [Log::new(TENANT), Log::new(OTHER_TENANT)];
    for log in &mut logs {
        log.append(
            "tenant_created",
            format!(r#"{{"id":"{}","name":"Acme"}}"#, log.tenant),
        );
        log.append("agent_created", r#"{"id":"agt_1","name":"builder"}"#.to_owned());
    }
    commit(&mut logs, &[0], &old_key());
    commit(&mut logs, &[1], &old_key());
    commit(&mut logs, &[0, 1, 1, 0], &old_key());
    for log in &mut logs {
        log.append("agent_frozen", r#"{"id":"agt_1","reason":"drill"}"#.to_owned());
    }
    commit(&mut logs, &[1, 0, 0], &old_key());
    commit(&mut logs, &[1, 1, 0], &old_key());
    commit(&mut logs, &[0, 1, 0, 1, 1, 0, 1, 0], &new_key());
    logs
}

#[test]
fn both_ledgers_are_as_long_as_the_vectors_say() {
    for log in logs() {
        assert_eq!(log.tip.head().seq, ENTRIES);
        assert_eq!(log.tip, log.tip_at(ENTRIES));
    }
}
