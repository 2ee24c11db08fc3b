//! What has been compiled and is still in use, by a digest of what it was compiled from: to change one policy of a
//! thousand, one is compiled, and a thousand tenants with the same tools share what is the same.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How many things nobody uses any more may be left in a cache before it is tidied, beyond those in use.
const IDLE_MAX: usize = 1_024;

/// Things that somebody uses, by what they were made of. The cache itself keeps nothing alive.
#[derive(Debug)]
pub(crate) struct WeakCache<K, V> {
    things: Mutex<Things<K, V>>,
}

#[derive(Debug)]
struct Things<K, V> {
    by_key: HashMap<K, Weak<V>>,
    /// When it has as many, it is tidied.
    tidied_at: usize,
}

impl<K, V> Default for WeakCache<K, V> {
    fn default() -> Self {
        Self {
            things: Mutex::new(Things {
                by_key: HashMap::new(),
                tidied_at: IDLE_MAX,
            }),
        }
    }
}

impl<K: Eq + Hash, V> WeakCache<K, V> {
    /// The thing with this key, made if nobody has it. It is made without holding the lock: two callers may make the same
    /// thing at once.
    pub(crate) fn get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        match self.find(&key) {
            Some(thing) => Ok(thing),
            None => Ok(self.keep(key, make()?)),
        }
    }

    /// Puts a thing into the cache.
    pub(crate) fn keep(&self, key: K, thing: V) -> Arc<V> {
        let thing = Arc::new(thing);
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        if things.by_key.len() >= things.tidied_at {
            things.by_key.retain(|_, thing| thing.strong_count() > 0);
            things.tidied_at = things.by_key.len() * 2 + IDLE_MAX;
        }
        things.by_key.insert(key, Arc::downgrade(&thing));
        thing
    }

    /// The thing with this key, if anybody has it.
    pub(crate) fn find(&self, key: &K) -> Option<Arc<V>> {
        let things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        things.by_key.get(key)?.upgrade()
    }
}

/// The last few things, which are kept although nobody uses them at the moment.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    /// The newest first.
    things: Mutex<VecDeque<Kept<K, V>>>,
    most: usize,
    weight_max: usize,
}

#[derive(Debug)]
struct Kept<K, V> {
    key: K,
    thing: Arc<V>,
    weight: usize,
}

impl<K: Eq, V> Recent<K, V> {
    /// Keeps this many at most, and no more than weigh so much together, but the newest in any case.
    pub(crate) fn new(most: usize, weight_max: usize) -> Self {
        Self {
            things: Mutex::new(VecDeque::new()),
            most,
            weight_max,
        }
    }

    /// The thing with this key, made if it is not at hand; what makes it says how much it weighs.
    pub(crate) fn get<E>(&self, key: K, make: impl FnOnce() -> Result<(V, usize), E>) -> Result<Arc<V>, E> {
        let lock = || self.things.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().iter().find(|known| known.key == key) {
            return Ok(Arc::clone(&known.thing));
        }
        let (thing, weight) = make()?;
        let thing = Arc::new(thing);
        let newest = Kept {
            key,
            thing: Arc::clone(&thing),
            weight,
        };
        let mut left = self.weight_max.saturating_sub(weight);
        let mut things = lock();
        things.truncate(self.most.saturating_sub(1));
        things.retain(|older| match left.checked_sub(older.weight) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        things.push_front(newest);
        Ok(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn made(cache: &WeakCache<u32, u32>, key: u32, value: u32) -> Arc<u32> {
        let Ok(thing) = cache.get(key, || Ok::<_, Infallible>(value));
        thing
    }

    #[test]
    fn a_thing_is_made_once_while_somebody_uses_it_and_again_afterwards() {
        let cache = WeakCache::default();
        let first = made(&cache, 1, 10);
        assert_eq!((*made(&cache, 1, 11), *made(&cache, 2, 20)), (10, 20));
        drop(first);
        assert_eq!(*made(&cache, 1, 12), 12);
    }

    #[test]
    fn a_failure_is_not_kept() {
        let cache = WeakCache::default();
        assert_eq!(cache.get(1, || Err("broken")), Err("broken"));
        assert_eq!(*made(&cache, 1, 10), 10);
    }

    #[test]
    fn what_nobody_uses_is_cleared_away() {
        let cache = WeakCache::default();
        let kept = made(&cache, 0, 0);
        for key in 1..=10 * u32::try_from(IDLE_MAX).unwrap() {
            made(&cache, key, key);
        }
        assert!(cache.things.lock().unwrap().by_key.len() <= IDLE_MAX + 2);
        assert!(Arc::ptr_eq(&kept, &made(&cache, 0, 1)));
    }

    #[test]
    fn the_last_few_things_are_kept_and_no_more() {
        let recent = Recent::new(2, usize::MAX);
        let made = |key: u32, value: u32| {
            let Ok(thing) = recent.get(key, || Ok::<_, Infallible>((value, 1)));
            *thing
        };
        assert_eq!(
            (made(1, 10), made(1, 11), made(2, 20), made(3, 30)),
            (10, 10, 20, 30)
        );
        assert_eq!((made(3, 31), made(1, 12)), (30, 12));
    }

    #[test]
    fn no_more_is_kept_than_the_bound_but_the_newest_whatever_it_weighs() {
        let recent = Recent::new(8, 100);
        let made = |key: u32, weight: usize| {
            let Ok(thing) = recent.get(key, || Ok::<_, Infallible>((key, weight)));
            *thing
        };
        let kept = || -> Vec<u32> {
            let things = recent.things.lock().unwrap();
            things.iter().map(|kept| kept.key).collect()
        };
        made(1, 40);
        made(2, 60);
        assert_eq!(kept(), [2, 1]);
        made(3, 50);
        // The second one does not fit beside it, and an older one does.
        assert_eq!(kept(), [3, 1]);
        made(4, 1_000);
        assert_eq!(kept(), [4]);
        made(5, 10);
        assert_eq!(kept(), [5]);
    }
}
