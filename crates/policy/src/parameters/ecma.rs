//! The patterns of JSON Schemas, which are those of ECMA-262, as ones that mean the same to the engine.
//!
//! What means the same to both is copied; what does not is written in other words, or refused where there are none.
//! Classes such as `\d` and what engines do with `&&` and `[` inside of brackets are left to `jsonschema`, and so is
//! whatever the engine refuses by itself.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

/// `.`: any character but the ends of lines. They stand for themselves, because a class with escapes takes longer to read.
const ANY_IN_LINE: &str = "[^\n\r\u{2028}\u{2029}]";
/// `[^]`: any character.
const ANY: &str = r"[\x00-\x{10FFFF}]";
/// `[]`: no character.
const NONE: &str = r"[^\x00-\x{10FFFF}]";
/// How many hexadecimal digits a code point has at most.
const CODE_POINT_DIGITS_MAX: usize = 6;
/// Why nothing is done about it.
const INFALLIBLE: &str = "writing to a string does not fail";

/// What these are, for whoever wrote another one.
pub(super) const HELP: &str = "write patterns as ECMA-262 has them with the flag `u`, without look-around, back references and flags of groups";

/// This pattern in the engine's words, or what is in it that there are none for.
pub(super) fn translated(pattern: &str) -> Result<String, String> {
    let mut translation = Translation {
        rest: pattern.chars().peekable(),
        before: Before::Nothing,
        written: String::with_capacity(pattern.len()),
    };
    while let Some(character) = translation.rest.next() {
        translation.term(character)?;
    }
    Ok(translation.written)
}

/// What stands before, which decides whether it can be repeated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Nothing: a pattern, a group or an alternative begins.
    Nothing,
    Atom,
    /// A place between characters, or how often something is repeated.
    Other,
}

struct Translation<'p> {
    rest: Peekable<Chars<'p>>,
    before: Before,
    written: String,
}

