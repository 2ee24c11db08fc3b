//! Names that nothing has. What may have been meant by one is found by comparing it with all that there are, every
//! letter of the one with every letter of the others, and Cedar, which does so, keeps all of that in memory meanwhile.
//! So it is asked as long as that is little, and a name that is long does not get so far.

use super::{TOLD_MAX, Validator, finding};
use crate::diagnostics::{Diagnostic, Place, Severity};
use crate::facts;
use crate::parse::Parsed;
use cedar_policy_core::ast::{BinaryOp, EntityUID, Expr, ExprKind, Literal};
use cedar_policy_core::fuzzy_match::{fuzzy_search, fuzzy_search_limited};
use cedar_policy_core::validator::ValidationError;
use cedar_policy_core::validator::typecheck::PolicyCheck;
use cedar_policy_core::validator::types::{RequestEnv, Type};
use cedar_policy_core::validator::validation_errors::{
    AttributeAccess, UnrecognizedActionId, UnrecognizedActionIdHelp,
};
use model::NAME_BYTES_MAX;

/// How many pairs of letters may be compared for all policies that are validated together: some tenths of a second.
/// Where ten thousand actions are registered, five names have a few dozen letters.
pub(super) const LETTERS_MAX: usize = 1 << 26;
/// How many may be to say which member was meant, before no more asks are looked at: some seconds. A slip of a dozen
/// letters, among a hundred members of as many, takes some ten thousand for each ask.
pub(super) const MEMBER_LETTERS_MAX: usize = 1 << 31;
/// The longest id of an action: its tool's name and its own.
pub(super) const ACTION_ID_BYTES_MAX: usize = 2 * NAME_BYTES_MAX + 1;

/// How many letters of a group's name may be others, missing or too many. Two that have changed places are two.
const GROUP_LETTERS_MAX: usize = 2;

/// The ids that a policy may name, in order: which one is told of several that are as near must not depend on chance.
pub(super) struct Ids<'s> {
    /// Those of actions: the tool's name, `/` and the action's own.
    actions: Vec<&'s str>,
    /// Those of groups.
    groups: Vec<&'s str>,
}

impl<'s> Validator<'s> {
    /// The actions that a policy names and that are neither registered nor groups.
    pub(super) fn unknown_actions(&self, parsed: &Parsed) -> Vec<Diagnostic> {
        let policy = parsed.template.condition();
        let unknown = policy
            .subexpressions()
            .filter_map(named)
            .filter(|uid| uid.is_action() && !self.members.contains_key(*uid));
        let told = unknown.take(TOLD_MAX).map(|uid| {
            let found = UnrecognizedActionId {
                source_loc: uid.loc().cloned(),
                policy_id: parsed.template.id().clone(),
                actual_action_id: uid.to_string(),
                hint: self.hint(&policy, uid),
            };
            finding(parsed, Severity::Error, &found)
        });
        told.collect()
    }

    /// Which action may have been meant, or which group where one may stand, as long as it takes little to say so.
    fn hint(&self, policy: &Expr, unknown: &EntityUID) -> Option<UnrecognizedActionIdHelp> {
        let id = id_of(unknown);
        if id.len() > ACTION_ID_BYTES_MAX {
            return None;
        }
        let letters = (id.len() + 1).saturating_mul(self.ids_bytes);
        self.letters_left
            .set(self.letters_left.get().checked_sub(letters)?);
        // Cedar has a function for all of this. It compares the mere id with others in quotes and behind their type,
        // and so finds short names rather than near ones.
        let meant = self
            .without_its_tool(id)
            .or_else(|| self.near_group(policy, unknown))
            .or_else(|| fuzzy_search(id, &self.ids().actions))?;
        let meant = facts::action(&meant).to_string();
        Some(UnrecognizedActionIdHelp::SuggestAlternative(meant))
    }

    /// The action of some tool that is called so. Its tool is what is left out most easily, and by letters alone any
    /// group is nearer.
    fn without_its_tool(&self, id: &str) -> Option<String> {
        let is_called_so = |action: &&&str| action.split_once('/').is_some_and(|(_, own)| own == id);
        let found = self.ids().actions.iter().find(is_called_so);
        found.map(|action| (*action).to_owned())
    }

    /// The group that is written almost so, and begins so. Whoever takes up the hint names all that is in it, so one
    /// that is merely the nearest is not told; nor is one where nothing but an action can match.
    fn near_group(&self, policy: &Expr, unknown: &EntityUID) -> Option<String> {
        let id = id_of(unknown);
        if is_an_actions(id) || !is_behind_in(policy, unknown) {
            return None;
        }
        let first = id.get(..1)?;
        let begins_so = |group: &&str| {
            let own = group.get(..1);
            own.is_some_and(|own| own.eq_ignore_ascii_case(first))
        };
        let groups = self.ids().groups.iter().copied();
        let groups: Vec<_> = groups.filter(begins_so).collect();
        fuzzy_search_limited(id, &groups, Some(GROUP_LETTERS_MAX))
    }

