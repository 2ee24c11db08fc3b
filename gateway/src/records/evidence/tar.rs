//! Files in one file: the ustar format of POSIX, as far as evidence needs it. Every system can open it.

use std::ops::Range;

/// The bytes of a block, in which everything is measured.
pub(crate) const BLOCK: usize = 512;
/// The longest name.
const NAME_BYTES: usize = 100;
/// Two blocks of zeros: what a whole archive ends with.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];
/// The format and its version.
const MAGIC: &[u8; 8] = b"ustar\x0000";
/// What stands there in GNU's own format, which programs write unless they are told otherwise.
const MAGIC_OF_GNU: &[u8; 8] = b"ustar  \0";
/// Where the length of a file stands.
const LENGTH: Range<usize> = 124..136;
/// Where the sum of a header stands.
const SUM: Range<usize> = 148..156;
/// Where it stands what a header begins: a file, or one of what other things there are to pack.
const KIND: usize = 156;
/// What stands there for a file.
const FILE: u8 = b'0';
/// What stands behind a number, to the end of its place. Where a digit does, most programs read it too.
const ENDS_OF_NUMBER: [u8; 2] = *b"\0 ";
/// Where the beginning of a name stands that is too long for its place.
const PREFIX: Range<usize> = 345..500;

/// Why a header is none of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// It is in GNU's format.
    OfGnu,
    /// It belongs to the format that came after it, in which headers say more of the file behind them.
    OfPax,
    /// Its name begins elsewhere: to programs that look there the file is another one than to others.
    Prefixed,
    /// It is a folder's, a link's, or that of something else that is not a file.
    NotAFile,
    /// It is none at all.
    Damaged,
}

/// The header of a file and what is needed behind its bytes to fill the last block.
pub(crate) fn file(name: &str, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&header(name, bytes.len()));
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
}

/// INVARIANT: names are ours and short, and what is in a file was made in memory, so both fit.
fn header(name: &str, length: usize) -> [u8; BLOCK] {
    debug_assert!(name.len() < NAME_BYTES && length < 1 << 33, "it fits a header");
    let mut header = [0; BLOCK];
    put(&mut header, 0, name);
    put(&mut header, 100, "0000444\0");
    put(&mut header, 108, "0000000\0");
    put(&mut header, 116, "0000000\0");
    put(&mut header, 124, &format!("{length:011o}\0"));
    put(&mut header, 136, "00000000000\0");
    header[KIND] = FILE;
    header[257..265].copy_from_slice(MAGIC);
    seal(&mut header);
    header
}

fn seal(header: &mut [u8; BLOCK]) {
    let sum = sum(header);
    put(header, 148, &format!("{sum:06o}\0 "));
}

/// The sum is taken with spaces in its own place.
fn sum(header: &[u8; BLOCK]) -> u64 {
    let mut summed = *header;
    summed[148..156].fill(b' ');
    summed.iter().map(|byte| u64::from(*byte)).sum()
}

/// How many bytes of zeros stand behind a file of this length.
pub(crate) fn padding(length: u64) -> usize {
    let padding = length.next_multiple_of(BLOCK as u64) - length;
    usize::try_from(padding).expect("it is less than a block")
}

fn put(header: &mut [u8; BLOCK], at: usize, text: &str) {
    header[at..at + text.len()].copy_from_slice(text.as_bytes());
}

/// The name and the length of the file that a header begins.
pub(crate) fn read_header(header: &[u8; BLOCK]) -> Result<(String, u64), BadHeader> {
    if &header[257..265] == MAGIC_OF_GNU {
        return Err(BadHeader::OfGnu);
    }
    let file = read_file(header).ok_or(BadHeader::Damaged)?;
    if header[PREFIX].iter().any(|byte| *byte != 0) {
        return Err(BadHeader::Prefixed);
    }
    match header[KIND] {
        FILE => Ok(file),
        b'1'..=b'7' => Err(BadHeader::NotAFile),
        b'x' | b'g' => Err(BadHeader::OfPax),
        _ => Err(BadHeader::Damaged),
    }
}

