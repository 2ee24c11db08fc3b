//! Exports and evidence are files that verify by themselves, and do not when anything in them was changed, cut off or
//! left out. They are verified by the program that strangers use, and by the verifier in Python, which was written
//! without it and has to say the same.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/program.rs"]
mod program;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use canon::Digest;
use futures_util::StreamExt;
use model::Role;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use support::World;
use support::hand::Hand;
use support::tenancy::{ENTRIES, Tenancy, ask, injected, merging, reading};
use tempfile::TempDir;

/// The folder of the verifier in Python.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdks/python");

/// Whether it can be run here: it takes its `cryptography`. Without that nothing is compared with it, except in CI.
static HAS_PYTHON: LazyLock<bool> = LazyLock::new(|| {
    let mut python = Command::new("python3");
    python
        .current_dir(PYTHON)
        .args(["-c", "import countersign_verify"]);
    let is_there = python.output().is_ok_and(|done| done.status.success());
    let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(is_there || !is_ci, "the verifier in Python cannot be run");
    if !is_there {
        eprintln!("skipped: the verifier in Python cannot be run");
    }
    is_there
});

/// A tenant whose agents have decided in two runs, in turns, and an auditor's folder with the keys that he has kept.
struct Scene {
    world: World,
    tenancy: Tenancy,
    folder: TempDir,
}

impl Scene {
    async fn new() -> Self {
        let world = World::start().await;
        let tenancy = world.tenancy("acme").await;
        for _ in 0..3 {
            world.clock.advance_millis(1_000);
            world.authorize(&tenancy.token, &reading()).await;
            world.authorize(&tenancy.other_token, &injected()).await;
        }
        let scene = Self {
            world,
            tenancy,
            folder: tempfile::tempdir().unwrap(),
        };
        let keys = scene.world.get("/.well-known/countersign/keys.json", "").await;
        scene.write("keys.json", &keys.bytes);
        scene
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    async fn read(&self, path: &str) -> Vec<u8> {
        let reply = self.world.get(path, &self.tenancy.auditor).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.bytes
    }

    async fn evidence(&self, about: &str) -> Vec<u8> {
        self.read(&format!("/v1/ledger/evidence{about}")).await
    }

    async fn export(&self, about: &str) -> String {
        String::from_utf8(self.read(&format!("/v1/ledger/export{about}")).await).unwrap()
    }

    /// What the program says of a file with the keys, and these options beside them.
    fn check_with(&self, file: &[u8], options: &[&str]) -> Result<String, String> {
        let is_archive = file.get(257..262) == Some(b"ustar".as_slice());
        let file = self.write("file", file);
        let mut verifying = Command::new(env!("CARGO_BIN_EXE_countersign"));
        let done = program::without_settings(&mut verifying)
            .current_dir(self.folder.path())
            .arg("verify")
            .arg(file)
            .args(options)
            .output()
            .unwrap();
        let told = match done.status.code() {
            Some(0) => Ok(String::from_utf8(done.stdout).unwrap()),
            Some(1) => Err(String::from_utf8(done.stderr).unwrap()),
            _ => panic!("{done:?}"),
        };
        // It takes no single key, and to name none is a wrong use of it.
        if options.contains(&"--keys") || options.contains(&"--unsigned") {
            let what = if is_archive { "evidence" } else { "export" };
            self.compare(&told, &[&[what, "file"][..], options].concat());
        }
        told
    }

    /// Fails unless the verifier in Python says the same with these arguments: whether the file is right, and what is in it.
    fn compare(&self, told: &Result<String, String>, arguments: &[&str]) {
        let Some((code, said)) = self.python(arguments) else {
            return;
        };
        match told {
            Ok(told) => {
                assert_eq!(code, 0, "{said} but {told}");
                assert_eq!(counts(&said), counts(told));
                let (entries, hash) = (behind(told, ", seq "), behind(told, ", head "));
                let beginning = format!("file: verified: entries {entries} of ");
                assert!(
                    said.starts_with(&beginning) && said.contains(hash),
                    "{said} but {told}"
                );
            }
            Err(why) => assert!(code == 1 && said.contains(": NOT VERIFIED: "), "{said} but {why}"),
        }
    }

    /// The exit code of the verifier in Python and what it says, if it can be run.
    fn python(&self, arguments: &[&str]) -> Option<(i32, String)> {
        if !*HAS_PYTHON {
            return None;
        }
        let done = Command::new("python3")
            .current_dir(self.folder.path())
            .env("PYTHONPATH", PYTHON)
            .args(["-m", "countersign_verify"])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        Some((done.status.code().unwrap(), said))
    }

    fn check(&self, file: &[u8]) -> Result<String, String> {
        self.check_with(file, &["--keys", "keys.json"])
    }

    /// A key with which Ann votes.
    async fn key_of_ann(&self) -> String {
        let key = json!({"name": "ann", "role": "approver", "user": "ann", "tenant": self.tenancy.id});
        let key = self.world.post("/v1/keys", &self.world.operator, &key).await;
        key.expect(201)["key"].as_str().unwrap().to_owned()
    }

    /// Erases what the first agent has done.
    async fn erase(&self) {
        let admin = self.world.add_key(self.tenancy.id, Role::Admin).await;
        let what = json!({"agent": self.tenancy.agent});
        let erased = self
            .world
            .post("/v1/ledger/erase", &admin, &what)
            .await
            .expect(200);
        assert_eq!(erased["erased"], 3);
    }
}

/// How many there are of what: both verifiers say that in the same words.
fn counts(told: &str) -> Vec<&str> {
    let parts = told.trim_end().split(", ");
    parts
        .filter(|part| part.starts_with(|first: char| first.is_ascii_digit()))
        .collect()
}

/// What stands behind these words, up to the next comma.
fn behind<'t>(told: &'t str, words: &str) -> &'t str {
    let (_, rest) = told.split_once(words).unwrap();
    rest.split(',').next().unwrap()
}

