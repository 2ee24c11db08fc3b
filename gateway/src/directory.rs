//! The endpoints of the directory: tenants, keys, teams, users, agents, issuers, tools and their limits.
//!
//! Each family of endpoints is a file. They share what stands here: finding a noun in the caller's tenant, changing that
//! tenant, and the shapes that all their answers have. What a change does to ledger and storage is `changes`' work.

pub mod agents;
pub mod grants;
pub mod import;
pub mod issuers;
pub mod keys;
pub mod quota;
pub mod rules;
pub mod runs;
pub mod standing;
pub mod teams;
pub mod tenants;
pub mod tokens;
pub mod tools;
pub mod users;

use crate::changes::{Force, Order, Plan};
use crate::gateway::Gateway;
use crate::http::page::write_items;
use crate::http::{Code, Created, Json, LargePage, PageQuery, Refusal, TenantCaller};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use engine::{EntryKind, TenantSnapshot};
use imbl::OrdMap;
use model::name::InvalidName;
use model::{Agent, AgentId, Directory, Noun, SlashFreeName, Tenant, TenantId, Timestamp, Tool, Write};
use serde::Serialize;
use serde::de::{Deserialize, Deserializer};
use serde_json::Value;
use std::fmt::Display;
use std::iter;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;
use store::LOOKED_AT_MAX;

/// For how long a credential has expired that is cleared away, in milliseconds: a clock may be ahead by less.
const EXPIRED_FOR_MS: i64 = 24 * 60 * 60 * 1_000;

/// What a PUT answers: 201 with a new object, 200 with one that was there.
pub enum Upserted<T> {
    /// It is new.
    New(T),
    /// It was there, as it is or otherwise.
    Known(T),
}

impl<T: Serialize + Send + Sync + 'static> IntoResponse for Upserted<T> {
    fn into_response(self) -> Response {
        match self {
            Self::New(view) => Created(view).into_response(),
            Self::Known(view) => Json(view).into_response(),
        }
    }
}

impl<T> Upserted<T> {
    fn of(view: T, is_new: bool) -> Self {
        if is_new {
            Self::New(view)
        } else {
            Self::Known(view)
        }
    }
}

/// What a PATCH says about a member that can be absent: not sent, `null`, or a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Clearable<T> {
    #[default]
    Keep,
    Clear,
    Set(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Clearable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|value| value.map_or(Self::Clear, Self::Set))
    }
}

impl<T: Clone> Clearable<T> {
    fn apply(&self, place: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *place = None,
            Self::Set(value) => *place = Some(value.clone()),
        }
    }
}

/// Whether a tenant is there for those who work in it. The system tenant is nobody's, and a deleted one is gone.
fn is_in_use(tenant: &Tenant) -> bool {
    tenant.id != TenantId::SYSTEM && tenant.deleted_at.is_none()
}

pub(crate) fn check_in_use(tenant: &Tenant) -> Result<(), Refusal> {
    if is_in_use(tenant) {
        Ok(())
    } else {
        Err(Refusal::not_found("tenant", &tenant.id.to_string()))
    }
}

/// The caller's tenant as it is now.
pub(crate) fn read(gateway: &Gateway, caller: &TenantCaller) -> Result<Arc<TenantSnapshot>, Refusal> {
    let tenant = gateway.tenant(caller.tenant())?;
    check_in_use(&tenant.directory.tenant)?;
    Ok(tenant)
}

/// Changes the caller's tenant.
pub(crate) async fn change<T>(
    gateway: &Gateway,
    caller: &TenantCaller,
    plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
) -> Result<T, Refusal> {
    change_with(gateway, caller, Force::No, plan).await
}

/// Changes the caller's tenant as `change` does, perhaps with force.
async fn change_with<T>(
    gateway: &Gateway,
    caller: &TenantCaller,
    force: Force,
    plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
) -> Result<T, Refusal> {
    gateway
        .change_by(caller.holder().by(), force, caller.tenant(), only_in_use(plan))
        .await
}

