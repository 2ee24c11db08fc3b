//! A tenant with an agent and a paid tool, spoken to through the gateway's router as a caller does.

use super::{CALL_MICROCENTS, Guard};
use crate::app::App;
use anyhow::{Context, anyhow, bail, ensure};
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt;

/// No answer of a gateway is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A tenant of its own for each guard.
pub(super) struct Scene<'a> {
    app: &'a App,
    operator: &'a str,
    tenant: String,
    token: String,
}

/// What an agent is told.
pub(super) enum Answer {
    /// It may.
    Allowed {
        /// The decision.
        decision: String,
        /// What was allowed.
        action: String,
    },
    /// It may not, or has to wait for somebody: the reason code.
    Stopped(String),
}

/// What is left of a budget.
#[derive(Debug, Deserialize)]
pub(super) struct Balance {
    pub(super) allocated: i64,
    pub(super) remaining: i64,
    pub(super) spent: i64,
}

/// What is read of the answer to an ask, or of the refusal.
#[derive(Deserialize)]
struct Told {
    decision: Option<String>,
    decision_id: Option<String>,
    action_hash: Option<String>,
    reason_code: Option<String>,
    code: Option<String>,
}

impl<'a> Scene<'a> {
    /// Makes the tenant, and puts the guard up.
    pub(super) async fn set(app: &'a App, operator: &'a str, guard: &Guard) -> anyhow::Result<Self> {
        let mut scene = Self {
            app,
            operator,
            tenant: String::new(),
            token: String::new(),
        };
        let tenant = json!({"name": guard.name});
        scene.tenant = text(&scene.operate("POST", "/v1/tenants", &tenant).await?, "id")?;
        let tool = json!({"actions": [{"name": "complete", "mutates_state": false, "risk": "low"}]});
        scene.operate("PUT", "/v1/tools/llm", &tool).await?;
        let agent = json!({"name": "looper", "tools": ["llm"]});
        let agent = text(&scene.operate("POST", "/v1/agents", &agent).await?, "id")?;
        for (method, path, body) in (guard.requests)(&agent) {
            scene.operate(method, &path, &body).await?;
        }
        let tokens = format!("/v1/agents/{agent}/tokens");
        scene.token = text(&scene.operate("POST", &tokens, &json!({})).await?, "token")?;
        Ok(scene)
    }

    /// The agent asks whether it may make its next call.
    pub(super) async fn ask(&self, number: i64) -> anyhow::Result<Answer> {
        let ask = json!({
            "request_id": format!("call-{number}"),
            "tool_call": {"tool": "llm", "action": "complete", "parameters": {"prompt": format!("again, {number}")}},
            "context": {"source_trust": "trusted_internal_unsigned"},
            "trace": {"run_id": "loop"},
            "estimate": {"unit": "USD_MICROCENTS", "amount": CALL_MICROCENTS},
        });
        let (_, told) = self.send("POST", "/v1/authorize", &self.token, &ask).await?;
        let told: Told = serde_json::from_slice(&told)?;
        if told.decision.as_deref() == Some("allow") {
            return Ok(Answer::Allowed {
                decision: told.decision_id.context("a decision has an id")?,
                action: told.action_hash.context("a decision names its action")?,
            });
        }
        let why = told.reason_code.or(told.code);
        why.map(Answer::Stopped).context("a no has a reason")
    }

    /// The agent says that it made the call, and what that cost.
    pub(super) async fn report(&self, decision: &str, action: &str) -> anyhow::Result<()> {
        let outcome = json!({
            "status": "succeeded", "executed_hash": action,
            "actual": {"unit": "USD_MICROCENTS", "amount": CALL_MICROCENTS},
        });
        let path = format!("/v1/decisions/{decision}/outcome");
        let (status, told) = self.send("POST", &path, &self.token, &outcome).await?;
        ensure!(status.is_success(), "{}", String::from_utf8_lossy(&told));
        Ok(())
    }

    /// The one budget of the tenant; none if it has none.
    pub(super) async fn balance(&self) -> anyhow::Result<Option<Balance>> {
        let page = self.operate("GET", "/v1/balances", &Value::Null).await?;
        let items = page["items"].as_array().context("a page has items")?;
        match &items[..] {
            [] => Ok(None),
            [balance] => Ok(Some(Balance::deserialize(balance)?)),
            several => bail!("one budget was made, and there are {}", several.len()),
        }
    }

    /// Has the gateway verify the tenant's ledger.
    pub(super) async fn verify(&self) -> anyhow::Result<()> {
        let report = self.operate("POST", "/v1/ledger/verify", &json!({})).await?;
        ensure!(report["verified"] == true, "the ledger does not verify: {report}");
        Ok(())
    }

    /// A request of the operator's.
    async fn operate(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (status, told) = self.send(method, path, self.operator, body).await?;
        let told = String::from_utf8_lossy(&told);
        ensure!(status.is_success(), "{method} {path}: {told}");
        Ok(canon::value(&told)?)
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        credential: &str,
        body: &Value,
    ) -> anyhow::Result<(StatusCode, Vec<u8>)> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {credential}"));
        if credential == self.operator && !self.tenant.is_empty() {
            request = request.header("countersign-tenant", &self.tenant);
        }
        let body = if body.is_null() {
            Body::empty()
        } else {
            request = request.header(header::CONTENT_TYPE, "application/json");
            Body::from(body.to_string())
        };
        let Ok(response) = self.app.clone().oneshot(request.body(body)?).await;
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await?;
        Ok((status, bytes.to_vec()))
    }
}

fn text(object: &Value, member: &str) -> anyhow::Result<String> {
    let text = object[member].as_str().map(str::to_owned);
    text.ok_or_else(|| anyhow!("the answer has no `{member}`: {object}"))
}
