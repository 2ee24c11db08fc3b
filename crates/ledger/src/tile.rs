//! C2SP tlog-tiles: a log as files that never change. It says which files there are and what is in them; where they go is not
//! looked at here.

use canon::Digest;

use crate::encoding;
use crate::merkle::{NodeId, TREE_SIZE_MAX, Unprovable};

/// Hashes in a full tile, and entries in a full bundle.
pub const TILE_WIDTH: u64 = 256;
/// Levels of the tree in a tile.
const TILE_HEIGHT: u8 = 8;

/// One file: a tile of hashes, or the bundle of entries below a tile of level 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tile {
    /// Its level. A hash in it covers 256^level entries.
    pub level: u8,
    /// Its place in the level.
    pub index: u64,
    /// How many hashes are in it: 256, or fewer at the right edge.
    pub width: u64,
}

impl Tile {
    /// The tiles that a tree of the size `to` has and one of the size `from` had not: those that are new and those that have
    /// grown. From 0, all of them.
    ///
    /// # Errors
    /// A tree has not so many leaves, or `from` is larger than `to`.
    pub fn added(from: u64, to: u64) -> Result<Vec<Self>, Unprovable> {
        if to > TREE_SIZE_MAX {
            return Err(Unprovable::TooLarge(to));
        }
        if from > to {
            return Err(Unprovable::NotBefore { from, to });
        }
        let mut tiles = Vec::new();
        let mut level = 0;
        let (mut before, mut count) = (from, to);
        while count > 0 {
            // A level that has grown by nothing has no new tile, nor has any above it.
            if before < count {
                for index in before / TILE_WIDTH..count.div_ceil(TILE_WIDTH) {
                    let width = (count - index * TILE_WIDTH).min(TILE_WIDTH);
                    tiles.push(Self { level, index, width });
                }
            }
            (before, count) = (before / TILE_WIDTH, count / TILE_WIDTH);
            level += 1;
        }
        Ok(tiles)
    }

    /// Reads what stands behind `tile/` and behind the level in a path. `None` if no path of a log looks like that, or
    /// no tree is so large.
    pub fn parse(level: &str, place: &str) -> Option<Self> {
        let (index, width) = match place.split_once(".p/") {
            Some((index, width)) => (
                index,
                encoding::decimal(width).filter(|width| *width < TILE_WIDTH)?,
            ),
            None => (place, TILE_WIDTH),
        };
        let mut whole = 0_u64;
        for part in index.split('/') {
            let digits = part.strip_prefix('x').unwrap_or(part);
            let is_part = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
            let part = is_part.then(|| digits.parse().ok()).flatten()?;
            whole = whole.checked_mul(1000)?.checked_add(part)?;
        }
        let tile = Self {
            level: u8::try_from(encoding::decimal(level)?).ok()?,
            index: whole,
            width,
        };
        // Whatever else could be read as the same tile is not its path.
        let is_its_path = tile.width > 0 && tile.place() == place;
        (is_its_path && tile.leaves()? <= TREE_SIZE_MAX).then_some(tile)
    }

    /// How many leaves a tree has at least that has this tile; `None` if that cannot be said in 64 bits.
    pub fn leaves(&self) -> Option<u64> {
        let hashes = self.index.checked_mul(TILE_WIDTH)?.checked_add(self.width)?;
        let each = 1_u64.checked_shl(u32::from(self.level) * u32::from(TILE_HEIGHT))?;
        hashes.checked_mul(each)
    }

    /// The path of the tile below the log's prefix.
    pub fn path(&self) -> String {
        format!("tile/{}/{}", self.level, self.place())
    }

    /// The path of the bundle of entries below this tile, which is one of level 0.
    pub fn entries_path(&self) -> String {
        format!("tile/entries/{}", self.place())
    }

    /// The subtrees whose hashes are in the tile, in order. What is in the file is their hashes one after the other.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let level = self.level * TILE_HEIGHT;
        let first = self.index * TILE_WIDTH;
        (first..first + self.width).map(move |index| NodeId { level, index })
    }

    /// `seq` of the entries in the bundle below this tile of level 0.
    pub fn entries(&self) -> std::ops::RangeInclusive<u64> {
        let first = self.index * TILE_WIDTH;
        first + 1..=first + self.width
    }

    fn place(&self) -> String {
        let mut place = format!("{:03}", self.index % 1000);
        let mut rest = self.index / 1000;
        while rest > 0 {
            place = format!("x{:03}/{place}", rest % 1000);
            rest /= 1000;
        }
        if self.width < TILE_WIDTH {
            place.push_str(".p/");
            place.push_str(&self.width.to_string());
        }
        place
    }
}

/// Appends an entry to a bundle: the bytes of its header, behind their length in two bytes. `None` if they are too long for
/// that, which the header of no gateway is.
#[must_use]
pub fn write_bundle_entry(out: &mut Vec<u8>, header: &[u8]) -> Option<()> {
    let len = u16::try_from(header.len()).ok()?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(header);
    Some(())
}

