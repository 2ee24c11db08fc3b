//! Whether this gateway may answer: what it knows is new enough, no witness has seen another ledger, and its store is
//! still there.
//!
//! It is asked before a request is looked at, and again before an answer leaves that is not recorded. When what is
//! known was last the state of the store is kept in `snapshot/freshness.rs`.

use crate::gateway::Gateway;
use crate::http::{Code, Refusal};
use crate::snapshot::AsOf;
use model::TenantId;
use std::time::Duration;

impl Gateway {
    /// Refuses where it may be out of date who may do what, or where this gateway cannot vouch for what it answers:
    /// what everybody depends on was not compared with the store lately, a witness has seen another ledger, or the
    /// store is gone.
    pub fn check_current(&self) -> Result<(), Refusal> {
        self.check_age(self.snapshot.age())?;
        self.check_ledger()
    }

    /// Refuses where what is known of this tenant, which another gateway may have changed, may be out of date, and
    /// where the database is known to have lost some of it, however lately that was compared.
    pub fn check_current_for(&self, tenant: TenantId) -> Result<(), Refusal> {
        self.check_has_all(tenant)?;
        self.check_age(self.snapshot.age_of(tenant))
    }

    /// Refuses an answer that is not recorded where what it was made from may be out of date by now or is lost, or
    /// where this gateway may not answer at all any more. `as_of` is from before anything was looked at.
    pub fn check_answer_is_current(&self, as_of: AsOf) -> Result<(), Refusal> {
        self.check_has_all(as_of.tenant())?;
        self.check_age(as_of.age())?;
        self.check_ledger()
    }

    /// Refuses by what was the state of the store so long ago, where that may be out of date by now. Where changes of
    /// the system tenant are lost it only grows older until a restart, so nobody is told to try again.
    pub fn check_age(&self, age: Duration) -> Result<(), Refusal> {
        if age > self.options.bounds.snapshot_age_max {
            self.check_has_all(TenantId::SYSTEM)?;
            return Err(Refusal::snapshot_stale());
        }
        Ok(())
    }

    /// Refuses where the database has lost a change of a tenant that is in force here.
    pub fn check_has_all(&self, tenant: TenantId) -> Result<(), Refusal> {
        if self.snapshot.continuity.has_lost(tenant) {
            return Err(Refusal::changes_lost());
        }
        Ok(())
    }

    /// Refuses to answer from a store that has been taken away, that its disk has lost some of, that another gateway
    /// may be at work on, or that nobody looks after. Nothing but a restart helps, so nobody is told to try again.
    pub fn check_store(&self) -> Result<(), Refusal> {
        let gone = "the files of the database were deleted or replaced while they were open, could not be synced, or are not looked after any more, so nothing is answered; the log of the gateway says what to do";
        let checked = self.store.check();
        checked.map_err(|_| Refusal::new(Code::LedgerUnavailable, gone))
    }

    /// Refuses where a witness has seen another ledger than the one that is here, or the store is gone.
    fn check_ledger(&self) -> Result<(), Refusal> {
        self.cosigning.check()?;
        self.check_store()
    }
}
