//! How much a change writes at once, and how much a directory holds after it. Nobody is answered while a change is
//! written, and what takes longer than a store gives a statement is never done. What all directories hold is in memory
//! and is read whole by a start, so none may take the memory of the others.
//!
//! What force takes out of use is not counted here: that cannot be done in several steps, only operators do it, and how
//! much is kept of policies is bounded where they are written.

use super::By;
use crate::http::{Code, Refusal};
use engine::EntryKind;
use model::directory::{ACTION_BYTES, VALUE_BYTES};
use model::{Directory, Noun, Role, TenantId, Write};

/// The most bytes of nouns that one change writes: what takes a tenth of a second. The largest set of policies fits,
/// with the one before it.
const WRITTEN_BYTES_MAX: usize = 16 << 20;

/// How many bytes of nouns a change may still write.
pub(crate) struct WritingRoom {
    left: usize,
}

impl Default for WritingRoom {
    fn default() -> Self {
        Self {
            left: WRITTEN_BYTES_MAX,
        }
    }
}

impl WritingRoom {
    /// Takes what this noun needs. Where that is more than is left, it refuses the change and says what to do
    /// `instead`.
    pub(crate) fn take(&mut self, noun: &Noun, instead: &str) -> Result<(), Refusal> {
        let left = self.left.checked_sub(noun.to_json().len());
        self.left = left.ok_or_else(|| too_much(instead))?;
        Ok(())
    }
}

/// Refuses a change of several nouns that together are longer than may be written at once. Each of them alone has
/// bounds of its own, so whoever is refused gets there step by step; a rule and whom it freezes are far from this one,
/// because what a rule remembers is bounded, too.
pub(super) fn check(writes: &[Write]) -> Result<(), Refusal> {
    if writes.len() < 2 {
        return Ok(());
    }
    let mut room = WritingRoom::default();
    for write in writes {
        if let Write::Put(noun) = write {
            room.take(noun, "make it in several steps")?;
        }
    }
    Ok(())
}

/// The directory of a tenant before and after a change.
#[derive(Clone, Copy)]
pub(super) struct Directories<'a> {
    pub(super) before: &'a Directory,
    pub(super) after: &'a Directory,
}

impl Directories<'_> {
    /// Refuses a change after which a directory holds more than this and more than before it. Whoever stops somebody
    /// need not make room first, operators have set the bound themselves, and their own directory is theirs to fill.
    /// With what an import does no more than hold it is twice that: of each action one definition waits, but of actions
    /// there may be hundreds of thousands.
    pub(super) fn check_kept(self, by: By<'_>, kind: EntryKind, bytes_max: usize) -> Result<(), Refusal> {
        let Self { before, after } = self;
        let bytes = after.bytes();
        if bytes <= bytes_max || bytes <= before.bytes() || after.tenant.id == TenantId::SYSTEM {
            return Ok(());
        }
        if passes(by) || stops(kind) {
            return Ok(());
        }
        if !self.only_holds(kind) {
            return Err(too_full(bytes, bytes_max));
        }
        let with_held_max = bytes_max.saturating_mul(2);
        if bytes <= with_held_max {
            return Ok(());
        }
        Err(too_full_to_hold(bytes, with_held_max))
    }

    /// Whether an import has brought nothing but other definitions of actions that are there, which are held.
    fn only_holds(self, kind: EntryKind) -> bool {
        let tools_and_actions = |directory: &Directory| {
            let actions = directory.tools.values().map(|tool| tool.actions.len());
            (directory.tools.len(), actions.sum::<usize>())
        };
        kind == EntryKind::ToolImported && tools_and_actions(self.before) == tools_and_actions(self.after)
    }
}

/// The refusal of a change after which a directory would hold so many bytes.
fn too_full(bytes: usize, bytes_max: usize) -> Refusal {
    let detail = format!(
        "the keys, agents, tokens, tools, teams and users of a tenant have at most {bytes_max} bytes, counted with {VALUE_BYTES} for each value in a schema, a key set or attributes and {ACTION_BYTES} for each action, after this change these would have {bytes}, so nothing was changed; delete tokens, keys, users, teams or tools that are not needed any more (agents stay), or have the gateway started with a larger `COUNTERSIGN_DIRECTORY_BYTES_MAX`"
    );
    Refusal::new(Code::Conflict, detail)
}

/// The refusal of an import after which a directory would hold so many bytes with what is held.
fn too_full_to_hold(bytes: usize, bytes_max: usize) -> Refusal {
    let detail = format!(
        "the keys, agents, tokens, tools, teams and users of a tenant have at most {bytes_max} bytes with changed definitions that are held, counted with {VALUE_BYTES} for each value in a schema, a key set or attributes and {ACTION_BYTES} for each action, after this import these would have {bytes}, so nothing is held; freeze the tool, and delete what is not needed any more, or have the gateway started with a larger `COUNTERSIGN_DIRECTORY_BYTES_MAX`"
    );
    Refusal::new(Code::Conflict, detail)
}

/// Whether an entry of this kind tells that somebody was stopped.
const fn stops(kind: EntryKind) -> bool {
    matches!(
        kind,
        EntryKind::AgentFrozen | EntryKind::AgentRevoked | EntryKind::ToolFrozen | EntryKind::ToolRevoked
    )
}

/// Whether somebody makes the change who has set the bound, or a rule.
fn passes(by: By<'_>) -> bool {
    match by {
        By::Rule(_) | By::Unstored(_) => true,
        By::Key(key) => key.role == Role::Operator,
        _ => false,
    }
}

