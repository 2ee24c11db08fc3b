//! What may be given several times has one variable, in which its values stand with white space between them.

use clap::builder::{TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use ledger::SECRET_PREFIX;
use std::ffi::OsStr;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;

/// One value or more in a text, with white space between them and perhaps around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Several<T>(Vec<T>);

impl<T> Several<T> {
    /// The values of all these texts, in their order.
    pub fn flatten(texts: Vec<Self>) -> Vec<T> {
        texts.into_iter().flat_map(|text| text.0).collect()
    }
}

/// What is told of a word of such a text that is no value, and why it is none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoValue<E> {
    told: String,
    reason: E,
}

impl<T: FromStr> Several<T> {
    fn parse(text: &str) -> Result<Self, NoValue<T::Err>> {
        let value = |word: &str| {
            let refused = |reason| NoValue {
                told: told(word, text),
                reason,
            };
            word.parse::<T>().map_err(refused)
        };
        // Where there is nothing else, the empty text is what was given.
        let first = value(text.split_ascii_whitespace().next().unwrap_or_default())?;
        let others = text.split_ascii_whitespace().skip(1).map(value);
        let values: Result<Vec<T>, _> = std::iter::once(Ok(first)).chain(others).collect();
        values.map(Self)
    }
}

/// As much of a word as is told. A text with an `@` may have a password in it (`https://USER:PASSWORD@HOST`): then it
/// is what stands behind the `@` of the word, and nothing of a word without one, which may be a part of a password that
/// has white space in it. Of a secret key it is nothing.
fn told(word: &str, text: &str) -> String {
    if word.contains(SECRET_PREFIX) {
        return "…".to_owned();
    }
    if !text.contains('@') {
        return word.to_owned();
    }
    // Without a key it may be a part of a password, too.
    let behind = word.rsplit_once('@').map(|(_, behind)| behind);
    let behind = behind.filter(|behind| behind.contains('#'));
    format!("…{}", behind.unwrap_or_default())
}

/// Reads such a text. Of one with a word that is no value only that word is told: another one may have a password in it.
#[derive(Clone)]
pub struct SeveralParser<T>(PhantomData<fn() -> T>);

impl<T> ValueParserFactory for Several<T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: Display,
{
    type Parser = SeveralParser<T>;

    fn value_parser() -> Self::Parser {
        SeveralParser(PhantomData)
    }
}

impl<T> TypedValueParser for SeveralParser<T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: Display,
{
    type Value = Several<T>;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let invalid_text = || clap::Error::new(ErrorKind::InvalidUtf8).with_cmd(command);
        let text = value.to_str().ok_or_else(invalid_text)?;
        Several::parse(text).map_err(|NoValue { told, reason }| {
            let whose = argument
                .map(|argument| format!(" for '{argument}'"))
                .unwrap_or_default();
            let message =
                format!("invalid value '{told}'{whose}: {reason}\n\nFor more information, try '--help'.\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosigning::Witness;
    use crate::listeners::Address;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Options {
        #[arg(long)]
        listen: Vec<Several<Address>>,
        #[arg(long)]
        witness: Vec<Several<Witness>>,
    }

    #[test]
    fn several_values_have_any_white_space_between_and_around_them() {
        let (one, two): (Address, Address) = ("127.0.0.1:1".parse().unwrap(), "unix:/s".parse().unwrap());
        for text in [
            "127.0.0.1:1 unix:/s",
            "127.0.0.1:1  unix:/s ",
            "\n127.0.0.1:1\tunix:/s\n",
        ] {
            let several = Several::<Address>::parse(text).unwrap();
            let values = Several::flatten(vec![several]);
            assert_eq!(values, [one.clone(), two.clone()], "{text:?}");
        }
    }

    #[test]
    fn a_word_that_is_no_value_is_told_and_no_other() {
        for (text, word) in [("127.0.0.1:1  here ", "here"), ("", ""), (" \n", "")] {
            let refused = Options::try_parse_from(["program", "--listen", text]).unwrap_err();
            let told = refused.to_string();
            let expected =
                format!("error: invalid value '{word}' for '--listen <LISTEN>': listen on an address");
            assert!(told.starts_with(&expected), "{told}");
            assert!(!told.contains("127.0.0.1:1 "), "{told}");
            assert_eq!(refused.exit_code(), 2);
        }
    }

    #[test]
    fn a_password_or_a_secret_key_is_not_told() {
        for (text, word) in [
            ("https://cs:s3cret@w.example#nobody", "…w.example#nobody"),
            ("ftp://cs:s3cret@w.example#nobody", "…w.example#nobody"),
            ("https://cs:1#s3cret@w.example#nobody", "…w.example#nobody"),
            ("https://cs:s3cret words@w.example#nobody", "…"),
            ("https://cs:1@s3cret words@w.example#nobody", "…"),
            ("https://cs@w.example#PRIVATE+KEY+s3cret", "…"),
        ] {
            let refused = Options::try_parse_from(["program", "--witness", text]).unwrap_err();
            let told = refused.to_string();
            let expected = format!("error: invalid value '{word}' for '--witness <WITNESS>': ");
            assert!(told.starts_with(&expected), "{told}");
            assert!(!told.contains("s3cret"), "{told}");
        }
    }
}
