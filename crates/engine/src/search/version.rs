//! Which version of the index a block is of, told by the number of the claim with which it was put.
//!
//! What a word is may change, and then a block that was put before does not say what a search asks it. Such a block is
//! read from the ledger like one that is not there, until it is made again. A gateway of the earlier version takes a
//! block of this one for its own, so both can be at work on one database.

/// The version of what [`terms`](super::terms) makes of a decision. One more with every change of it. So far only words
/// have changed: a search without words believes blocks of all versions (`gateway/src/search/page.rs`), which ends with
/// the first change of a field.
const VERSION: u8 = 3;
/// Stands before the version in the number of a claim.
const MARK: u32 = 0x00c5_1d7e;

/// The number of a claim by which the block that is put with it is known as one of this version.
///
/// The first version has no mark, and numbers that are random in all bits: one in sixteen million looks like one of
/// this version or a later one.
pub fn token(random: u32) -> i64 {
    let marked = (MARK << 8) | u32::from(VERSION);
    ((u64::from(random) << 32) | u64::from(marked)).cast_signed()
}

/// Whether a block that was put with a claim of this number is of this version, or of a later one: two versions that
/// are at work on one database do not make each other's blocks again.
pub fn is_current(token: i64) -> bool {
    let marked = token.cast_unsigned() & u64::from(u32::MAX);
    marked >> 8 == u64::from(MARK) && marked & 0xff >= u64::from(VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_tells_the_version_whatever_else_is_in_its_number() {
        for random in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let token = token(random);
            assert!(is_current(token), "{random}");
            assert!(is_current(token + 1), "{random}: a later one");
            assert!(!is_current(token - 1), "{random}: an earlier one");
            assert!(!is_current(token ^ (1 << 8)), "{random}: another mark");
        }
        assert_ne!(token(1), token(2));
        assert!(!is_current(0) && !is_current(7) && !is_current(-1));
    }
}
