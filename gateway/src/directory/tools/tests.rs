//! Tests of registering a tool by hand that need no gateway.

use super::*;
use canon::Digest;
use model::{Agent, AgentId, Attributes, LimitTerms, RiskTier, TenantId};

const NOW: Timestamp = Timestamp::from_millis(5);

fn actions(json: Value) -> Result<BTreeMap<Name, ToolAction>, Code> {
    let bodies: Vec<ActionBody> = serde_json::from_value(json).unwrap();
    read_actions(bodies, None).map_err(|refusal| refusal.code())
}

fn send(description: &str, risk: &str) -> BTreeMap<Name, ToolAction> {
    actions(json!([{"name": "send", "mutates_state": true, "risk": risk, "description": description}]))
        .unwrap()
}

fn tool(known: Option<&Tool>, actions: &BTreeMap<Name, ToolAction>) -> Result<Tool, RevokedForGood> {
    registered(known, &SlashFreeName::new("mail").unwrap(), actions, false, NOW)
}

/// A tool whose action was imported, and another definition of which waits.
fn imported() -> Tool {
    let mut tool = tool(None, &send("sends", "high")).unwrap();
    let action = tool.actions.values_mut().next().unwrap();
    action.pinned = Some(Digest::of(b"one"));
    let mut incoming = action.clone();
    incoming.pinned = Some(Digest::of(b"two"));
    *action = action.imported_again(&incoming, NOW);
    tool
}

#[test]
fn facts_are_required() {
    for missing in ["name", "mutates_state", "risk"] {
        let mut action = json!({"name": "send", "mutates_state": true, "risk": "high"});
        action.as_object_mut().unwrap().remove(missing);
        let error = serde_json::from_value::<ActionBody>(action)
            .unwrap_err()
            .to_string();
        assert!(error.contains(missing), "{error}");
    }
}

#[test]
fn a_name_that_stands_twice_is_refused() {
    let twice = json!([{"name": "a", "mutates_state": true, "risk": "low"}, {"name": "a", "mutates_state": false, "risk": "low"}]);
    assert_eq!(actions(twice), Err(Code::InvalidField));
}

#[test]
fn actions_and_schemas_have_a_bound() {
    let many = |count: usize| {
        let action = |n| json!({"name": format!("a{n}"), "mutates_state": true, "risk": "low"});
        actions((0..count).map(action).collect()).map(|actions| actions.len())
    };
    assert_eq!(many(ACTIONS_MAX), Ok(ACTIONS_MAX));
    assert_eq!(many(ACTIONS_MAX + 1), Err(Code::InvalidField));
    let schema = |bytes: usize| {
        let frame = json!({"title": ""}).to_string().len();
        let schema = json!({"title": "x".repeat(bytes - frame)});
        actions(json!([{"name": "a", "mutates_state": true, "risk": "low", "input_schema": schema}]))
            .map(|_| ())
    };
    assert_eq!(schema(SCHEMA_BYTES_MAX), Ok(()));
    assert_eq!(schema(SCHEMA_BYTES_MAX + 1), Err(Code::InvalidField));
}

#[test]
fn a_new_description_has_a_bound_and_one_that_is_there_may_stay() {
    let put = |bytes: usize, known: Option<&Tool>| {
        let description = "x".repeat(bytes);
        let actions =
            json!([{"name": "send", "mutates_state": true, "risk": "low", "description": description}]);
        let read = read_actions(serde_json::from_value(actions).unwrap(), known);
        read.map_err(|refusal| refusal.detail().to_owned())
    };
    let long = DESCRIPTION_BYTES_MAX + 1;
    assert!(put(DESCRIPTION_BYTES_MAX, None).is_ok());
    let detail = put(long, None).unwrap_err();
    let expected = "`/actions/0/description`: a description has at most 16384 bytes, this one has 16385";
    assert_eq!(detail, expected);
    assert!(put(long, Some(&imported())).is_err());
    let mut known = imported();
    let action = known.actions.values_mut().next().unwrap();
    action.description = Some("x".repeat(long));
    action.held.as_mut().unwrap().action.description = Some("x".repeat(long + 1));
    assert!(put(long, Some(&known)).is_ok());
    assert!(put(long + 1, Some(&known)).is_ok(), "it is held");
    assert!(put(long + 2, Some(&known)).is_err());
}

#[test]
fn a_tool_has_a_bound_and_a_larger_one_may_become_smaller() {
    let tool = |bytes: usize| {
        let mut tool = imported();
        let action = tool.actions.values_mut().next().unwrap();
        action.description = None;
        action.held.as_mut().unwrap().action.description = Some("x".repeat(bytes));
        tool
    };
    let is_taken = |known: Option<usize>, bytes: usize| {
        let known = known.map(tool);
        check_bytes(known.as_ref(), &tool(bytes)).is_ok()
    };
    let most = DEFINITIONS_BYTES_MAX;
    assert!(is_taken(None, most));
    assert!(!is_taken(None, most + 1));
    assert!(!is_taken(Some(most), most + 1));
    assert!(is_taken(Some(most + 2), most + 2));
    assert!(is_taken(Some(most + 2), most + 1));
    assert!(!is_taken(Some(most + 1), most + 2));
}

