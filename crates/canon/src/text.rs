//! Strings: the canonical escapes (RFC 8785 section 3.2.2.2). Reading the escapes of an input is `scan`'s work.

/// Bytes that end a run of plain bytes in a JSON string: the quote, the backslash and everything below U+0020.
pub(crate) const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

/// Length of the run of plain bytes at the start of `bytes`.
pub(crate) fn plain_run(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let special = special_bits(u64::from_le_bytes(*chunk));
        if special != 0 {
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let rest = &bytes[at..];
    at + rest
        .iter()
        .position(|&byte| SPECIAL[usize::from(byte)])
        .unwrap_or(rest.len())
}

/// Eight bytes at once: the lowest bit set stands in the first byte that [`SPECIAL`] marks. A subtraction can borrow
/// from a later byte and mark it wrongly, but only if an earlier byte is marked rightly.
fn special_bits(bytes: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let below = |bytes: u64, bound: u64| bytes.wrapping_sub(ONES * bound) & !bytes & HIGH;
    let equal = |byte: u8| below(bytes ^ (ONES * u64::from(byte)), 1);
    below(bytes, 0x20) | equal(b'"') | equal(b'\\')
}

/// Appends `text` as a canonical JSON string, quotes included.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    loop {
        // A special byte is ASCII, so the run ends on a character boundary.
        let (run, tail) = rest.split_at(plain_run(rest.as_bytes()));
        out.push_str(run);
        let Some(&byte) = tail.as_bytes().first() else {
            break;
        };
        out.push_str(Escape::of(byte).as_str());
        rest = &tail[1..];
    }
    out.push('"');
}

/// The canonical escape of one character.
pub(crate) struct Escape([u8; 6], usize);

impl Escape {
    /// `special` is a byte that [`SPECIAL`] marks.
    pub(crate) fn of(special: u8) -> Self {
        let short = |letter| Self([b'\\', letter, 0, 0, 0, 0], 2);
        match special {
            0x08 => short(b'b'),
            b'\t' => short(b't'),
            b'\n' => short(b'n'),
            0x0C => short(b'f'),
            b'\r' => short(b'r'),
            b'"' | b'\\' => short(special),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let high = HEX[usize::from(control >> 4)];
                let low = HEX[usize::from(control & 0xF)];
                Self([b'\\', b'u', b'0', b'0', high, low], 6)
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0[..self.1]
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("an escape is ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::{SPECIAL, plain_run, write_string};

    fn written(text: &str) -> String {
        let mut out = String::new();
        write_string(&mut out, text);
        out
    }

    #[test]
    fn only_what_must_be_escaped_is_escaped() {
        assert_eq!(written(""), r#""""#);
        assert_eq!(
            written("a/b é € 😂 \u{7f}\u{80}\u{2028}"),
            "\"a/b é € 😂 \u{7f}\u{80}\u{2028}\""
        );
        assert_eq!(written("\"\\"), r#""\"\\""#);
        assert_eq!(written("\u{8}\t\n\u{c}\r"), r#""\b\t\n\f\r""#);
        assert_eq!(written("\0x\u{1f}"), r#""\u0000x\u001f""#);
    }

    #[test]
    fn a_run_ends_at_the_first_special_byte_wherever_it_stands() {
        for byte in 0..=255 {
            for place in 0..20 {
                for after in [b'a', b'!', b'"', 0x00, 0x20, 0x80, 0xFF] {
                    let mut bytes = [b'!', 0xC3, b'z', 0x7F, 0x20].repeat(4);
                    bytes[place] = byte;
                    bytes[place + 1..].fill(after);
                    let expected = bytes
                        .iter()
                        .position(|&byte| SPECIAL[usize::from(byte)])
                        .unwrap_or(20);
                    assert_eq!(plain_run(&bytes), expected, "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn every_control_character_is_read_back_by_another_parser() {
        for code in 0..=0x2_FF {
            let text = char::from_u32(code).unwrap().to_string();
            assert_eq!(serde_json::from_str::<String>(&written(&text)).unwrap(), text);
        }
    }
}