/// Changes the caller's tenant at once, ahead of changes that compile policies: for what may take something away before
/// it does harm. The plan must need no compiling.
async fn change_at_once<T>(
    gateway: &Gateway,
    caller: &TenantCaller,
    plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
) -> Result<T, Refusal> {
    let by = caller.holder().by();
    gateway
        .change_in(Order::AtOnce, by, Force::No, caller.tenant(), only_in_use(plan))
        .await
}

/// This plan, for a tenant that is in use only.
fn only_in_use<T>(
    plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
) -> impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal> {
    move |directory, now| {
        check_in_use(&directory.tenant)?;
        plan(directory, now)
    }
}

/// A plan that puts one noun, and what its entry tells.
fn put<T>(kind: EntryKind, noun: Noun, facts: Value, answer: T) -> Plan<T> {
    Plan::Change {
        kind,
        facts,
        writes: vec![Write::Put(noun)],
        answer,
    }
}

/// A plan that deletes one noun and tells of it by its view.
fn deleted<V: Serialize>(kind: EntryKind, noun: Noun, view: &V) -> Plan<StatusCode> {
    Plan::Change {
        kind,
        facts: facts(view),
        writes: vec![Write::Delete(noun)],
        answer: StatusCode::NO_CONTENT,
    }
}

/// A view as facts of an entry.
pub(crate) fn facts<V: Serialize>(view: &V) -> Value {
    serde_json::to_value(view).expect("views have string keys and no fallible serializers")
}

pub(crate) fn find_agent<'d>(directory: &'d Directory, id: &str) -> Result<&'d Arc<Agent>, Refusal> {
    // What is not an id at all is as absent as one that was never given out.
    let agent = id
        .parse::<AgentId>()
        .ok()
        .and_then(|id| directory.agents.get(&id));
    agent.ok_or_else(|| Refusal::not_found("agent", id))
}

fn find_tool<'d>(directory: &'d Directory, name: &str) -> Result<&'d Arc<Tool>, Refusal> {
    directory
        .tools
        .get(name)
        .ok_or_else(|| Refusal::not_found("tool", name))
}

/// A name that a path gives to something new.
pub(crate) fn new_name<N: FromStr<Err = InvalidName>>(text: &str) -> Result<N, Refusal> {
    text.parse()
        .map_err(|error: InvalidName| Refusal::new(Code::InvalidParameter, error.to_string()))
}

fn check_future(expires_at: Option<Timestamp>, now: Timestamp) -> Result<(), Refusal> {
    match expires_at {
        Some(end) if end <= now => Err(Refusal::new(
            Code::InvalidField,
            format!("`expires_at`: `{end}` has passed; it is {now} now"),
        )),
        _ => Ok(()),
    }
}

/// Refuses names of tools that are not registered, in this member of a body.
fn check_registered<'n>(
    directory: &Directory,
    member: &str,
    names: impl IntoIterator<Item = &'n SlashFreeName>,
) -> Result<(), Refusal> {
    match names
        .into_iter()
        .find(|name| !directory.tools.contains_key(name.as_str()))
    {
        Some(name) => Err(Refusal::new(
            Code::InvalidField,
            format!("`{member}`: there is no tool `{name}`"),
        )),
        None => Ok(()),
    }
}

