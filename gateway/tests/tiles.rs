//! A ledger as tiles: what is served is enough to rebuild the tree that the log has signed, with nothing else of the gateway's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use canon::Digest;
use ledger::merkle::{Frontier, leaf_hash, node_hash};
use ledger::tile::{TILE_WIDTH, Tile};
use ledger::{KeySet, TrustPolicy};
use serde_json::json;
use support::World;
use support::tenancy::{Tenancy, injected, reading};

/// So many entries that there are two full tiles and a partial one.
const SIZE: u64 = 600;

struct Scene {
    world: World,
    tenancy: Tenancy,
}

impl Scene {
    async fn new(size: u64) -> Self {
        let world = World::start().await;
        let tenancy = world.tenancy("acme").await;
        let mut seq = world.store.head(tenancy.id).await.unwrap().seq;
        while seq < size {
            let count = usize::try_from((size - seq).min(100)).unwrap();
            let asks: Vec<_> = [reading(), injected()].into_iter().cycle().take(count).collect();
            let reply = world
                .post("/v1/authorize/batch", &tenancy.token, &json!({"asks": asks}))
                .await;
            reply.expect(200);
            seq = world.store.head(tenancy.id).await.unwrap().seq;
        }
        Self { world, tenancy }
    }

    async fn file(&self, path: &str) -> Vec<u8> {
        let reply = self
            .world
            .get(&format!("/v1/ledger/{path}"), &self.tenancy.auditor)
            .await;
        assert_eq!(reply.status.as_u16(), 200, "{path}: {}", reply.text());
        assert_eq!(reply.headers["content-type"], "application/octet-stream");
        assert!(
            reply.headers["cache-control"]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
        // Another tenant has another tile at the same address.
        assert_eq!(reply.headers["vary"], "Authorization, Countersign-Tenant");
        reply.bytes
    }

    async fn hashes(&self, tile: &Tile) -> Vec<Digest> {
        let bytes = self.file(&tile.path()).await;
        let hashes = bytes
            .chunks_exact(32)
            .map(|hash| Digest::from_bytes(hash.try_into().unwrap()));
        let hashes: Vec<_> = hashes.collect();
        assert_eq!(
            (hashes.len() as u64, bytes.len() % 32),
            (tile.width, 0),
            "{}",
            tile.path()
        );
        hashes
    }
}

/// The entries in a bundle.
fn split(mut bundle: &[u8]) -> Vec<&[u8]> {
    let mut entries = Vec::new();
    while let Some((len, rest)) = bundle.split_first_chunk::<2>() {
        let (entry, rest) = rest.split_at(usize::from(u16::from_be_bytes(*len)));
        entries.push(entry);
        bundle = rest;
    }
    assert!(bundle.is_empty());
    entries
}

/// The root of a full tile.
fn root(hashes: &[Digest]) -> Digest {
    match hashes {
        [one] => *one,
        more => {
            let (left, right) = more.split_at(more.len() / 2);
            node_hash(&root(left), &root(right))
        }
    }
}

#[tokio::test]
async fn the_signed_tree_can_be_rebuilt_of_tiles() {
    let scene = Scene::new(SIZE).await;
    let keys = scene.world.get("/.well-known/countersign/keys.json", "").await;
    let note = scene
        .world
        .get("/v1/ledger/checkpoint", &scene.tenancy.auditor)
        .await;
    let trust = TrustPolicy::in_log(KeySet::parse(&keys.text()).unwrap());
    let checkpoint = trust.open(&note.bytes).unwrap().checkpoint().clone();
    assert_eq!(checkpoint.size, SIZE);
    let tiles = Tile::added(0, SIZE).unwrap();
    let mut tree = Frontier::EMPTY;
    let mut full = Vec::new();
    for tile in tiles.iter().filter(|tile| tile.level == 0) {
        let hashes = scene.hashes(tile).await;
        let bundle = scene.file(&tile.entries_path()).await;
        let leaves: Vec<_> = split(&bundle).into_iter().map(leaf_hash).collect();
        assert_eq!(hashes, leaves, "{}", tile.path());
        for leaf in leaves {
            tree.extend(leaf);
        }
        if tile.width == TILE_WIDTH {
            full.push(root(&hashes));
        }
    }
    assert_eq!(tree.root(), checkpoint.root);
    let above: Vec<_> = tiles.iter().filter(|tile| tile.level == 1).collect();
    assert_eq!(above.len(), 1);
    assert_eq!(scene.hashes(above[0]).await, full);
}

#[tokio::test]
async fn a_tile_that_was_served_is_served_still_when_the_ledger_has_grown() {
    let scene = Scene::new(20).await;
    let head = scene.world.store.head(scene.tenancy.id).await.unwrap().seq;
    let paths = |width: u64| {
        [
            format!("tile/0/000.p/{width}"),
            format!("tile/entries/000.p/{width}"),
        ]
    };
    let mut before = Vec::new();
    for path in paths(head) {
        before.push(scene.file(&path).await);
    }
    for path in paths(head + 1) {
        let reply = scene
            .world
            .get(&format!("/v1/ledger/{path}"), &scene.tenancy.auditor)
            .await;
        let detail = reply.problem(404, "not_found");
        let asked_for = path.strip_prefix("tile/").unwrap();
        assert_eq!(detail, format!("there is no tile `{asked_for}`"));
    }
    scene.world.authorize(&scene.tenancy.token, &reading()).await;
    for (path, bytes) in paths(head).into_iter().zip(before) {
        assert_eq!(scene.file(&path).await, bytes);
    }
    for path in paths(head + 1) {
        scene.file(&path).await;
    }
}

#[tokio::test]
async fn tiles_are_those_of_the_callers_tenant_and_no_agents() {
    let scene = Scene::new(10).await;
    let stranger = scene.world.tenancy("stranger").await;
    let path = "/v1/ledger/tile/entries/000.p/7";
    let own = scene.world.get(path, &scene.tenancy.auditor).await;
    let other = scene.world.get(path, &stranger.auditor).await;
    assert!(own.text().contains(&scene.tenancy.id.to_string()));
    assert!(!other.text().contains(&scene.tenancy.id.to_string()));
    scene
        .world
        .get(path, &scene.tenancy.token)
        .await
        .problem(403, "forbidden");
    scene.world.get(path, "").await.problem(401, "invalid_token");
}
