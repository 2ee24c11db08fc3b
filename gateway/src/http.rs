//! What every endpoint shares: who is calling, what they sent, how a no is said, and how lists are paged.

pub(crate) mod accept;
pub mod answers;
pub mod arrivals;
pub mod caller;
pub mod conditions;
pub mod idempotency;
pub mod json;
pub mod location;
pub mod messagepack;
pub mod once;
pub mod page;
pub mod query;
pub mod refusal;
pub mod request_id;
pub mod room;
pub mod writing;

pub use caller::{Access, AgentCaller, Caller, Holder, KeyCaller, Nonces, Person, SignIns, TenantCaller};
pub use json::{
    CanonicalBody, Created, Empty, Json, LongBodies, OptionalJson, SchemaBody, SetJson, WrittenJson,
};
pub use location::Location;
pub use page::{LargePage, Page, PageQuery};
pub use query::{ListQuery, Query};
pub use refusal::{Code, Refusal};
