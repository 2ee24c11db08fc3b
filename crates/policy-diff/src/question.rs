//! What has to be asked: the sides of actions that the difference between two sets is about. Those that no policy can tell
//! apart are one kind, and asked about once.

use policy::{ActionSide, Ground, Part, Registry, Slice, Slicer};
use std::collections::HashMap;

/// Two sets, cut up.
pub(crate) struct Pair<'s> {
    pub(crate) before: Slicer<'s>,
    pub(crate) after: Slicer<'s>,
    /// The policies that only one of them has.
    gone: Vec<usize>,
    pub(crate) come: Vec<usize>,
}

/// Sides of actions for which both sets say the same, each for itself.
pub(crate) struct Kind<'r> {
    /// All of them.
    pub(crate) sides: Vec<ActionSide>,
    /// The first of them, which stands for the others.
    pub(crate) ground: Ground<'r>,
    pub(crate) before: Slice,
    pub(crate) after: Slice,
}

/// What the difference between two sets is about.
#[derive(Default)]
pub(crate) struct Kinds<'r> {
    pub(crate) kinds: Vec<Kind<'r>>,
    /// What was not looked at.
    pub(crate) left: Vec<ActionSide>,
}

/// What is the same for sides of one kind. A side that a policy can tell from others is a kind of its own.
type Key = (Slice, Slice, Option<ActionSide>);

impl<'s> Pair<'s> {
    pub(crate) fn new(before: Slicer<'s>, after: Slicer<'s>) -> Self {
        Self {
            gone: before.not_in(&after),
            come: after.not_in(&before),
            before,
            after,
        }
    }

    /// Whether the sets say the same.
    pub(crate) const fn is_equal(&self) -> bool {
        self.gone.is_empty() && self.come.is_empty()
    }

    /// Whether the difference is about this side.
    pub(crate) fn is_about(&self, ground: &Ground<'_>) -> bool {
        let gone = self.before.slice(self.gone.iter().copied(), ground);
        !gone.is_empty() || !self.after.slice(self.come.iter().copied(), ground).is_empty()
    }

    /// The sides that the difference is about, by kind, in the order of their names. Sides as they are registered come
    /// before those that an ask only claims to be on. Those for which there is no time or no room are left.
    pub(crate) fn kinds<'r>(
        &self,
        registry: Registry<'r>,
        kinds_max: usize,
        has_time: impl Fn() -> bool,
    ) -> Kinds<'r> {
        let mut kinds: Vec<Kind<'r>> = Vec::new();
        let mut left = Vec::new();
        let mut places: HashMap<Key, usize> = HashMap::new();
        for ground in grounds(registry) {
            if !has_time() {
                left.push(ground.side());
                continue;
            }
            if !self.is_about(&ground) {
                continue;
            }
            let before = self.before.slice(self.before.all(), &ground);
            let after = self.after.slice(self.after.all(), &ground);
            let side = ground.side();
            let parts = [self.before.parts(&before), self.after.parts(&after)].concat();
            let own = parts.iter().any(Part::is_about_one_action).then(|| side.clone());
            let key = (before.clone(), after.clone(), own);
            match places.get(&key) {
                Some(place) => kinds[*place].sides.push(side),
                None if kinds.len() >= kinds_max => left.push(side),
                None => {
                    places.insert(key, kinds.len());
                    kinds.push(Kind {
                        sides: vec![side],
                        ground,
                        before,
                        after,
                    });
                }
            }
        }
        Kinds { kinds, left }
    }
}

/// Every side of every action. What is registered as a mutation is always one.
pub(crate) fn grounds(registry: Registry<'_>) -> impl Iterator<Item = Ground<'_>> {
    let sides = move |is_claimed: bool| {
        let tools = registry.tools.values();
        let actions = tools.flat_map(|tool| tool.actions.values().map(move |action| (tool, action)));
        actions
            .filter(move |(_, action)| !(is_claimed && action.mutates_state))
            .map(move |(tool, action)| Ground::of(tool, action, is_claimed || action.mutates_state))
    };
    sides(false).chain(sides(true))
}
