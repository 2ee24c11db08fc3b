//! The number of an entry in this database: the tenant's number and the `seq`, in one integer that tables are
//! clustered by.
//!
//! `tenant_no << 40 | seq`: 8 million tenants with 10^12 entries each. It never leaves this crate.

const SEQ_BITS: u32 = 40;
/// The last `seq` that there is room for.
pub(crate) const SEQ_MAX: i64 = (1 << SEQ_BITS) - 1;

/// The number of an entry; none when the tenant's ledger is full.
pub(crate) fn number(tenant_no: i64, seq: u64) -> Option<i64> {
    let seq = i64::try_from(seq).ok().filter(|seq| *seq <= SEQ_MAX)?;
    Some(tenant_no << SEQ_BITS | seq)
}

/// Whose entry it is.
pub(crate) const fn tenant_no(entry: i64) -> i64 {
    entry >> SEQ_BITS
}

/// Its place in the chain.
pub(crate) const fn seq(entry: i64) -> u64 {
    (entry & SEQ_MAX).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_gives_back_what_it_was_made_from() {
        for (tenant, place) in [(1, 1), (1, 0), (7, 4_812), (8_388_607, SEQ_MAX.cast_unsigned())] {
            let entry = number(tenant, place).unwrap();
            assert!(entry > 0);
            assert_eq!((tenant_no(entry), seq(entry)), (tenant, place));
        }
    }

    #[test]
    fn the_ranges_of_two_tenants_do_not_meet() {
        assert!(number(1, SEQ_MAX.cast_unsigned()).unwrap() < number(2, 0).unwrap());
        assert_eq!(number(1, SEQ_MAX.cast_unsigned() + 1), None);
        assert_eq!(number(1, u64::MAX), None);
    }
}
