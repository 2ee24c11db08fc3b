//! Requests of agents that have registered keys: each has to be signed (RFC 9421), once, for this method, target, body and token.
//!
//! What a signature is worth is decided in the crate `tokens`; here its nonce is remembered. A token that was stolen is worth
//! nothing without the key, and a request that was overheard is worth nothing a second time.

use super::AgentCaller;
use crate::gateway::Gateway;
use crate::http::json::{self, Bounds, HeadAt};
use crate::http::refusal::{Code, Refusal};
use crate::limits::OUT_OF_ORDER_MILLIS;
use crate::locks::lock;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use canon::Digest;
use engine::SigningKeys;
use model::{AgentId, TenantId, Timestamp};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::time::Instant;
use tokens::{PublicKey, RequestSignature, SignedRequest};

const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");
const SIGNATURE: HeaderName = HeaderName::from_static("signature");
const ACCEPT_SIGNATURE: HeaderName = HeaderName::from_static("accept-signature");
/// What a signature has to cover (RFC 9421, section 5.1), whatever the request; the crate `tokens` knows which headers besides.
const ACCEPTED: HeaderValue = HeaderValue::from_static(
    r#"sig=("@method" "@path" "@query" "content-digest" "authorization");created;alg="ed25519""#,
);
/// The most nonces that are remembered of one agent: it can send 600 requests a second. An agent must not take the places
/// of the others.
const NONCES_OF_AN_AGENT_MAX: usize = 1 << 18;
/// The most nonces that are remembered altogether, at some forty bytes each.
const NONCES_MAX: usize = 1 << 20;
/// For each place that is free, so many of a tenant's nonces may be remembered. Alone, a tenant has seven eighths of
/// all places, and however many have as many as they may, there are some for another one.
const NONCES_OF_A_TENANT_FOR_A_FREE_PLACE: usize = 7;
/// How long a page of nonces is, in milliseconds. Pages are thrown away whole.
const PAGE_MILLIS: i64 = 60_000;

/// The key that has signed a request, and its name.
#[derive(Debug)]
pub(super) struct SignedBy {
    key_id: String,
    key: PublicKey,
}

/// The nonces of requests that could be sent again, and since when they are known. Held for one look-up at a time and
/// never across an `await`.
pub struct Nonces(Mutex<Memory>);

struct Memory {
    /// What was signed until then could have been seen before.
    since: Timestamp,
    /// The latest time that a clock has shown here: what could not be sent again then is forgotten.
    latest: Timestamp,
    pages: Pages,
}

/// Nonces, by when their requests cannot be sent again.
#[derive(Default)]
struct Pages {
    by_page: BTreeMap<i64, HashSet<[u8; 16]>>,
    /// How many there are of each agent, in all pages.
    agents: Counts<AgentId>,
    /// How many there are of each tenant, in all pages.
    tenants: Counts<TenantId>,
}

/// How many nonces there are of each, in each page.
type Counts<K> = HashMap<K, HashMap<i64, usize>>;

/// The nonce of a request, and who has sent it.
struct SentNonce<'a> {
    tenant: TenantId,
    agent: AgentId,
    /// The name of the key that has signed the request.
    key: &'a str,
    nonce: &'a str,
}

/// Why a nonce is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotTaken {
    /// Its request was signed when this gateway did not remember any yet.
    TooEarly,
    /// It was seen before.
    Seen,
    /// There is no room to remember it.
    Full,
}

impl Nonces {
    /// None, from now on.
    pub fn since(now: Timestamp) -> Self {
        Self(Mutex::new(Memory {
            since: second(now),
            latest: now,
            pages: Pages::default(),
        }))
    }

    fn take(&self, caller: &AgentCaller, signed: &SignedRequest, now: Timestamp) -> Result<(), NotTaken> {
        let mut memory = lock(&self.0);
        memory.look_at(now);
        // This gateway cannot tell whether it, or the one before it, has seen what was signed until then.
        if signed.created() <= memory.since {
            return Err(NotTaken::TooEarly);
        }
        let sent = SentNonce {
            tenant: caller.tenant,
            agent: caller.agent.id,
            key: signed.key_id(),
            nonce: signed.nonce(),
        };
        memory.pages.take(&sent, signed.forgotten_at())
    }
}

