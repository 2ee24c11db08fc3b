//! Numbers as ECMAScript's `Number.prototype.toString` writes them (RFC 8785 section 3.2.2.3). A library finds the
//! shortest digits; where the point and the exponent go is decided here.

use std::ops::Range;

/// Longest decimal copied as it stands. Doubles tell all decimals of 15 digits apart, so the nearest double of such a
/// decimal prints as that decimal: a shorter text for it would be another one of these decimals.
const COPIED_LEN_MAX: usize = 15;

/// Fractions below 1e-6 are written with an exponent: this many zeros behind the point.
const PLAIN_FRACTION_DIGITS: usize = 6;

/// Where the library and ECMAScript write the same, but for a `.0` behind an integer.
const SAME_LAYOUT: Range<f64> = 1e-4..1e15;

/// Longest text the library prints for a double; it says 24 itself.
const TEXT_LEN_MAX: usize = 32;

/// What became of a number.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is what the nearest double is written as; a fraction may have been rounded.
    AsItIs,
    /// It is an integer, and written as another one.
    AsAnotherInteger,
    /// No double holds it.
    Not,
}

/// Appends a number given as JSON wrote it. `token` follows the grammar of RFC 8259.
pub(crate) fn write_token(out: &mut Vec<u8>, token: &str) -> Written {
    let (sign, digits) = token.split_at(usize::from(token.starts_with('-')));
    if digits == "0" {
        out.push(b'0'); // minus zero too
        return Written::AsItIs;
    }
    if let Some((whole, fraction)) = copied(digits) {
        out.extend_from_slice(sign.as_bytes());
        out.extend_from_slice(whole.as_bytes());
        if !fraction.is_empty() {
            out.push(b'.');
            out.extend_from_slice(fraction.as_bytes());
        }
        return Written::AsItIs;
    }
    let value: f64 = token
        .parse()
        .expect("the grammar of JSON numbers is within that of Rust floats");
    if !value.is_finite() {
        return Written::Not;
    }
    let start = out.len();
    write_double(out, value);
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_integer && out[start..] != *token.as_bytes() {
        Written::AsAnotherInteger
    } else {
        Written::AsItIs
    }
}

/// Both sides of the point of a decimal that prints as itself, but for the zeros it may end with.
fn copied(digits: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if digits.len() > COPIED_LEN_MAX || !is_plain(whole) || !is_plain(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let is_tiny = whole == "0"
        && fraction
            .bytes()
            .take(PLAIN_FRACTION_DIGITS)
            .all(|byte| byte == b'0');
    (!is_tiny).then_some((whole, fraction))
}

/// Appends a finite double.
pub(crate) fn write_double(out: &mut Vec<u8>, value: f64) {
    if value == 0.0 {
        out.push(b'0'); // minus zero too
        return;
    }
    if value < 0.0 {
        out.push(b'-');
    }
    let mut buffer = zmij::Buffer::new();
    let printed = buffer.format_finite(value.abs());
    if SAME_LAYOUT.contains(&value.abs()) {
        out.extend_from_slice(printed.strip_suffix(".0").unwrap_or(printed).as_bytes());
        return;
    }
    let shortest = Shortest::read(printed);
    layout(out, shortest.digits(), shortest.point);
}

/// The shortest digits of a double, and where its decimal point is: the value is `0.DIGITS × 10^point`.
struct Shortest {
    text: [u8; TEXT_LEN_MAX],
    digits: Range<usize>,
    point: i32,
}

impl Shortest {
    /// Takes apart what the library prints, whichever of `12.0`, `0.0012` and `1.2e-7` it chose.
    fn read(printed: &str) -> Self {
        let (mantissa, exponent) = printed.split_once('e').unwrap_or((printed, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));

        let mut text = [0; TEXT_LEN_MAX];
        let len = whole.len() + fraction.len();
        text[..whole.len()].copy_from_slice(whole.as_bytes());
        text[whole.len()..len].copy_from_slice(fraction.as_bytes());
        let is_significant = |byte: &u8| *byte != b'0';
        let start = text[..len]
            .iter()
            .position(is_significant)
            .expect("the value is not zero");
        let end = 1 + text[..len]
            .iter()
            .rposition(is_significant)
            .expect("the value is not zero");

        let exponent: i32 = exponent
            .parse()
            .expect("the exponent of a double has at most three digits");
        let shift = i32::try_from(whole.len()).and_then(|whole| Ok(whole - i32::try_from(start)?));
        Self {
            text,
            digits: start..end,
            point: exponent + shift.expect("both are at most the text's length"),
        }
    }

    fn digits(&self) -> &[u8] {
        &self.text[self.digits.clone()]
    }
}

/// ECMA-262 `Number::toString`, steps 6 to 10, with n = `point` and k = the number of digits.
fn layout(out: &mut Vec<u8>, digits: &[u8], point: i32) {
    let zeros = |out: &mut Vec<u8>, count: i32| out.extend((0..count).map(|_| b'0'));
    let count = i32::try_from(digits.len()).expect("a double has at most 17 digits");
    match point {
        _ if count <= point && point <= 21 => {
            out.extend_from_slice(digits);
            zeros(out, point - count);
        }
        1..=21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).expect("between 1 and 21"));
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
        -5..=0 => {
            out.extend_from_slice(b"0.");
            zeros(out, -point);
            out.extend_from_slice(digits);
        }
        _ => scientific(out, digits, point - 1),
    }
}

