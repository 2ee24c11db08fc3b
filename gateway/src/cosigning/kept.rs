//! What witnesses have cosigned: of each tenant the newest checkpoint that anybody has, and the newest that enough have.
//!
//! It is in memory: a gateway that starts asks again, and then each witness says itself what it has seen last.

use canon::Digest;
use ledger::witness::Cosigned;
use ledger::{Checkpoint, NoteSignature};
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Of all tenants.
#[derive(Debug, Default)]
pub(super) struct Kept {
    tenants: HashMap<TenantId, OfTenant>,
}

#[derive(Debug, Default)]
struct OfTenant {
    /// What each witness has cosigned last, by its place in the options.
    seen: HashMap<usize, Cosigned>,
    newest: Option<Signatures>,
    witnessed: Option<Signatures>,
}

/// A checkpoint with the signatures of witnesses, by their places in the options.
#[derive(Debug, Clone)]
struct Signatures {
    checkpoint: Checkpoint,
    by: BTreeMap<usize, NoteSignature>,
}

impl Kept {
    /// What a witness is known to have cosigned last.
    pub(super) fn seen(&self, tenant: TenantId, witness: usize) -> Option<Cosigned> {
        self.tenants.get(&tenant)?.seen.get(&witness).copied()
    }

    /// Keeps a cosignature. `quorum` names under one checkpoint make it a witnessed one, however many keys a witness
    /// has: so whoever verifies it counts. One that comes late, for a checkpoint that is not the newest any more, only
    /// says what its witness has seen.
    pub(super) fn keep(
        &mut self,
        tenant: TenantId,
        witness: usize,
        checkpoint: &Checkpoint,
        signature: NoteSignature,
        quorum: usize,
    ) {
        let kept = self.tenants.entry(tenant).or_default();
        let (size, root): (u64, Digest) = (checkpoint.size, checkpoint.root);
        kept.seen.insert(witness, Cosigned { size, root });
        if kept
            .newest
            .as_ref()
            .is_some_and(|newest| newest.checkpoint.size > size)
        {
            return;
        }
        let newest = kept
            .newest
            .take()
            .filter(|newest| newest.checkpoint == *checkpoint);
        let mut newest = newest.unwrap_or_else(|| Signatures {
            checkpoint: checkpoint.clone(),
            by: BTreeMap::new(),
        });
        newest.by.insert(witness, signature);
        let names: BTreeSet<&str> = newest.by.values().map(|by| by.name.as_str()).collect();
        if names.len() >= quorum {
            kept.witnessed = Some(newest.clone());
        }
        kept.newest = Some(newest);
    }

    /// The signatures under this very checkpoint.
    pub(super) fn cosignatures(&self, tenant: TenantId, checkpoint: &Checkpoint) -> Vec<NoteSignature> {
        let kept = self.tenants.get(&tenant);
        let all = kept.into_iter().flat_map(|kept| [&kept.newest, &kept.witnessed]);
        let same = all
            .flatten()
            .find(|signatures| signatures.checkpoint == *checkpoint);
        same.map_or_else(Vec::new, |signatures| signatures.by.values().cloned().collect())
    }

    /// The newest checkpoint with enough signatures.
    pub(super) fn witnessed(&self, tenant: TenantId) -> Option<Checkpoint> {
        let kept = self.tenants.get(&tenant)?;
        kept.witnessed
            .as_ref()
            .map(|signatures| signatures.checkpoint.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{SignatureKind, SigningKey};

    /// The witnesses 3 and 4 are one with two keys.
    fn cosigned(witness: u8, size: u64) -> (Checkpoint, NoteSignature) {
        let name = format!("w.example/{}", witness.min(3));
        let key = SigningKey::from_seed(&name, SignatureKind::Cosignature, &[witness; 32]).unwrap();
        let checkpoint = Checkpoint::new("log.example", "tnt_1", size, Digest::of(&size.to_be_bytes()));
        let signature = checkpoint.cosign(&key, 1);
        (checkpoint, signature)
    }

    fn keep(kept: &mut Kept, witness: u8, size: u64, quorum: usize) {
        let (checkpoint, signature) = cosigned(witness, size);
        kept.keep(
            TenantId::SYSTEM,
            usize::from(witness),
            &checkpoint,
            signature,
            quorum,
        );
    }

    #[test]
    fn a_checkpoint_is_witnessed_when_enough_have_cosigned_that_very_one() {
        let mut kept = Kept::default();
        let witnessed = |kept: &Kept| kept.witnessed(TenantId::SYSTEM).map(|checkpoint| checkpoint.size);
        keep(&mut kept, 1, 10, 2);
        assert_eq!(witnessed(&kept), None);
        keep(&mut kept, 2, 11, 2);
        assert_eq!(witnessed(&kept), None);
        keep(&mut kept, 1, 11, 2);
        assert_eq!(witnessed(&kept), Some(11));
        keep(&mut kept, 1, 12, 2);
        assert_eq!(witnessed(&kept), Some(11));
        let signatures = |size| kept.cosignatures(TenantId::SYSTEM, &cosigned(1, size).0).len();
        assert_eq!([10, 11, 12, 13].map(signatures), [0, 2, 1, 0]);
        assert_eq!(kept.seen(TenantId::SYSTEM, 1).unwrap().size, 12);
        assert_eq!(kept.seen(TenantId::SYSTEM, 2).unwrap().size, 11);
        assert_eq!(kept.seen(TenantId::SYSTEM, 3), None);
    }

    #[test]
    fn a_witness_that_signs_again_counts_once() {
        let mut kept = Kept::default();
        keep(&mut kept, 1, 10, 2);
        keep(&mut kept, 1, 10, 2);
        assert_eq!(kept.witnessed(TenantId::SYSTEM), None);
        assert_eq!(kept.cosignatures(TenantId::SYSTEM, &cosigned(1, 10).0).len(), 1);
    }

    #[test]
    fn a_witness_with_two_keys_counts_once() {
        let mut kept = Kept::default();
        keep(&mut kept, 3, 10, 2);
        keep(&mut kept, 4, 10, 2);
        assert_eq!(kept.witnessed(TenantId::SYSTEM), None);
        keep(&mut kept, 1, 10, 2);
        assert_eq!(kept.witnessed(TenantId::SYSTEM).unwrap().size, 10);
    }

    #[test]
    fn what_comes_late_takes_no_newer_checkpoint_away() {
        let mut kept = Kept::default();
        keep(&mut kept, 1, 12, 1);
        keep(&mut kept, 2, 11, 1);
        assert_eq!(kept.witnessed(TenantId::SYSTEM).unwrap().size, 12);
        assert_eq!(kept.cosignatures(TenantId::SYSTEM, &cosigned(1, 12).0).len(), 1);
        assert_eq!(kept.seen(TenantId::SYSTEM, 2).unwrap().size, 11);
    }
}
