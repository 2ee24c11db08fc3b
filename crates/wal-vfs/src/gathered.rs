//! What was written to a log and is not in its file yet: one piece, because a log is written from front to back.
//!
//! A frame of the log is a header and a page, and a header says whether its frame ends a transaction
//! (<https://www.sqlite.org/fileformat2.html#the_write_ahead_log>). Until then nobody but the connection that writes
//! knows of the frames, so only it can tell that they are not in the file, and it looks through the same [`Gathered`].

/// The bytes of a frame's header, and of nothing else that is written to a log.
const FRAME_HEADER_BYTES: usize = 24;
/// Where a frame's header says how many pages the database has after the transaction that ends with it. 0 says that none does.
const PAGES_AFTER: std::ops::Range<usize> = 4..8;
/// The longest piece, in bytes: 63 frames with pages of 2 KiB, 31 with pages of 4 KiB. SQLite's VFS for Unix writes no
/// more at once, and longer ones would save next to nothing.
const PIECE_MAX: usize = 0x1_ffff;

/// Where pieces are written: the bytes, and where they begin.
pub(crate) trait Sink {
    /// What can go wrong.
    type Error;
    /// Writes all of them.
    fn write(&mut self, bytes: &[u8], begin: i64) -> Result<(), Self::Error>;
}

/// A piece of a log that is not in its file yet.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    /// Where it begins.
    begin: i64,
    /// The last frame that has begun ends a transaction: nothing is kept back.
    is_at_end: bool,
}

impl Gathered {
    /// Takes what is written at `begin`, and puts into the file what must be there: all that does not go on where this
    /// begins, and all of a transaction that has ended.
    pub(crate) fn write<S: Sink>(&mut self, bytes: &[u8], begin: i64, sink: &mut S) -> Result<(), S::Error> {
        if bytes.len() == FRAME_HEADER_BYTES {
            self.is_at_end = bytes[PAGES_AFTER] != [0; 4];
        }
        if self.end() != Some(begin) || self.bytes.len() + bytes.len() > PIECE_MAX {
            self.flush(sink)?;
            self.begin = begin;
        }
        self.bytes.extend_from_slice(bytes);
        if self.is_at_end && bytes.len() != FRAME_HEADER_BYTES {
            self.flush(sink)?;
        }
        Ok(())
    }

