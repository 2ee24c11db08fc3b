//! From the text of a field to its value (RFC 9651, section 4.2).

use super::{
    BareItem, Decimal, Dictionary, FIELD_BYTES_MAX, FieldError, InnerList, Item, Member, NAMES_MAX,
    Parameters, begins_key, begins_token, is_in_key, is_in_token,
};
use crate::encoding;

/// The most digits of an integer.
const INTEGER_DIGITS_MAX: usize = 15;
/// The most digits before the point of a decimal.
const WHOLE_DIGITS_MAX: usize = 12;

/// The item that a field is.
pub fn item(text: &str) -> Result<Item, FieldError> {
    item_up_to(NAMES_MAX, text)
}

/// The item that a field is, as [`item`] has it, with at most so many names of parameters.
pub fn item_up_to(names_max: usize, text: &str) -> Result<Item, FieldError> {
    whole(text, names_max, Reader::item)
}

/// The list that a field is.
pub fn list(text: &str) -> Result<Vec<Member>, FieldError> {
    whole(text, NAMES_MAX, |reader| {
        let mut members = Vec::new();
        reader.each_member(|reader| {
            members.push(reader.member()?);
            Ok(())
        })?;
        Ok(members)
    })
}

/// The dictionary that a field is. Of members with one name the last counts, in the place of the first.
pub fn dictionary(text: &str) -> Result<Dictionary, FieldError> {
    dictionary_up_to(NAMES_MAX, text)
}

/// The dictionary that a field is, as [`dictionary`] has it, with at most so many names of members and parameters.
pub fn dictionary_up_to(names_max: usize, text: &str) -> Result<Dictionary, FieldError> {
    whole(text, names_max, |reader| {
        let mut members = Dictionary::new();
        reader.each_member(|reader| {
            let key = reader.key()?;
            let member = if reader.takes(b'=') {
                reader.member()?
            } else {
                Member::Item(Item {
                    value: BareItem::Boolean(true),
                    parameters: reader.parameters()?,
                })
            };
            put(&mut members, key, member);
            Ok(())
        })?;
        Ok(members)
    })
}

/// Reads all of a text, which may have spaces around it.
fn whole<'t, T>(
    text: &'t str,
    names_max: usize,
    read: impl FnOnce(&mut Reader<'t>) -> Result<T, FieldError>,
) -> Result<T, FieldError> {
    if text.len() > FIELD_BYTES_MAX {
        return Err(FieldError::TooLong);
    }
    let mut reader = Reader {
        text,
        at: 0,
        names_left: names_max,
    };
    reader.skip_spaces();
    let value = read(&mut reader)?;
    reader.skip_spaces();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.expected("the end")),
    }
}

