//! Randomness: the operating system's, and none at all for tests.

use std::cell::RefCell;

/// Where randomness comes from.
pub trait Entropy: Send + Sync {
    /// Fills the buffer with random bytes.
    fn fill(&self, buffer: &mut [u8]);
}

/// The randomness of the operating system.
///
/// What is as short as an id is taken from a supply that each thread fetches at once: a decision takes several of them, and
/// a call of the system for each would cost more than the rest of making it. Secrets are longer and are never in the supply.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

/// What is no longer than this comes from the supply.
const SHORT: usize = 16;

/// Random bytes that a thread has fetched and not used yet: those behind the first so many.
struct Supply {
    bytes: [u8; 512],
    used: usize,
}

thread_local! {
    static SUPPLY: RefCell<Supply> = const {
        RefCell::new(Supply { bytes: [0; 512], used: 512 })
    };
}

impl Supply {
    fn fill(&mut self, buffer: &mut [u8]) {
        if self.bytes.len() - self.used < buffer.len() {
            fetch(&mut self.bytes);
            self.used = 0;
        }
        let next = &mut self.bytes[self.used..][..buffer.len()];
        buffer.copy_from_slice(next);
        // Nobody reads a second time what is part of an id.
        next.fill(0);
        self.used += buffer.len();
    }
}

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        if buffer.len() > SHORT {
            return fetch(buffer);
        }
        SUPPLY.with_borrow_mut(|supply| supply.fill(buffer));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that asks for randomness"
)]
fn fetch(buffer: &mut [u8]) {
    getrandom::fill(buffer).expect("the operating system gives randomness, or nothing here is safe");
}

/// Not random at all: every byte is this one. For tests of what is made from randomness.
#[derive(Debug, Clone, Copy)]
pub struct FixedEntropy(
    /// The byte.
    pub u8,
);

impl Entropy for FixedEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        buffer.fill(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_short_ones_are_alike_on_any_thread() {
        let draw = || {
            let draws = (0..1_000).map(|_| {
                let mut bytes = [0; 10];
                SystemEntropy.fill(&mut bytes);
                bytes
            });
            draws.collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let all = threads.into_iter().flat_map(|thread| thread.join().unwrap());
        assert_eq!(all.collect::<BTreeSet<_>>().len(), 4_000);
    }

    #[test]
    fn random_bytes_that_were_given_out_are_overwritten() {
        let mut supply = Supply {
            bytes: [7; 512],
            used: 0,
        };
        let mut bytes = [0; 12];
        supply.fill(&mut bytes);
        assert_eq!(bytes, [7; 12]);
        assert_eq!(supply.bytes[..12], [0; 12]);
        assert_eq!(supply.bytes[12..], [7; 500]);
    }

    #[test]
    fn an_empty_supply_is_fetched_anew() {
        let mut supply = Supply {
            bytes: [0; 512],
            used: 505,
        };
        let mut bytes = [0; 16];
        supply.fill(&mut bytes);
        assert_ne!(bytes, [0; 16]);
        assert_eq!(supply.used, 16);
    }
}
