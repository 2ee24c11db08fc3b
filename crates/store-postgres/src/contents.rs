//! Bytes that entries name by their digest: written with the entries, read back by whoever wants to know what they meant.

use crate::PostgresStore;
use crate::decode::{RowLabel, uuid};
use canon::Digest;
use model::TenantId;
use sqlx::types::Uuid;
use store::{Batch, StoreError};

/// The contents of a batch, a vector a column.
#[derive(Default)]
pub(crate) struct ContentColumns {
    pub(crate) tenants: Vec<Uuid>,
    pub(crate) digests: Vec<Vec<u8>>,
    pub(crate) bytes: Vec<Vec<u8>>,
}

impl ContentColumns {
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut contents = Self::default();
        for row in &batch.contents {
            contents.tenants.push(uuid(row.tenant));
            contents.digests.push(row.digest.as_bytes().to_vec());
            contents.bytes.push(row.bytes.to_vec());
        }
        contents
    }
}

impl PostgresStore {
    pub(crate) async fn read_contents(
        &self,
        tenant: TenantId,
        digests: &[Digest],
    ) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        let wanted: Vec<_> = digests.iter().map(|digest| &digest.as_bytes()[..]).collect();
        let query = || {
            sqlx::query!(
                "SELECT digest, bytes
                 FROM contents
                 WHERE tenant_id = $1
                   AND digest = ANY ($2::bytea[])",
                uuid(tenant),
                &wanted as &[&[u8]],
            )
        };
        let label = RowLabel {
            table: "contents",
            tenant,
            seq: None,
        };
        let rows = self.readers.read(query).await?.into_iter();
        rows.map(|found| Ok((label.digest("digest", &found.digest)?, found.bytes)))
            .collect()
    }
}
