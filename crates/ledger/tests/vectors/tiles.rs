//! The files of a log as C2SP tlog-tiles has them.

use canon::Digest;
use ledger::merkle::{Completed, Frontier, leaf_hash};
use ledger::tile::{Tile, tile_bytes, write_bundle_entry};
use serde::Serialize;

use crate::agrees;

#[derive(Serialize)]
struct Case {
    name: &'static str,
    from: u64,
    to: u64,
    files: Vec<TileFile>,
}

#[derive(Serialize)]
struct TileFile {
    path: String,
    sha256: String,
}

/// The entries of this log are decimal numbers, counted from 0.
fn entry(index: u64) -> String {
    format!("entry {index}")
}

fn files(rows: &[Completed], tile: &Tile) -> Vec<TileFile> {
    let row = |seq: u64| &rows[usize::try_from(seq).unwrap() - 1];
    let hashes: Vec<_> = tile
        .nodes()
        .map(|node| row(node.seq()).get(node).unwrap())
        .collect();
    let file = |path, bytes: &[u8]| TileFile {
        path,
        sha256: Digest::of(bytes).to_string(),
    };
    let mut files = vec![file(tile.path(), &tile_bytes(&hashes))];
    if tile.level == 0 {
        let mut bundle = Vec::new();
        for seq in tile.entries() {
            write_bundle_entry(&mut bundle, entry(seq - 1).as_bytes()).unwrap();
        }
        files.push(file(tile.entries_path(), &bundle));
    }
    files
}

#[test]
fn the_vectors_of_tiles_are_what_we_compute() {
    let mut tree = Frontier::EMPTY;
    let leaves = (0..70_000).map(|index| leaf_hash(entry(index).as_bytes()));
    let rows: Vec<_> = leaves.map(|leaf| tree.append(leaf)).collect();
    let cases = [
        ("a small log", 0, 7),
        ("a full tile", 0, 256),
        ("two levels", 0, 700),
        ("what a log of 700 has and one of 300 had not", 300, 700),
        ("nothing new", 700, 700),
        ("three levels, the last of it", 69_990, 70_000),
    ];
    let cases = cases.into_iter().map(|(name, from, to)| Case {
        name,
        from,
        to,
        files: Tile::added(from, to)
            .unwrap()
            .iter()
            .flat_map(|tile| files(&rows, tile))
            .collect(),
    });
    agrees(
        "tiles.json",
        "The files of C2SP tlog-tiles that a log of `to` entries has and one of `from` had not. Its entries are `entry 0`, `entry 1` and so on.",
        cases.collect(),
    );
}
