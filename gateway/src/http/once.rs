//! Headers that say who asks, where, for what and until when: each is sent once. Of two that differ the gateway would
//! go by the one, and a proxy in front of it, which has checked the request, perhaps by the other.

use super::caller::COUNTERSIGN_TENANT;
use super::idempotency::IDEMPOTENCY_KEY;
use super::refusal::{Code, Refusal};
use crate::authorize::X_REQUEST_TIMEOUT_MS;
use axum::http::{HeaderMap, header};

/// Refuses a request that sends one of them again.
pub fn check(headers: &HeaderMap) -> Result<(), Refusal> {
    // Nearly every request sends everything once, and then nothing is looked for.
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let once = [
        (header::AUTHORIZATION, "Authorization"),
        // Signatures cover it (RFC 9421, section 2.2.3), and RFC 9112, section 3.2, has it once.
        (header::HOST, "Host"),
        (COUNTERSIGN_TENANT, "Countersign-Tenant"),
        (IDEMPOTENCY_KEY, "Idempotency-Key"),
        (X_REQUEST_TIMEOUT_MS, "X-Request-Timeout-Ms"),
    ];
    let again = once
        .iter()
        .find(|(name, _)| headers.get_all(name).iter().nth(1).is_some());
    again.map_or(Ok(()), |(_, name)| {
        let detail = format!("`{name}` is there more than once; send one");
        Err(Refusal::new(Code::InvalidParameter, detail))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn headers(names: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (place, name) in names.iter().enumerate() {
            headers.append(HeaderName::from_static(name), HeaderValue::from(place));
        }
        headers
    }

    #[test]
    fn what_says_who_asks_is_there_once() {
        for name in [
            "authorization",
            "host",
            "countersign-tenant",
            "idempotency-key",
            "x-request-timeout-ms",
        ] {
            assert!(check(&headers(&[name, "accept"])).is_ok(), "{name}");
            let refusal = check(&headers(&[name, "accept", name])).unwrap_err();
            assert_eq!(refusal.code(), Code::InvalidParameter, "{name}");
            assert!(refusal.detail().to_lowercase().contains(name), "{name}");
        }
    }

    #[test]
    fn what_is_a_list_may_come_in_pieces() {
        assert!(
            check(&headers(&[
                "accept",
                "accept",
                "authorization",
                "signature",
                "signature"
            ]))
            .is_ok()
        );
        assert!(check(&HeaderMap::new()).is_ok());
    }
}
