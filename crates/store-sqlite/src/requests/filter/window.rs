//! Fills the file of a filter through a part of it that is in memory. A sorted run fills it from front to back, so each
//! part is read and written once.

use super::{BLOCK_BYTES, Block, offset};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Blocks that are in memory: 64 KiB.
const BLOCKS: usize = 1_024;

/// A file, and the part of it that is being changed.
#[derive(Debug)]
pub(super) struct Window {
    file: File,
    /// The place of the first block in memory.
    first: usize,
    blocks: Box<[Block]>,
    /// What went wrong first. Nothing is changed after it.
    failed: Option<io::Error>,
}

impl Window {
    /// A file without a name in this folder, with room for so many blocks, which are empty.
    pub(super) fn new(folder: &Path, blocks: usize) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        let parts = blocks.div_ceil(BLOCKS);
        fallocate(&file, FallocateFlags::empty(), 0, offset(parts * BLOCKS))?;
        Ok(Self {
            file,
            first: 0,
            blocks: vec![Block::default(); BLOCKS].into(),
            failed: None,
        })
    }

    /// Changes the block at a place.
    pub(super) fn change(&mut self, place: usize, change: impl FnOnce(&mut Block)) {
        if self.failed.is_none()
            && let Err(error) = self.turn_to(place)
        {
            self.failed = Some(error);
        }
        if self.failed.is_none() {
            change(&mut self.blocks[place - self.first]);
        }
    }

    /// The file with everything in it.
    pub(super) fn finish(self) -> io::Result<File> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.write()?;
        Ok(self.file)
    }

    /// Has the block at a place in memory.
    fn turn_to(&mut self, place: usize) -> io::Result<()> {
        let first = place - place % BLOCKS;
        if first != self.first {
            self.write()?;
            self.first = first;
            self.read()?;
        }
        Ok(())
    }

    fn write(&self) -> io::Result<()> {
        let bytes: Vec<_> = self.blocks.iter().flat_map(|block| block.to_bytes()).collect();
        self.file.write_all_at(&bytes, offset(self.first))
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = vec![0; BLOCKS * BLOCK_BYTES];
        self.file.read_exact_at(&mut bytes, offset(self.first))?;
        let (chunks, _) = bytes.as_chunks();
        for (block, chunk) in self.blocks.iter_mut().zip(chunks) {
            *block = Block::from_bytes(chunk);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_is_told_at_the_end_and_nothing_is_changed_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut window = Window::new(folder.path(), 3 * BLOCKS).unwrap();
        window.change(0, |block| block.add(1));
        // As if the disk had lost the rest.
        window.file.set_len(0).unwrap();
        window.change(BLOCKS, |block| block.add(2));
        window.change(0, |_| unreachable!("it has failed before"));
        let error = window.finish().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn blocks_stay_as_they_were_changed_in_whatever_order() {
        let folder = tempfile::tempdir().unwrap();
        let places = [2 * BLOCKS + 1, 0, BLOCKS, 2 * BLOCKS + 1, 5, 3 * BLOCKS - 1];
        let mut window = Window::new(folder.path(), 3 * BLOCKS - 7).unwrap();
        for (place, number) in places.iter().zip(0..) {
            window.change(*place, |block| block.0[number] = 7);
        }
        let file = window.finish().unwrap();
        let expected = |place| {
            let mut block = Block::default();
            for (_, number) in places.iter().zip(0..).filter(|(changed, _)| **changed == place) {
                block.0[number] = 7;
            }
            block.0
        };
        for place in 0..3 * BLOCKS {
            let mut bytes = [0; BLOCK_BYTES];
            file.read_exact_at(&mut bytes, offset(place)).unwrap();
            assert_eq!(Block::from_bytes(&bytes).0, expected(place), "{place}");
        }
    }
}