fn put<T>(members: &mut Vec<(String, T)>, key: String, value: T) {
    match members.iter_mut().find(|(known, _)| *known == key) {
        Some((_, place)) => *place = value,
        None => members.push((key, value)),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// How many names there may still be.
    names_left: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn expected(&self, expected: &'static str) -> FieldError {
        FieldError::Expected {
            expected,
            at: self.at,
        }
    }

    fn takes(&mut self, byte: u8) -> bool {
        let takes = self.peek() == Some(byte);
        self.at += usize::from(takes);
        takes
    }

    fn skip_spaces(&mut self) {
        while self.takes(b' ') {}
    }

    /// Spaces and tabs, which may stand around commas.
    fn skip_blanks(&mut self) {
        while self.takes(b' ') || self.takes(b'\t') {}
    }

    /// What is there as long as bytes are like this.
    fn span(&mut self, is_in: impl Fn(u8) -> bool) -> &'t str {
        let rest = &self.text.as_bytes()[self.at..];
        let length = rest.iter().position(|byte| !is_in(*byte)).unwrap_or(rest.len());
        let start = self.at;
        self.at += length;
        // All that is looked for is ASCII, so this is where a character begins.
        &self.text[start..self.at]
    }

    /// Members with commas between them, also none.
    fn each_member(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<(), FieldError>,
    ) -> Result<(), FieldError> {
        if self.peek().is_none() {
            return Ok(());
        }
        loop {
            read(self)?;
            self.skip_blanks();
            if self.peek().is_none() {
                return Ok(());
            }
            if !self.takes(b',') {
                return Err(self.expected("a comma"));
            }
            self.skip_blanks();
            if self.peek().is_none() {
                return Err(self.expected("another member"));
            }
        }
    }

    fn member(&mut self) -> Result<Member, FieldError> {
        if self.peek() == Some(b'(') {
            self.inner_list().map(Member::InnerList)
        } else {
            self.item().map(Member::Item)
        }
    }

    fn inner_list(&mut self) -> Result<InnerList, FieldError> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip_spaces();
            if self.takes(b')') {
                let parameters = self.parameters()?;
                return Ok(InnerList { items, parameters });
            }
            items.push(self.item()?);
            if !matches!(self.peek(), Some(b' ' | b')')) {
                return Err(self.expected("a space or a closing bracket"));
            }
        }
    }

    fn item(&mut self) -> Result<Item, FieldError> {
        Ok(Item {
            value: self.bare_item()?,
            parameters: self.parameters()?,
        })
    }

    fn parameters(&mut self) -> Result<Parameters, FieldError> {
        let mut parameters = Parameters::new();
        while self.takes(b';') {
            self.skip_spaces();
            let key = self.key()?;
            let value = if self.takes(b'=') {
                self.bare_item()?
            } else {
                BareItem::Boolean(true)
            };
            put(&mut parameters, key, value);
        }
        Ok(parameters)
    }

    fn key(&mut self) -> Result<String, FieldError> {
        if !self.peek().is_some_and(begins_key) {
            return Err(self.expected("a name in lower case"));
        }
        self.names_left = self.names_left.checked_sub(1).ok_or(FieldError::TooManyNames)?;
        Ok(self.span(is_in_key).to_owned())
    }

    fn bare_item(&mut self) -> Result<BareItem, FieldError> {
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'"') => self.string().map(BareItem::String),
            Some(b':') => self.bytes().map(BareItem::Bytes),
            Some(b'?') => self.boolean().map(BareItem::Boolean),
            Some(b'@') => self.date().map(BareItem::Date),
            Some(b'%') => self.display_string().map(BareItem::DisplayString),
            Some(byte) if begins_token(byte) => Ok(BareItem::Token(self.span(is_in_token).to_owned())),
            _ => Err(self.expected("a value")),
        }
    }

    fn number(&mut self) -> Result<BareItem, FieldError> {
        let sign = if self.takes(b'-') { -1 } else { 1 };
        let whole = self.span(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > INTEGER_DIGITS_MAX {
            return Err(self.expected("a number of at most 15 digits"));
        }
        let digits = |text: &str| {
            text.bytes()
                .fold(0, |value, digit| value * 10 + i64::from(digit - b'0'))
        };
        if !self.takes(b'.') {
            return Ok(BareItem::Integer(sign * digits(whole)));
        }
        let fraction = self.span(|byte| byte.is_ascii_digit());
        if whole.len() > WHOLE_DIGITS_MAX || !(1..=3).contains(&fraction.len()) {
            return Err(self.expected("at most 12 digits, a point and one to three digits"));
        }
        let scale = [100, 10, 1][fraction.len() - 1];
        Ok(BareItem::Decimal(Decimal {
            thousandths: sign * (digits(whole) * 1_000 + digits(fraction) * scale),
        }))
    }

    fn string(&mut self) -> Result<String, FieldError> {
        self.at += 1;
        let mut value = String::new();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(value);
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(byte @ (b'"' | b'\\')) => value.push(char::from(byte)),
                        _ => return Err(self.expected("a quote or a backslash behind a backslash")),
                    }
                }
                Some(byte @ b' '..=b'~') => value.push(char::from(byte)),
                _ => return Err(self.expected("visible ASCII, and a closing quote")),
            }
            self.at += 1;
        }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, FieldError> {
        self.at += 1;
        let text = self.span(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
        let bytes = encoding::base64(text).ok_or_else(|| self.expected("base64 with padding before this"))?;
        if self.takes(b':') {
            Ok(bytes)
        } else {
            Err(self.expected("a colon behind base64"))
        }
    }

    fn boolean(&mut self) -> Result<bool, FieldError> {
        self.at += 1;
        if self.takes(b'1') {
            Ok(true)
        } else if self.takes(b'0') {
            Ok(false)
        } else {
            Err(self.expected("`0` or `1`"))
        }
    }

    fn date(&mut self) -> Result<i64, FieldError> {
        self.at += 1;
        match self.number()? {
            BareItem::Integer(seconds) => Ok(seconds),
            _ => Err(self.expected("a whole number of seconds")),
        }
    }

    fn display_string(&mut self) -> Result<String, FieldError> {
        self.at += 1;
        if !self.takes(b'"') {
            return Err(self.expected("a quote"));
        }
        let mut bytes = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'%') => {
                    let digits = self.text.as_bytes().get(self.at + 1..self.at + 3);
                    let byte = digits.and_then(|digits| Some(hex(digits[0])? << 4 | hex(digits[1])?));
                    bytes.push(byte.ok_or_else(|| self.expected("two hex digits in lower case"))?);
                    self.at += 2;
                }
                Some(byte @ b' '..=b'~') => bytes.push(byte),
                _ => return Err(self.expected("visible ASCII, and a closing quote")),
            }
            self.at += 1;
        }
        let text = String::from_utf8(bytes).map_err(|_| self.expected("UTF-8 before this"))?;
        self.at += 1;
        Ok(text)
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
