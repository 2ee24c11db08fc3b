//! How many asks are in the gateway at once: an ask takes a place before anybody looks at its body, as soon as that has
//! come and its caller is known, and has it until it is answered. Whoever finds none is refused.

mod room;

use crate::locks::lock;
use model::TenantId;
use room::Room;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Who lets asks in.
pub struct Admission {
    room: Arc<Mutex<Room>>,
}

/// The permit of an ask to be in the gateway, until it is answered: the ask has a place as long as this is held.
#[must_use = "a place is had as long as its permit is held"]
pub struct Permit {
    room: Arc<Mutex<Room>>,
    tenant: TenantId,
    since: Instant,
    /// How long it has waited since for what says nothing of how long asks take.
    paused: Duration,
    /// How many asks are answered or recorded with it; 0 as long as there is none.
    asks: u32,
    is_of_flood: bool,
}

/// Whether an ask has a place, found out before anybody looks at it.
pub enum EarlyAdmission {
    /// There are places enough, so nobody has looked who asks. It takes one later.
    Undecided,
    /// It has one.
    Admitted(Permit),
    /// There is none: it is refused.
    Refused,
}

/// How many asks have a place, and how many may have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    /// How many have one.
    pub taken: usize,
    /// How many may have one, as asks fare now.
    pub max: usize,
}

impl Admission {
    /// With places for this many asks.
    pub fn new(places_max: usize) -> Self {
        Self {
            room: Arc::new(Mutex::new(Room::new(places_max, Instant::now()))),
        }
    }

    /// A place for an ask of this tenant, if there is one. `commit` is how long commits take now.
    pub fn enter(&self, tenant: TenantId, commit: Duration) -> Option<Permit> {
        let mut room = lock(&self.room);
        room.enter(tenant, commit).then(|| Permit {
            room: Arc::clone(&self.room),
            tenant,
            since: Instant::now(),
            paused: Duration::ZERO,
            asks: 0,
            is_of_flood: room.is_flooded_by(tenant),
        })
    }

    /// Refuses an ask of this tenant if there is no place for it now, and returns whether it did. It takes no place. A
    /// refusal is counted, and many of them make a flood, so whoever gets `true` does refuse.
    pub fn refuse_if_full(&self, tenant: TenantId) -> bool {
        lock(&self.room).refuse_if_full(tenant)
    }

    /// A place for an ask of which nobody knows yet whose it is, if there is one. It costs next to nothing while there
    /// are many places.
    pub fn enter_under_pressure(
        &self,
        tenant: impl FnOnce() -> Option<TenantId>,
        commit: Duration,
    ) -> EarlyAdmission {
        // Not held while somebody finds out who asks.
        let is_under_pressure = lock(&self.room).is_under_pressure();
        match is_under_pressure.then(tenant).flatten() {
            Some(tenant) => self
                .enter(tenant, commit)
                .map_or(EarlyAdmission::Refused, EarlyAdmission::Admitted),
            None => EarlyAdmission::Undecided,
        }
    }

    /// How long asks take now, if that is known.
    pub fn usual(&self) -> Option<Duration> {
        lock(&self.room).usual(Instant::now())
    }

    /// How many asks have a place, and how many may have one.
    pub fn occupancy(&self) -> Occupancy {
        let room = lock(&self.room);
        Occupancy {
            taken: room.taken(),
            max: room.limit(),
        }
    }
}

impl EarlyAdmission {
    /// The place of an ask that is looked at now, if it has one or finds one.
    pub fn place(self, enter: impl FnOnce() -> Option<Permit>) -> Option<Permit> {
        match self {
            Self::Undecided => enter(),
            Self::Admitted(permit) => Some(permit),
            Self::Refused => None,
        }
    }
}

impl Permit {
    /// Says that so many asks at least are answered with it, or wait to be recorded. Each takes its part of the time:
    /// many together are not one that takes long, which would be expected of the next ask of anybody.
    ///
    /// An ask that is refused at once is none of them. Such a refusal takes next to no time, and many of them would say
    /// of an overload that there is none.
    pub const fn note_asks(&mut self, asks: u32) {
        if asks > self.asks {
            self.asks = asks;
        }
    }

    /// Says that its ask, which takes long, has waited so long for a permit among those that do, and was judged then.
    /// That says nothing of how long asks take.
    pub fn pause(&mut self, waited: Duration) {
        self.paused += waited;
    }

    /// How long it has been held for what says how long asks take.
    fn took(&self, now: Instant) -> Duration {
        now.duration_since(self.since).saturating_sub(self.paused)
    }

    /// Whether it has been held for so long that what was refused meanwhile was not refused at once.
    pub fn is_held_long(&self) -> bool {
        self.took(Instant::now()) >= room::WINDOW
    }

