//! From a value to the one text that stands for it (RFC 9651, section 4.1).

use super::{
    BareItem, Decimal, FieldError, INTEGER_MAX, InnerList, Item, Member, begins_key, begins_token, is_in_key,
    is_in_token,
};
use crate::encoding;
use std::fmt::Write as _;

/// The largest decimal, in thousandths.
const THOUSANDTHS_MAX: i64 = INTEGER_MAX;

/// Writes an item.
pub fn write_item(item: &Item) -> Result<String, FieldError> {
    let mut out = String::new();
    put_item(&mut out, item)?;
    Ok(out)
}

/// Writes a list.
pub fn write_list(members: &[Member]) -> Result<String, FieldError> {
    let mut out = String::new();
    for member in members {
        separate(&mut out);
        put_member(&mut out, member)?;
    }
    Ok(out)
}

/// Writes a dictionary.
pub fn write_dictionary(members: &[(String, Member)]) -> Result<String, FieldError> {
    let mut out = String::new();
    for (key, member) in members {
        separate(&mut out);
        put_key(&mut out, key)?;
        match member {
            Member::Item(Item {
                value: BareItem::Boolean(true),
                parameters,
            }) => put_parameters(&mut out, parameters)?,
            member => {
                out.push('=');
                put_member(&mut out, member)?;
            }
        }
    }
    Ok(out)
}

/// Writes a list in brackets, with its parameters.
pub fn write_inner_list(list: &InnerList) -> Result<String, FieldError> {
    let mut out = String::new();
    put_inner_list(&mut out, list)?;
    Ok(out)
}

fn separate(out: &mut String) {
    if !out.is_empty() {
        out.push_str(", ");
    }
}

fn put_member(out: &mut String, member: &Member) -> Result<(), FieldError> {
    match member {
        Member::Item(item) => put_item(out, item),
        Member::InnerList(list) => put_inner_list(out, list),
    }
}

fn put_inner_list(out: &mut String, list: &InnerList) -> Result<(), FieldError> {
    out.push('(');
    for (place, item) in list.items.iter().enumerate() {
        if place > 0 {
            out.push(' ');
        }
        put_item(out, item)?;
    }
    out.push(')');
    put_parameters(out, &list.parameters)
}

fn put_item(out: &mut String, item: &Item) -> Result<(), FieldError> {
    put_bare_item(out, &item.value)?;
    put_parameters(out, &item.parameters)
}

fn put_parameters(out: &mut String, parameters: &[(String, BareItem)]) -> Result<(), FieldError> {
    for (key, value) in parameters {
        out.push(';');
        put_key(out, key)?;
        if *value != BareItem::Boolean(true) {
            out.push('=');
            put_bare_item(out, value)?;
        }
    }
    Ok(())
}

fn put_key(out: &mut String, key: &str) -> Result<(), FieldError> {
    if !is_word(key, begins_key, is_in_key) {
        return Err(FieldError::Unwritable("such a name"));
    }
    out.push_str(key);
    Ok(())
}

fn is_word(text: &str, begins: impl Fn(u8) -> bool, is_in: impl Fn(u8) -> bool) -> bool {
    text.bytes().next().is_some_and(begins) && text.bytes().all(is_in)
}

fn put_bare_item(out: &mut String, value: &BareItem) -> Result<(), FieldError> {
    match value {
        BareItem::Integer(value) => put_integer(out, *value)?,
        BareItem::Decimal(value) => put_decimal(out, *value)?,
        BareItem::String(text) => put_string(out, text)?,
        BareItem::Token(word) if is_word(word, begins_token, is_in_token) => out.push_str(word),
        BareItem::Token(_) => return Err(FieldError::Unwritable("such a token")),
        BareItem::Bytes(bytes) => {
            out.push(':');
            encoding::write_base64(bytes, out);
            out.push(':');
        }
        BareItem::Boolean(value) => out.push_str(if *value { "?1" } else { "?0" }),
        BareItem::Date(seconds) => {
            out.push('@');
            put_integer(out, *seconds)?;
        }
        BareItem::DisplayString(text) => put_display_string(out, text),
    }
    Ok(())
}

fn put_integer(out: &mut String, value: i64) -> Result<(), FieldError> {
    if !(-INTEGER_MAX..=INTEGER_MAX).contains(&value) {
        return Err(FieldError::Unwritable("an integer of more than 15 digits"));
    }
    write!(out, "{value}").expect("writing to a string does not fail");
    Ok(())
}

fn put_decimal(out: &mut String, Decimal { thousandths }: Decimal) -> Result<(), FieldError> {
    if !(-THOUSANDTHS_MAX..=THOUSANDTHS_MAX).contains(&thousandths) {
        return Err(FieldError::Unwritable(
            "a decimal of more than 12 digits before the point",
        ));
    }
    let sign = if thousandths < 0 { "-" } else { "" };
    let (whole, fraction) = (thousandths.abs() / 1_000, thousandths.abs() % 1_000);
    let digits = format!("{fraction:03}");
    let kept = digits.trim_end_matches('0');
    let kept = if kept.is_empty() { "0" } else { kept };
    write!(out, "{sign}{whole}.{kept}").expect("writing to a string does not fail");
    Ok(())
}

fn put_string(out: &mut String, text: &str) -> Result<(), FieldError> {
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => return Err(FieldError::Unwritable("a string with anything but visible ASCII")),
        }
    }
    out.push('"');
    Ok(())
}

fn put_display_string(out: &mut String, text: &str) {
    out.push_str("%\"");
    for byte in text.bytes() {
        match byte {
            b'%' | b'"' => write!(out, "%{byte:02x}").expect("writing to a string does not fail"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02x}").expect("writing to a string does not fail"),
        }
    }
    out.push('"');
}
