//! Every route in one table: method, path, whom it lets in, and the handler.
//!
//! A route that is not in the table does not exist, and no route is without an [`Access`]. The `OpenAPI` document is
//! held against this table by a test.
//!
//! A route that only reads the store waits for a permit first (`reads_store`); a stream has that until its response
//! begins. A route that waits for people, reads a ledger in parts or changes something takes none here. A route with
//! `takes_no_query` refuses all parameters in the query. What a route answers that only reads (`GET`, `only_reads`) can
//! be refused when it is there, because nobody takes what was answered before.

use crate::directory::{
    agents, grants, import, issuers, keys, quota, rules, runs, standing, teams, tenants, tokens, tools, users,
};
use crate::gateway::Gateway;
use crate::http::answers::{self, Deed};
use crate::http::caller::{self, Access};
use crate::http::{Code, Refusal, conditions, query, request_id};
use crate::{
    approvals, authorize, authzen, budgets, live, observations, operation, outcome, policies, reader,
    records, reservations, signing, whoami,
};
use axum::Router;
use axum::handler::Handler;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodFilter, MethodRouter, on};
use model::Role;
use std::sync::Arc;

/// Who administers a tenant's directory.
const ADMIN: Access = Access::Roles(&[Role::Admin]);
/// Who searches for what is permitted: agents for themselves, and those who read the directory.
const SEARCH: Access = Access::AgentOrRoles(&[Role::Admin, Role::PolicyEditor, Role::Auditor]);
/// Who reads a tenant's directory.
const DIRECTORY: Access = Access::Roles(&[Role::Admin, Role::PolicyEditor, Role::Auditor]);
/// Who writes a tenant's policies.
const POLICIES: Access = Access::Roles(&[Role::PolicyEditor]);
/// Who makes and deletes keys: a tenant's, or operators' own.
const KEYS: Access = Access::RolesOrOperator(&[Role::Admin]);
/// Who reads keys, and the limits of a tenant.
const KEYS_READ: Access = Access::RolesOrOperator(&[Role::Admin, Role::Auditor]);
/// Who reads the ledger.
const LEDGER: Access = Access::Roles(&[Role::Auditor]);
/// Who reads decisions: agents their own, auditors all.
const DECISIONS: Access = Access::AgentOrRoles(&[Role::Auditor]);

/// Who reads approvals: agents their own, and people all.
const APPROVALS: Access = Access::AgentOrRoles(&[Role::Approver, Role::Admin, Role::Auditor]);
/// Who votes.
const VOTES: Access = Access::Roles(&[Role::Approver]);

/// Who reads budgets.
const BUDGETS: Access = Access::Roles(&[Role::Admin, Role::Auditor]);
/// Who reads balances and reservations: agents their own, and people all.
const BALANCES: Access = Access::AgentOrRoles(&[Role::Admin, Role::Auditor]);

/// One line of the table.
pub struct Route {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// Whom it lets in.
    pub access: Access,
    /// Whether it waits for a permit of those who read the store (`Gateway::reads`).
    reads: bool,
    /// Whether it has no parameters in the query, and refuses all.
    pub takes_no_query: bool,
    /// Whether it looks at conditions by entity tags. What puts, patches or deletes something and does not refuses
    /// them.
    pub takes_conditions: bool,
    /// What it answers: what it has read, or what it has done.
    deed: Deed,
    handler: MethodRouter<Arc<Gateway>>,
}

impl Route {
    /// The path as the contract writes it, which has no sign for a parameter of several parts.
    pub fn template(&self) -> String {
        self.path.replace("{*", "{")
    }

    /// This route, which waits for a permit of those who read the store.
    fn reads_store(self) -> Self {
        Self { reads: true, ..self }
    }

    /// This route, which changes nothing though its requests have a body.
    fn only_reads(self) -> Self {
        Self {
            deed: Deed::Read,
            ..self
        }
    }

    /// This route without parameters in the query.
    fn takes_no_query(self) -> Self {
        Self {
            takes_no_query: true,
            ..self
        }
    }

    /// This route, which looks at conditions by entity tags.
    fn takes_conditions(self) -> Self {
        Self {
            takes_conditions: true,
            ..self
        }
    }
}

fn route<H, T>(method: &'static str, path: &'static str, access: Access, handler: H) -> Route
where
    H: Handler<T, Arc<Gateway>>,
    T: 'static,
{
    let filter = match method {
        "GET" => MethodFilter::GET,
        "POST" => MethodFilter::POST,
        "PUT" => MethodFilter::PUT,
        "PATCH" => MethodFilter::PATCH,
        "DELETE" => MethodFilter::DELETE,
        _ => unreachable!("the table knows no other methods"),
    };
    Route {
        method,
        path,
        access,
        reads: false,
        takes_no_query: false,
        takes_conditions: false,
        deed: if method == "GET" { Deed::Read } else { Deed::Change },
        handler: on(filter, handler),
    }
}

