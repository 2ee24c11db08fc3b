//! What a token says of content where nobody knows the parameters yet.

use crate::support::{NOW, agent, ask, tenant};
use canon::Digest;
use engine::{LookedUpFacts, ProvenanceError, Refusal, TenantSnapshot, judge};
use model::{Agent, AgentId, Issuer, Name, Noun, Purpose, Trust, Write};
use serde_json::json;
use std::sync::Arc;

/// The public key of 32 bytes that are 1.
const KEY: &str = "iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w";
/// What it has signed, until five minutes after `NOW`: that a call is `trusted_internal_signed`, and that content is,
/// which is `{}` or `other`.
const OF_A_CALL: &str = "eyJhbGciOiJFZERTQSJ9.eyJhdWQiOiJjb3VudGVyc2lnbiIsImV4cCI6MTgwMDAwMDMwMCwiaXNzIjoiaHR0cHM6Ly9jcm0uZXhhbXBsZSIsInNvdXJjZV90cnVzdCI6InRydXN0ZWRfaW50ZXJuYWxfc2lnbmVkIn0.VFueAXFvab9RQMPVfVPYoVNUmIBIWwDxZ8zsLXuZupv7C9hId8B675FLYhlXDGlTDJlqp6ENbQtV4puUQ4r1Cw";
const OF_NO_PARAMETERS: &str = "eyJhbGciOiJFZERTQSJ9.eyJhdWQiOiJjb3VudGVyc2lnbiIsImV4cCI6MTgwMDAwMDMwMCwiaXNzIjoiaHR0cHM6Ly9jcm0uZXhhbXBsZSIsInNvdXJjZV90cnVzdCI6InRydXN0ZWRfaW50ZXJuYWxfc2lnbmVkIiwiY29udGVudF9oYXNoIjoic2hhMjU2OjQ0MTM2ZmEzNTViMzY3OGExMTQ2YWQxNmY3ZTg2NDllOTRmYjRmYzIxZmU3N2U4MzEwYzA2MGY2MWNhYWZmOGEifQ.4DbVzpUQoGqG5V7FnFa39M_08UjJFVu8zvlpwjengoFfeMR0iaWDx-sejUHWCDGDJdtm9l_mnEAKOpZwZK7rAw";
const OF_OTHER_CONTENT: &str = "eyJhbGciOiJFZERTQSJ9.eyJhdWQiOiJjb3VudGVyc2lnbiIsImV4cCI6MTgwMDAwMDMwMCwiaXNzIjoiaHR0cHM6Ly9jcm0uZXhhbXBsZSIsInNvdXJjZV90cnVzdCI6InRydXN0ZWRfaW50ZXJuYWxfc2lnbmVkIiwiY29udGVudF9oYXNoIjoic2hhMjU2OmQ5Mjk4YTEwZDFiMDczNTgzN2RjNGJkODVkYWM2NDFiMGYzY2VmMjdhNDdlNWQ1M2E1NGYyZjNmNWIyZmNmZmEifQ.ST8LAA_4Q4WHP7gJWDaJBKCq2zVFHp2MzsE6A_nchPIPd24NOW0kb5qJpl8mfTTVxegt2kl4sxQq9CJRuIwNDw";

/// What it has signed of a call, for whoever is called `planner`.
const OF_A_PLANNER: &str = "eyJhbGciOiJFZERTQSJ9.eyJhdWQiOiJjb3VudGVyc2lnbiIsImV4cCI6MTgwMDAwMDMwMCwiaXNzIjoiaHR0cHM6Ly9jcm0uZXhhbXBsZSIsInNvdXJjZV90cnVzdCI6InRydXN0ZWRfaW50ZXJuYWxfc2lnbmVkIiwic3ViIjoicGxhbm5lciJ9.aeXFVtd-QlqBeTuJWJt3eb9Zuf7V_Sk7jTcHWp-bS-Aq2d6w4gefQ-LTVrHbBtntr8ou6QDFofakMAdgRcq1Bw";

