//! The few calls of the public API that a tool here needs, as one caller makes them.
//!
//! It is for setting a tenant up and looking at its ledger afterwards; the asks that are timed go through
//! [`crate::http`] directly. Whatever is not a success is an error that carries the gateway's own words.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::address::Address;
use crate::http::{Connection, Format, Request};

/// No answer takes longer, or something hangs.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);
/// No ledger takes longer to be verified: that of a long run has tens of millions of entries.
const VERIFIED_WITHIN: Duration = Duration::from_hours(3);

/// One caller: a credential and, for an operator, the tenant it acts in.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    authorization: String,
    tenant: String,
}

/// Answer of `POST /v1/ledger/verify`.
#[derive(Debug, Clone, Deserialize)]
pub struct Verification {
    /// Whether every entry looked at is linked and unchanged.
    pub verified: bool,
    /// How many entries were looked at.
    pub checked: u64,
    /// The newest entry.
    pub head: Head,
    /// The first thing wrong, as the gateway tells it.
    pub first_fault: Option<Value>,
}

/// The newest entry of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Head {
    /// Its number; entries are numbered from 1 without gaps.
    pub seq: u64,
    /// Its hash.
    pub hash: String,
}

/// The part of an authorization answer that is counted.
#[derive(Debug, Deserialize)]
pub struct Decision {
    /// The verdict.
    pub decision: model::Verdict,
    /// Why.
    pub reason_code: String,
}

/// What is left of a budget.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Balance {
    /// What was spent.
    pub spent: i64,
    /// What is held.
    pub reserved: i64,
}

#[derive(Deserialize)]
struct Balances {
    items: Vec<Balance>,
}

/// An agent that was made.
#[derive(Debug)]
pub struct NewAgent {
    /// Its id.
    pub id: String,
    /// Its first token.
    pub token: String,
}

impl Client {
    /// Connects as the holder of this credential.
    pub async fn open(address: &Address, credential: &str) -> Result<Self> {
        Ok(Self {
            connection: connect(address).await?,
            authorization: format!("Bearer {credential}"),
            tenant: String::new(),
        })
    }

    /// Connects anew. A gateway closes a connection on which nothing has come for eleven minutes behind such a call.
    pub async fn reconnect(&mut self, address: &Address) -> Result<()> {
        self.connection = connect(address).await?;
        Ok(())
    }

    /// Sends one request and reads its answer, which has to be a success.
    pub async fn call<T: DeserializeOwned>(&mut self, method: &str, path: &str, body: &[u8]) -> Result<T> {
        let called = self.call_unbounded(method, path, body);
        let answer = tokio::time::timeout(ANSWER_WITHIN, called).await;
        answer.with_context(|| format!("{method} {path} is not answered"))?
    }

