//! Checks a chain entry by entry, in memory that does not grow with it. It proves that the entries given are a chain
//! without gap or change. That nothing follows them, only a head known from elsewhere can prove: see
//! [`Verifier::finish_at`].

use std::fmt;

use canon::{Digest, Limits, canonicalize};

use crate::line::Line;
use crate::{Broken, Entry, Fault, Head, Unverified};

/// Bounds of a body: that of a line is the reader's business.
const BODY_LIMITS: Limits = Limits {
    bytes_max: usize::MAX,
    depth_max: usize::MAX,
};

/// What the first entry was checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// It is the first entry of its chain.
    Genesis,
    /// It follows a head that the verifier was given.
    Head(Head),
    /// Against nothing: it names an entry before it that was not seen.
    None {
        /// Hash of the entry that was not seen.
        prev: Digest,
    },
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Genesis => f.write_str("from genesis"),
            Self::Head(head) => write!(f, "from the known head {} with `{}`", head.seq, head.hash),
            Self::None { prev } => write!(f, "not anchored: begins after an entry with hash `{prev}`"),
        }
    }
}

/// What has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whose chain it is.
    pub tenant: String,
    /// How many entries were checked.
    pub checked: u64,
    /// How many of them have no body any more.
    pub erased: u64,
    /// `seq` of the first.
    pub first: u64,
    /// What the first was checked against.
    pub anchor: Anchor,
    /// Where the chain ends.
    pub head: Head,
}

/// Verifies entries in the order of their chain.
#[derive(Debug)]
pub struct Verifier {
    anchor: Option<Anchor>,
    tenant: Option<String>,
    checked: u64,
    erased: u64,
    first: u64,
    head: Head,
    broken: Option<Broken>,
    scratch: String,
}

impl Verifier {
    /// The first entry given must be the first of its chain.
    pub fn from_genesis() -> Self {
        Self::starting_at(Some(Anchor::Genesis), Head::GENESIS)
    }

    /// The first entry given must follow `head`.
    pub fn from_head(head: Head) -> Self {
        let anchor = if head == Head::GENESIS {
            Anchor::Genesis
        } else {
            Anchor::Head(head)
        };
        Self::starting_at(Some(anchor), head)
    }

    /// The first entry given may stand anywhere in its chain. The report says what that leaves open.
    pub fn from_first_entry() -> Self {
        Self::starting_at(None, Head::GENESIS)
    }

    fn starting_at(anchor: Option<Anchor>, head: Head) -> Self {
        Self {
            anchor,
            tenant: None,
            checked: 0,
            erased: 0,
            first: 0,
            head,
            broken: None,
            scratch: String::new(),
        }
    }

    /// The chain must be that of `tenant`. Otherwise it must be that of the tenant the first entry names.
    #[must_use]
    pub fn of_tenant(mut self, tenant: &str) -> Self {
        self.tenant = Some(tenant.to_owned());
        self
    }