/// The bytes of a tile.
pub fn tile_bytes(hashes: &[Digest]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Tile, write_bundle_entry};
    use crate::merkle::NodeId;

    fn paths(from: u64, to: u64) -> Vec<String> {
        Tile::added(from, to).unwrap().iter().map(Tile::path).collect()
    }

    #[test]
    fn the_tree_of_the_specification_has_its_tiles() {
        let tiles = Tile::added(0, 70_000).unwrap();
        let count = |level, width| {
            tiles
                .iter()
                .filter(|tile| (tile.level, tile.width) == (level, width))
                .count()
        };
        assert_eq!((count(0, 256), count(0, 112)), (273, 1));
        assert_eq!((count(1, 256), count(1, 17), count(2, 1)), (1, 1, 1));
        assert_eq!(tiles.len(), 277);
        assert_eq!(paths(0, 256), ["tile/0/000", "tile/1/000.p/1"]);
        assert_eq!(paths(0, 0), [""; 0]);
    }

    #[test]
    fn a_path_is_that_of_the_specification() {
        let tile = Tile {
            level: 0,
            index: 1_234_067,
            width: 256,
        };
        assert_eq!(tile.path(), "tile/0/x001/x234/067");
        assert_eq!(tile.entries_path(), "tile/entries/x001/x234/067");
        let partial = Tile { width: 7, ..tile };
        assert_eq!(partial.path(), "tile/0/x001/x234/067.p/7");
        let thousand = Tile { index: 1000, ..tile };
        assert_eq!(thousand.path(), "tile/0/x001/000");
    }

    #[test]
    fn a_path_is_read_in_one_way() {
        for (from, to) in [
            (0, 70_000),
            (0, 255),
            (0, 256),
            (255_999, 256_300),
            (70_000_000, 70_000_300),
        ] {
            for tile in Tile::added(from, to).unwrap() {
                let path = tile.path();
                let (level, place) = path.strip_prefix("tile/").unwrap().split_once('/').unwrap();
                assert_eq!(Tile::parse(level, place), Some(tile), "{path}");
                assert!(tile.leaves().unwrap() <= to, "{path}");
            }
        }
        for (level, place) in [
            ("0", ""),
            ("0", "0"),
            ("0", "0000"),
            ("0", "x000"),
            ("0", "000/000"),
            ("0", "x000/000"),
            ("0", "001/x000"),
            ("0", "000.p"),
            ("0", "000.p/"),
            ("0", "000.p/0"),
            ("0", "000.p/256"),
            ("0", "000.p/07"),
            ("0", "000.p/7/"),
            ("00", "000"),
            ("", "000"),
            ("-1", "000"),
            ("64", "000"),
            ("256", "000"),
            ("7", "000.p/1"),
            ("0", "+01"),
            ("0", "x999/x999/x999/x999/x999/x999/999"),
            ("0", "x036/x028/x797/x018/963"),
            ("entries", "000"),
        ] {
            assert_eq!(Tile::parse(level, place), None, "{level} {place}");
        }
    }

    #[test]
    fn a_grown_log_adds_what_is_new_and_what_has_grown() {
        assert_eq!(paths(5, 5), [""; 0]);
        assert_eq!(paths(5, 6), ["tile/0/000.p/6"]);
        assert_eq!(
            paths(255, 257),
            ["tile/0/000", "tile/0/001.p/1", "tile/1/000.p/1"]
        );
        assert_eq!(paths(256, 257), ["tile/0/001.p/1"]);
        for (from, to) in [(0, 1_000), (1, 70_000), (65_535, 65_537), (513, 66_000)] {
            let mut grown: Vec<_> = Tile::added(0, from).unwrap();
            let added = Tile::added(from, to).unwrap();
            grown.retain(|tile| {
                let is_replaced = |other: &Tile| (other.level, other.index) == (tile.level, tile.index);
                !added.iter().any(is_replaced)
            });
            grown.extend(added);
            grown.sort();
            assert_eq!(grown, Tile::added(0, to).unwrap(), "{from} {to}");
        }
        assert!(Tile::added(2, 1).is_err());
        assert!(Tile::added(0, u64::MAX).is_err());
    }

    #[test]
    fn a_tile_names_its_hashes_and_its_entries() {
        let tile = Tile {
            level: 1,
            index: 2,
            width: 3,
        };
        let nodes: Vec<_> = tile.nodes().collect();
        let expected = [512, 513, 514].map(|index| NodeId { level: 8, index });
        assert_eq!(nodes, expected);
        let bottom = Tile { level: 0, ..tile };
        assert_eq!(bottom.entries(), 513..=515);
        let mut bundle = Vec::new();
        write_bundle_entry(&mut bundle, b"abc").unwrap();
        write_bundle_entry(&mut bundle, b"").unwrap();
        assert_eq!(bundle, b"\0\x03abc\0\0");
        assert_eq!(write_bundle_entry(&mut bundle, &vec![0; 65_536]), None);
    }
}
