//! What may be given several times has one variable, in which its values stand with white space between them.

use clap::builder::{TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
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

/// A word of such a text that is no value, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoValue<E> {
    word: String,
    reason: E,
}

impl<T: FromStr> Several<T> {
    fn parse(text: &str) -> Result<Self, NoValue<T::Err>> {
        let value = |word: &str| {
            let refused = |reason| NoValue {
                word: word.to_owned(),
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
        Several::parse(text).map_err(|NoValue { word, reason }| {
            let whose = argument
                .map(|argument| format!(" for '{argument}'"))
                .unwrap_or_default();
            let told =
                format!("invalid value '{word}'{whose}: {reason}\n\nFor more information, try '--help'.\n");
            clap::Error::raw(ErrorKind::ValueValidation, told).with_cmd(command)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::Address;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Options {
        #[arg(long)]
        listen: Vec<Several<Address>>,
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
}