fn scientific(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    out.push(digits[0]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    out.extend_from_slice(exponent.unsigned_abs().to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Shortest, Written, layout, write_double, write_token};

    fn double(value: f64) -> String {
        let mut out = Vec::new();
        write_double(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    fn token(text: &str) -> Option<String> {
        let mut out = Vec::new();
        let written = write_token(&mut out, text);
        (written != Written::Not).then(|| String::from_utf8(out).unwrap())
    }

    /// RFC 8785, appendix B.
    #[test]
    fn the_samples_of_the_rfc_are_printed_as_it_prints_them() {
        for (bits, expected) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            assert_eq!(double(f64::from_bits(bits)), expected, "{bits:016x}");
        }
    }

    #[test]
    fn a_token_becomes_the_nearest_double() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("-0e5", "0"),
            ("-7", "-7"),
            ("999999999999999", "999999999999999"),
            ("9007199254740993", "9007199254740992"),
            ("1.0", "1"),
            ("10.50", "10.5"),
            ("1E2", "100"),
            ("1e-400", "0"),
            ("0.0", "0"),
            ("0.000001", "0.000001"),
            ("0.0000010", "0.000001"),
            ("0.0000001", "1e-7"),
            ("-0.50", "-0.5"),
            ("7.000", "7"),
            ("0.00009", "0.00009"),
            ("0.0001", "0.0001"),
            ("0.1e1", "1"),
            ("99999999.999999999999", "100000000"),
            ("1234567890123456.5", "1234567890123456.5"),
            ("9999999999999999", "10000000000000000"),
            ("100000000000000000000", "100000000000000000000"),
            ("1000000000000000000000", "1e+21"),
        ] {
            assert_eq!(token(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(token("1e400"), None);
        assert_eq!(token("-1e309"), None);
    }

    #[test]
    fn an_integer_that_becomes_another_one_is_told_from_those_that_do_not() {
        for (text, expected) in [
            ("9007199254740991", Written::AsItIs),
            ("9007199254740992", Written::AsItIs),
            ("9007199254740993", Written::AsAnotherInteger),
            ("-9007199254740993", Written::AsAnotherInteger),
            ("9223372036854775807", Written::AsAnotherInteger),
            // A double holds it, but canonical text says another integer than this.
            ("9223372036854775808", Written::AsAnotherInteger),
            ("9223372036854776000", Written::AsItIs),
            ("1000000000000000000000", Written::AsAnotherInteger),
            ("1e21", Written::AsItIs),
            ("9007199254740993.0", Written::AsItIs),
            ("9007199254740993e0", Written::AsItIs),
            ("-0", Written::AsItIs),
        ] {
            assert_eq!(write_token(&mut Vec::new(), text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_double_is_read_back_bit_for_bit(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite() && value != 0.0);
            prop_assert_eq!(double(value).parse::<f64>().unwrap().to_bits(), bits);
        }

        #[test]
        fn integers_that_are_written_as_they_are_stay_apart(one: i64, beside in 1..2_000_i64) {
            let write = |integer: i64| {
                let mut out = Vec::new();
                (write_token(&mut out, &integer.to_string()) == Written::AsItIs).then_some(out)
            };
            let other = one.wrapping_add(beside);
            if let (Some(one), Some(other)) = (write(one), write(other)) {
                prop_assert_ne!(one, other);
            }
        }

        #[test]
        fn a_copied_decimal_is_what_its_double_prints_as(token_text in "-?(0|[1-9][0-9]{0,9})(\\.[0-9]{1,8})?") {
            let value: f64 = token_text.parse().unwrap();
            prop_assert_eq!(token(&token_text), Some(double(value)));
        }

        #[test]
        fn the_library_lays_out_as_ecmascript_where_it_is_said_to(mantissa in 1..1_u64 << 53, scale in -12..15_i32) {
            let value: f64 = format!("{mantissa}e{}", scale - 12).parse().unwrap();
            let mut buffer = zmij::Buffer::new();
            let shortest = Shortest::read(buffer.format_finite(value));
            let mut expected = Vec::new();
            layout(&mut expected, shortest.digits(), shortest.point);
            prop_assert_eq!(double(value), String::from_utf8(expected).unwrap());
        }
    }
}
