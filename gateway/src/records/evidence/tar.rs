//! Files in one file: the ustar format of POSIX, as far as evidence needs it. Every system can open it.

/// The bytes of a block, in which everything is measured.
pub(crate) const BLOCK: usize = 512;
/// The longest name.
const NAME_BYTES: usize = 100;
/// Two blocks of zeros: what a whole archive ends with.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

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
    // The sum is taken with spaces in its own place.
    put(&mut header, 148, "        ");
    put(&mut header, 156, "0");
    put(&mut header, 257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut header, 148, &format!("{sum:06o}\0 "));
    header
}

/// How many bytes of zeros stand behind a file of this length.
pub(crate) fn padding(length: u64) -> usize {
    let padding = length.next_multiple_of(BLOCK as u64) - length;
    usize::try_from(padding).expect("it is less than a block")
}

fn put(header: &mut [u8; BLOCK], at: usize, text: &str) {
    header[at..at + text.len()].copy_from_slice(text.as_bytes());
}

/// The name and the length of the file that a header begins; `None` if it is no header of ours.
pub(crate) fn read_header(header: &[u8; BLOCK]) -> Option<(String, u64)> {
    if &header[257..265] != b"ustar\x0000" || header[156] != b'0' {
        return None;
    }
    let mut summed = *header;
    summed[148..156].fill(b' ');
    let sum: u64 = summed.iter().map(|byte| u64::from(*byte)).sum();
    (octal(&header[148..154])? == sum).then_some(())?;
    let name = header[..NAME_BYTES].split(|byte| *byte == 0).next()?;
    Some((String::from_utf8(name.to_vec()).ok()?, octal(&header[124..135])?))
}

fn octal(digits: &[u8]) -> Option<u64> {
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
        assert_eq!(read_header(&header), Some(("ledger/000001.ndjson".to_owned(), 3)));
        for place in [0, 7, 130, 149, 160, 300] {
            let mut changed = header;
            changed[place] ^= 1;
            assert_eq!(read_header(&changed), None, "{place}");
        }
        assert_eq!(read_header(&[0; BLOCK]), None);
    }
}
