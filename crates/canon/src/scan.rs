//! From the bytes of a request to canonical text in one pass. Values go straight into the output; only an object whose
//! members arrive out of order is touched again, when it closes, or at the end where that comes to much. There is no tree.

use crate::error::Fault;
use crate::number::{self, Written};
use crate::text::{Escape, plain_run};
use crate::{Canonical, Error, ErrorKind};

mod bounds;
mod deferred;
mod object;

use deferred::Deferred;
use object::Member;

/// Deepest nesting that is read whatever the caller's limit says. The scanner recurses, and this keeps its stack small.
pub(crate) const DEPTH_CEILING: usize = 256;

/// How many bytes are put in order as their objects close, for each byte of input: what a text takes that is out of
/// order in some levels.
const ORDERED_PER_BYTE_MAX: usize = 4;

/// Bounds of one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of input.
    pub bytes_max: usize,
    /// Most arrays and objects inside each other: 0 allows a scalar only. Values above 256 mean 256.
    pub depth_max: usize,
}

/// What becomes of an integer that canonical text would write as another one, such as 9007199254740993.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integers {
    /// It is written as the other one, as RFC 8785 has it.
    Rounded,
    /// It is refused, so that texts with different integers never have the same form: I-JSON makes no promise of an
    /// integer beyond 2^53 (RFC 7493 section 2.2), and whoever else reads the text may tell apart what a double does
    /// not.
    Exact,
    /// It is refused unless it is a bound in a JSON Schema, such as `maximum`: no bound is sent to have something done
    /// with it, and generators write those of integers of 64 bits.
    ExactButForBounds,
}

/// The canonical form of a JSON text, as RFC 8785 has it.
///
/// # Errors
/// The text is not JSON (RFC 8259), not I-JSON (RFC 7493: duplicate key, lone surrogate, number beyond a double), or
/// exceeds a limit. Noncharacters such as U+FFFE are accepted: they have one meaning.
pub fn canonicalize(json: &[u8], limits: Limits) -> Result<Canonical, Error> {
    let rules = Rules {
        integers: Integers::Rounded,
        refuses_reserved_keys: false,
    };
    canonicalize_by(json, limits, rules)
}

/// [`canonicalize`] for what is sent, so that something is done with it: no key in it is one that `serde_json` has
/// reserved, and there is a choice of what happens to integers that would be written as others. An integer is digits
/// without a fraction and an exponent.
///
/// # Errors
/// Those of [`canonicalize`]; there is such a key; and an integer would be written as another one, where that is
/// refused.
pub fn canonicalize_sent(json: &[u8], limits: Limits, integers: Integers) -> Result<Canonical, Error> {
    let rules = Rules {
        integers,
        refuses_reserved_keys: true,
    };
    canonicalize_by(json, limits, rules)
}

/// What is refused beside what is no I-JSON.
#[derive(Debug, Clone, Copy)]
struct Rules {
    integers: Integers,
    /// Whether it refuses keys by which `serde_json` reads an object as something else.
    refuses_reserved_keys: bool,
}

fn canonicalize_by(json: &[u8], limits: Limits, rules: Rules) -> Result<Canonical, Error> {
    if json.len() > limits.bytes_max {
        let kind = ErrorKind::TooLarge {
            bytes_max: limits.bytes_max,
        };
        return Err(Fault::new(kind, limits.bytes_max).into());
    }
    let text = match std::str::from_utf8(json) {
        Ok(text) => text,
        Err(error) => return Err(invalid_utf8(json, error.valid_up_to(), limits, rules)),
    };
    let mut scanner = Scanner::new(text, limits, rules);
    scanner.document()?;
    let canonical = scanner.deferred.put_in_order(scanner.out);
    let canonical = String::from_utf8(canonical).expect("runs of UTF-8, cut at ASCII, are UTF-8");
    Ok(Canonical::new(canonical))
}