impl Translation<'_> {
    fn term(&mut self, character: char) -> Result<(), String> {
        self.before = match character {
            '\\' => self.escape()?,
            '[' => {
                self.class()?;
                Before::Atom
            }
            '(' => {
                self.group()?;
                Before::Nothing
            }
            '*' | '+' | '?' => {
                self.written.push(character);
                self.repetition(&character.to_string())?
            }
            '{' => {
                let count = self.count()?;
                self.written.push_str(&count);
                self.repetition(&count)?
            }
            '.' => {
                self.written.push_str(ANY_IN_LINE);
                Before::Atom
            }
            _ => {
                self.written.push(character);
                match character {
                    '|' => Before::Nothing,
                    '^' | '$' => Before::Other,
                    _ => Before::Atom,
                }
            }
        };
        Ok(())
    }

    /// An escape outside of a class.
    fn escape(&mut self) -> Result<Before, String> {
        match self.rest.peek().copied() {
            // To the engine, words have letters of all languages, but to ECMA-262 those of ASCII.
            Some('b') => self.written.push_str(r"(?-u:\b)"),
            Some('B') => self.written.push_str(r"(?-u:\B)"),
            Some('1'..='9' | 'k') => {
                let escape = format!("\\{}", self.rest.next().unwrap_or_default());
                return Err(format!("`{escape}`: back references are not supported"));
            }
            _ => {
                self.character_escape()?;
                return Ok(Before::Atom);
            }
        }
        self.rest.next();
        Ok(Before::Other)
    }

    /// An escape that stands for characters.
    fn character_escape(&mut self) -> Result<(), String> {
        let Some(character) = self.rest.next() else {
            return Err(unknown("\\"));
        };
        match character {
            'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'f' | 'n' | 'r' | 't' | 'v' => {
                self.written.push('\\');
                self.written.push(character);
            }
            '0' if !self.rest.peek().is_some_and(char::is_ascii_digit) => self.written.push_str(r"\x00"),
            'c' => {
                let letter = self.rest.next().filter(char::is_ascii_alphabetic);
                let letter = letter.ok_or_else(|| unknown(r"\c"))?;
                self.code_point(u32::from(letter) % 32)?;
            }
            'x' => {
                let code = self.hexadecimal(2).ok_or_else(|| unknown(r"\x"))?;
                self.code_point(code)?;
            }
            'u' => {
                let code = self.unicode_escape().ok_or_else(|| unknown(r"\u"))?;
                self.code_point(code)?;
            }
            'p' | 'P' => self.property(character)?,
            '<' | '>' => return Err(unknown(&format!("\\{character}"))),
            _ if character.is_ascii_alphanumeric() => return Err(unknown(&format!("\\{character}"))),
            _ => {
                if character.is_ascii() {
                    self.written.push('\\');
                }
                self.written.push(character);
            }
        }
        Ok(())
    }

    fn code_point(&mut self, code: u32) -> Result<(), String> {
        let character = char::from_u32(code).ok_or_else(|| unknown(&format!("\\u{code:04X}")))?;
        write!(self.written, r"\x{{{:X}}}", u32::from(character)).expect(INFALLIBLE);
        Ok(())
    }

    /// What `\u` stands for: a code point in braces, four digits, or two halves of one with four digits each.
    fn unicode_escape(&mut self) -> Option<u32> {
        if self.rest.next_if_eq(&'{').is_some() {
            let mut digits = String::new();
            while let Some(digit) = self.rest.next_if(char::is_ascii_hexdigit) {
                digits.push(digit);
            }
            let significant = digits.trim_start_matches('0');
            let is_closed = self.rest.next_if_eq(&'}').is_some();
            if !is_closed || digits.is_empty() || significant.len() > CODE_POINT_DIGITS_MAX {
                return None;
            }
            return u32::from_str_radix(&digits, 16).ok();
        }
        let high = self.hexadecimal(4)?;
        if !(0xD800..0xDC00).contains(&high) {
            return Some(high);
        }
        self.rest.next_if_eq(&'\\')?;
        self.rest.next_if_eq(&'u')?;
        let low = self.hexadecimal(4)?;
        let is_pair = (0xDC00..0xE000).contains(&low);
        is_pair.then(|| 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    }

    /// A number of so many hexadecimal digits.
    fn hexadecimal(&mut self, digits: usize) -> Option<u32> {
        (0..digits).try_fold(0, |number, _| {
            let digit = self.rest.next()?.to_digit(16)?;
            Some(number * 16 + digit)
        })
    }

    /// `\p{Name}` or `\p{Name=Value}`.
    fn property(&mut self, letter: char) -> Result<(), String> {
        let mut name = String::new();
        let is_opened = self.rest.next_if_eq(&'{').is_some();
        while let Some(character) = self
            .rest
            .next_if(|character| is_of_names(*character) || *character == '=')
        {
            name.push(character);
        }
        let is_closed = is_opened && self.rest.next_if_eq(&'}').is_some();
        let parts: Vec<&str> = name.split('=').collect();
        if !is_closed || parts.len() > 2 || parts.contains(&"") {
            return Err(unknown(&format!("\\{letter}")));
        }
        write!(self.written, r"\{letter}{{{name}}}").expect(INFALLIBLE);
        Ok(())
    }

    /// A class, whose bracket is read.
    fn class(&mut self) -> Result<(), String> {
        let is_negated = self.rest.next_if_eq(&'^').is_some();
        // To ECMA-262 this closes it, to the engine it is the first character.
        if self.rest.next_if_eq(&']').is_some() {
            self.written.push_str(if is_negated { ANY } else { NONE });
            return Ok(());
        }
        self.written.push_str(if is_negated { "[^" } else { "[" });
        while let Some(character) = self.rest.next() {
            match character {
                // A backspace, and no end of a word.
                '\\' if self.rest.next_if_eq(&'b').is_some() => self.written.push_str(r"\x08"),
                '\\' => self.character_escape()?,
                _ => self.written.push(character),
            }
            if character == ']' {
                return Ok(());
            }
        }
        Err(format!("{}, which is not closed", quoted("[")))
    }

    /// What opens a group.
    fn group(&mut self) -> Result<(), String> {
        if self.rest.next_if_eq(&'?').is_none() {
            self.written.push('(');
            return Ok(());
        }
        let opened = self.rest.next();
        match (opened, self.rest.peek().copied()) {
            (Some(':'), _) => {
                self.written.push_str("(?:");
                Ok(())
            }
            (Some(sign @ ('=' | '!')), _) => Err(look_around(&format!("(?{sign}"))),
            (Some('<'), Some(sign @ ('=' | '!'))) => Err(look_around(&format!("(?<{sign}"))),
            (Some('<'), _) => self.name(),
            (Some('i' | 'm' | 's' | '-'), _) => {
                let flags = format!("(?{}", opened.unwrap_or_default());
                Err(format!("{}: flags of groups are not supported", quoted(&flags)))
            }
            (opened, _) => {
                let opened = opened.map(String::from).unwrap_or_default();
                Err(unknown(&format!("(?{opened}")))
            }
        }
    }

    /// The name of a group. Nothing asks for what is in it.
    fn name(&mut self) -> Result<(), String> {
        self.written.push_str("(?<");
        while let Some(character) = self.rest.next_if(|character| is_of_names(*character)) {
            self.written.push(character);
        }
        if self.rest.next_if_eq(&'>').is_none() {
            return Err(format!("{} and a name that is not supported", quoted("(?<")));
        }
        self.written.push('>');
        Ok(())
    }

    /// What is in braces: `{2}`, `{2,}` or `{2,3}`. The engine would read over spaces in it.
    fn count(&mut self) -> Result<String, String> {
        let mut count = String::from("{");
        while let Some(character) = self
            .rest
            .next_if(|character| character.is_ascii_digit() || *character == ',')
        {
            count.push(character);
        }
        let begins_with_digit = count[1..].starts_with(|character: char| character.is_ascii_digit());
        if !begins_with_digit || count.matches(',').count() > 1 || self.rest.next_if_eq(&'}').is_none() {
            let message = format!(r"{} without a count: for the character, write `\{{`", quoted("{"));
            return Err(message);
        }
        count.push('}');
        Ok(count)
    }

    /// That something is repeated, and perhaps as seldom as possible.
    fn repetition(&mut self, sign: &str) -> Result<Before, String> {
        if self.before != Before::Atom {
            return Err(format!("{} behind what cannot be repeated", quoted(sign)));
        }
        if self.rest.next_if_eq(&'?').is_some() {
            self.written.push('?');
        }
        Ok(Before::Other)
    }
}

const fn is_of_names(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn quoted(construct: &str) -> String {
    format!("`{construct}`")
}

fn unknown(construct: &str) -> String {
    format!("{}, which is not of ECMA-262", quoted(construct))
}

fn look_around(construct: &str) -> String {
    format!("{}: look-around is not supported", quoted(construct))
}

#[cfg(test)]
mod tests;