fn too_much(instead: &str) -> Refusal {
    let detail = format!(
        "the change would write more than {WRITTEN_BYTES_MAX} bytes at once, so nothing was changed; {instead}"
    );
    Refusal::new(Code::Conflict, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Name, Policy, PolicyMode, PolicyText, SlashFreeName, Team, Timestamp, Tool};
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// A policy of this length, and a little more.
    fn put(bytes: usize) -> Write {
        let text = PolicyText {
            cedar: "x".repeat(bytes).into(),
            ..PolicyText::default()
        };
        let name = SlashFreeName::new("long").unwrap();
        let now = Timestamp::from_millis(1);
        let policy = Policy::new(name, text, PolicyMode::Enforced, now);
        Write::Put(Noun::Policy(Arc::new(policy)))
    }

    #[test]
    fn what_would_be_written_for_too_long_is_made_in_several_steps() {
        let half = WRITTEN_BYTES_MAX / 2;
        let refusal = check(&[put(half), put(half)]).unwrap_err();
        assert_eq!(refusal.code(), Code::Conflict);
        check(&[put(half), put(half - 1_000)]).unwrap();
        check(&[put(WRITTEN_BYTES_MAX)]).unwrap();
    }

    fn directory(tenant: TenantId) -> Directory {
        let tenant = json!({"id": tenant, "name": "acme", "settings": {}, "bucket": null, "status": "active",
            "created_at": "1970-01-01T00:00:00.000Z"});
        Directory::new(Arc::new(serde_json::from_value(tenant).unwrap()))
    }

    fn with_team(mut directory: Directory) -> Directory {
        let team: Team = serde_json::from_value(json!({"name": "platform", "attributes": {}})).unwrap();
        directory.apply(&Write::Put(Noun::Team(Arc::new(team))));
        directory
    }

    #[test]
    fn what_stops_somebody_or_is_the_operators_own_needs_no_room() {
        let empty = directory(TenantId::from_bytes([1; 16]));
        let full = with_team(empty.clone());
        let grown = Directories {
            before: &empty,
            after: &full,
        };
        let room = full.bytes();
        let rule = Name::new("rule").unwrap();
        let check = |by, kind, bytes_max| grown.check_kept(by, kind, bytes_max);
        let refusal = check(By::Start, EntryKind::TeamPut, room - 1).unwrap_err();
        assert_eq!(refusal.code(), Code::Conflict);
        check(By::Start, EntryKind::TeamPut, room).unwrap();
        check(By::Start, EntryKind::AgentFrozen, 1).unwrap();
        check(By::Rule(&rule), EntryKind::AgentUpdated, 1).unwrap();
        for after in [&full, &empty] {
            let same_or_less = Directories { before: &full, after };
            same_or_less.check_kept(By::Start, EntryKind::TeamPut, 1).unwrap();
        }
        let system = directory(TenantId::SYSTEM);
        let grown = Directories {
            before: &system,
            after: &with_team(system.clone()),
        };
        grown.check_kept(By::Start, EntryKind::KeyCreated, 1).unwrap();
    }

    /// With a tool of one action, of which this definition is held.
    fn with_tool(mut directory: Directory, held: Option<&str>) -> Directory {
        let action = |description: &str, held: Option<Value>| {
            json!({"name": "say", "mutates_state": false, "risk": "low",
                "description": description, "held": held})
        };
        let held = held.map(|description| {
            json!({"digest": canon::Digest::of(description.as_bytes()), "action": action(description, None),
                "since": "1970-01-01T00:00:00.000Z"})
        });
        let tool = json!({"name": "chat", "actions": {"say": action("says", held)}, "status": "active",
            "created_at": "1970-01-01T00:00:00.000Z"});
        let tool: Tool = serde_json::from_value(tool).unwrap();
        directory.apply(&Write::Put(Noun::Tool(Arc::new(tool))));
        directory
    }

    #[test]
    fn what_an_import_only_holds_has_as_much_room_again_and_no_more() {
        let empty = directory(TenantId::from_bytes([1; 16]));
        let before = with_tool(empty.clone(), None);
        let long = "x".repeat(10_000);
        let [fewer, after] = ["x", long.as_str()].map(|held| with_tool(empty.clone(), Some(held)));
        let check = |before: &Directory, after: &Directory, kind, bytes_max| {
            Directories { before, after }.check_kept(By::Start, kind, bytes_max)
        };
        let room = after.bytes().div_ceil(2);
        assert!(before.bytes() < room);
        check(&before, &after, EntryKind::ToolImported, room).unwrap();
        for (kind, bytes_max) in [(EntryKind::ToolPut, room), (EntryKind::ToolImported, room - 1)] {
            let refusal = check(&before, &after, kind, bytes_max).unwrap_err();
            assert_eq!(refusal.code(), Code::Conflict);
        }
        // What is shorter than what is held is held in its place, however full it is.
        check(&after, &fewer, EntryKind::ToolImported, 1).unwrap();
    }

    #[test]
    fn policies_count_nothing_here() {
        let mut directory = directory(TenantId::from_bytes([1; 16]));
        directory.apply(&put(1_000));
        assert_eq!(directory.bytes(), 0);
    }

    #[test]
    fn what_is_deleted_is_not_written() {
        let Write::Put(gone) = put(WRITTEN_BYTES_MAX) else {
            panic!("it is put")
        };
        check(&[put(1), Write::Delete(gone)]).unwrap();
    }
}
