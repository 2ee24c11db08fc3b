//! A tenant's issuers as tokens are verified by them: their keys parsed once, when they are registered.

use imbl::OrdMap;
use model::{Directory, Issuer, IssuerTerms, Name, Noun, Purpose, Timestamp, Write};
use std::sync::Arc;
use tokens::{Claims, Expected, KeySet, PublicKey, TokenError, UnverifiedToken};

/// An issuer and its keys.
#[derive(Debug)]
pub struct RegisteredIssuer {
    /// What was registered.
    pub noun: Arc<Issuer>,
    /// The same without its keys, for whoever remembers it longer than it is registered. It is made here and nowhere
    /// else, so whoever has the same one has seen it with these keys.
    pub terms: Arc<IssuerTerms>,
    keys: KeySet,
}

impl RegisteredIssuer {
    /// An issuer whose keys could be read; none if they cannot, and then no token of its is worth anything. That they can be
    /// is checked when they are registered.
    fn new(noun: &Arc<Issuer>) -> Option<Self> {
        let keys = KeySet::parse(noun.jwks.to_string().as_bytes()).ok()?;
        Some(Self {
            noun: Arc::clone(noun),
            terms: Arc::new(noun.terms()),
            keys,
        })
    }

    /// What a token says, if this issuer has signed it, for its purpose and its audience, and its time is now.
    pub fn verify(&self, token: UnverifiedToken<'_>, now: Timestamp) -> Result<Claims, TokenError> {
        let expected = Expected {
            purpose: self.noun.purpose,
            issuer: self.noun.issuer.as_str(),
            audience: self.noun.audience.as_str(),
        };
        token.verify(&self.keys, expected, now)
    }

    /// Whether this issuer would verify a token still that was verified when it was registered like that: under the
    /// same terms, and by this key, which the token calls so or by no name.
    pub fn still_verifies(&self, before: &Arc<IssuerTerms>, id: Option<&str>, key: &PublicKey) -> bool {
        Arc::ptr_eq(&self.terms, before) || (self.terms == *before && self.keys.verifies_by(id, key))
    }
}

/// The issuers of a tenant, by name. Cloning shares them. There are few, so they are looked through.
#[derive(Debug, Clone, Default)]
pub struct Issuers(OrdMap<Name, Arc<RegisteredIssuer>>);

impl Issuers {
    /// The issuers in a directory.
    pub fn of(directory: &Directory) -> Self {
        let mut issuers = Self::default();
        for noun in directory.issuers.values() {
            issuers.put(noun);
        }
        issuers
    }

    /// The issuer that the tenant calls so.
    pub fn named(&self, name: &Name) -> Option<&Arc<RegisteredIssuer>> {
        self.0.get(name)
    }

    /// Whose tokens for this have this `iss`.
    pub fn find(&self, purpose: Purpose, issuer: &str) -> Option<&Arc<RegisteredIssuer>> {
        let mut issuers = self.0.values();
        issuers.find(|known| known.noun.purpose == purpose && known.noun.issuer.as_str() == issuer)
    }

    /// Whether there are issuers for this at all.
    pub fn has(&self, purpose: Purpose) -> bool {
        self.0.values().any(|known| known.noun.purpose == purpose)
    }

    /// Takes one step of the directory.
    pub fn apply(&mut self, write: &Write) {
        match write {
            Write::Put(Noun::Issuer(noun)) => self.put(noun),
            Write::Delete(Noun::Issuer(noun)) => {
                self.0.remove(&noun.name);
            }
            _ => {}
        }
    }

    fn put(&mut self, noun: &Arc<Issuer>) {
        match RegisteredIssuer::new(noun) {
            Some(registered) => self.0.insert(noun.name.clone(), Arc::new(registered)),
            None => self.0.remove(&noun.name),
        };
    }
}