impl Memory {
    /// Forgets what cannot be sent again. Where the clock was set back, what was forgotten while it was ahead could be,
    /// unless it counts as signed before this gateway began. What was signed for a later time can be, when that has
    /// come.
    fn look_at(&mut self, now: Timestamp) {
        if self.latest.millis() - now.millis() > OUT_OF_ORDER_MILLIS {
            (self.since, self.latest) = (second(now), now);
        }
        self.latest = self.latest.max(now);
        // A clock that is behind by no more than that does not count as set back, and may still let in what ended meanwhile.
        self.pages.forget(now.plus_millis(-OUT_OF_ORDER_MILLIS));
    }
}

/// The second that holds this time. Senders tell whole ones, so what was signed in it may have been seen before it was over.
const fn second(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.millis() / 1_000 * 1_000)
}

impl Pages {
    /// Throws away what nobody can send again.
    fn forget(&mut self, now: Timestamp) {
        let first = now.millis() / PAGE_MILLIS;
        if self
            .by_page
            .first_key_value()
            .is_some_and(|(page, _)| *page < first)
        {
            self.by_page = self.by_page.split_off(&first);
            forget_before(first, &mut self.agents);
            forget_before(first, &mut self.tenants);
        }
    }

    fn take(&mut self, sent: &SentNonce<'_>, forgotten_at: Timestamp) -> Result<(), NotTaken> {
        let name = sent.name();
        if self.by_page.values().any(|page| page.contains(&name)) {
            return Err(NotTaken::Seen);
        }
        let of_agent = self.agents.entry(sent.agent).or_default();
        let of_tenant = self.tenants.entry(sent.tenant).or_default();
        let taken: usize = self.by_page.values().map(HashSet::len).sum();
        let of_tenant_max = NONCES_MAX.saturating_sub(taken) * NONCES_OF_A_TENANT_FOR_A_FREE_PLACE;
        if of_tenant.values().sum::<usize>() >= of_tenant_max
            || of_agent.values().sum::<usize>() >= NONCES_OF_AN_AGENT_MAX
        {
            return Err(NotTaken::Full);
        }
        let page = forgotten_at.millis() / PAGE_MILLIS;
        *of_agent.entry(page).or_default() += 1;
        *of_tenant.entry(page).or_default() += 1;
        self.by_page.entry(page).or_default().insert(name);
        Ok(())
    }
}

/// Forgets the counts of pages that were thrown away.
fn forget_before<K>(first: i64, counts: &mut Counts<K>) {
    counts.retain(|_, counts| {
        counts.retain(|page, _| *page >= first);
        !counts.is_empty()
    });
}

impl SentNonce<'_> {
    /// What stands for a nonce of one key of one agent. Sixteen bytes of SHA-256 are too many to find two that are alike.
    fn name(&self) -> [u8; 16] {
        let (key, nonce) = (self.key.as_bytes(), self.nonce.as_bytes());
        let mut text = Vec::with_capacity(16 + 8 + key.len() + nonce.len());
        text.extend_from_slice(self.agent.as_bytes());
        text.extend_from_slice(&(key.len() as u64).to_be_bytes());
        text.extend_from_slice(key);
        text.extend_from_slice(nonce);
        let digest = Digest::of(&text);
        let (first, _) = digest
            .as_bytes()
            .split_first_chunk()
            .expect("a digest has 32 bytes");
        *first
    }
}

/// The request, if one of these keys has signed it and it was not sent before, and which.
pub(super) async fn check(
    gateway: &Gateway,
    caller: &AgentCaller,
    keys: &SigningKeys,
    request: Request,
) -> Result<(Request, SignedBy), Refusal> {
    let signature = signature(request.headers())?;
    let (mut parts, body) = request.into_parts();
    if parts.extensions.get::<HeadAt>().is_none() {
        // Whoever comes after this would take the end of the body for the beginning.
        parts.extensions.insert(HeadAt(Instant::now()));
    }
    let bounds = Bounds::of(&gateway.options).of_agents_of(caller.tenant);
    let bounds = bounds.left(&parts.extensions);
    let body = json::bytes(body, &parts.headers, bounds).await?;
    let (signed, key) = verify(gateway, keys, signature, (&parts, &body))?;
    let signed_by = SignedBy {
        key_id: signed.key_id().to_owned(),
        key: key.clone(),
    };
    let now = gateway.clock.now();
    match gateway.nonces.take(caller, &signed, now) {
        Ok(()) => Ok((Request::from_parts(parts, Body::from(body)), signed_by)),
        Err(NotTaken::Full) => Err(Refusal::no_room_for_nonces()),
        Err(NotTaken::TooEarly) => Err(invalid(
            "the request was signed before this gateway began, or before its clock was set back; sign it anew",
        )),
        Err(NotTaken::Seen) => Err(Refusal::new(
            Code::SignatureReplayed,
            "a request with this `nonce` was sent before; sign each request anew",
        )),
    }
}