    /// Whether its tenant floods the gateway.
    pub const fn is_of_flood(&self) -> bool {
        self.is_of_flood
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = Instant::now();
        let took = self.took(now);
        let mut room = lock(&self.room);
        match took.checked_div(self.asks) {
            Some(each) => room.leave(self.tenant, each, now),
            // What has waited that long hides no overload, whatever came of it.
            None if took >= room::WINDOW => room.leave(self.tenant, took, now),
            None => room.decline(self.tenant, self.since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ask that is answered as soon as it has its place.
    fn answer_one(admission: &Admission, tenant: TenantId) {
        let mut permit = admission.enter(tenant, Duration::ZERO).unwrap();
        permit.note_asks(1);
    }

    #[test]
    fn many_asks_in_one_place_are_not_one_that_takes_long() {
        let tenant = TenantId::from_bytes([1; 16]);
        for (asks, is_long) in [(1, true), (1_000_000, false)] {
            let admission = Admission::new(64);
            for _ in 0..100 {
                let mut permit = admission.enter(tenant, Duration::ZERO).unwrap();
                permit.note_asks(asks);
                // Has been held for a second.
                permit.since = permit.since.checked_sub(Duration::from_secs(1)).unwrap();
            }
            std::thread::sleep(Duration::from_millis(100));
            answer_one(&admission, tenant);
            let usual = admission.usual().unwrap();
            assert_eq!(usual > Duration::from_millis(500), is_long, "{asks}: {usual:?}");
        }
    }

    #[test]
    fn what_waits_among_those_that_take_long_is_not_what_asks_take() {
        const WAITED: Duration = Duration::from_secs(1);
        let tenant = TenantId::from_bytes([1; 16]);
        for (is_paused, is_long) in [(false, true), (true, false)] {
            let admission = Admission::new(64);
            for _ in 0..40 {
                let mut permit = admission.enter(tenant, Duration::ZERO).unwrap();
                permit.note_asks(1);
                permit.since = permit.since.checked_sub(WAITED).unwrap();
                if is_paused {
                    permit.pause(WAITED);
                }
            }
            std::thread::sleep(Duration::from_millis(100));
            answer_one(&admission, tenant);
            let usual = admission.usual().unwrap();
            assert_eq!(usual > WAITED / 2, is_long, "{usual:?}");
        }
    }

    #[test]
    fn who_is_refused_at_the_door_says_nothing_about_how_long_asks_take() {
        let (one, other) = (TenantId::from_bytes([1; 16]), TenantId::from_bytes([2; 16]));
        for is_answered in [true, false] {
            let admission = Admission::new(64);
            // As many as one tenant may have, so that others are admitted early.
            let held: Vec<_> = (0..32)
                .map_while(|_| admission.enter(one, Duration::ZERO))
                .collect();
            for _ in 0..100 {
                let early = admission.enter_under_pressure(|| Some(other), Duration::ZERO);
                assert!(matches!(early, EarlyAdmission::Admitted(_)));
                if is_answered {
                    early.place(|| None).unwrap().note_asks(1);
                }
            }
            std::thread::sleep(Duration::from_millis(100));
            answer_one(&admission, other);
            assert_eq!(admission.usual().is_some(), is_answered);
            assert_eq!(admission.occupancy().taken, held.len());
        }
    }

    #[test]
    fn who_is_refused_at_once_says_nothing_about_how_long_asks_take() {
        let tenant = TenantId::from_bytes([1; 16]);
        let admission = Admission::new(256);
        for _ in 0..32 {
            let mut permit = admission.enter(tenant, Duration::ZERO).unwrap();
            permit.note_asks(1);
            // Has been held for a second.
            permit.since = permit.since.checked_sub(Duration::from_secs(1)).unwrap();
        }
        for _ in 0..100 {
            drop(admission.enter(tenant, Duration::ZERO).unwrap());
        }
        std::thread::sleep(Duration::from_millis(100));
        answer_one(&admission, tenant);
        let usual = admission.usual().unwrap();
        assert!(usual > Duration::from_millis(500), "{usual:?}");
        assert_eq!(admission.occupancy().taken, 0);
    }

    /// As while the store cannot be read and each ask waits for it in vain.
    #[test]
    fn who_is_refused_after_a_long_wait_says_that_asks_take_long() {
        let tenant = TenantId::from_bytes([1; 16]);
        let admission = Admission::new(256);
        for _ in 0..40 {
            let mut permit = admission.enter(tenant, Duration::ZERO).unwrap();
            permit.since = permit.since.checked_sub(Duration::from_secs(1)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
        answer_one(&admission, tenant);
        let usual = admission.usual().unwrap();
        assert!(usual > Duration::from_millis(500), "{usual:?}");
    }
}