/// The table.
#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "a table is as long as it is")]
pub fn routes() -> Vec<Route> {
    vec![
        route("POST", "/v1/authorize", Access::Agent, authorize::authorize),
        route("POST", "/v1/authorize/batch", Access::Agent, authorize::batch::authorize_batch),
        route("POST", "/v1/decide", Access::Agent, authorize::decide),
        route("POST", "/v1/decisions/{id}/outcome", Access::Agent, outcome::report),

        route("POST", "/access/v1/evaluation", Access::Agent, authzen::evaluation::evaluate),
        route("POST", "/access/v1/evaluations", Access::Agent, authzen::evaluation::evaluate_all),
        route("POST", "/access/v1/search/subject", DIRECTORY, authzen::search::subjects).only_reads(),
        route("POST", "/access/v1/search/resource", SEARCH, authzen::search::resources).only_reads(),
        route("POST", "/access/v1/search/action", SEARCH, authzen::search::actions).only_reads(),
        route("GET", "/.well-known/authzen-configuration", Access::Public, authzen::configuration::show),

        route("GET", "/v1/whoami", Access::Anybody, whoami::whoami).takes_no_query(),

        route("POST", "/v1/tenants", Access::Operator, tenants::create),
        route("GET", "/v1/tenants", Access::Operator, tenants::list),
        route("GET", "/v1/tenants/{id}", Access::Operator, tenants::get).takes_no_query(),
        route("PATCH", "/v1/tenants/{id}", Access::Operator, tenants::patch),
        route("DELETE", "/v1/tenants/{id}", Access::Operator, tenants::delete),
        route("POST", "/v1/tenants/{id}/freeze", Access::Operator, standing::freeze_tenant),
        route("POST", "/v1/tenants/{id}/unfreeze", Access::Operator, standing::unfreeze_tenant),
        route("POST", "/v1/tenants/{id}/revoke", Access::Operator, standing::revoke_tenant),
        route("GET", "/v1/tenants/{id}/quota", KEYS_READ, quota::get_of_tenant).reads_store(),
        route("PUT", "/v1/tenants/{id}/quota", Access::Operator, quota::put_of_tenant),

        route("POST", "/v1/keys", KEYS, keys::create),
        route("GET", "/v1/keys", KEYS_READ, keys::list),
        route("DELETE", "/v1/keys/{id}", KEYS, keys::delete),

        route("GET", "/v1/teams", DIRECTORY, teams::list),
        route("PUT", "/v1/teams/{team}", ADMIN, teams::put_team).takes_conditions(),
        route("GET", "/v1/teams/{team}", DIRECTORY, teams::get).takes_no_query(),
        route("DELETE", "/v1/teams/{team}", ADMIN, teams::delete),
        route("GET", "/v1/users", DIRECTORY, users::list),
        route("PUT", "/v1/users/{user}", ADMIN, users::put_user).takes_conditions(),
        route("GET", "/v1/users/{user}", DIRECTORY, users::get).takes_no_query(),
        route("DELETE", "/v1/users/{user}", ADMIN, users::delete),

        route("POST", "/v1/agents", ADMIN, agents::create),
        route("GET", "/v1/agents", DIRECTORY, agents::list),
        route("GET", "/v1/agents/{id}", DIRECTORY, agents::get).takes_no_query(),
        route("PATCH", "/v1/agents/{id}", ADMIN, agents::patch),
        route("POST", "/v1/agents/{id}/freeze", ADMIN, standing::freeze_agent),
        route("POST", "/v1/agents/{id}/unfreeze", ADMIN, standing::unfreeze_agent),
        route("POST", "/v1/agents/{id}/revoke", ADMIN, standing::revoke_agent),
        route("POST", "/v1/agents/{id}/tokens", ADMIN, tokens::create),
        route("GET", "/v1/agents/{id}/tokens", DIRECTORY, tokens::list),
        route("DELETE", "/v1/agents/{id}/tokens/{token_id}", ADMIN, tokens::delete),
        route("PUT", "/v1/agents/{id}/tools/{tool}", ADMIN, grants::grant),
        route("DELETE", "/v1/agents/{id}/tools/{tool}", ADMIN, grants::withdraw),
        route("GET", "/v1/agents/{id}/quota", DIRECTORY, quota::get_of_agent).reads_store(),
        route("PUT", "/v1/agents/{id}/quota", ADMIN, quota::put_of_agent),
        route("GET", "/v1/agents/{id}/quota/probe", DIRECTORY, quota::probe::get_of_agent).reads_store(),
        route("GET", "/v1/teams/{team}/quota", DIRECTORY, quota::get_of_team).reads_store(),
        route("PUT", "/v1/teams/{team}/quota", ADMIN, quota::put_of_team),
        route("GET", "/v1/quota", Access::Agent, quota::get_own).reads_store(),
        route("GET", "/v1/quota/probe", Access::Agent, quota::probe::get_own).reads_store(),

        route("GET", "/v1/rules", DIRECTORY, rules::list),
        route("PUT", "/v1/rules/{name}", ADMIN, rules::put_rule).takes_conditions(),
        route("GET", "/v1/rules/{name}", DIRECTORY, rules::get).takes_no_query(),
        route("DELETE", "/v1/rules/{name}", ADMIN, rules::delete),

        route("GET", "/v1/runs", DIRECTORY, runs::list),
        route("POST", "/v1/runs/{run_id}/observations", Access::Agent, observations::observe),
        route("POST", "/v1/runs/{run_id}/freeze", ADMIN, runs::freeze),
        route("POST", "/v1/runs/{run_id}/unfreeze", ADMIN, runs::unfreeze),
        route("POST", "/v1/runs/{run_id}/revoke", ADMIN, runs::revoke),

        route("POST", "/v1/issuers", ADMIN, issuers::create),
        route("GET", "/v1/issuers", DIRECTORY, issuers::list),
        route("GET", "/v1/issuers/{name}", DIRECTORY, issuers::get).takes_no_query(),
        route("PATCH", "/v1/issuers/{name}", ADMIN, issuers::patch),
        route("DELETE", "/v1/issuers/{name}", ADMIN, issuers::delete),

        route("GET", "/v1/tools", DIRECTORY, tools::list),
        route("PUT", "/v1/tools/{tool}", ADMIN, tools::put_tool).takes_conditions(),
        route("GET", "/v1/tools/{tool}", DIRECTORY, tools::get).takes_no_query(),
        route("DELETE", "/v1/tools/{tool}", ADMIN, tools::delete),
        route("POST", "/v1/tools/{tool}/freeze", ADMIN, standing::freeze_tool),
        route("POST", "/v1/tools/{tool}/unfreeze", ADMIN, standing::unfreeze_tool),
        route("POST", "/v1/tools/{tool}/revoke", ADMIN, standing::revoke_tool),
        route("POST", "/v1/tools/{tool}/import", ADMIN, import::import),
        route("POST", "/v1/tools/{tool}/actions/{action}/accept", ADMIN, import::accept),

        route("GET", "/v1/policies", DIRECTORY, policies::list),
        route("POST", "/v1/policies", POLICIES, policies::create),
        route("PUT", "/v1/policies", POLICIES, policies::replace::replace).takes_conditions(),
        route("GET", "/v1/policies/schema", DIRECTORY, policies::checks::schema).takes_no_query(),
        route("POST", "/v1/policies/validate", POLICIES, policies::checks::validate).only_reads(),
        route("POST", "/v1/policies/format", POLICIES, policies::format::format).only_reads(),
        route("POST", "/v1/policies/try", POLICIES, policies::explain::try_asks).only_reads(),
        route("POST", "/v1/policies/diff", POLICIES, policies::diff::compare).only_reads(),
        route("POST", "/v1/policies/replay", POLICIES, policies::replay::replay),
        route("POST", "/v1/policies/reload", Access::Operator, policies::reload::reload),
        route("GET", "/v1/policies/{name}", DIRECTORY, policies::get).takes_no_query(),
        route("PUT", "/v1/policies/{name}", POLICIES, policies::put).takes_conditions(),
        route("DELETE", "/v1/policies/{name}", POLICIES, policies::delete).takes_conditions(),
        route("GET", "/v1/policies/{name}/versions", DIRECTORY, policies::trials::versions),
        route("POST", "/v1/policies/{name}/rollback", POLICIES, policies::trials::rollback),
        route("POST", "/v1/policies/{name}/promote", POLICIES, policies::trials::promote),
        route("POST", "/v1/policies/{name}/revert", POLICIES, policies::trials::revert),

        route("GET", "/v1/approvals", APPROVALS, approvals::list).reads_store(),
        route("GET", "/v1/approvals/{id}", APPROVALS, approvals::show),
        route("POST", "/v1/approvals/{id}/approve", VOTES, approvals::vote::approve),
        route("POST", "/v1/approvals/{id}/reject", VOTES, approvals::vote::reject),

        route("POST", "/v1/budgets", ADMIN, budgets::create::create),
        route("GET", "/v1/budgets", BUDGETS, budgets::list).reads_store(),
        route("GET", "/v1/budgets/{id}", BUDGETS, budgets::show).takes_no_query().reads_store(),
        route("POST", "/v1/budgets/{id}/fund", ADMIN, budgets::change::fund),
        route("POST", "/v1/budgets/{id}/debit", ADMIN, budgets::change::debit),
        route("POST", "/v1/budgets/{id}/reset", ADMIN, budgets::change::reset),
        route("POST", "/v1/budgets/{id}/freeze", ADMIN, budgets::change::freeze),
        route("POST", "/v1/budgets/{id}/unfreeze", ADMIN, budgets::change::unfreeze),
        route("POST", "/v1/budgets/{id}/close", ADMIN, budgets::change::close),
        route("GET", "/v1/balances", BALANCES, budgets::balances).reads_store(),
        route("POST", "/v1/reservations", Access::Agent, reservations::create::create),
        route("GET", "/v1/reservations", BALANCES, reservations::list).reads_store(),
        route("GET", "/v1/reservations/{id}", BALANCES, reservations::show).takes_no_query().reads_store(),
        route("POST", "/v1/reservations/{id}/commit", Access::Agent, reservations::settle::commit),
        route("POST", "/v1/reservations/{id}/release", Access::Agent, reservations::settle::release),
        route("POST", "/v1/reservations/{id}/extend", Access::Agent, reservations::settle::extend),
        route("POST", "/v1/usage", Access::Agent, reservations::usage::record),

        route("GET", "/v1/decisions", DECISIONS, records::decisions::list).reads_store(),
        route("GET", "/v1/decisions/{id}", DECISIONS, records::decisions::show).takes_no_query().reads_store(),
        route("GET", "/v1/receipts/{decision_id}", DECISIONS, records::receipts::show).takes_no_query().reads_store(),
        route("GET", "/v1/receipts/{decision_id}/proof", DECISIONS, records::proof::show).reads_store(),
        route("GET", "/v1/audit/events", LEDGER, records::events::list).reads_store(),
        route("GET", "/v1/events", LEDGER, live::stream::events).reads_store(),
        route("GET", "/v1/ledger/head", LEDGER, records::head::show).takes_no_query().reads_store(),
        route("GET", "/v1/ledger/checkpoint", LEDGER, records::checkpoint::show).reads_store(),
        route("GET", "/v1/ledger/consistency", LEDGER, records::consistency::show).reads_store(),
        route("GET", "/v1/ledger/tile/{level}/{*place}", LEDGER, records::tiles::hashes).takes_no_query().reads_store(),
        route("GET", "/v1/ledger/tile/entries/{*place}", LEDGER, records::tiles::entries).takes_no_query(),
        route("GET", "/v1/ledger/export", LEDGER, records::export::export),
        route("GET", "/v1/ledger/evidence", LEDGER, records::evidence::evidence),
        route("POST", "/v1/ledger/verify", LEDGER, records::verify::verify),
        route("POST", "/v1/ledger/erase", ADMIN, records::erase::erase),

        route("GET", "/.well-known/countersign/keys.json", Access::Public, signing::keys),
        route("GET", "/healthz", Access::Public, operation::healthz),
        route("GET", "/readyz", Access::Public, operation::readyz),
        route("GET", "/metrics", Access::Public, operation::metrics),
        route("GET", "/openapi.json", Access::Public, operation::openapi),
    ]
}