/// Refuses a request that none of the keys has signed that the agent has by now: they may be newer than its head.
pub(super) fn check_key(signed_by: Option<&SignedBy>, keys: &SigningKeys) -> Result<(), Refusal> {
    let SignedBy { key_id, key } = signed_by.ok_or_else(required)?;
    if keys.named(key_id) == Some(key) {
        Ok(())
    } else {
        Err(invalid(
            "the key that has signed the request was taken away while it came",
        ))
    }
}

fn signature(headers: &HeaderMap) -> Result<RequestSignature, Refusal> {
    let input = text(headers, &SIGNATURE_INPUT)?;
    let signature = text(headers, &SIGNATURE)?;
    let (Some(input), Some(signature)) = (input, signature) else {
        return Err(required());
    };
    RequestSignature::parse(&input, &signature).map_err(|error| invalid(error.to_string()))
}

/// All lines of a header together; none if there is no such header.
fn text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Refusal> {
    let lines = headers.get_all(name).iter().map(HeaderValue::to_str);
    let lines: Result<Vec<_>, _> = lines.collect();
    let lines = lines.map_err(|_| invalid("`Signature-Input` and `Signature` are printable ASCII"))?;
    Ok((!lines.is_empty()).then(|| lines.join(", ")))
}

fn verify<'k>(
    gateway: &Gateway,
    keys: &'k SigningKeys,
    signature: RequestSignature,
    (parts, body): (&Parts, &Bytes),
) -> Result<(SignedRequest, &'k PublicKey), Refusal> {
    let key = keys
        .named(signature.key_id())
        .ok_or_else(|| invalid("`keyid` is the name of no key of this agent's"))?;
    let headers = parts.headers.iter();
    let fields: Vec<_> = headers
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let host = parts
        .headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let authority = parts.uri.authority().map(axum::http::uri::Authority::as_str);
    let request = tokens::Request {
        method: parts.method.as_str(),
        scheme: "http",
        authority: authority.or(host).unwrap_or_default(),
        path: parts.uri.path(),
        query: parts.uri.query(),
        fields: &fields,
        body,
    };
    let signed = signature
        .verify(&request, key, gateway.clock.now())
        .map_err(|error| invalid(error.to_string()))?;
    Ok((signed, key))
}

fn required() -> Refusal {
    let detail = "this agent signs its requests: send `Signature-Input`, `Signature` and `Content-Digest` (RFC 9421, RFC 9530)";
    Refusal::new(Code::SignatureRequired, detail).with_header(ACCEPT_SIGNATURE, ACCEPTED)
}

