//! The base policies of the real program, read again while it serves: over HTTP and at SIGHUP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/process.rs"]
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod process;

use process::{Answer, Client, OPERATOR, Place, Server};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The tenant in whose chain it is told.
const SYSTEM: &str = "tnt_00000000000000000000000000";
/// Whatever is asked, and whoever asks.
const DENY: &str = r#"@id("closed") @reason("Closed") forbid (principal, action, resource);"#;
/// Only what changes nothing.
const READ: &str = r#"@id("read") permit (principal, action in Action::"read", resource);"#;
/// What a signal leads to is there soon; a machine that does much else may take longer.
const SOON: Duration = Duration::from_mins(1);

/// The answer of a gateway to a read.
fn asked(client: &Client, token: &str, request_id: Option<&str>) -> Answer {
    let mut ask = json!({
        "tool_call": {"tool": "github", "action": "get_file", "parameters": {"path": "README"}},
        "context": {"source_trust": "untrusted_external"},
    });
    if let Some(request_id) = request_id {
        ask["request_id"] = json!(request_id);
    }
    let answer = client.post("/v1/authorize", token, &ask).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

/// A server with a file of base policies, and the demo on it.
struct Desk {
    server: Server,
    client: Client,
    tenant: String,
    token: String,
    file: PathBuf,
    place: Place,
}

impl Desk {
    /// With these policies in the file.
    fn open(cedar: &str) -> Self {
        Self::at(Place::new(), cedar)
    }

    fn at(place: Place, cedar: &str) -> Self {
        let file = place.path().join("base.cedar");
        std::fs::write(&file, cedar).unwrap();
        let server = place.serve(&["--demo", "--policies", "base.cedar"]);
        Self {
            client: server.client(),
            server,
            tenant: place.printed("demo tenant: "),
            token: place.printed("demo agent token (shown once): "),
            file,
            place,
        }
    }

    fn write(&self, cedar: impl AsRef<[u8]>) {
        std::fs::write(&self.file, cedar).unwrap();
    }

    fn reload(&self) -> Answer {
        self.client
            .post("/v1/policies/reload", OPERATOR, &json!({}))
            .unwrap()
    }

    fn hang_up(&self) {
        let kill = Command::new("kill").args(["-HUP", &self.server.pid()]).status();
        assert!(kill.unwrap().success());
    }

    /// The answer to a read, under a request id.
    fn ask(&self, request_id: &str) -> Answer {
        asked(&self.client, &self.token, Some(request_id))
    }

    /// The decision on a new ask, and the digest of the policies it was made by.
    fn decision(&self, request_id: &str) -> (String, String) {
        let answer = self.ask(request_id).json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&answer["decision"]), text(&answer["policy"]["digest"]))
    }

    /// What the system tenant's chain tells of base policies.
    fn told(&self) -> Vec<Value> {
        let page = self
            .client
            .read(SYSTEM, "/v1/audit/events?kind=base_policies_put")
            .json();
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["body"].clone()).collect()
    }

    fn verify(&self) {
        for tenant in [SYSTEM, &self.tenant] {
            let report = self
                .client
                .operate(tenant, "/v1/ledger/verify", &json!({}))
                .json();
            assert_eq!(report["verified"], true, "{report}");
        }
    }

    /// Fails unless it is refused like this, and what is in force stays.
    #[track_caller]
    fn assert_refused(&self, cedar: &[u8], code: &str, words: &str) -> Value {
        let (before, told) = (self.decision(&format!("before {words}")), self.told().len());
        self.write(cedar);
        let answer = self.reload();
        let problem = answer.json();
        assert_eq!(
            (answer.status, problem["code"].as_str()),
            (422, Some(code)),
            "{problem}"
        );
        assert!(problem.to_string().contains(words), "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains("in force stay"),
            "{problem}"
        );
        assert_eq!(self.decision(&format!("after {words}")), before);
        assert_eq!(self.told().len(), told, "nothing happened, so nothing is told");
        problem
    }
}