    /// The ids of all actions and groups, once somebody has asked.
    fn ids(&self) -> &Ids<'s> {
        self.ids.get_or_init(|| {
            let mut all: Vec<_> = self.members.keys().copied().map(id_of).collect();
            all.sort_unstable();
            let (actions, groups) = all.into_iter().partition(|id| is_an_actions(id));
            Ids { actions, groups }
        })
    }

    /// Takes what it took at most to say which members of this ask, or of a record that the policy writes out, may have
    /// been meant by those that it does not have. `written` is [`widest_written`] of the policy. What one ask takes is
    /// known only afterwards, and a policy's length bounds it.
    pub(super) fn take_member_letters(&self, types: &PolicyCheck, ask: &RequestEnv<'_>, written: usize) {
        let (PolicyCheck::Irrelevant(errors, _) | PolicyCheck::Fail(errors)) = types else {
            return;
        };
        // Only of what is neither the context's nor an entity's it is not known which record it is a member of.
        let (mut known, mut others) = (0, 0);
        for error in errors {
            if let ValidationError::UnsafeAttributeAccess(slip) = error {
                let is_other = matches!(slip.attribute_access, AttributeAccess::Other(_));
                let misspelt = if is_other { &mut others } else { &mut known };
                *misspelt += way_bytes(&slip.attribute_access);
            }
        }
        if known + others > 0 {
            let asked = widest_bytes(&ask.context_type());
            let letters = known.saturating_mul(asked);
            let letters = letters.saturating_add(others.saturating_mul(asked.max(written)));
            let left = self.member_letters_left.get();
            self.member_letters_left.set(left.saturating_sub(letters));
        }
    }
}

/// How long the names on the way to a member are that is not there, its own among them.
fn way_bytes(way: &AttributeAccess) -> usize {
    let (AttributeAccess::EntityLUB(_, names)
    | AttributeAccess::Context(_, names)
    | AttributeAccess::Other(names)) = way;
    names.iter().map(|name| name.len() + 1).sum()
}

/// How long the names of all members are that one record within this type has.
fn widest_bytes(of: &Type) -> usize {
    let Type::Record { attrs, .. } = of else {
        return 0;
    };
    let own: usize = attrs.keys().map(|name| name.len() + 1).sum();
    let inner = attrs.iter().map(|(_, member)| widest_bytes(&member.attr_type));
    inner.fold(own, usize::max)
}

/// How long the names of all members are that one record has which the policy writes out.
pub(super) fn widest_written(parsed: &Parsed) -> usize {
    let Some(conditions) = parsed.template.non_scope_constraints() else {
        return 0;
    };
    let written = conditions
        .subexpressions()
        .filter_map(|part| match part.expr_kind() {
            ExprKind::Record(members) => Some(members.keys().map(|name| name.len() + 1).sum::<usize>()),
            _ => None,
        });
    written.max().unwrap_or_default()
}

/// How long the id of this action is where it is compared.
pub(super) fn compared_bytes(action: &EntityUID) -> usize {
    id_of(action).len() + 1
}

/// The id of this action without its type.
fn id_of(action: &EntityUID) -> &str {
    action.eid().as_ref()
}

/// Whether this is the id of an action. That of a group has no `/`.
fn is_an_actions(id: &str) -> bool {
    id.contains('/')
}

/// The entity that this part of a policy is.
fn named(part: &Expr) -> Option<&EntityUID> {
    match part.expr_kind() {
        ExprKind::Lit(Literal::EntityUID(uid)) => Some(uid),
        _ => None,
    }
}

/// Whether the policy looks somewhere whether something is in this. That is the one thing that groups are for: no ask
/// is for a group, so nothing is ever equal to one.
fn is_behind_in(policy: &Expr, action: &EntityUID) -> bool {
    let is_it = |part: &Expr| named(part) == Some(action);
    policy.subexpressions().any(|part| match part.expr_kind() {
        ExprKind::BinaryApp {
            op: BinaryOp::In,
            arg2: groups,
            ..
        } => match groups.expr_kind() {
            ExprKind::Set(groups) => groups.iter().any(is_it),
            _ => is_it(groups),
        },
        _ => false,
    })
}

/// The places where a policy has too long a name for a member, which may be compared with all that are there.
pub(super) fn too_long(parsed: &Parsed) -> Vec<Diagnostic> {
    let Some(conditions) = parsed.template.non_scope_constraints() else {
        return Vec::new();
    };
    let too_long = conditions.subexpressions().filter(|part| has_too_long(part));
    let told = too_long.take(TOLD_MAX).map(|part| {
        let message = format!("the name of a member has more than {NAME_BYTES_MAX} bytes");
        let found = Diagnostic::error(message)
            .with_help("policies look at members with shorter names only")
            .about(&parsed.statement.id);
        found.at(Place::of_loc(part.source_loc()))
    });
    told.collect()
}

/// Whether it looks at a member with such a name, or makes one. A mere test compares nothing.
fn has_too_long(part: &Expr) -> bool {
    let is_too_long = |name: &str| name.len() > NAME_BYTES_MAX;
    match part.expr_kind() {
        ExprKind::GetAttr { attr, .. } => is_too_long(attr),
        ExprKind::ExtHasAttr { attrs, .. } => attrs.iter().any(|attr| is_too_long(attr)),
        ExprKind::Record(members) => members.keys().any(|name| is_too_long(name)),
        _ => false,
    }
}
