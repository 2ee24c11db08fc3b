//! Structured fields of HTTP (RFC 9651, which replaces RFC 8941): values that many headers are made of.
//!
//! [`item`], [`list`] and [`dictionary`] read a field, all of whose lines are joined by commas; [`write_item`] and the others
//! write the one text that stands for a value. What a header means by it is its own business.

mod read;
mod write;

pub use read::{dictionary, dictionary_up_to, item, item_up_to, list};
pub use write::{write_dictionary, write_inner_list, write_item, write_list};

/// The longest field that is read, in bytes: servers allow about as much for all headers together.
pub const FIELD_BYTES_MAX: usize = 16 << 10;
/// The most names of members and parameters that a field has altogether: as many as every implementation has to read of one
/// kind. Each name is looked for among those before it.
pub const NAMES_MAX: usize = 1_024;
/// Integers have at most 15 digits, so that every implementation can hold them.
pub const INTEGER_MAX: i64 = 999_999_999_999_999;

/// A value without anything around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BareItem {
    /// A whole number of at most 15 digits.
    Integer(i64),
    /// A number with at most 12 digits before the point and 3 behind it.
    Decimal(Decimal),
    /// Visible ASCII and spaces.
    String(String),
    /// A word.
    Token(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Yes or no.
    Boolean(bool),
    /// Seconds since 1970.
    Date(i64),
    /// Any Unicode text.
    DisplayString(String),
}

/// A decimal number as thousandths, which is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    /// How many thousandths.
    pub thousandths: i64,
}

/// Parameters by name, in order; each name once.
pub type Parameters = Vec<(String, BareItem)>;

/// A value with parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The value.
    pub value: BareItem,
    /// Its parameters.
    pub parameters: Parameters,
}

/// Items in brackets, with parameters of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerList {
    /// The items.
    pub items: Vec<Item>,
    /// The parameters of the list.
    pub parameters: Parameters,
}

/// What lists and dictionaries hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Member {
    /// An item.
    Item(Item),
    /// A list in brackets.
    InnerList(InnerList),
}

/// Members by name, in order; each name once.
pub type Dictionary = Vec<(String, Member)>;

/// Why a text is not a structured field, or a value cannot be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// It has too many bytes.
    #[error("a field has at most {FIELD_BYTES_MAX} bytes")]
    TooLong,
    /// It has too many names of members and parameters.
    #[error("there are more names of members and parameters than are read")]
    TooManyNames,
    /// Something else should stand here.
    #[error("{expected} is expected at byte {at}")]
    Expected {
        /// What.
        expected: &'static str,
        /// Where, from 0.
        at: usize,
    },
    /// A value that no field can hold.
    #[error("{0} cannot be written in a field")]
    Unwritable(&'static str),
}

/// Whether a name of a parameter or a member may begin with this.
const fn begins_key(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte == b'*'
}

/// Whether a name of a parameter or a member may go on with this.
const fn is_in_key(byte: u8) -> bool {
    begins_key(byte) || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.')
}

/// Whether a token may begin with this.
const fn begins_token(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'*'
}

/// Whether a token may go on with this.
const fn is_in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
                | b':'
                | b'/'
        )
}