fn invalid(detail: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Code::SignatureInvalid, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::from_bytes([7; 16]);
    const AGENT: AgentId = AgentId::from_bytes([1; 16]);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_signature_that_is_not_ascii_is_told_from_none() {
        let mut headers = HeaderMap::new();
        let code = |headers: &HeaderMap| signature(headers).err().map(|refusal| refusal.code());
        assert_eq!(code(&headers), Some(Code::SignatureRequired));
        let input = HeaderValue::from_bytes("sig=();keyid=\"schlüssel\"".as_bytes()).unwrap();
        headers.insert(SIGNATURE_INPUT, input);
        headers.insert(SIGNATURE, HeaderValue::from_static("sig=:AA==:"));
        assert_eq!(code(&headers), Some(Code::SignatureInvalid));
    }

    /// This nonce of the key `a` of the agent.
    const fn sent(nonce: &str) -> SentNonce<'_> {
        SentNonce {
            tenant: TENANT,
            agent: AGENT,
            key: "a",
            nonce,
        }
    }

    #[test]
    fn a_nonce_is_one_of_a_key_of_an_agent() {
        let mut pages = Pages::default();
        let end = at(420_000);
        let other = AgentId::from_bytes([2; 16]);
        for (agent, key, nonce) in [
            (AGENT, "a", "b"),
            (AGENT, "ab", ""),
            (AGENT, "", "ab"),
            (other, "a", "b"),
        ] {
            let sent = SentNonce {
                tenant: TENANT,
                agent,
                key,
                nonce,
            };
            assert_eq!(pages.take(&sent, end), Ok(()), "{key} {nonce}");
            assert_eq!(pages.take(&sent, end), Err(NotTaken::Seen));
            assert_eq!(pages.take(&sent, at(60_000)), Err(NotTaken::Seen));
        }
    }

    #[test]
    fn what_cannot_be_sent_again_is_forgotten_and_not_a_moment_before() {
        let mut pages = Pages::default();
        pages.take(&sent("1"), at(60_000)).unwrap();
        pages.take(&sent("2"), at(180_000)).unwrap();
        pages.forget(at(119_999));
        assert_eq!(pages.take(&sent("1"), at(60_000)), Err(NotTaken::Seen));
        pages.forget(at(120_000));
        assert_eq!(pages.agents[&AGENT], HashMap::from([(3, 1)]));
        assert_eq!(pages.tenants[&TENANT], HashMap::from([(3, 1)]));
        assert_eq!(pages.take(&sent("2"), at(180_000)), Err(NotTaken::Seen));
        pages.forget(at(600_000));
        assert!(pages.by_page.is_empty() && pages.agents.is_empty() && pages.tenants.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_a_little_lets_nothing_in_twice() {
        const PAGE_END: i64 = 10 * PAGE_MILLIS;
        for (back, is_known) in [(OUT_OF_ORDER_MILLIS, true), (OUT_OF_ORDER_MILLIS + 1, false)] {
            let start = at(PAGE_END - 300_000);
            let mut memory = Memory {
                since: second(start),
                latest: start,
                pages: Pages::default(),
            };
            let end = at(PAGE_END - 2_000);
            memory.pages.take(&sent("1"), end).unwrap();
            memory.look_at(at(PAGE_END));
            memory.look_at(at(PAGE_END - back));
            if is_known {
                let again = memory.pages.take(&sent("1"), end);
                assert_eq!(again, Err(NotTaken::Seen));
            } else {
                assert_eq!(memory.since, second(at(PAGE_END - back)));
            }
        }
    }

    #[test]
    fn one_agent_does_not_take_the_places_of_others() {
        let mut pages = Pages::default();
        for number in 0..NONCES_OF_AN_AGENT_MAX {
            let nonce = number.to_string();
            pages.take(&sent(&nonce), at(60_000)).unwrap();
        }
        assert_eq!(pages.take(&sent("more"), at(60_000)), Err(NotTaken::Full));
        let other = SentNonce {
            agent: AgentId::from_bytes([2; 16]),
            ..sent("more")
        };
        assert_eq!(pages.take(&other, at(60_000)), Ok(()));
    }

    /// Has so many places more taken by agents of a tenant that do not ask again.
    fn fill(pages: &mut Pages, tenant: TenantId, more: usize) {
        let page = pages.by_page.entry(1).or_default();
        let first = page.len();
        page.extend((first..first + more).map(|number| (number as u128).to_be_bytes()));
        *pages.tenants.entry(tenant).or_default().entry(1).or_default() += more;
    }

    #[test]
    fn one_tenant_does_not_take_the_places_of_others_nor_do_several() {
        let mut pages = Pages::default();
        let [one, two, other] = [1, 2, 3].map(|id| TenantId::from_bytes([id; 16]));
        let take = |pages: &mut Pages, tenant, nonce| {
            let sent = SentNonce {
                tenant,
                ..sent(nonce)
            };
            pages.take(&sent, at(60_000))
        };
        fill(&mut pages, one, NONCES_MAX / 8 * 7 - 1);
        assert_eq!(take(&mut pages, one, "last"), Ok(()));
        assert_eq!(take(&mut pages, one, "more"), Err(NotTaken::Full));
        fill(&mut pages, two, NONCES_MAX / 64 * 7);
        assert_eq!(take(&mut pages, two, "of two"), Err(NotTaken::Full));
        assert_eq!(take(&mut pages, other, "of another"), Ok(()));
    }
}
