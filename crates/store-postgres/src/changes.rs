//! The changes of directories in a batch, in order: a name that one gives up, the next one can take.
//!
//! Changes of one sort that follow each other travel as one statement, which goes through them in their order too. So a
//! batch that brings a whole directory is few round trips.

use crate::decode::uuid;
use model::{Noun, Write};
use sqlx::PgConnection;
use sqlx::types::Uuid;
use std::collections::HashSet;
use store::Batch;

/// Changes that one statement can make, with nothing borrowed from the batch.
pub(crate) enum Changes {
    /// These nouns are there from now on. None of them twice: a statement cannot.
    Put {
        keys: Keys,
        names: Vec<Option<String>>,
        values: Vec<String>,
    },
    /// These are gone.
    Delete(Keys),
}

/// What nouns are found by, a vector a column.
#[derive(Default)]
pub(crate) struct Keys {
    tenants: Vec<Uuid>,
    kinds: Vec<&'static str>,
    ids: Vec<String>,
}

type Key = (Uuid, &'static str, String);

impl Keys {
    fn push(&mut self, (tenant, kind, id): Key) {
        self.tenants.push(tenant);
        self.kinds.push(kind);
        self.ids.push(id);
    }
}

/// The changes of a batch.
pub(crate) fn of(batch: &Batch) -> Vec<Changes> {
    let mut changes = Vec::new();
    // What the last statement puts already.
    let mut put = HashSet::new();
    for (tenant, write) in &batch.writes {
        let (Write::Put(noun) | Write::Delete(noun)) = write;
        let key: Key = (uuid(*tenant), noun.kind().as_str(), noun.id());
        match write {
            Write::Put(noun) => {
                if !put.insert(key.clone()) || !matches!(changes.last(), Some(Changes::Put { .. })) {
                    changes.push(Changes::Put {
                        keys: Keys::default(),
                        names: Vec::new(),
                        values: Vec::new(),
                    });
                    put = HashSet::from([key.clone()]);
                }
                if let Some(Changes::Put { keys, names, values }) = changes.last_mut() {
                    keys.push(key);
                    names.push(noun.unique_name().map(str::to_owned));
                    values.push(noun.to_json());
                }
            }
            // A tenant is never taken out of its own directory: memory keeps it, so storage does.
            Write::Delete(Noun::Tenant(_)) => {}
            Write::Delete(_) => {
                if !matches!(changes.last(), Some(Changes::Delete(_))) {
                    changes.push(Changes::Delete(Keys::default()));
                }
                if let Some(Changes::Delete(keys)) = changes.last_mut() {
                    keys.push(key);
                }
            }
        }
    }
    changes
}

impl Changes {
    /// Writes them down.
    pub(crate) async fn write(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        match self {
            Self::Put { keys, names, values } => {
                sqlx::query!(
                    "INSERT INTO directory (tenant_id, kind, id, name, value)
                     SELECT *
                     FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[])
                     ON CONFLICT (tenant_id, kind, id) DO UPDATE
                     SET name = excluded.name,
                         value = excluded.value",
                    &keys.tenants,
                    &keys.kinds as &[&str],
                    &keys.ids,
                    &names[..] as &[Option<String>],
                    values,
                )
                .execute(connection)
                .await
            }
            Self::Delete(keys) => {
                sqlx::query!(
                    "DELETE FROM directory
                     USING unnest($1::uuid[], $2::text[], $3::text[]) AS gone (tenant_id, kind, id)
                     WHERE directory.tenant_id = gone.tenant_id
                       AND directory.kind = gone.kind
                       AND directory.id = gone.id",
                    &keys.tenants,
                    &keys.kinds as &[&str],
                    &keys.ids,
                )
                .execute(connection)
                .await
            }
        }
        .map(drop)
    }
}