    /// Checks one stored entry.
    ///
    /// # Errors
    /// The first fault of the chain. It stays: what comes after a fault is not checked.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), &Broken> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let computed = entry.header.hash(&mut scratch);
        self.scratch = scratch;
        self.advance(entry, computed)
    }

    /// Checks one line of an export, with or without its newline.
    ///
    /// # Errors
    /// As for `push`.
    pub fn push_line(&mut self, line: &[u8]) -> Result<(), &Broken> {
        match Line::read(line) {
            // The hash is that of the bytes in the line, not of what they were read as.
            Ok(line) => self.advance(&line.entry(), Digest::of(line.header_bytes())),
            Err(malformed) => {
                let seq = self.head.seq.saturating_add(1);
                self.outcome(Err(Broken {
                    seq,
                    what: malformed.into(),
                }))
            }
        }
    }

    /// Where the chain ends so far, the fault aside.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The report, if every entry was right and there was one.
    ///
    /// # Errors
    /// The first fault, or that no entry was given.
    pub fn finish(self) -> Result<Report, Unverified> {
        if let Some(broken) = self.broken {
            return Err(broken.into());
        }
        let (Some(tenant), Some(anchor), 1..) = (self.tenant, self.anchor, self.checked) else {
            return Err(Unverified::Empty);
        };
        let Self {
            checked,
            erased,
            first,
            head,
            ..
        } = self;
        Ok(Report {
            tenant,
            checked,
            erased,
            first,
            anchor,
            head,
        })
    }

    /// The report, if the chain also ends at `head`. Only this notices a missing tail.
    ///
    /// # Errors
    /// As for `finish`, and that the chain ends elsewhere.
    pub fn finish_at(self, head: &Head) -> Result<Report, Unverified> {
        let report = self.finish()?;
        if report.head != *head {
            return Err(Unverified::Head {
                expected: *head,
                found: report.head,
            });
        }
        Ok(report)
    }

    fn advance(&mut self, entry: &Entry<'_>, computed: Digest) -> Result<(), &Broken> {
        if self.broken.is_none() {
            let seq = entry.header.seq;
            let checked = self.check(entry, computed).map_err(|what| Broken { seq, what });
            if checked.is_ok() {
                self.accept(entry);
            }
            return self.outcome(checked);
        }
        self.outcome(Ok(()))
    }

    /// Keeps the first fault.
    fn outcome(&mut self, checked: Result<(), Broken>) -> Result<(), &Broken> {
        if self.broken.is_none() {
            self.broken = checked.err();
        }
        self.broken.as_ref().map_or(Ok(()), Err)
    }

    /// Place before content: a missing entry is reported as missing, not as a wrong hash.
    fn check(&self, entry: &Entry<'_>, computed: Digest) -> Result<(), Fault> {
        let header = &entry.header;
        if let Some(expected) = self.tenant.as_deref().filter(|tenant| *tenant != header.tenant) {
            return Err(Fault::Tenant {
                expected: expected.to_owned(),
                found: header.tenant.to_owned(),
            });
        }
        let before = self.before(entry);
        let expected = before.seq.saturating_add(1);
        if header.seq != expected {
            return Err(Fault::Seq {
                expected,
                found: header.seq,
            });
        }
        if header.prev != before.hash {
            return Err(Fault::Prev {
                expected: before.hash,
                found: header.prev,
            });
        }
        if entry.hash != computed {
            return Err(Fault::Hash {
                recorded: entry.hash,
                computed,
            });
        }
        entry.body.map_or(Ok(()), |body| check_body(body, header.body))
    }

    /// The head that `entry` must follow. One that may stand anywhere follows what it names, but the first entry of a
    /// chain always follows genesis.
    fn before(&self, entry: &Entry<'_>) -> Head {
        match self.anchor {
            None if entry.header.seq > 1 => Head {
                seq: entry.header.seq - 1,
                hash: entry.header.prev,
            },
            _ => self.head,
        }
    }

    fn accept(&mut self, entry: &Entry<'_>) {
        let header = &entry.header;
        if self.checked == 0 {
            self.first = header.seq;
            self.tenant = Some(header.tenant.to_owned());
            let unseen = if header.seq == 1 {
                Anchor::Genesis
            } else {
                Anchor::None { prev: header.prev }
            };
            self.anchor.get_or_insert(unseen);
        }
        self.checked += 1;
        self.erased += u64::from(entry.body.is_none());
        self.head = Head {
            seq: header.seq,
            hash: entry.hash,
        };
    }
}

fn check_body(body: &str, recorded: Digest) -> Result<(), Fault> {
    let computed = Digest::of(body.as_bytes());
    if computed != recorded {
        return Err(Fault::Body { recorded, computed });
    }
    // The digest shows that these bytes were recorded; this, that every reader finds the same in them.
    match canonicalize(body.as_bytes(), BODY_LIMITS) {
        Ok(canonical) if canonical.as_str() == body => Ok(()),
        _ => Err(Fault::BodyNotCanonical),
    }
}