    async fn call_unbounded<T: DeserializeOwned>(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<T> {
        let headers = [
            ("Authorization", &*self.authorization),
            ("Countersign-Tenant", &*self.tenant),
        ];
        let headers = if self.tenant.is_empty() {
            &headers[..1]
        } else {
            &headers[..]
        };
        let answer = self
            .connection
            .send(Request {
                method,
                path,
                headers,
                format: Format::Json,
                body,
            })
            .await
            .with_context(|| format!("{method} {path}"))?;
        if !(200..300).contains(&answer.status) {
            bail!(
                "{method} {path} was answered {}: {}",
                answer.status,
                String::from_utf8_lossy(answer.body)
            );
        }
        // An answer without a body reads as `null`, which is what a caller that expects none asks for.
        let body = if answer.body.is_empty() {
            b"null"
        } else {
            answer.body
        };
        serde_json::from_slice(body).with_context(|| format!("reading the answer of {method} {path}"))
    }

    async fn send<T: DeserializeOwned>(&mut self, method: &str, path: &str, body: &Value) -> Result<T> {
        self.call(method, path, body.to_string().as_bytes()).await
    }

    /// Makes a tenant and acts in it from now on (operator).
    pub async fn create_tenant(&mut self, name: &str) -> Result<()> {
        let Created { id } = self.send("POST", "/v1/tenants", &json!({ "name": name })).await?;
        self.tenant = id;
        Ok(())
    }

    /// Changes settings of the tenant (operator).
    pub async fn set(&mut self, settings: &Value) -> Result<()> {
        let path = format!("/v1/tenants/{}", self.tenant);
        let _: Value = self
            .send("PATCH", &path, &json!({ "settings": settings }))
            .await?;
        Ok(())
    }

    /// Puts a named policy in force.
    pub async fn put_policy(&mut self, name: &str, cedar: &str) -> Result<()> {
        let body = json!({ "name": name, "cedar": cedar });
        let _: Value = self.send("POST", "/v1/policies", &body).await?;
        Ok(())
    }

    /// Says what a run has seen (agent).
    pub async fn observe(&mut self, run: &str, source_trust: &str) -> Result<()> {
        let body = json!({ "source_trust": source_trust, "note": "what was read" });
        let path = format!("/v1/runs/{run}/observations");
        let _: Value = self.send("POST", &path, &body).await?;
        Ok(())
    }

    /// Makes an agent that may use the tool; its first token.
    pub async fn create_agent(&mut self, name: &str, tool: &str) -> Result<String> {
        self.register_agent(name, tool).await.map(|agent| agent.token)
    }

    /// Gives an agent a bucket that is not filled again.
    pub async fn put_bucket(&mut self, agent: &str, capacity: u32) -> Result<()> {
        let body = json!({ "bucket": { "capacity": capacity, "refill_per_second": 0 } });
        let _: Value = self
            .send("PUT", &format!("/v1/agents/{agent}/quota"), &body)
            .await?;
        Ok(())
    }

    /// Makes an agent that may use the tool.
    pub async fn register_agent(&mut self, name: &str, tool: &str) -> Result<NewAgent> {
        let Created { id } = self.send("POST", "/v1/agents", &json!({ "name": name })).await?;
        let _: Value = self
            .call("PUT", &format!("/v1/agents/{id}/tools/{tool}"), b"")
            .await?;
        let Token { token } = self
            .send("POST", &format!("/v1/agents/{id}/tokens"), &json!({}))
            .await?;
        Ok(NewAgent { id, token })
    }

    /// Registers a tool with these actions.
    pub async fn put_tool(&mut self, tool: &str, actions: &Value) -> Result<()> {
        let _: Value = self
            .send(
                "PUT",
                &format!("/v1/tools/{tool}"),
                &json!({ "actions": actions }),
            )
            .await?;
        Ok(())
    }

    /// Registers a tool from an MCP `tools/list` result.
    pub async fn import_tool(&mut self, tool: &str, listing: &str) -> Result<()> {
        let _: Value = self
            .call("POST", &format!("/v1/tools/{tool}/import"), listing.as_bytes())
            .await?;
        Ok(())
    }

    /// The names of the tool's actions that the registry says mutate state.
    pub async fn mutating_actions(&mut self, tool: &str) -> Result<Vec<String>> {
        let Tool { actions } = self.call("GET", &format!("/v1/tools/{tool}"), b"").await?;
        Ok(actions
            .into_iter()
            .filter(|action| action.mutates_state)
            .map(|action| action.name)
            .collect())
    }

    /// Makes a budget.
    pub async fn create_budget(&mut self, body: &Value) -> Result<()> {
        let _: Value = self.send("POST", "/v1/budgets", body).await?;
        Ok(())
    }

    /// What is left of the tenant's first budget.
    pub async fn balance(&mut self) -> Result<Balance> {
        let page: Balances = self.call("GET", "/v1/balances", b"").await?;
        page.items.into_iter().next().context("the tenant has no budget")
    }

    /// Asks whether an action may be done (agent).
    pub async fn authorize(&mut self, ask: &RawValue) -> Result<Decision> {
        self.call("POST", "/v1/authorize", ask.get().as_bytes()).await
    }

    /// The newest entry of the tenant's ledger.
    pub async fn head(&mut self) -> Result<Head> {
        self.call("GET", "/v1/ledger/head", b"").await
    }

    /// Has the gateway check the tenant's whole ledger.
    pub async fn verify(&mut self) -> Result<Verification> {
        let verified = self.call_unbounded("POST", "/v1/ledger/verify", b"{}");
        let answer = tokio::time::timeout(VERIFIED_WITHIN, verified).await;
        answer.context("the gateway does not verify a ledger in time")?
    }
}

async fn connect(address: &Address) -> Result<Connection> {
    let connection = Connection::open(address).await;
    connection.with_context(|| format!("connecting to `{address}`"))
}

#[derive(Deserialize)]
struct Created {
    id: String,
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

#[derive(Deserialize)]
struct Tool {
    actions: Vec<ToolAction>,
}

#[derive(Deserialize)]
struct ToolAction {
    name: String,
    mutates_state: bool,
}