#[test]
fn a_reload_puts_the_file_in_force_for_everybody_and_is_told_with_both_digests() {
    let desk = Desk::open(READ);
    let (decision, before) = desk.decision("1");
    assert_eq!(decision, "allow");
    let first = desk.ask("1");
    desk.write(DENY);
    let answer = desk.reload();
    assert_eq!(answer.status, 200, "{answer:?}");
    let (decision, after) = desk.decision("2");
    assert_eq!(decision, "deny");
    let digests = json!({"before": before, "after": after});
    assert_eq!(answer.json(), json!({"changed": true, "policy_digests": digests}));
    assert_eq!(
        desk.ask("1").bytes,
        first.bytes,
        "what was answered stays answered"
    );

    let told = desk.told();
    assert_eq!(told.len(), 2, "{told:?}");
    let started = json!({
        "by": {"start": true}, "cedar": READ, "policy_digests": {"before": null, "after": before},
    });
    assert_eq!(told[0], started);
    assert_eq!(told[1]["policy_digests"], digests);
    assert_eq!(
        (&told[1]["cedar"], &told[1]["by"]["role"]),
        (&json!(DENY), &json!("operator"))
    );

    // The same file again changes nothing, and neither does a start with it.
    let same = json!({"changed": false, "policy_digests": {"before": after, "after": after}});
    assert_eq!(desk.reload().json(), same);
    desk.verify();
    let Desk { server, place, .. } = desk;
    server.kill();
    let desk = Desk::at(place, DENY);
    assert_eq!(desk.told().len(), 2);
    assert_eq!(desk.decision("3"), ("deny".to_owned(), after));
}

#[test]
fn a_start_with_other_base_policies_is_told() {
    let Desk { server, place, .. } = Desk::open(READ);
    server.kill();
    let desk = Desk::at(place, DENY);
    let told = desk.told();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[1]["by"], json!({"start": true}));
    assert_eq!(
        told[1]["policy_digests"]["before"],
        told[0]["policy_digests"]["after"]
    );
}