fn read_file(header: &[u8; BLOCK]) -> Option<(String, u64)> {
    if &header[257..265] != MAGIC {
        return None;
    }
    (number(header, SUM)? == sum(header)).then_some(())?;
    let name = header[..NAME_BYTES].split(|byte| *byte == 0).next()?;
    Some((String::from_utf8(name.to_vec()).ok()?, number(header, LENGTH)?))
}

/// A number of octal digits and of nothing else: signs mean different things to different programs.
fn number(header: &[u8; BLOCK], place: Range<usize>) -> Option<u64> {
    let place = &header[place];
    let is_octal = |byte: &u8| matches!(byte, b'0'..=b'7');
    let end = place.iter().position(|byte| !is_octal(byte))?;
    let (digits, rest) = place.split_at(end);
    let is_ended = rest.iter().all(|byte| ENDS_OF_NUMBER.contains(byte));
    (is_ended && !digits.is_empty()).then_some(())?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_a_changed_one_is_not() {
        let mut out = Vec::new();
        file("ledger/000001.ndjson", b"{}\n", &mut out);
        assert_eq!(out.len(), 2 * BLOCK);
        let header: [u8; BLOCK] = out[..BLOCK].try_into().unwrap();
        assert_eq!(read_header(&header), Ok(("ledger/000001.ndjson".to_owned(), 3)));
        for place in [0, 7, 130, 149, 160, 300, 400] {
            let mut changed = header;
            changed[place] ^= 1;
            assert_eq!(read_header(&changed), Err(BadHeader::Damaged), "{place}");
        }
        assert_eq!(read_header(&[0; BLOCK]), Err(BadHeader::Damaged));
    }

    #[test]
    fn a_header_that_other_programs_read_in_another_way_is_none() {
        for place in [PREFIX.start, PREFIX.end - 1] {
            let mut prefixed = header("README.md", 0);
            put(&mut prefixed, place, "x");
            seal(&mut prefixed);
            assert_eq!(read_header(&prefixed), Err(BadHeader::Prefixed), "{place}");
        }
        let mut of_gnu = header("README.md", 0);
        of_gnu[257..265].copy_from_slice(MAGIC_OF_GNU);
        seal(&mut of_gnu);
        assert_eq!(read_header(&of_gnu), Err(BadHeader::OfGnu));
        for (kind, bad) in [
            (b'1', BadHeader::NotAFile),
            (b'2', BadHeader::NotAFile),
            (b'5', BadHeader::NotAFile),
            (b'x', BadHeader::OfPax),
            (b'g', BadHeader::OfPax),
            (b'L', BadHeader::Damaged),
        ] {
            let mut other = header("README.md", 0);
            other[KIND] = kind;
            seal(&mut other);
            assert_eq!(read_header(&other), Err(bad), "{kind}");
        }
        for (place, text) in [
            (LENGTH.end - 1, "0"),
            (LENGTH.start, "+"),
            (LENGTH.start, " "),
            (LENGTH.start + 3, "\0"),
        ] {
            let mut longer = header("README.md", 8);
            put(&mut longer, place, text);
            seal(&mut longer);
            assert_eq!(read_header(&longer), Err(BadHeader::Damaged), "{place} {text}");
        }
        let mut spaced = header("README.md", 8);
        put(&mut spaced, LENGTH.end - 1, " ");
        seal(&mut spaced);
        assert_eq!(read_header(&spaced), Ok(("README.md".to_owned(), 8)));
        // The sum does not count its own place.
        put(&mut spaced, SUM.end - 2, "0");
        assert_eq!(read_header(&spaced), Err(BadHeader::Damaged));
    }

    #[test]
    fn a_number_has_as_many_digits_as_whoever_packs_it_writes() {
        for text in ["10\0         ", "0010 \0\0\0\0\0\0\0", "00000000010\0"] {
            let mut short = header("README.md", 0);
            put(&mut short, LENGTH.start, text);
            seal(&mut short);
            let sum = sum(&short);
            put(&mut short, SUM.start, &format!("{sum:o} \0 "));
            assert_eq!(read_header(&short), Ok(("README.md".to_owned(), 8)), "{text}");
        }
    }
}
