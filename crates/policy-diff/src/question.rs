//! What has to be asked: the sides of actions that the difference between two sets is about. Those that no policy can tell
//! apart are one kind, and asked about once.

use crate::fallible::can_fail;
use crate::prover::Open;
use policy::{ActionSide, Ground, Part, Registry, Slice, Slicer, TooMuch};
use std::collections::{BTreeMap, HashMap};

/// Two sets, cut up.
pub(crate) struct Pair<'s> {
    pub(crate) before: Slicer<'s>,
    pub(crate) after: Slicer<'s>,
    /// Policies that only the set before has.
    removed: Vec<usize>,
    /// Policies that only the candidate has.
    pub(crate) added: Vec<usize>,
    /// What may be too much to be evaluated in one of them.
    pub(crate) too_much: Option<TooMuch>,
}

/// Sides of actions for which both sets say the same, each for itself.
pub(crate) struct Kind<'r> {
    /// All of them.
    pub(crate) sides: Vec<ActionSide>,
    /// The first of them, which stands for the others.
    pub(crate) ground: Ground<'r>,
    pub(crate) before: Slice,
    pub(crate) after: Slice,
    /// Whether in each of both sets patterns may be too much for asks of one of the sides.
    pub(crate) may_fail: [bool; 2],
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
    pub(crate) fn new(before: Slicer<'s>, after: Slicer<'s>, body_bytes_max: usize) -> Self {
        Self {
            too_much: before.too_much_beside(&after, body_bytes_max),
            removed: before.not_in(&after, can_fail),
            added: after.not_in(&before, can_fail),
            before,
            after,
        }
    }

    /// Whether the sets say the same.
    pub(crate) const fn is_equal(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }

    /// The sides of which no condition tells whether the candidate allows more, and those of which none tells whether
    /// it allows less, because of policies that may be too much for an ask, and why.
    pub(crate) fn too_much(
        &self,
        registry: Registry<'_>,
        has_time: impl Fn() -> bool,
    ) -> [Vec<(Open, Vec<ActionSide>)>; 2] {
        let Some(too_much) = &self.too_much else {
            return [Vec::new(), Vec::new()];
        };
        let mut left = Vec::new();
        let mut found: [BTreeMap<&str, Vec<ActionSide>>; 2] = [BTreeMap::new(), BTreeMap::new()];
        for ground in grounds(registry) {
            if !has_time() {
                left.push(ground.side());
                continue;
            }
            let why = too_much.why([&self.before, &self.after], &ground);
            for (found, why) in found.iter_mut().zip(why) {
                if let Some(why) = why {
                    found.entry(why).or_default().push(ground.side());
                }
            }
        }
        found.map(|found| {
            let found = found.into_iter();
            let found = found.map(|(why, sides)| (Open::Beyond(why.to_owned()), sides));
            let left = (!left.is_empty()).then(|| (Open::NoTimeLeft, left.clone()));
            found.chain(left).collect()
        })
    }

    /// Whether in each of both sets patterns may be too much for asks of this side.
    fn may_fail(&self, ground: &Ground<'_>) -> [bool; 2] {
        let too_much = self.too_much.as_ref();
        too_much.map_or([false; 2], |too_much| {
            too_much.may_fail([&self.before, &self.after], ground)
        })
    }

    /// Whether the difference is about this side.
    pub(crate) fn is_about(&self, ground: &Ground<'_>) -> bool {
        let removed = self.before.slice(self.removed.iter().copied(), ground);
        !removed.is_empty() || !self.after.slice(self.added.iter().copied(), ground).is_empty()
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
            let may_fail = self.may_fail(&ground);
            let key = (before.clone(), after.clone(), own);
            match places.get(&key) {
                Some(place) => kinds[*place].add(side, may_fail),
                None if kinds.len() >= kinds_max => left.push(side),
                None => {
                    places.insert(key, kinds.len());
                    kinds.push(Kind {
                        sides: vec![side],
                        ground,
                        before,
                        after,
                        may_fail,
                    });
                }
            }
        }
        Kinds { kinds, left }
    }
}

impl Kind<'_> {
    /// Adds a side. What counts there beside the slices, and says nothing, need not be what counts for the others.
    fn add(&mut self, side: ActionSide, [before, after]: [bool; 2]) {
        self.sides.push(side);
        self.may_fail[0] |= before;
        self.may_fail[1] |= after;
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