#[test]
fn a_frozen_tool_that_is_put_again_stays_frozen_and_keeps_its_age() {
    let known = tool(None, &send("sends", "high")).unwrap();
    let frozen = known.with_standing(known.standing.freeze("odd", NOW).unwrap());
    let later = NOW.plus_millis(1);
    let name = SlashFreeName::new("mail").unwrap();
    let again = registered(Some(&frozen), &name, &send("sends more", "low"), true, later).unwrap();
    assert_eq!((&again.standing, again.created_at), (&frozen.standing, NOW));
    assert!(again.canary);
}

#[test]
fn a_revoked_tool_cannot_be_put_again() {
    let known = tool(None, &send("sends", "high")).unwrap();
    let revoked = known.with_standing(known.standing.revoke("stolen", NOW));
    assert_eq!(tool(Some(&revoked), &send("sends", "high")), Err(RevokedForGood));
}

#[test]
fn correcting_facts_keeps_the_pin_and_what_is_held() {
    let known = imported();
    let after = tool(Some(&known), &send("sends", "critical")).unwrap();
    let (before, after) = (&known.actions["send"], &after.actions["send"]);
    assert_eq!(after.risk, Risk::Critical);
    assert_eq!((after.pinned, &after.held), (before.pinned, &before.held));
    assert!(after.held.is_some());
}

#[test]
fn what_is_left_out_of_an_imported_action_is_as_before() {
    let known = imported();
    let facts_alone = actions(json!([{"name": "send", "mutates_state": false, "risk": "low"}])).unwrap();
    let after = tool(Some(&known), &facts_alone).unwrap();
    let expected = ToolAction {
        mutates_state: false,
        risk: Risk::Low,
        ..known.actions["send"].clone()
    };
    assert_eq!(after.actions["send"], expected);
}

#[test]
fn what_is_left_out_of_an_action_by_hand_is_taken_away() {
    let known = tool(None, &send("sends", "high")).unwrap();
    let facts_alone = actions(json!([{"name": "send", "mutates_state": false, "risk": "low"}])).unwrap();
    let after = tool(Some(&known), &facts_alone).unwrap();
    assert_eq!(after.actions, facts_alone);
}

#[test]
fn another_definition_by_hand_is_not_the_pinned_one() {
    let after = tool(Some(&imported()), &send("sends to everyone", "high")).unwrap();
    assert_eq!(
        (after.actions["send"].pinned, &after.actions["send"].held),
        (None, &None)
    );
}

/// A tenant with so many agents of about 64 KiB that have a grant of this tool.
fn granted(tool: &Arc<Tool>, agents: u128) -> Directory {
    let tenant = json!({"id": TenantId::SYSTEM, "name": "acme", "settings": {}, "bucket": null, "status": "active",
        "created_at": NOW});
    let mut directory = Directory::new(Arc::new(serde_json::from_value(tenant).unwrap()));
    directory.apply(&Write::Put(Noun::Tool(Arc::clone(tool))));
    let attribute = |number: usize| (format!("a{number}"), json!("x".repeat(1_024)));
    let attributes: Map<String, Value> = (0..64).map(attribute).collect();
    let attributes: Attributes = serde_json::from_value(Value::Object(attributes)).unwrap();
    for number in 0..agents {
        let agent = Agent {
            id: AgentId::from_bytes(number.to_be_bytes()),
            tenant: TenantId::SYSTEM,
            name: Name::new(&format!("agent-{number}")).unwrap(),
            former_names: Vec::new(),
            environment: None,
            team: None,
            owner: None,
            risk_tier: RiskTier::Low,
            tools: ToolAccess::Granted([tool.name.clone()].into()),
            attributes: attributes.clone(),
            standing: Standing::Active,
            limits: LimitTerms::default(),
            signing_keys: None,
            created_at: NOW,
        };
        directory.apply(&Write::Put(Noun::Agent(Arc::new(agent))));
    }
    directory
}

#[test]
fn a_tool_of_more_agents_than_are_written_at_once_stays_until_it_is_withdrawn_from_some() {
    let mail = Arc::new(tool(None, &send("sends", "high")).unwrap());
    let plan = deleted(&granted(&mail, 200), &mail).unwrap();
    assert_eq!(plan.writes().len(), 201);
    assert_eq!(plan.facts()["withdrawn_from"].as_array().unwrap().len(), 200);
    let Err(refusal) = deleted(&granted(&mail, 300), &mail) else {
        panic!("nothing is written at once that is so long")
    };
    assert_eq!(refusal.code(), Code::Conflict);
    let detail = refusal.detail();
    assert!(detail.contains("more than 16777216 bytes"), "{detail}");
    assert!(detail.contains("`DELETE /v1/agents/{id}/tools/mail`"), "{detail}");
}