/// The application.
pub fn router(gateway: &Arc<Gateway>) -> Router {
    let mut router: Router<Arc<Gateway>> = Router::new();
    for route in routes() {
        let mut handler = route.handler;
        if route.reads {
            let state = Arc::clone(gateway);
            handler = handler.layer(from_fn_with_state(state, reader::wait_for_read_permit));
        }
        if route.takes_no_query {
            handler = handler.layer(from_fn(query::without_any));
        }
        if !route.takes_conditions && matches!(route.method, "PUT" | "PATCH" | "DELETE") {
            handler = handler.layer(from_fn(conditions::without_any));
        }
        if route.access != Access::Public {
            handler = handler.layer(from_fn_with_state(route.deed, answers::layer));
        }
        let state = (Arc::clone(gateway), route.access);
        let handler = handler.layer(from_fn_with_state(state, caller::layer));
        router = router.route(route.path, handler);
    }
    router
        .fallback(no_such_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(gateway), request_id::layer))
        .with_state(Arc::clone(gateway))
}

async fn no_such_route() -> Refusal {
    Refusal::new(Code::NoSuchRoute, "the routes are listed in `/openapi.json`")
}

async fn method_not_allowed() -> Refusal {
    Refusal::new(
        Code::MethodNotAllowed,
        "the methods of each route are listed in `/openapi.json`",
    )
}