    /// Puts everything into the file. What cannot be put there is gone, as it is when a write fails that was not kept
    /// back: it belongs to a transaction that has not ended, and whoever is told of the failure gives that up.
    pub(crate) fn flush<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let written = sink.write(&self.bytes, self.begin);
        self.bytes.clear();
        written
    }

    fn end(&self) -> Option<i64> {
        self.begin.checked_add(i64::try_from(self.bytes.len()).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE_BYTES: usize = 512;
    const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE_BYTES;

    /// A file in memory.
    #[derive(Debug, Default)]
    struct Disk {
        bytes: Vec<u8>,
        /// How long each piece was that was written.
        pieces: Vec<usize>,
        is_full: bool,
    }

    impl Sink for Disk {
        type Error = &'static str;

        fn write(&mut self, bytes: &[u8], begin: i64) -> Result<(), Self::Error> {
            if self.is_full {
                return Err("full");
            }
            self.pieces.push(bytes.len());
            let begin = usize::try_from(begin).unwrap();
            let end = begin + bytes.len();
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[begin..end].copy_from_slice(bytes);
            Ok(())
        }
    }

    /// A log that is written through [`Gathered`], and beside it what would be in its file without that.
    #[derive(Debug, Default)]
    struct Log {
        gathered: Gathered,
        disk: Disk,
        expected: Disk,
        /// How many frames there are, and how many when the last transaction ended.
        frames: usize,
        committed: usize,
    }

    impl Log {
        fn write(&mut self, bytes: &[u8], begin: usize) -> Result<(), &'static str> {
            let begin = i64::try_from(begin).unwrap();
            self.expected.write(bytes, begin)?;
            self.gathered.write(bytes, begin, &mut self.disk)
        }

        /// Writes a frame at the end, as SQLite does.
        fn frame(&mut self, fill: u8, ends_transaction: bool) -> Result<(), &'static str> {
            let mut header = [fill; FRAME_HEADER_BYTES];
            header[PAGES_AFTER].copy_from_slice(&u32::from(ends_transaction).to_be_bytes());
            let begin = self.frames * FRAME_BYTES;
            self.frames += 1;
            self.write(&header, begin)?;
            self.write(&[fill; PAGE_BYTES], begin + FRAME_HEADER_BYTES)?;
            if ends_transaction {
                self.committed = self.frames;
            }
            Ok(())
        }

        fn flush(&mut self) -> Result<(), &'static str> {
            self.gathered.flush(&mut self.disk)
        }

        fn is_in_the_file(&self) -> bool {
            self.disk.bytes == self.expected.bytes
        }
    }

    #[test]
    fn a_transaction_is_written_when_it_ends_and_in_one_piece() {
        let mut log = Log::default();
        (0..9).for_each(|fill| log.frame(fill, false).unwrap());
        assert_eq!(log.disk.pieces, [0; 0]);
        log.frame(9, true).unwrap();
        assert_eq!(log.disk.pieces, [10 * FRAME_BYTES]);
        assert!(log.is_in_the_file());
        log.frame(10, false).unwrap();
        log.frame(11, true).unwrap();
        assert_eq!(log.disk.pieces, [10 * FRAME_BYTES, 2 * FRAME_BYTES]);
        assert!(log.is_in_the_file());
    }

    #[test]
    fn a_large_transaction_is_written_in_pieces_that_are_not_too_long() {
        let mut log = Log::default();
        (0..u8::MAX).for_each(|fill| log.frame(fill, false).unwrap());
        (0..u8::MAX).for_each(|fill| log.frame(fill, false).unwrap());
        log.frame(0, true).unwrap();
        assert!(log.is_in_the_file());
        let pieces = &log.disk.pieces;
        assert!(pieces.iter().all(|piece| *piece <= PIECE_MAX), "{pieces:?}");
        assert_eq!(pieces.len(), log.disk.bytes.len().div_ceil(PIECE_MAX));
    }

    /// Where sectors are larger than what a write may destroy, SQLite writes the last frame again until a sector is
    /// full, and syncs in between.
    #[test]
    fn the_end_of_a_transaction_is_written_however_it_is_divided() {
        let mut log = Log::default();
        log.frame(1, false).unwrap();
        log.frame(2, true).unwrap();
        let mut header = [3; FRAME_HEADER_BYTES];
        header[PAGES_AFTER].copy_from_slice(&1_u32.to_be_bytes());
        let begin = 2 * FRAME_BYTES;
        log.write(&header, begin).unwrap();
        for half in [0, 1] {
            let begin = begin + FRAME_HEADER_BYTES + half * PAGE_BYTES / 2;
            log.write(&[3; PAGE_BYTES / 2], begin).unwrap();
            assert!(log.is_in_the_file());
        }
    }

    #[test]
    fn what_could_not_be_written_is_told_once_and_never_written() {
        let mut log = Log::default();
        log.disk.is_full = true;
        log.frame(1, false).unwrap();
        assert_eq!(log.frame(2, true), Err("full"));
        log.disk.is_full = false;
        log.flush().unwrap();
        assert_eq!(log.disk.pieces, [0; 0]);
        // The transaction is given up, and the next one begins where it began.
        log.frames = 0;
        log.expected.bytes.clear();
        log.frame(3, true).unwrap();
        assert!(log.is_in_the_file());
    }

    /// What SQLite does with a log.
    #[derive(Debug, Clone)]
    enum Step {
        Frame {
            fill: u8,
            ends_transaction: bool,
        },
        /// A page that was written in the same transaction is written again.
        Again {
            frame: prop::sample::Index,
            fill: u8,
        },
        RollBack,
        /// The log starts over.
        Restart,
        /// Reads, syncs, truncates, or asks for the size.
        Look,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let frame =
            (any::<u8>(), prop::bool::weighted(0.2)).prop_map(|(fill, ends_transaction)| Step::Frame {
                fill,
                ends_transaction,
            });
        let again =
            (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(frame, fill)| Step::Again { frame, fill });
        let step = prop_oneof![
            10 => frame,
            2 => again,
            1 => Just(Step::RollBack),
            1 => Just(Step::Restart),
            1 => Just(Step::Look),
        ];
        prop::collection::vec(step, 0..600)
    }

    proptest! {
        #[test]
        fn a_gathered_log_reads_like_one_that_was_written_at_once(steps in steps()) {
            let mut log = Log::default();
            for step in steps {
                match step {
                    Step::Frame { fill, ends_transaction } => {
                        log.frame(fill, ends_transaction).unwrap();
                        prop_assert!(!ends_transaction || log.is_in_the_file());
                    }
                    Step::Again { frame, fill } if log.frames > log.committed => {
                        let frame = log.committed + frame.index(log.frames - log.committed);
                        log.write(&[fill; PAGE_BYTES], frame * FRAME_BYTES + FRAME_HEADER_BYTES).unwrap();
                    }
                    Step::Again { .. } => {}
                    Step::RollBack => log.frames = log.committed,
                    Step::Restart => (log.frames, log.committed) = (0, 0),
                    Step::Look => {
                        log.flush().unwrap();
                        prop_assert!(log.is_in_the_file());
                    }
                }
            }
            prop_assert!(log.disk.pieces.len() <= log.expected.pieces.len());
        }
    }
}