/// It is right for agents, so it is in force.
#[test]
fn a_policy_that_is_wrong_for_users_is_told_of_at_a_reload_and_at_a_start() {
    let desk = Desk::open(READ);
    let wrong = format!(
        "{READ} @id(\"high\") forbid (principal, action, resource)
        when {{ principal is User && principal.risk_tier == \"high\" }};"
    );
    let said = format!("the policy base/high of {} is wrong for users", desk.tenant);
    assert!(!desk.place.stderr().contains(&said));
    desk.write(&wrong);
    assert_eq!(desk.reload().status, 200);
    assert!(desk.place.stderr().contains(&said), "{}", desk.place.stderr());

    let Desk { server, place, .. } = desk;
    server.kill();
    let desk = Desk::at(place, &wrong);
    assert!(desk.place.stderr().contains(&said), "{}", desk.place.stderr());
}

/// It is in force for every tenant, and asks for what is so for none.
#[test]
fn base_policies_that_can_never_be_about_anybody_are_told_of_at_a_reload_and_at_a_start() {
    let desk = Desk::open(READ);
    let vain = format!(
        "{READ}
@id(\"ada\") forbid (principal, action, resource)
when {{ context has user && context.user == User::\"ada\" && User::\"ada\" in Team::\"oncall\" }};
@id(\"large\") forbid (principal, action, resource)
when {{ context.input has ammount && context.input.ammount > 1000 }};
@id(\"coder\") forbid (principal == Agent::\"coder\", action, resource);"
    );
    let said = [
        "the operator's policy base/ada:3:",
        "the operator's policy base/large:5:",
        "the operator's policy base/coder:6:",
    ];
    let stderr = desk.place.stderr();
    assert!(!stderr.contains("the operator's policy"), "{stderr}");
    desk.write(&vain);
    assert_eq!(desk.reload().status, 200);
    let stderr = desk.place.stderr();
    assert!(said.iter().all(|said| stderr.contains(said)), "{stderr}");

    let Desk { server, place, .. } = desk;
    server.kill();
    let desk = Desk::at(place, &vain);
    let stderr = desk.place.stderr();
    assert!(said.iter().all(|said| stderr.contains(said)), "{stderr}");
}

#[test]
fn a_file_that_cannot_be_used_leaves_what_is_in_force() {
    let desk = Desk::open(READ);
    let file_fault = |bytes: &[u8], words: &str| desk.assert_refused(bytes, "policies_file_unusable", words);
    file_fault(b"", "holds no policies");
    file_fault(b"\n// nothing yet\n", "holds no policies");
    file_fault(&[0xc3, 0x28], "is not UTF-8");
    file_fault(&vec![b' '; 256 * 1024 + 1], "more than 262144 bytes");

    let invalid = desk.assert_refused(
        b"@id(\"a\")\npermit (principal, action);",
        "policy_invalid",
        "base",
    );
    assert_eq!(invalid["diagnostics"][0]["line"], 2, "{invalid}");
    let all = b"@id(\"all\") permit (principal, action, resource);";
    desk.assert_refused(
        all,
        "policy_invalid",
        "to a change that a suspected attacker asks for",
    );

    std::fs::remove_file(&desk.file).unwrap();
    let gone = desk.reload();
    assert_eq!(gone.json()["code"], "policies_file_unusable", "{gone:?}");
    std::fs::create_dir(&desk.file).unwrap();
    let folder = desk.reload();
    assert!(
        folder.json()["detail"]
            .as_str()
            .unwrap()
            .contains("is not a regular file"),
        "{folder:?}"
    );
    assert_eq!(desk.decision("last").0, "allow");
}

#[test]
fn policies_that_do_not_fit_a_tenant_name_it_and_are_in_force_nowhere() {
    let desk = Desk::open(READ);
    let made = |name: &str, kind: &str| {
        let body = json!({"name": name, "settings": {"context_attributes": {"ticket": kind}}});
        let made = desk.client.post("/v1/tenants", OPERATOR, &body).unwrap();
        let tenant = made.json()["id"].as_str().unwrap().to_owned();
        // What nothing can be asked of fits every policy.
        let tools = json!({"tools": [{"name": "send", "inputSchema": {"type": "object"}}]});
        let imported = desk.client.operate(&tenant, "/v1/tools/mail/import", &tools);
        assert_eq!(imported.status, 201, "{imported:?}");
        tenant
    };
    let (fits, does_not) = (made("text", "String"), made("number", "Long"));
    let blocked = r#"@id("blocked") forbid (principal, action, resource)
        when { context.attributes has ticket && context.attributes.ticket like "blocked*" };"#;
    let cedar = format!("{READ}\n{blocked}");
    let problem = desk.assert_refused(cedar.as_bytes(), "policy_invalid", "base/blocked");
    let findings = problem["diagnostics"].as_array().unwrap();
    assert!(
        findings.iter().all(|one| one["tenant"] == does_not.as_str()),
        "{problem}"
    );
    assert!(!problem.to_string().contains(&fits), "{problem}");

    // Nobody can mend a tenant that was deleted, so it stands in the way of neither a reload nor a start.
    let delete = ureq::delete(desk.server.url(&format!("/v1/tenants/{does_not}")))
        .header("authorization", format!("Bearer {OPERATOR}"));
    assert_eq!(delete.call().unwrap().status(), 204);
    let reloaded = desk.reload();
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    desk.server.kill();
    desk.place.serve(&["--policies", "base.cedar"]);
}

#[test]
fn only_an_operator_reloads_and_only_a_file() {
    let desk = Desk::open(READ);
    desk.write(DENY);
    let body = json!({"name": "editor", "role": "policy_editor"});
    let key = desk.client.operate(&desk.tenant, "/v1/keys", &body).json();
    for credential in [key["key"].as_str().unwrap(), &desk.token] {
        let refused = desk
            .client
            .post("/v1/policies/reload", credential, &json!({}))
            .unwrap();
        assert_eq!(
            (refused.status, refused.json()["code"].as_str()),
            (403, Some("forbidden"))
        );
    }
    let body = json!({"file": "other.cedar"});
    let refused = desk.client.post("/v1/policies/reload", OPERATOR, &body).unwrap();
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (400, Some("unknown_field"))
    );
    assert_eq!(desk.decision("1").0, "allow");

    let place = Place::new();
    let server = place.serve(&[]);
    let refused = server
        .client()
        .post("/v1/policies/reload", OPERATOR, &json!({}))
        .unwrap();
    assert_eq!(
        (refused.status, refused.json()["code"].as_str()),
        (409, Some("conflict"))
    );
    assert!(
        refused.json()["detail"]
            .as_str()
            .unwrap()
            .contains("--policies FILE")
    );
}

#[test]
fn a_hangup_reloads_and_a_broken_file_ends_nothing() {
    let desk = Desk::open(READ);
    let until_logged = |words: &str| {
        let deadline = Instant::now() + SOON;
        while !desk.place.stderr().contains(words) {
            assert!(Instant::now() < deadline, "no `{words}`: {}", desk.place.stderr());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    desk.write("permit (");
    desk.hang_up();
    until_logged(
        "the base policies were not reloaded: the base policies in the file are not valid, so those in force stay: policy `base`, line 1, column ",
    );
    assert_eq!(desk.decision("1").0, "allow");
    desk.write(DENY);
    desk.hang_up();
    until_logged("the base policies were reloaded");
    assert_eq!(desk.decision("2").0, "deny");
    assert_eq!(desk.told()[1]["by"], json!({"signal": "SIGHUP"}));
    desk.hang_up();
    until_logged("the base policies were read again and are the same");
    desk.server.terminate();
    assert_eq!(desk.server.wait().code(), Some(0));
}

#[test]
fn reloads_beside_changes_and_asks_lose_nothing_and_mix_nothing() {
    let desk = Desk::open(READ);
    let digests: Vec<_> = [DENY, READ]
        .map(|cedar| {
            desk.write(cedar);
            desk.reload().json()["policy_digests"]["after"].clone()
        })
        .into();
    let done = AtomicBool::new(false);
    let mut decided = Vec::new();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut decided = Vec::new();
            for n in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                decided.push(desk.decision(&format!("beside-{n}")));
            }
            decided
        });
        let changing = scope.spawn(|| {
            let client = desk.server.client();
            for n in 0..60 {
                let body = json!({"name": format!("agent-{n}")});
                let made = client.operate(&desk.tenant, "/v1/agents", &body);
                assert_eq!(made.status, 201, "{made:?}");
                let body = json!({"name": format!("tenant-{n}")});
                let made = client.post("/v1/tenants", OPERATOR, &body).unwrap();
                assert_eq!(made.status, 201, "{made:?}");
            }
        });
        let mut reloads = 0;
        while !changing.is_finished() || reloads < 10 {
            desk.write([DENY, READ][reloads % 2]);
            let reloaded = desk.reload();
            assert_eq!(reloaded.status, 200, "{reloaded:?}");
            reloads += 1;
        }
        done.store(true, Ordering::Relaxed);
        changing.join().unwrap();
        decided = asking.join().unwrap();
    });
    let expected = [("deny", &digests[0]), ("allow", &digests[1])];
    for (decision, digest) in &decided {
        let known = expected
            .iter()
            .any(|(verdict, known)| verdict == decision && *known == digest);
        assert!(known, "{decision} by {digest}, which is neither of {expected:?}");
    }
    desk.write(READ);
    desk.reload();
    assert_eq!(
        desk.decision("last"),
        ("allow".to_owned(), digests[1].as_str().unwrap().to_owned())
    );
    let agents = desk.client.read(&desk.tenant, "/v1/agents?limit=500").json();
    assert_eq!(agents["items"].as_array().unwrap().len(), 61);
    desk.verify();
    assert!(decided.len() > 10, "{}", decided.len());
}

/// What has to hold at once waits for no reload, and no reload waits for it.
#[test]
fn tenants_that_change_what_no_policy_is_compiled_from_without_rest_keep_no_reload_out() {
    let desk = Desk::open(READ);
    let made = |n: usize| {
        let body = json!({"name": format!("tenant-{n}")});
        let made = desk.client.post("/v1/tenants", OPERATOR, &body).unwrap();
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let tenants: Vec<_> = (0..8).map(made).collect();
    let done = AtomicBool::new(false);
    let mut reloaded = Vec::new();
    std::thread::scope(|scope| {
        for tenant in &tenants {
            let (desk, done) = (&desk, &done);
            scope.spawn(move || {
                let client = desk.server.client();
                while !done.load(Ordering::Relaxed) {
                    for verb in ["freeze", "unfreeze"] {
                        let path = format!("/v1/runs/run-1/{verb}");
                        let changed = client.operate(tenant, &path, &json!({"reason": "a test"}));
                        assert_eq!(changed.status, 200, "{changed:?}");
                    }
                }
            });
        }
        for cedar in [DENY, READ, DENY] {
            desk.write(cedar);
            let answer = desk.client.post("/v1/policies/reload", OPERATOR, &json!({}));
            reloaded.push(answer.map(|answer| answer.status).ok());
        }
        // Whoever waits for them to end would wait for ever, were this not reached.
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(reloaded, [Some(200); 3]);
    assert_eq!(desk.decision("last").0, "deny");
    desk.verify();
}

#[test]
fn a_reload_is_in_force_on_the_other_gateways_soon() {
    let desk = Desk::at(Place::on_postgres(), READ);
    let beside = desk.place.beside();
    std::fs::write(beside.path().join("base.cedar"), READ).unwrap();
    let second = beside.serve(&["--policies", "base.cedar"]);
    let client = second.client();
    let until_denied = |client: &Client, stderr: &dyn Fn() -> String| {
        let deadline = Instant::now() + SOON;
        while asked(client, &desk.token, None).json()["decision"] != "deny" {
            assert!(Instant::now() < deadline, "{}", stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    assert_eq!(asked(&client, &desk.token, None).json()["decision"], "allow");
    desk.write(DENY);
    let reloaded = desk.reload();
    assert_eq!(reloaded.status, 200, "{reloaded:?} {}", desk.place.stderr());
    until_denied(&client, &|| beside.stderr());
    assert!(!differs(&client) && !differs(&desk.client));
    let told: Vec<_> = desk.told().into_iter().map(|body| body["by"].clone()).collect();
    assert_eq!(told[2], json!({"gateway": "another"}), "{told:?}");
    assert_eq!(told.len(), 3, "{told:?}");
    desk.verify();
}

#[test]
fn what_a_gateway_starts_with_is_its_own_and_the_others_say_that_they_differ() {
    let desk = Desk::at(Place::on_postgres(), READ);
    let beside = desk.place.beside();
    std::fs::write(beside.path().join("base.cedar"), DENY).unwrap();
    let second = beside.serve(&["--policies", "base.cedar"]);
    let deadline = Instant::now() + SOON;
    while !differs(&desk.client) {
        assert!(Instant::now() < deadline, "{}", desk.place.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        desk.place
            .stderr()
            .contains("another gateway was started with other base policies")
    );
    assert!(!differs(&second.client()));
    assert_eq!(desk.decision("1").0, "allow");
    let theirs = || asked(&second.client(), &desk.token, None).json();
    assert_eq!(theirs()["decision"], "deny");

    // A reload makes them the same again, though the file says what is in force where it is read.
    let reloaded = desk.reload();
    assert_eq!(
        (reloaded.status, &reloaded.json()["changed"]),
        (200, &json!(false))
    );
    let deadline = Instant::now() + SOON;
    while theirs()["decision"] != "allow" {
        assert!(Instant::now() < deadline, "{}", beside.stderr());
        std::thread::sleep(Duration::from_millis(20));
    }
    let told = desk.told().len();
    desk.reload();
    assert_eq!(desk.told().len(), told, "it is everybody's already");
}

/// Whether the gateway says that it serves with other base policies than were put in force last.
fn differs(client: &Client) -> bool {
    let metrics = String::from_utf8(client.get("/metrics", OPERATOR).bytes).unwrap();
    metrics.contains("\ncountersign_base_policies_differ 1\n")
}
