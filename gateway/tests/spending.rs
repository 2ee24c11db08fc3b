//! The real program killed while callers reserve, commit, release and report: what they were told holds afterwards, and every
//! balance is what the ledger comes to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "support/process.rs"]
mod process;

use process::{PROGRAM, Place, Server};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How many spend at once.
const CALLERS: usize = 12;

/// Somebody who spends, and what it was told.
struct Spender<'s> {
    server: &'s Server,
    token: &'s str,
    run: String,
    /// The answers that say what has become of a reservation for good.
    settled: Vec<Value>,
    /// How many of them all spenders of a round have.
    count: &'s AtomicUsize,
}

/// Why nothing was spent.
enum Unspent {
    /// The ledger is not available now: something stands still.
    Later,
    /// Nothing answers any more.
    Gone,
}

impl Spender<'_> {
    /// Spends in every way that there is until nothing answers any more.
    fn spend(mut self) -> Vec<Value> {
        let client = self.server.client();
        let post = |path: &str, body: &Value| match client.post(path, self.token, body) {
            Ok(answer) if answer.status == 503 => {
                assert_eq!(answer.json()["code"], "ledger_unavailable", "{answer:?}");
                Err(Unspent::Later)
            }
            Ok(answer) => Ok(answer.json()),
            Err(_) => Err(Unspent::Gone),
        };
        for n in 0.. {
            let before = self.settled.len();
            let spent = match n % 3 {
                0 => reserved(&post, &self.run, &mut self.settled),
                1 => asked(&post, &self.run, &mut self.settled),
                _ => post(
                    "/v1/usage",
                    &json!({"unit": "TOKENS", "amount": 1, "run_id": self.run}),
                )
                .map(drop),
            };
            match spent {
                Ok(()) => {}
                Err(Unspent::Later) => std::thread::sleep(Duration::from_millis(20)),
                Err(Unspent::Gone) => break,
            }
            self.count
                .fetch_add(self.settled.len() - before, Ordering::Relaxed);
        }
        self.settled
    }
}

/// Holds something, holds it longer, and settles it in one of three ways.
fn reserved(
    post: &impl Fn(&str, &Value) -> Result<Value, Unspent>,
    run: &str,
    settled: &mut Vec<Value>,
) -> Result<(), Unspent> {
    let held = post(
        "/v1/reservations",
        &json!({"unit": "TOKENS", "amount": 5, "run_id": run}),
    )?;
    // The budget of the run does not last for long.
    let Some(id) = held["id"].as_str() else {
        assert_eq!(held["code"], "budget_exceeded", "{held}");
        return Ok(());
    };
    post(
        &format!("/v1/reservations/{id}/extend"),
        &json!({"ttl_ms": 90_000}),
    )?;
    let (verb, body) = match settled.len() % 3 {
        0 => ("commit", json!({"actual": {"unit": "TOKENS", "amount": 3}})),
        1 => ("commit", json!({"actual": {"unit": "TOKENS", "amount": 9}})),
        _ => ("release", json!({})),
    };
    settled.push(post(&format!("/v1/reservations/{id}/{verb}"), &body)?);
    Ok(())
}

/// Asks with an estimate, and reports what it came to.
fn asked(
    post: &impl Fn(&str, &Value) -> Result<Value, Unspent>,
    run: &str,
    settled: &mut Vec<Value>,
) -> Result<(), Unspent> {
    let answer = post(
        "/v1/authorize",
        &json!({
            "tool_call": {"tool": "github", "action": "get_file", "parameters": {"path": "README.md"}},
            "context": {"source_trust": "trusted_internal_unsigned"},
            "trace": {"run_id": run}, "estimate": {"unit": "TOKENS", "amount": 4},
        }),
    )?;
    if answer["decision"] != "allow" {
        assert_eq!(answer["reason_code"], "budget_exceeded", "{answer}");
        return Ok(());
    }
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    let outcome = json!({
        "status": "succeeded", "executed_hash": answer["action_hash"], "actual": {"unit": "TOKENS", "amount": 2},
    });
    let told = post(&path, &outcome)?;
    settled.push(told["reservation"].clone());
    Ok(())
}

/// `countersign budgets verify`: whether every stored balance is what the ledger comes to.
fn assert_books_balance(place: &Place, budgets: usize) {
    let mut command = Command::new(PROGRAM);
    command.args(["budgets", "verify"]);
    place.prepare(&mut command);
    let status = command.status().unwrap();
    assert!(status.success(), "{}{}", place.stdout(), place.stderr());
    let told = format!("{budgets} budgets are what their ledgers come to\n");
    assert_eq!(place.stdout(), told);
}

#[test]
fn after_kill_9_the_balances_counted_again_from_the_ledger_are_those_that_are_stored() {
    let place = Place::new();
    let mut server = place.serve(&["--demo"]);
    let tenant = place.printed("demo tenant: ");
    let token = place.printed("demo agent token (shown once): ");
    let overdraft =
        json!({"scope": {"tool": "github"}, "unit": "TOKENS", "allocated": 40, "overdraft_limit": 40});
    for body in [
        json!({"scope": {}, "unit": "TOKENS", "allocated": 1_000_000}),
        json!({"scope": {"run": "r-0"}, "unit": "TOKENS", "allocated": 60}),
        overdraft,
    ] {
        let made = server.client().operate(&tenant, "/v1/budgets", &body);
        assert_eq!(made.status, 201, "{made:?}");
    }
    let mut settled: Vec<Value> = Vec::new();
    for round in 0..3 {
        let count = AtomicUsize::new(0);
        let told: Vec<Value> = std::thread::scope(|scope| {
            let spender = |number: usize| Spender {
                server: &server,
                token: &token,
                run: format!("r-{}", number % 4),
                settled: Vec::new(),
                count: &count,
            };
            let callers: Vec<_> = (0..CALLERS)
                .map(|number| scope.spawn(move || spender(number).spend()))
                .collect();
            let patience = Instant::now() + Duration::from_mins(1);
            while count.load(Ordering::Relaxed) < 3 * CALLERS && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(20));
            }
            let kill = Command::new("kill").args(["-9", &server.pid()]).status();
            assert!(kill.unwrap().success());
            callers
                .into_iter()
                .flat_map(|caller| caller.join().unwrap())
                .collect()
        });
        assert!(
            told.len() > CALLERS,
            "round {round}: only {} were settled",
            told.len()
        );
        settled.extend(told);
        drop(server);
        assert_books_balance(&place, 3);
        server = place.serve(&[]);
        let client = server.client();
        for told in &settled {
            let id = told["id"].as_str().unwrap();
            let stored = client.get(&format!("/v1/reservations/{id}"), &token).json();
            for member in ["status", "amount", "actual", "charged", "uncovered"] {
                assert_eq!(stored[member], told[member], "{member} of {id}");
            }
        }
        let report = client.operate(&tenant, "/v1/ledger/verify", &json!({})).json();
        assert_eq!(report["verified"], true, "{report}");
    }
    let page = server.client().read(&tenant, "/v1/balances").json();
    for balance in page["items"].as_array().unwrap() {
        let of = |member: &str| balance[member].as_i64().unwrap();
        let sum = of("remaining") + of("reserved") + of("spent") + of("debt");
        assert_eq!(sum, of("allocated"), "{balance}");
    }
}