/// The files in an archive, as `tar` would see them.
fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut rest = archive;
    while rest[0] != 0 {
        let name = rest[..100].split(|byte| *byte == 0).next().unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&rest[124..135]).unwrap(), 8).unwrap();
        files.insert(
            String::from_utf8(name.to_vec()).unwrap(),
            rest[512..512 + length].to_vec(),
        );
        rest = &rest[512 + length.next_multiple_of(512)..];
    }
    assert_eq!(rest, [0; 1024]);
    files
}

/// The lines in an archive: they are an export.
fn ledger(files: &BTreeMap<String, Vec<u8>>) -> String {
    let ledger = files.iter().filter(|(name, _)| name.starts_with("ledger/"));
    ledger
        .map(|(_, bytes)| std::str::from_utf8(bytes).unwrap())
        .collect()
}

/// The entries among lines.
fn entries(lines: &str) -> Vec<Value> {
    lines
        .lines()
        .filter(|line| line.starts_with("{\"header\":"))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn evidence_of_everything_verifies_and_has_what_decisions_name() {
    let scene = Scene::new().await;
    let archive = scene.evidence("").await;
    let told = scene.check(&archive).unwrap();
    for part in ["verified 13 entries", "6 answers", "signed by the log"] {
        assert!(told.contains(part), "{told}");
    }
    let files = files(&archive);
    let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    assert_eq!(
        (&manifest["from_seq"], &manifest["to_seq"]),
        (&json!(1), &json!(ENTRIES + 6))
    );
    let lines = ledger(&files);
    assert!(scene.check(lines.as_bytes()).is_ok(), "the lines are an export");
    let entries = entries(&lines);
    let policies = entries.last().unwrap()["body"]["policy_digest"].as_str().unwrap();
    let policies = &files[&policies.replace("sha256:", "named/")];
    assert!(std::str::from_utf8(policies).unwrap().contains("permit"));
    for (name, bytes) in files.iter().filter(|(name, _)| name.starts_with("named/")) {
        assert_eq!(Digest::of(bytes).to_string(), name.replace("named/", "sha256:"));
    }
    let keys: Value = serde_json::from_slice(&files["keys.json"]).unwrap();
    let kept: Value =
        serde_json::from_slice(&std::fs::read(scene.folder.path().join("keys.json")).unwrap()).unwrap();
    assert_eq!(keys, kept);
}

/// The program that strangers use verifies files of entries alone.
#[tokio::test]
async fn an_answer_and_the_proof_of_its_entry_are_verified_in_python_and_not_when_they_were_changed() {
    let scene = Scene::new().await;
    let answer = scene.world.authorize(&scene.tenancy.token, &reading()).await;
    let told = answer.json();
    let id = told["decision_id"].as_str().unwrap();
    let proof = scene.read(&format!("/v1/receipts/{id}/proof")).await;
    let seq = ENTRIES + 7;
    for (what, bytes, before, after) in [
        ("receipt", &answer.bytes, "\"dec_0", "\"dec_1"),
        ("proof", &proof, "\nindex ", "\nindex 1"),
    ] {
        scene.write("file", bytes);
        let verify = || scene.python(&[what, "file", "--keys", "keys.json"]);
        let Some((code, said)) = verify() else { return };
        let beginning = format!("file: verified: entry {seq} of {}", scene.tenancy.id);
        assert!(code == 0 && said.starts_with(&beginning), "{said}");
        let text = std::str::from_utf8(bytes).unwrap();
        let changed = text.replacen(before, after, 1);
        assert_ne!(text, changed);
        scene.write("file", changed.as_bytes());
        let (code, said) = verify().unwrap();
        assert!(code == 1 && said.contains(": NOT VERIFIED: "), "{said}");
    }
}

#[tokio::test]
async fn evidence_of_a_run_has_its_own_bodies_and_nothing_is_left_out_of_the_middle() {
    let scene = Scene::new().await;
    let archive = scene.evidence("?run_id=run-get_file").await;
    let told = scene.check(&archive).unwrap();
    for part in [
        "verified 5 entries",
        "2 whose body is left out",
        "3 answers",
        "about the run `run-get_file`",
    ] {
        assert!(told.contains(part), "{told}");
    }
    for entry in entries(&ledger(&files(&archive))) {
        let seq = entry["header"]["seq"].as_u64().unwrap();
        let is_own = (seq - ENTRIES) % 2 == 1;
        assert_eq!(entry["body"].is_object(), is_own, "{entry}");
    }
    assert!(!String::from_utf8_lossy(&archive).contains("run-create_issue"));
}

#[tokio::test]
async fn evidence_of_a_run_does_not_verify_as_that_of_another_one() {
    let scene = Scene::new().await;
    let of_run = scene.evidence("?run_id=run-get_file").await;
    let rename =
        |text: &str| text.replace("\"run_id\": \"run-get_file\"", "\"run_id\": \"run-create_issue\"");
    let why = scene.check(&packed_again(&of_run, rename)).unwrap_err();
    assert!(why.contains("is of another one, or of none"), "{why}");
    let empty = packed_again(&of_run, |text| {
        without_bodies(&rename(text), "\"kind\":\"decision\"")
    });
    let why = scene.check(&empty).unwrap_err();
    assert!(
        why.contains("the first or the last entry is not of that run"),
        "{why}"
    );
    let last = format!("\"seq\":{},", ENTRIES + 5);
    let cut = packed_again(&of_run, |text| without_bodies(text, &last));
    let why = scene.check(&cut).unwrap_err();
    assert!(
        why.contains("the first or the last entry is not of that run"),
        "{why}"
    );

    let part = format!("?from_seq={}&to_seq={}", ENTRIES + 1, ENTRIES + 6);
    let range = scene.evidence(&part).await;
    let name = |text: &str| text.replace("\"run_id\": null", "\"run_id\": \"run-create_issue\"");
    let why = scene.check(&packed_again(&range, name)).unwrap_err();
    assert!(why.contains("is of another one, or of none"), "{why}");
}

/// The headers do not say which run an entry is of, so nobody sees it; but the line says whose word it is.
#[tokio::test]
async fn what_is_left_out_of_evidence_of_a_run_is_on_the_word_of_whoever_made_it() {
    let scene = Scene::new().await;
    let archive = scene.evidence("?run_id=run-get_file").await;
    let own = format!("\"seq\":{},", ENTRIES + 3);
    let less = packed_again(&archive, |text| without_bodies(text, &own));
    let told = scene.check(&less).unwrap();
    let words = "3 whose body is left out on the word of whoever made the file, 2 answers";
    assert!(told.contains(words), "{told}");
}

/// Nobody knows any more what it was about, but it was not left out.
#[tokio::test]
async fn evidence_of_a_run_says_what_was_erased_and_what_tells_of_that() {
    let scene = Scene::new().await;
    let admin = scene.world.add_key(scene.tenancy.id, Role::Admin).await;
    let what = json!({"seq": ENTRIES + 3});
    let erased = scene.world.post("/v1/ledger/erase", &admin, &what).await;
    assert_eq!(erased.expect(200)["erased"], 1);
    let archive = scene.evidence("?run_id=run-get_file").await;
    let told = scene.check(&archive).unwrap();
    for part in [
        "verified 5 entries",
        "1 without a body",
        "1 of these without a word about it in this file",
        "2 whose body is left out",
        "2 answers",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // The new key, the erasure and this stand behind. Now the evidence reaches as far as the ledger, so the erasure has to tell.
    scene.world.authorize(&scene.tenancy.token, &reading()).await;
    let archive = scene.evidence("?run_id=run-get_file").await;
    let told = scene.check(&archive).unwrap();
    for part in [
        "verified 9 entries",
        "1 without a body",
        "4 whose body is left out",
        "3 answers",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!told.contains("without a word"), "{told}");
}

#[tokio::test]
async fn evidence_of_a_run_has_what_names_only_who_started_it() {
    let scene = Scene::new().await;
    let mut of_parent = reading();
    of_parent["trace"] = json!({"parent_run_id": "root"});
    for _ in 0..2 {
        scene.world.authorize(&scene.tenancy.token, &of_parent).await;
        scene
            .world
            .authorize(&scene.tenancy.other_token, &injected())
            .await;
    }
    let archive = scene.evidence("?run_id=root").await;
    let told = scene.check(&archive).unwrap();
    for part in [
        "verified 3 entries",
        "1 whose body is left out",
        "2 answers",
        "about the run `root`",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

#[tokio::test]
async fn evidence_of_a_run_ends_with_what_people_have_said_about_it() {
    let scene = Scene::new().await;
    let (world, tenancy) = (&scene.world, &scene.tenancy);
    let ann = scene.key_of_ann().await;
    for verb in ["approve", "reject", "expire"] {
        let asked = world.authorize(&tenancy.token, &merging()).await.json();
        let id = asked["approval"]["id"].as_str().unwrap();
        world.clock.advance_millis(1_000);
        world.authorize(&tenancy.other_token, &reading()).await;
        if verb == "expire" {
            world.clock.advance_millis(3_600_000);
            world.authorize(&tenancy.other_token, &reading()).await;
            let gateway = &world.gateway;
            gateway.expire_approvals(gateway.clock.now()).await.unwrap();
        } else {
            let path = format!("/v1/approvals/{id}/{verb}");
            let why = json!({"reason": "a test"});
            world.post(&path, &ann, &why).await.expect(200);
        }
        world.authorize(&tenancy.other_token, &reading()).await;
        let archive = scene.evidence("?run_id=run-merge_pull_request").await;
        scene.check(&archive).unwrap();
        let entries = entries(&ledger(&files(&archive)));
        let last = &entries.last().unwrap()["body"];
        assert_eq!(last["decision_id"], asked["decision_id"], "{verb}");
        assert_eq!(last["by"]["user"] == "ann", verb != "expire", "{verb}");
    }
}

/// By its time the first entry that is no earlier is the one with which the chain got ahead, long before. What was
/// asked stands long before, too.
#[tokio::test]
async fn evidence_of_a_run_has_what_people_have_said_though_the_chain_is_ahead_of_the_clock() {
    const AHEAD_MS: i64 = 2 * 24 * 60 * 60 * 1_000;
    let scene = Scene::new().await;
    let (world, tenancy) = (&scene.world, &scene.tenancy);
    let ann = scene.key_of_ann().await;
    world.clock.advance_millis(AHEAD_MS);
    world.authorize(&tenancy.other_token, &reading()).await;
    world.clock.advance_millis(-AHEAD_MS);
    let rejected = world.authorize(&tenancy.token, &merging()).await.json();
    let expired = world.authorize(&tenancy.token, &merging()).await.json();
    // More than are looked at.
    let others = vec![json!({"seqs": []}); 1_000];
    for _ in 0..11 {
        world.append_all(tenancy.id, "bodies_erased", &others).await;
    }
    // The run goes on meanwhile.
    let mut again = ask("get_file", "semi_trusted_customer");
    again["trace"] = merging()["trace"].clone();
    world.authorize(&tenancy.token, &again).await;
    for (asked, kind) in [(&rejected, "approval_rejected"), (&expired, "approval_expired")] {
        if kind == "approval_expired" {
            world.clock.advance_millis(3_601_000);
            let gateway = &world.gateway;
            gateway.expire_approvals(gateway.clock.now()).await.unwrap();
        } else {
            let path = format!(
                "/v1/approvals/{}/reject",
                asked["approval"]["id"].as_str().unwrap()
            );
            world
                .post(&path, &ann, &json!({"reason": "a test"}))
                .await
                .expect(200);
        }
        let archive = scene.evidence("?run_id=run-merge_pull_request").await;
        scene.check(&archive).unwrap();
        let entries = entries(&ledger(&files(&archive)));
        let last = entries.last().unwrap();
        assert_eq!(last["header"]["kind"], kind);
        assert_eq!(last["body"]["decision_id"], asked["decision_id"], "{kind}");
    }
}

#[tokio::test]
async fn evidence_of_a_time_has_what_was_recorded_then() {
    let scene = Scene::new().await;
    let about = "?from=2026-01-31T09:30:02.000Z&to=2026-01-31T09:30:03.000Z";
    let archive = scene.evidence(about).await;
    scene.check(&archive).unwrap();
    let seqs: Vec<Value> = entries(&ledger(&files(&archive)))
        .iter()
        .map(|entry| entry["header"]["seq"].clone())
        .collect();
    assert_eq!(json!(seqs), json!([ENTRIES + 3, ENTRIES + 4]));
}

#[tokio::test]
async fn what_was_erased_is_told_of_in_every_file_that_reaches_as_far() {
    let scene = Scene::new().await;
    scene.erase().await;
    for file in [scene.evidence("").await, scene.export("").await.into_bytes()] {
        let told = scene.check(&file).unwrap();
        assert!(
            told.contains("3 without a body") && told.contains("3 answers"),
            "{told}"
        );
        assert!(!told.contains("without a word"), "{told}");
    }
    let part = scene.export("?to_seq=13").await;
    let told = scene.check(part.as_bytes()).unwrap();
    assert!(
        told.contains("3 of these without a word about it in this file"),
        "{told}"
    );
}

#[tokio::test]
async fn a_body_that_is_gone_and_not_told_of_does_not_verify() {
    let scene = Scene::new().await;
    let export = scene.export("").await;
    let last_entry = export
        .lines()
        .rfind(|line| line.starts_with("{\"header\":"))
        .unwrap();
    let (header, _) = last_entry.split_once(",\"body\":{").unwrap();
    let taken = export.replace(last_entry, &format!("{header},\"body\":null}}"));
    let why = scene.check(taken.as_bytes()).unwrap_err();
    assert!(why.contains("no entry tells of its erasure"), "{why}");
}

#[tokio::test]
async fn what_was_changed_cut_off_or_left_out_does_not_verify() {
    let scene = Scene::new().await;
    let archive = scene.evidence("").await;
    for (before, after) in [
        ("policy_forbids", "policy_permits"),
        ("\"kind\":\"decision\"", "\"kind\":\"decisiox\""),
        (
            "{\"answer\":{\"decision_id\":\"dec_0",
            "{\"answer\":{\"decision_id\":\"dec_1",
        ),
        ("permit", "forbid"),
        ("ledger/00000001", "ledger/00000003"),
        ("\"to_seq\": 13", "\"to_seq\": 12"),
        ("{\"end\":{\"checkpoint\":\"log", "{\"end\":{\"checkpoint\":\"gol"),
    ] {
        let at = find(&archive, before);
        let mut changed = archive.clone();
        changed[at..at + after.len()].copy_from_slice(after.as_bytes());
        assert!(scene.check(&changed).is_err(), "{before}");
    }
    for length in [
        0,
        100,
        512,
        archive.len() / 2,
        archive.len() - 1_024,
        archive.len() - 512,
        archive.len() - 1,
    ] {
        assert!(scene.check(&archive[..length]).is_err(), "{length}");
    }
    let without_but_with =
        |part: &str, options: &[&str]| scene.check_with(&lacking(&archive, part), options).unwrap_err();
    let without = |part: &str| without_but_with(part, &["--keys", "keys.json"]);
    assert!(without("ledger/00000002.ndjson").contains("there is no checkpoint"));
    scene.write("held.txt", &scene.read("/v1/ledger/checkpoint").await);
    let held = ["--keys", "keys.json", "--held", "held.txt"];
    assert!(without_but_with("ledger/00000002.ndjson", &held).contains("have no end"));
    without("ledger/00000001.ndjson");
    without("manifest.json");
    let policies = without(&named(&archive, "/policy_digest"));
    assert!(policies.contains("the policies `sha256:"), "{policies}");
    let answers = String::from_utf8(archive)
        .unwrap()
        .replace("{\"answer\":", "{\"answex\":");
    assert!(scene.check(answers.as_bytes()).is_err());
}

/// What the policies have seen of agents and people can be taken away where it is stored.
#[tokio::test]
async fn what_decisions_name_and_is_not_there_is_counted() {
    let scene = Scene::new().await;
    let archive = scene.evidence("").await;
    assert!(!scene.check(&archive).unwrap().contains("missing"));
    let less = lacking(&archive, &named(&archive, "/facts/agent"));
    let told = scene.check(&less).unwrap();
    assert!(told.contains(", 1 missing of what decisions name"), "{told}");
}

/// Anybody can put a file into an archive, under its digest.
#[tokio::test]
async fn a_file_that_no_decision_names_is_counted_by_itself_and_one_that_is_there_twice_once() {
    let scene = Scene::new().await;
    let archive = scene.evidence("").await;
    let files = files(&archive);
    let of_decisions: Vec<_> = files.keys().filter(|name| name.starts_with("named/")).collect();
    let expected = format!(", {} files that decisions name", of_decisions.len());
    let told = scene.check(&archive).unwrap();
    assert!(
        told.contains(&expected) && !told.contains("no decision names"),
        "{told}"
    );
    let again = with_file(&archive, of_decisions[0], &files[of_decisions[0]]);
    assert_eq!(scene.check(&again).unwrap(), told);
    let stray = Digest::of(b"permit;").to_string().replace("sha256:", "named/");
    let more = with_file(&archive, &stray, b"permit;");
    let told = scene.check(&more).unwrap();
    let expected = format!("{expected}, 1 files that no decision names");
    assert!(told.contains(&expected), "{told}");
}

/// Behind each other, the files of entries are an export, whoever puts them there.
#[tokio::test]
async fn a_file_of_entries_that_does_not_end_with_a_newline_has_none_behind_it() {
    let scene = Scene::new().await;
    let archive = scene.evidence("").await;
    let unended = |beginning: &str| {
        packed_again(&archive, |text| {
            let is_meant = text.starts_with(beginning);
            let without = is_meant.then(|| text.strip_suffix('\n').unwrap());
            without.unwrap_or(text).to_owned()
        })
    };
    let glued = unended("{\"header\":");
    let why = scene.check(&glued).unwrap_err();
    assert!(why.contains("does not end with a newline"), "{why}");
    assert!(scene.check(ledger(&files(&glued)).as_bytes()).is_err());
    let ended = unended("{\"end\":");
    assert!(ended != archive);
    scene.check(&ended).unwrap();
}

/// Otherwise whoever made it writes the verdict.
#[tokio::test]
async fn what_a_file_says_of_itself_does_not_steer_a_terminal() {
    let scene = Scene::new().await;
    let mut archive = scene.evidence("").await;
    let name = "\u{1b}\r\u{202e}A";
    archive[..name.len()].copy_from_slice(name.as_bytes());
    seal(&mut archive[..512]);
    let why = scene.check(&archive).unwrap_err();
    let expected = r"NOT VERIFIED: `\u{1b}\r\u{202e}A.md`: evidence has no such file";
    assert!(why.contains(expected), "{why:?}");
    let Some((code, said)) = scene.python(&["evidence", "file", "--keys", "keys.json"]) else {
        return;
    };
    let expected = r"\x1b\r\u202eA.md has no place here";
    assert!(code == 1 && said.contains(expected), "{said:?}");
}

/// What the decisions name is more than a part has room for. Whoever takes it slowly gets no more of it than while the key works.
#[tokio::test]
async fn evidence_breaks_off_in_the_middle_of_what_decisions_name_when_its_key_is_deleted() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    for letter in ["a", "b", "c", "d", "e", "f"] {
        world.describe(tenancy.id, &letter.repeat(3 << 20)).await;
        world.authorize(&tenancy.token, &reading()).await;
    }
    let evidence = world.call("GET", "/v1/ledger/evidence", &tenancy.auditor);
    let mut parts = evidence.respond().await.into_body().into_data_stream();
    let mut taken = 0;
    while taken <= 4 << 20 {
        taken += parts.next().await.unwrap().unwrap().len();
    }
    let whoami = world.get("/v1/whoami", &tenancy.auditor).await.expect(200);
    let key = format!("/v1/keys/{}", whoami["key"].as_str().unwrap());
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    world.call("DELETE", &key, &admin).send().await.expect(204);
    assert!(parts.next().await.unwrap().is_err());
    assert!(parts.next().await.is_none());
}

/// Whoever has verified it would look for the mistake on the way.
#[tokio::test]
async fn evidence_breaks_off_where_what_decisions_name_was_changed_in_the_database() {
    let scene = Scene::new().await;
    let mut hand = Hand::on(&scene.world.home, scene.tenancy.id).await;
    hand.disarm().await;
    hand.run("UPDATE contents SET bytes = zeroblob(1)").await;
    let auditor = &scene.tenancy.auditor;
    let evidence = scene.world.call("GET", "/v1/ledger/evidence", auditor);
    let body = evidence.respond().await.into_body();
    assert!(axum::body::to_bytes(body, usize::MAX).await.is_err());
}

/// The file that the last decision in an archive names at this place.
fn named(archive: &[u8], place: &str) -> String {
    let decision = entries(&ledger(&files(archive))).pop().unwrap();
    let digest = decision["body"].pointer(place).unwrap();
    digest.as_str().unwrap().replace("sha256:", "named/")
}

/// An archive with other texts in its files.
fn packed_again(archive: &[u8], change: impl Fn(&str) -> String) -> Vec<u8> {
    let (mut packed, mut rest) = (Vec::<u8>::new(), archive);
    while rest[0] != 0 {
        let (mut header, behind) = (rest[..512].to_vec(), &rest[512..]);
        let length = usize::from_str_radix(std::str::from_utf8(&header[124..135]).unwrap(), 8).unwrap();
        let text = change(std::str::from_utf8(&behind[..length]).unwrap());
        header[124..135].copy_from_slice(format!("{:011o}", text.len()).as_bytes());
        seal(&mut header);
        packed.extend(header);
        packed.extend(text.as_bytes());
        packed.resize(packed.len().next_multiple_of(512), 0);
        rest = &behind[length.next_multiple_of(512)..];
    }
    packed.extend(rest);
    packed
}

/// Lines without the bodies of the entries that have this in them, and without the answers to these.
fn without_bodies(lines: &str, of: &str) -> String {
    let mut is_out = false;
    let mut left = String::new();
    for line in lines.split_inclusive('\n') {
        if line.starts_with("{\"answer\":") {
            left.push_str(if is_out { "" } else { line });
            continue;
        }
        let entry = line.starts_with("{\"header\":") && line.contains(of);
        match line.split_once(",\"body\":{") {
            Some((header, _)) if entry => {
                is_out = true;
                left.push_str(header);
                left.push_str("}\n");
            }
            _ => {
                is_out = false;
                left.push_str(line);
            }
        }
    }
    left
}

/// An archive without one of its files.
fn lacking(archive: &[u8], file: &str) -> Vec<u8> {
    let (start, files) = (find(archive, file), files(archive));
    let mut less = archive.to_vec();
    less.drain(start..start + 512 + files[file].len().next_multiple_of(512));
    less
}

/// An archive with one more file before the others.
fn with_file(archive: &[u8], name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut more = archive[..512].to_vec();
    more[..100].fill(0);
    more[..name.len()].copy_from_slice(name.as_bytes());
    more[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    seal(&mut more);
    more.extend(bytes);
    more.resize(more.len().next_multiple_of(512), 0);
    more.extend(archive);
    more
}

/// Where a text begins.
fn find(archive: &[u8], text: &str) -> usize {
    let mut windows = archive.windows(text.len());
    windows
        .position(|window| window == text.as_bytes())
        .unwrap_or_else(|| panic!("{text} is not there"))
}

#[tokio::test]
async fn what_there_is_no_evidence_of_is_refused() {
    let scene = Scene::new().await;
    let (world, tenancy) = (&scene.world, &scene.tenancy);
    for (about, status, code) in [
        ("from_seq=1&run_id=run-1", 400, "invalid_parameter"),
        ("from_seq=1&to=2026-01-31T09:30:03.000Z", 400, "invalid_parameter"),
        ("run_id=run-nobody", 404, "not_found"),
        ("from_seq=99", 422, "empty_range"),
        ("from_seq=5&to_seq=4", 422, "empty_range"),
        ("from=2027-01-31T09:30:03.000Z", 422, "empty_range"),
    ] {
        let path = format!("/v1/ledger/evidence?{about}");
        world.get(&path, &tenancy.auditor).await.problem(status, code);
    }
    let idle = world
        .get("/v1/ledger/evidence?run_id=run-nobody", &tenancy.auditor)
        .await;
    assert_eq!(
        idle.problem(404, "not_found"),
        "no decision of the run `run-nobody` is in the ledger"
    );
    let agent = world.get("/v1/ledger/evidence", &tenancy.token).await;
    agent.problem(403, "forbidden");
    let other = world.tenancy("other").await;
    world
        .authorize(&other.token, &ask("get_file", "untrusted_external"))
        .await;
    let theirs = world
        .get("/v1/ledger/evidence?run_id=run-get_file", &other.auditor)
        .await;
    assert!(!theirs.text().contains(&tenancy.id.to_string()));
}

#[tokio::test]
async fn an_export_that_was_cut_anywhere_is_noticed_and_can_be_continued() {
    let scene = Scene::new().await;
    let export = scene.export("").await;
    let told = scene.check(export.as_bytes()).unwrap();
    assert!(
        told.contains("verified 13 entries") && told.contains("6 answers"),
        "{told}"
    );
    let lines: Vec<&str> = export.split_inclusive('\n').collect();
    for count in 1..lines.len() {
        let cut = lines[..count].concat();
        assert!(scene.check(cut.as_bytes()).is_err(), "{count}");
        let without_keys = scene.check_with(cut.as_bytes(), &["--unsigned"]).unwrap_err();
        let told = without_keys.contains("the file has no end") && without_keys.contains("export it again");
        assert!(told, "{without_keys}");
        // Whoever continues keeps what is before the last entry that arrived, and asks for the rest.
        let kept = lines[..count]
            .iter()
            .rposition(|line| line.starts_with("{\"header\":"))
            .unwrap();
        let next = entries(&lines[..=kept].concat()).len();
        let rest = scene.export(&format!("?from_seq={next}")).await;
        let whole = lines[..kept].concat() + &rest;
        let told = scene.check(whole.as_bytes()).unwrap();
        assert!(
            told.contains("verified 13 entries") && told.contains("6 answers"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn answers_that_were_taken_out_of_an_export_are_told() {
    let scene = Scene::new().await;
    let export = scene.export("").await;
    let mut lines: Vec<&str> = export.split_inclusive('\n').collect();
    let answer = lines.iter().position(|line| line.starts_with("{\"answer\":"));
    lines.remove(answer.unwrap());
    let told = scene.check(lines.concat().as_bytes()).unwrap();
    let words = "5 answers, 1 decisions whose answer is not in this file, signed by the log";
    assert!(told.contains(words), "{told}");
}

#[tokio::test]
async fn a_part_of_a_ledger_is_that_of_the_ledger_that_was_signed() {
    let scene = Scene::new().await;
    let part = scene.export("?from_seq=5&to_seq=9").await;
    let told = scene.check(part.as_bytes()).unwrap();
    assert!(
        told.contains("seq 5 to 9") && told.contains("signed by the log"),
        "{told}"
    );
    let (start, rest) = part.split_once('\n').unwrap();
    assert!(start.starts_with("{\"start\":{\"seq\":4,"), "{start}");
    let why = scene.check(rest.as_bytes()).unwrap_err();
    assert!(why.contains("cannot be compared"), "{why}");
}

#[tokio::test]
async fn a_checkpoint_kept_elsewhere_and_the_keys_decide() {
    let scene = Scene::new().await;
    let early = scene.read("/v1/ledger/checkpoint").await;
    scene.write("held.txt", &early);
    scene.world.authorize(&scene.tenancy.token, &reading()).await;
    let late = scene.read("/v1/ledger/checkpoint").await;
    scene.write("late.txt", &late);
    let export = scene.export("").await;
    let vkey: Value =
        serde_json::from_slice(&std::fs::read(scene.folder.path().join("keys.json")).unwrap()).unwrap();
    let vkey = vkey["keys"][0]["vkey"].as_str().unwrap();
    for options in [
        &["--keys", "keys.json", "--held", "held.txt", "--held", "late.txt"][..],
        &["--key", vkey, "--held", "held.txt"],
        &["--key", vkey],
    ] {
        let told = scene.check_with(export.as_bytes(), options).unwrap();
        assert!(told.contains("signed by the log"), "{told}");
    }
    let told = scene.check_with(export.as_bytes(), &["--unsigned"]).unwrap();
    assert!(told.contains("NOT compared with any key"), "{told}");
    let told = scene.check_with(export.as_bytes(), &[]).unwrap_err();
    assert!(told.contains("nothing says whose it is"), "{told}");

    // Without its end, a file is signed as far as a checkpoint goes that is kept, and anybody could have written what comes then.
    let (entries, _) = export.split_once("{\"end\":").unwrap();
    let told = scene.check_with(entries.as_bytes(), &["--keys", "keys.json", "--held", "late.txt"]);
    assert!(told.unwrap().contains("signed by the log"));
    let more = scene.check_with(entries.as_bytes(), &["--keys", "keys.json", "--held", "held.txt"]);
    assert!(more.unwrap_err().contains("they are not signed"));

    let earlier = scene.export("?to_seq=12").await;
    let cut = scene.check_with(earlier.as_bytes(), &["--keys", "keys.json", "--held", "late.txt"]);
    assert!(cut.unwrap_err().contains("its tail is missing"));
    let stranger = "log.example+19ea0c1a+AfmZYwdSWGvgEzO58dpKVdCFjmy7Jo9uCFCzBPTwTKEi";
    let foreign = scene.check_with(export.as_bytes(), &["--key", stranger]);
    assert!(foreign.unwrap_err().contains("NOT VERIFIED"));
    let mut verifying = Command::new(env!("CARGO_BIN_EXE_countersign"));
    let without_keys = program::without_settings(&mut verifying)
        .current_dir(scene.folder.path())
        .args(["verify", "file", "--held", "late.txt"])
        .output()
        .unwrap();
    assert_eq!(without_keys.status.code(), Some(2));
    let said = String::from_utf8(without_keys.stderr).unwrap();
    assert!(said.contains("it takes `--key` or `--keys`"), "{said}");
    for option in ["--keys", "--held"] {
        let mut verifying = Command::new(env!("CARGO_BIN_EXE_countersign"));
        let missing = program::without_settings(&mut verifying)
            .current_dir(scene.folder.path())
            .args(["verify", "file", "--key", stranger, option, "nowhere"])
            .output()
            .unwrap();
        assert_eq!(missing.status.code(), Some(2));
        let said = String::from_utf8(missing.stderr).unwrap();
        assert!(said.contains("`nowhere`: "), "{said}");
    }
}

/// With the files in another order, and filled up as other programs do.
#[tokio::test]
async fn evidence_is_verified_that_another_program_has_packed_again() {
    let scene = Scene::new().await;
    let evidence = scene.evidence("").await;
    let folder = scene.folder.path().join("unpacked");
    std::fs::create_dir(&folder).unwrap();
    let mut names: Vec<_> = files(&evidence).into_keys().collect();
    for (name, bytes) in files(&evidence) {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
    names.sort_by_key(|name| name == "README.md");
    let pack = |format: &str, names: &[String]| {
        let packed = Command::new("tar")
            .current_dir(&folder)
            .args([format, "-cf", "-"])
            .args(names)
            .output()
            .unwrap();
        assert!(packed.status.success(), "{packed:?}");
        packed.stdout
    };
    let packed = pack("--format=ustar", &names);
    assert_eq!(packed.len() % 10_240, 0);
    scene.check(&packed).unwrap();
    let cut = scene.check(&packed[..packed.len() - 1]);
    assert!(cut.unwrap_err().contains("cut off or damaged"));
    let other = scene.check(&pack("--format=gnu", &names)).unwrap_err();
    assert!(other.contains("pack it with `--format=ustar`"), "{other}");
    let whole = pack("--format=ustar", &[".".to_owned()]);
    let whole = scene.check(&whole).unwrap_err();
    assert!(
        whole.contains("there is a folder or a link in the archive"),
        "{whole}"
    );
}

#[tokio::test]
async fn a_file_that_other_programs_would_take_for_another_one_does_not_verify() {
    let scene = Scene::new().await;
    let archive = scene.evidence("").await;
    scene.check(&archive).unwrap();
    // The first file is `README.md`; to `tar` it is `x/README.md` now, or has another length.
    for (place, byte, words) in [
        (345, b'x', "a name in the archive has a prefix"),
        (135, b'0', "cut off or damaged"),
        (124, b'+', "cut off or damaged"),
    ] {
        let mut changed = archive.clone();
        changed[place] = byte;
        seal(&mut changed[..512]);
        let why = scene.check(&changed).unwrap_err();
        assert!(why.contains(words), "{place}: {why}");
    }
}

/// Where it is unpacked, only the later one of two files would be left.
#[tokio::test]
async fn a_file_that_lies_over_another_one_when_it_is_unpacked_does_not_verify() {
    let scene = Scene::new().await;
    let archive = scene.evidence("").await;
    let mut renamed = archive.clone();
    let at = find(&renamed, "ledger/00000001.ndjson");
    let name = "ledger/./00000001.ndjson";
    renamed[at..at + name.len()].copy_from_slice(name.as_bytes());
    seal(&mut renamed[at..at + 512]);
    let why = scene.check(&renamed).unwrap_err();
    assert!(why.contains("evidence has no such file"), "{why}");
    let files = files(&archive);
    let mut start = 0;
    for name in ["README.md", "manifest.json", "keys.json"] {
        let end = start + 512 + files[name].len().next_multiple_of(512);
        let twice = [&archive[..end], &archive[start..]].concat();
        let why = scene.check(&twice).unwrap_err();
        assert!(why.contains(&format!("`{name}`: it is there twice")), "{why}");
        start = end;
    }
}

/// Makes the sum of a header right, which is taken with spaces in its own place.
fn seal(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