/// Reads up to the bad byte to find where it stands; an error before it is reported instead.
fn invalid_utf8(json: &[u8], valid: usize, limits: Limits, rules: Rules) -> Error {
    let text = std::str::from_utf8(&json[..valid]).expect("valid up to here");
    match Scanner::new(text, limits, rules).document() {
        Ok(()) => Fault::new(ErrorKind::InvalidUtf8, valid).into(),
        Err(fault) => {
            let mut error = Error::from(fault);
            if error.kind == ErrorKind::UnexpectedEnd {
                error = Error {
                    kind: ErrorKind::InvalidUtf8,
                    offset: Some(valid),
                    ..error
                };
            }
            error
        }
    }
}

type Step<T> = Result<T, Fault>;

struct Scanner<'j> {
    text: &'j str,
    bytes: &'j [u8],
    at: usize,
    depth_left: usize,
    depth_max: usize,
    rules: Rules,
    out: Vec<u8>,
    /// Members of the objects that are open, outermost first.
    members: Vec<Member>,
    /// Where members are put in order.
    spare: Vec<u8>,
    /// How many bytes may still be put in order before the end.
    ordered_left: usize,
    /// What is put in order at the end.
    deferred: Deferred,
}

impl<'j> Scanner<'j> {
    fn new(text: &'j str, limits: Limits, rules: Rules) -> Self {
        let depth_max = limits.depth_max.min(DEPTH_CEILING);
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            depth_left: depth_max,
            depth_max,
            rules,
            out: Vec::with_capacity(text.len()),
            members: Vec::with_capacity(16),
            spare: Vec::new(),
            ordered_left: text.len().saturating_mul(ORDERED_PER_BYTE_MAX),
            deferred: Deferred::default(),
        }
    }

    fn document(&mut self) -> Step<()> {
        self.skip_whitespace();
        self.value()?;
        self.skip_whitespace();
        if self.at < self.bytes.len() {
            return Err(self.fault(ErrorKind::TrailingCharacters));
        }
        Ok(())
    }

    fn value(&mut self) -> Step<()> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(open @ (b'{' | b'[')) => self.nested(open),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn nested(&mut self, open: u8) -> Step<()> {
        if self.depth_left == 0 {
            return Err(self.fault(ErrorKind::TooDeep {
                depth_max: self.depth_max,
            }));
        }
        self.depth_left -= 1;
        self.copy_byte();
        self.skip_whitespace();
        if open == b'{' {
            self.object()?;
        } else {
            self.array()?;
        }
        self.depth_left += 1;
        Ok(())
    }

    /// What follows the `[`.
    fn array(&mut self) -> Step<()> {
        if self.peek() == Some(b']') {
            self.copy_byte();
            return Ok(());
        }
        for index in 0_usize.. {
            self.value().map_err(|fault| fault.inside(index.to_string()))?;
            if self.is_last(b']', "`,` or `]`")? {
                break;
            }
        }
        Ok(())
    }

    /// Reads what follows an element or member: `close`, or a comma and the white space behind it.
    fn is_last(&mut self, close: u8, expected: &'static str) -> Step<bool> {
        self.skip_whitespace();
        match self.peek() {
            Some(b',') => {
                self.copy_byte();
                self.skip_whitespace();
                Ok(false)
            }
            Some(byte) if byte == close => {
                self.copy_byte();
                Ok(true)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    fn literal(&mut self, word: &'static str) -> Step<()> {
        for byte in word.bytes() {
            if self.peek() != Some(byte) {
                return Err(self.unexpected(word));
            }
            self.at += 1;
        }
        self.out.extend_from_slice(word.as_bytes());
        Ok(())
    }

    fn number(&mut self) -> Step<()> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits(start)?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits(start)?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits(start)?;
        }
        if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(Fault::new(ErrorKind::InvalidNumber, start)); // a leading zero
        }
        let kind = match number::write_token(&mut self.out, &self.text[start..self.at]) {
            Written::AsAnotherInteger if !self.may_round(start) => ErrorKind::InexactInteger,
            Written::AsItIs | Written::AsAnotherInteger => return Ok(()),
            Written::Not => ErrorKind::NumberOutOfRange,
        };
        Err(Fault::new(kind, start))
    }

    /// Whether the integer that begins at `start` may be written as another one.
    #[cold]
    fn may_round(&self, start: usize) -> bool {
        match self.rules.integers {
            Integers::Rounded => true,
            Integers::Exact => false,
            Integers::ExactButForBounds => self.is_bound(start),
        }
    }

    /// One digit or more, of the number that began at `start`.
    fn digits(&mut self, start: usize) -> Step<()> {
        let rest = &self.bytes[self.at..];
        match rest
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(rest.len())
        {
            0 if rest.is_empty() => Err(self.fault(ErrorKind::UnexpectedEnd)),
            0 => Err(Fault::new(ErrorKind::InvalidNumber, start)),
            count => {
                self.at += count;
                Ok(())
            }
        }
    }

    /// A string, from quote to quote. Says whether it has an escape.
    fn string(&mut self) -> Step<bool> {
        let rest = &self.bytes[self.at..];
        let end = 1 + plain_run(&rest[1..]);
        if rest.get(end) == Some(&b'"') {
            self.out.extend_from_slice(&rest[..=end]);
            self.at += end + 1;
            return Ok(false);
        }
        self.string_with_escapes()?;
        Ok(true)
    }

    fn string_with_escapes(&mut self) -> Step<()> {
        self.copy_byte();
        loop {
            let rest = &self.bytes[self.at..];
            let run = plain_run(rest);
            self.out.extend_from_slice(&rest[..run]);
            self.at += run;
            match self.peek() {
                Some(b'"') => {
                    self.copy_byte();
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.fault(ErrorKind::ControlCharacter)),
                None => return Err(self.fault(ErrorKind::UnexpectedEnd)),
            }
        }
    }

    /// An escape, from its backslash, written the canonical way.
    fn escape(&mut self) -> Step<()> {
        let start = self.at;
        self.at += 1;
        let letter = self.peek().ok_or_else(|| self.fault(ErrorKind::UnexpectedEnd))?;
        self.at += 1;
        let character = match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.code_point(start)?,
            _ => return Err(Fault::new(ErrorKind::InvalidEscape, start)),
        };
        match character {
            '\0'..='\u{1f}' | '"' | '\\' => {
                self.out.extend_from_slice(Escape::of(character as u8).as_bytes());
            }
            _ => self
                .out
                .extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        Ok(())
    }

    /// The digits of a `\u` escape that began at `start`, and of the second half if it is one of a pair.
    fn code_point(&mut self, start: usize) -> Step<char> {
        let first = self.code_unit(start)?;
        let mut units = [first, 0];
        let mut count = 1;
        if matches!(first, 0xD800..=0xDBFF) && self.bytes[self.at..].starts_with(b"\\u") {
            let second = self.at;
            self.at += 2;
            units[1] = self.code_unit(second)?;
            count = 2;
        }
        let mut characters = char::decode_utf16(units[..count].iter().copied());
        match characters.next() {
            Some(Ok(character)) => Ok(character),
            _ => Err(Fault::new(ErrorKind::LoneSurrogate, start)),
        }
    }

    /// Four hex digits.
    fn code_unit(&mut self, start: usize) -> Step<u16> {
        let mut unit = 0;
        for _ in 0..4 {
            let byte = self.peek().ok_or_else(|| self.fault(ErrorKind::UnexpectedEnd))?;
            let digit = char::from(byte).to_digit(16);
            let digit = digit.ok_or_else(|| Fault::new(ErrorKind::InvalidEscape, start))?;
            unit = unit << 4 | u16::try_from(digit).expect("a hex digit is below 16");
            self.at += 1;
        }
        Ok(unit)
    }

    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn copy_byte(&mut self) {
        self.out.push(self.bytes[self.at]);
        self.at += 1;
    }

    fn fault(&self, kind: ErrorKind) -> Fault {
        Fault::new(kind, self.at)
    }

    #[cold]
    fn unexpected(&self, expected: &'static str) -> Fault {
        // Only ASCII has been stepped over one byte at a time, so this is a character boundary.
        match self.text[self.at..].chars().next() {
            Some(found) => self.fault(ErrorKind::Unexpected { found, expected }),
            None => self.fault(ErrorKind::UnexpectedEnd),
        }
    }
}

#[cfg(test)]
mod tests;