/// A tenant that has registered who signed them.
fn trusting() -> TenantSnapshot {
    let jwks = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": KEY}]});
    let issuer = Issuer {
        name: Name::new("crm").unwrap(),
        purpose: Purpose::Provenance,
        issuer: Name::new("https://crm.example").unwrap(),
        audience: Name::new("countersign").unwrap(),
        jwks: Arc::new(jwks),
        claim: None,
        created_at: NOW,
    };
    let registered = Write::Put(Noun::Issuer(Arc::new(issuer)));
    let mut tenant = tenant();
    tenant.directory.apply(&registered);
    tenant.issuers.apply(&registered);
    tenant
}

/// As what an ask without parameters counts that comes with this token.
fn level(token: &str, parameters_unknown: bool) -> Result<Trust, Refusal> {
    level_of(&agent(), token, parameters_unknown)
}

fn level_of(agent: &Agent, token: &str, parameters_unknown: bool) -> Result<Trust, Refusal> {
    let members = json!({"context": {"source_trust": "trusted_internal_signed", "provenance": token}});
    let facts = LookedUpFacts {
        parameters_unknown,
        ..LookedUpFacts::default()
    };
    let judged = judge(&trusting(), agent, &ask("read", members), &facts, NOW);
    judged.map(|judgement| judgement.trust.level)
}

#[test]
fn what_a_token_says_of_content_counts_where_it_is_in_the_ask() {
    assert_eq!(level(OF_A_CALL, false), Ok(Trust::TrustedInternalSigned));
    assert_eq!(level(OF_NO_PARAMETERS, false), Ok(Trust::TrustedInternalSigned));
    let other = ProvenanceError::OtherContent(Digest::of(b"other"));
    assert_eq!(level(OF_OTHER_CONTENT, false), Err(Refusal::Provenance(other)));
}

#[test]
fn a_token_is_good_for_the_agent_that_has_or_had_the_name_that_it_tells() {
    let [planner, retired] = ["planner", "retired"].map(|name| Name::new(name).unwrap());
    let other = ProvenanceError::OtherSubject(planner.clone());
    assert_eq!(level(OF_A_PLANNER, false), Err(Refusal::Provenance(other)));
    let named = agent().rename(&planner);
    for agent in [&named, &named.rename(&retired)] {
        let level = level_of(agent, OF_A_PLANNER, false);
        assert_eq!(level, Ok(Trust::TrustedInternalSigned), "{}", agent.name);
    }
}

#[test]
fn a_token_for_an_agent_is_good_for_no_other_that_calls_its_user_so() {
    let [planner, leader] = ["planner", "leader"].map(|name| Name::new(name).unwrap());
    let context = json!({"source_trust": "trusted_internal_signed", "provenance": OF_A_PLANNER});
    let ask = ask("read", json!({"context": context, "user": {"id": "planner"}}));
    let level = |tenant: &TenantSnapshot| {
        let judged = judge(tenant, &agent(), &ask, &LookedUpFacts::default(), NOW);
        judged.map(|judgement| judgement.trust.level)
    };
    assert_eq!(level(&trusting()), Ok(Trust::TrustedInternalSigned), "a user");
    let named = Agent {
        id: AgentId::from_bytes([3; 16]),
        name: planner.clone(),
        ..agent()
    };
    for other in [named.rename(&leader), named] {
        let mut tenant = trusting();
        tenant
            .directory
            .apply(&Write::Put(Noun::Agent(Arc::new(other.clone()))));
        let refused = Refusal::Provenance(ProvenanceError::OtherSubject(planner.clone()));
        assert_eq!(level(&tenant), Err(refused), "{}", other.name);
    }
}

#[test]
fn what_a_token_says_of_content_counts_for_nothing_where_nobody_knows_the_parameters() {
    for token in [OF_NO_PARAMETERS, OF_OTHER_CONTENT] {
        assert_eq!(level(token, true), Ok(Trust::TrustedInternalUnsigned), "{token}");
    }
    assert_eq!(level(OF_A_CALL, true), Ok(Trust::TrustedInternalSigned));
    // It has to be good all the same.
    let (signed, _) = OF_OTHER_CONTENT.rsplit_once('.').unwrap();
    let (_, signature) = OF_NO_PARAMETERS.rsplit_once('.').unwrap();
    let forged = ProvenanceError::Token(tokens::TokenError::Signature);
    assert_eq!(
        level(&format!("{signed}.{signature}"), true),
        Err(Refusal::Provenance(forged))
    );
}
