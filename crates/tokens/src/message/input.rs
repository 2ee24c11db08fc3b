//! What a signature says that it covers, and how it was made: the headers `Signature-Input` and `Signature` (RFC 9421,
//! section 4).

use model::Timestamp;

use super::base::Component;
use super::{MessageError, NAMES_MAX, missing};
use crate::fields::{self, BareItem, Item, Member, Parameters};

/// The longest name of a key and the longest nonce, in bytes.
const WORD_BYTES_MAX: usize = 256;
/// The most components that a signature covers.
const COMPONENTS_MAX: usize = 32;

/// A signature of a request as its sender sent it. It proves nothing before it is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSignature {
    pub(super) components: Vec<Component>,
    /// The value of `@signature-params`: all of this is signed, too.
    pub(super) parameters: String,
    pub(super) key_id: String,
    pub(super) nonce: Option<String>,
    pub(super) created: Option<Timestamp>,
    pub(super) expires: Option<Timestamp>,
    pub(super) signature: Vec<u8>,
}

impl RequestSignature {
    /// The one signature in these two headers. If a header has several lines, they come joined by commas.
    pub fn parse(signature_input: &str, signature: &str) -> Result<Self, MessageError> {
        let mut inputs = dictionary("Signature-Input", signature_input)?;
        let mut signatures = dictionary("Signature", signature)?;
        let (Some((label, input)), Some((same, bytes))) = (inputs.pop(), signatures.pop()) else {
            return Err(MessageError::Labels);
        };
        if label != same || !inputs.is_empty() || !signatures.is_empty() {
            return Err(MessageError::Labels);
        }
        let (
            Member::InnerList(input),
            Member::Item(Item {
                value: BareItem::Bytes(signature),
                ..
            }),
        ) = (input, bytes)
        else {
            return Err(MessageError::Labels);
        };
        let words = Words(&input.parameters);
        if words.text("alg")?.is_some_and(|algorithm| algorithm != "ed25519") {
            return Err(wrong("alg", "should be `ed25519`"));
        }
        Ok(Self {
            components: components(&input.items)?,
            key_id: words.text("keyid")?.ok_or_else(|| missing("keyid"))?.to_owned(),
            nonce: words.text("nonce")?.map(str::to_owned),
            created: words.time("created")?,
            expires: words.time("expires")?,
            parameters: fields::write_inner_list(&input).map_err(|source| MessageError::Field {
                field: "Signature-Input",
                source,
            })?,
            signature,
        })
    }

    /// The name of the key that it says it was made with: good for finding the key.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }
}

fn dictionary(field: &'static str, text: &str) -> Result<fields::Dictionary, MessageError> {
    fields::dictionary_up_to(NAMES_MAX, text).map_err(|source| MessageError::Field { field, source })
}

fn components(items: &[Item]) -> Result<Vec<Component>, MessageError> {
    let mut components = Vec::with_capacity(items.len());
    for item in items {
        let BareItem::String(name) = &item.value else {
            return Err(MessageError::Labels);
        };
        // Parameters would make something else of it, such as a part of the header or of another message.
        if !item.parameters.is_empty() || components.len() == COMPONENTS_MAX {
            return Err(MessageError::Component(name.clone()));
        }
        let component = Component::of(name).ok_or_else(|| MessageError::Component(name.clone()))?;
        if components.contains(&component) {
            return Err(MessageError::Repeated(name.clone()));
        }
        components.push(component);
    }
    Ok(components)
}

/// The parameters of a signature.
struct Words<'p>(&'p Parameters);

impl<'p> Words<'p> {
    fn find(&self, name: &str) -> Option<&'p BareItem> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    fn text(&self, name: &'static str) -> Result<Option<&'p str>, MessageError> {
        match self.find(name) {
            None => Ok(None),
            Some(BareItem::String(text)) if (1..=WORD_BYTES_MAX).contains(&text.len()) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "should be a string of 1 to 256 bytes")),
        }
    }

    fn time(&self, name: &'static str) -> Result<Option<Timestamp>, MessageError> {
        match self.find(name) {
            None => Ok(None),
            // Fifteen digits of seconds and three zeros fit; what is beyond the year 9999 is brought to it.
            Some(BareItem::Integer(seconds)) if *seconds >= 0 => {
                Ok(Some(Timestamp::from_millis(seconds * 1_000)))
            }
            Some(_) => Err(wrong(name, "should be a number of seconds since 1970")),
        }
    }
}

fn wrong(name: &'static str, fault: &'static str) -> MessageError {
    MessageError::Parameter { name, fault }
}
