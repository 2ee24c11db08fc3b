//! Why a text has no canonical form, and where. The words are for the person who sent the text.

use std::fmt;

/// Longest pointer or key that a message repeats; the fields of the error hold the whole.
const SHOWN_CHARS_MAX: usize = 200;

/// A text that has no canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {}{}", Place(pointer), Byte(*offset))]
pub struct Error {
    /// The cause.
    pub kind: ErrorKind,
    /// Byte of the input at which the cause was seen, from 0; none if it was seen in a text that was made of the input.
    pub offset: Option<usize>,
    /// JSON Pointer (RFC 6901) of the member or element being read; empty for the whole text. For a key that is
    /// refused it is the object that has it.
    pub pointer: String,
}

/// The causes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// More bytes than the limit.
    #[error("more than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// A message of MessagePack whose text would have more bytes than the limit.
    #[error("a message that says more than {bytes_max} bytes of JSON")]
    SaysTooMuch {
        /// The limit.
        bytes_max: usize,
    },
    /// Arrays and objects nested deeper than the limit.
    #[error("nesting deeper than {depth_max}")]
    TooDeep {
        /// The limit.
        depth_max: usize,
    },
    /// The same key twice in one object, compared after unescaping.
    #[error("duplicate key `{}`", Clipped(.0))]
    DuplicateKey(String),
    /// A reserved key, by which `serde_json` reads an object as something else, where such keys are refused.
    #[error("key `{}` that some programs read as something else; give it another name", Clipped(.0))]
    ReservedKey(String),
    /// `\uD800`–`\uDFFF` that is not half of a pair.
    #[error("lone surrogate in a string")]
    LoneSurrogate,
    /// Bytes that are not UTF-8.
    #[error("invalid UTF-8")]
    InvalidUtf8,
    /// A backslash followed by something JSON does not know.
    #[error("invalid escape in a string")]
    InvalidEscape,
    /// A raw character below U+0020 inside a string.
    #[error("unescaped control character in a string")]
    ControlCharacter,
    /// Digits that are not a JSON number, such as `01`, `1.` or `-`.
    #[error("invalid number")]
    InvalidNumber,
    /// A number too large for a double, such as `1e400`.
    #[error("number out of range of a double")]
    NumberOutOfRange,
    /// An integer that canonical text has with other digits, such as `9007199254740993`, where integers must be exact.
    /// A double may hold it: `9223372036854775808` is written as `9223372036854776000`.
    #[error("integer that canonical JSON writes with other digits; send it as text")]
    InexactInteger,
    /// The text stops in the middle of a value.
    #[error("unexpected end")]
    UnexpectedEnd,
    /// A character that cannot stand here.
    #[error("unexpected {found:?}, expected {expected}")]
    Unexpected {
        /// The character found.
        found: char,
        /// What could stand here instead.
        expected: &'static str,
    },
    /// Something after the value.
    #[error("trailing characters after the value")]
    TrailingCharacters,
    /// Something in a message of MessagePack that JSON has no word for.
    #[error("JSON has no word for {0}")]
    NoJson(&'static str),
    /// serde could not write the value as JSON.
    #[error("value cannot be written as JSON: {0}")]
    Unserializable(String),
}

struct Place<'e>(&'e str);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("at the top level");
        }
        write!(f, "at `{}`", Clipped(self.0))
    }
}

struct Byte(Option<usize>);

impl fmt::Display for Byte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |offset| write!(f, " (byte {offset})"))
    }
}

/// A text of the caller's, of which a message repeats no more than its beginning.
pub(crate) struct Clipped<'e>(pub(crate) &'e str);

impl fmt::Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}

/// An error on its way out of a reader. Every array and object it leaves adds its own segment, so the pointer costs
/// nothing until there is an error.
#[derive(Debug)]
pub(crate) struct Fault(Box<Inside>);

/// Boxed, so that the result of every step of a reader is one word.
#[derive(Debug)]
struct Inside {
    kind: ErrorKind,
    offset: usize,
    /// Innermost first, not yet escaped.
    path: Vec<String>,
}

impl Fault {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, offset: usize) -> Self {
        Self(Box::new(Inside {
            kind,
            offset,
            path: Vec::new(),
        }))
    }

    pub(crate) fn inside(mut self, segment: String) -> Self {
        self.0.path.push(segment);
        self
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let Inside { kind, offset, path } = *fault.0;
        let mut pointer = String::new();
        for segment in path.iter().rev() {
            pointer.push('/');
            pointer.push_str(&segment.replace('~', "~0").replace('/', "~1"));
        }
        Self {
            kind,
            offset: Some(offset),
            pointer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorKind, Fault};

    #[test]
    fn a_message_names_the_place() {
        let fault = Fault::new(ErrorKind::DuplicateKey("a".into()), 57);
        let error = Error::from(fault.inside("parameters".into()).inside("tool_call".into()));
        assert_eq!(
            error.to_string(),
            "duplicate key `a` at `/tool_call/parameters` (byte 57)"
        );
        let error = Error::from(Fault::new(ErrorKind::UnexpectedEnd, 0));
        assert_eq!(error.to_string(), "unexpected end at the top level (byte 0)");
    }

    #[test]
    fn slashes_and_tildes_of_a_key_are_escaped_in_the_pointer() {
        let error = Error::from(Fault::new(ErrorKind::InvalidNumber, 1).inside("a/b~c".into()));
        assert_eq!(error.pointer, "/a~1b~0c");
    }

    #[test]
    fn a_long_key_does_not_make_a_long_message() {
        let key = "é".repeat(5_000);
        let error = Error::from(Fault::new(ErrorKind::DuplicateKey(key.clone()), 1).inside(key.clone()));
        assert_eq!(error.kind, ErrorKind::DuplicateKey(key));
        assert!(error.to_string().chars().count() < 500);
    }
}