/// The page of a map that a caller asks for, of those values that `keep` keeps, as the map is now. It has a bound in
/// bytes: what an admin registers may be large. And it has one in the values that are looked at, which are very many
/// where few are kept: a page may be short, or empty, and go on all the same.
pub(crate) fn page<K, N, V>(
    map: &OrdMap<K, Arc<N>>,
    query: &PageQuery,
    keep: impl Fn(&N) -> bool + Send + Sync + 'static,
) -> Result<LargePage, Refusal>
where
    K: Ord + Clone + Display + FromStr + Send + Sync + 'static,
    N: Send + Sync + 'static,
    V: Serialize + for<'n> From<&'n N>,
{
    let start = query.after::<K>()?.map_or(Bound::Unbounded, Bound::Excluded);
    let limit = query.limit()?;
    let map = map.clone();
    Ok(LargePage::new(move |text| {
        let mut rest = map.range((start.clone(), Bound::Unbounded)).peekable();
        // How many may still be looked at, and the last of them if there are more behind it.
        let (mut left, mut end) = (LOOKED_AT_MAX, None);
        let items = iter::from_fn(|| {
            while left > 0 {
                let (key, noun) = rest.next()?;
                left -= 1;
                if left == 0 {
                    end = rest.peek().is_some().then_some(key);
                }
                if keep(noun) {
                    return Some((key, noun));
                }
            }
            None
        });
        let key = |(key, _): &(&K, &Arc<N>)| key.to_string();
        let next_cursor = write_items(text, items, limit, key, |(_, noun)| V::from(noun))?;
        Ok(next_cursor.or_else(|| end.map(K::to_string)))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Patch {
        #[serde(default)]
        team: Clearable<String>,
        #[serde(default, deserialize_with = "canon::sent")]
        name: Option<String>,
    }

    #[test]
    fn absent_and_null_are_told_apart() {
        let parse = |text| serde_json::from_str::<Patch>(text);
        let team = |text| {
            let mut team = Some("a".to_owned());
            parse(text).unwrap().team.apply(&mut team);
            team
        };
        assert_eq!(team("{}").as_deref(), Some("a"));
        assert_eq!(team(r#"{"team":"b"}"#).as_deref(), Some("b"));
        assert_eq!(team(r#"{"team":null}"#), None);
        assert_eq!(parse(r#"{"name":"b"}"#).unwrap().name.as_deref(), Some("b"));
        assert!(
            parse(r#"{"name":null}"#).is_err(),
            "what cannot be cleared cannot be null"
        );
    }

    #[test]
    fn a_time_that_is_now_has_passed() {
        let now = Timestamp::from_millis(1_000);
        assert!(check_future(None, now).is_ok());
        assert!(check_future(Some(now.plus_millis(1)), now).is_ok());
        assert_eq!(
            check_future(Some(now), now).unwrap_err().code(),
            Code::InvalidField
        );
    }

    #[test]
    fn a_page_begins_after_its_cursor_also_where_that_item_is_gone() {
        let map: OrdMap<u32, Arc<String>> = [1, 2, 4, 5]
            .map(|n: u32| (n, Arc::new(n.to_string())))
            .into_iter()
            .collect();
        let query: PageQuery = serde_json::from_str(r#"{"limit":"2","cursor":"3"}"#).unwrap();
        let page = page::<_, _, String>(&map, &query, |text| text != "4").unwrap();
        assert_eq!(page.to_json(), r#"{"items":["5"],"next_cursor":null}"#);
    }

    #[test]
    fn a_page_of_few_among_many_goes_on_where_it_has_stopped_to_look() {
        let numbers = 1..=LOOKED_AT_MAX + 1;
        let map: OrdMap<u32, Arc<String>> = numbers.map(|n| (n, Arc::new(n.to_string()))).collect();
        let page = |cursor: Option<&str>, wanted: &[u32]| {
            let query = json!({"limit": "2", "cursor": cursor});
            let query: PageQuery = serde_json::from_value(query).unwrap();
            let wanted: Vec<String> = wanted.iter().map(u32::to_string).collect();
            let page = page::<_, _, String>(&map, &query, move |text| wanted.contains(text)).unwrap();
            let page: Value = serde_json::from_str(&page.to_json()).unwrap();
            let items = page["items"].as_array().unwrap().iter();
            let items: Vec<&str> = items.map(|item| item.as_str().unwrap()).collect();
            (items.join(" "), page["next_cursor"].as_str().map(str::to_owned))
        };
        let some = |cursor: &str| Some(cursor.to_owned());
        let last = LOOKED_AT_MAX + 1;
        assert_eq!(page(None, &[]), (String::new(), some("2000")));
        assert_eq!(page(Some("2000"), &[]), (String::new(), None));
        assert_eq!(page(None, &[5, last]), ("5".to_owned(), some("2000")));
        assert_eq!(page(Some("2000"), &[5, last]), ("2001".to_owned(), None));
        // What was looked at and does not fit any more comes on the next page.
        assert_eq!(page(None, &[5, 6, 2_000]), ("5 6".to_owned(), some("6")));
        assert_eq!(page(Some("6"), &[5, 6, 2_000]), ("2000".to_owned(), None));
        // Where all are looked at, there is nothing behind the last one.
        assert_eq!(page(Some("1"), &[]), (String::new(), None));
    }
}
