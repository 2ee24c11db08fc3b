//! Roots and proofs of a tree of 13 leaves.

use canon::Digest;
use ledger::merkle::{Frontier, ProofPlan, leaf_hash, verify_consistency, verify_inclusion};
use serde::Serialize;

use crate::{Found, agrees, base64, finds, hashes};

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Case {
    Root {
        name: String,
        leaves: Vec<String>,
        root: String,
        edge: Vec<String>,
    },
    Inclusion {
        name: String,
        finds: Found,
        index: u64,
        size: u64,
        leaf_hash: String,
        proof: Vec<String>,
        root: String,
    },
    Consistency {
        name: String,
        finds: Found,
        from: u64,
        from_root: String,
        to: u64,
        to_root: String,
        proof: Vec<String>,
    },
}

const SIZE: u64 = 13;

struct Tree {
    leaves: Vec<Digest>,
}

impl Tree {
    fn edge(&self, size: u64) -> Frontier {
        let mut edge = Frontier::EMPTY;
        for leaf in &self.leaves[..usize::try_from(size).unwrap()] {
            edge.extend(*leaf);
        }
        edge
    }

    fn root(&self, size: u64) -> Digest {
        self.edge(size).root()
    }

    fn prove(&self, plan: &ProofPlan) -> Vec<Digest> {
        let mut edge = Frontier::EMPTY;
        let rows: Vec<_> = self.leaves.iter().map(|leaf| edge.append(*leaf)).collect();
        let read = plan.nodes().iter().map(|node| {
            let row = usize::try_from(node.seq()).unwrap() - 1;
            rows[row].get(*node).unwrap()
        });
        plan.prove(&read.collect::<Vec<_>>()).unwrap()
    }

    fn inclusion(&self, index: u64, size: u64) -> Inclusion {
        Inclusion {
            index,
            size,
            leaf: self.leaves[usize::try_from(index).unwrap()],
            proof: self.prove(&ProofPlan::inclusion(index, size).unwrap()),
            root: self.root(size),
        }
    }

    fn consistency(&self, from: u64, to: u64) -> Consistency {
        Consistency {
            from: (from, self.root(from)),
            to: (to, self.root(to)),
            proof: self.prove(&ProofPlan::consistency(from, to).unwrap()),
        }
    }
}

#[derive(Clone)]
struct Inclusion {
    index: u64,
    size: u64,
    leaf: Digest,
    proof: Vec<Digest>,
    root: Digest,
}

impl Inclusion {
    fn case(self, name: &str, expected: Found) -> Case {
        let verified = verify_inclusion(self.index, self.size, &self.leaf, &self.proof, &self.root);
        finds(name, expected, verified.map_err(|fault| fault.code()));
        Case::Inclusion {
            name: name.to_owned(),
            finds: expected,
            index: self.index,
            size: self.size,
            leaf_hash: base64(self.leaf.as_bytes()),
            proof: hashes(&self.proof),
            root: base64(self.root.as_bytes()),
        }
    }
}

#[derive(Clone)]
struct Consistency {
    from: (u64, Digest),
    to: (u64, Digest),
    proof: Vec<Digest>,
}

impl Consistency {
    fn case(self, name: &str, expected: Found) -> Case {
        let (from, to) = ((self.from.0, &self.from.1), (self.to.0, &self.to.1));
        let verified = verify_consistency(from, to, &self.proof);
        finds(name, expected, verified.map_err(|fault| fault.code()));
        Case::Consistency {
            name: name.to_owned(),
            finds: expected,
            from: self.from.0,
            from_root: base64(self.from.1.as_bytes()),
            to: self.to.0,
            to_root: base64(self.to.1.as_bytes()),
            proof: hashes(&self.proof),
        }
    }
}

fn roots(tree: &Tree) -> Vec<Case> {
    let root = |size: u64| Case::Root {
        name: format!("tree of {size}"),
        leaves: (0..size).map(|index| base64(leaf(index).as_bytes())).collect(),
        root: base64(tree.root(size).as_bytes()),
        edge: hashes(tree.edge(size).hashes()),
    };
    (0..=SIZE).map(root).collect()
}

fn leaf(index: u64) -> String {
    format!("leaf {index}")
}

fn inclusions(tree: &Tree) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in 1..=SIZE {
        for index in 0..size {
            let name = format!("leaf {index} of {size}");
            cases.push(tree.inclusion(index, size).case(&name, None));
        }
    }
    let good = tree.inclusion(9, 13);
    let with = |change: &dyn Fn(&mut Inclusion)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad
    };
    let (wrong_root, wrong_length) = (Some("wrong_root"), Some("wrong_proof_length"));
    cases.extend([
        with(&|bad| bad.index = 8).case("another index", wrong_root),
        with(&|bad| bad.size = 12).case("another size, proof too long", wrong_length),
        with(&|bad| bad.leaf = tree.leaves[8]).case("another leaf", wrong_root),
        with(&|bad| bad.root = tree.root(12)).case("another root", wrong_root),
        with(&|bad| bad.proof.swap(0, 1)).case("hashes swapped", wrong_root),
        with(&|bad| bad.proof.truncate(bad.proof.len() - 1)).case("last hash missing", wrong_length),
        with(&|bad| bad.proof = bad.proof[1..].to_vec()).case("first hash missing", wrong_length),
        with(&|bad| bad.proof.push(bad.root)).case("one hash too many", wrong_length),
        with(&|bad| bad.proof.clear()).case("no proof", wrong_length),
        with(&|bad| bad.index = 13).case("index is the size", Some("not_included")),
        with(&|bad| (bad.index, bad.size) = (0, 0)).case("empty tree", Some("not_included")),
        with(&|bad| bad.leaf = bad.proof[0]).case("a node for a leaf", wrong_root),
    ]);
    cases
}

fn consistencies(tree: &Tree) -> Vec<Case> {
    let mut cases = Vec::new();
    for to in 1..=SIZE {
        for from in 1..=to {
            let name = format!("{from} to {to}");
            cases.push(tree.consistency(from, to).case(&name, None));
        }
    }
    let good = tree.consistency(6, 13);
    let with = |change: &dyn Fn(&mut Consistency)| {
        let mut bad = good.clone();
        change(&mut bad);
        bad
    };
    let (wrong_root, wrong_length) = (Some("wrong_root"), Some("wrong_proof_length"));
    cases.extend([
        with(&|bad| bad.from.1 = tree.root(5)).case("another first root", wrong_root),
        with(&|bad| bad.to.1 = tree.root(12)).case("another second root", wrong_root),
        with(&|bad| bad.from.0 = 5).case("another first size", wrong_length),
        with(&|bad| bad.to.0 = 7).case("another second size", wrong_length),
        with(&|bad| bad.proof.swap(0, 1)).case("hashes swapped", wrong_root),
        with(&|bad| bad.proof.truncate(bad.proof.len() - 1)).case("last hash missing", wrong_length),
        with(&|bad| bad.proof.push(bad.to.1)).case("one hash too many", wrong_length),
        with(&|bad| bad.proof.clear()).case("no proof", wrong_length),
        with(&|bad| std::mem::swap(&mut bad.from, &mut bad.to)).case("sizes swapped", Some("not_before")),
        with(&|bad| bad.from = (0, tree.root(0))).case("from nothing", Some("not_before")),
        with(&|bad| bad.to = bad.from).case("a proof where none is needed", wrong_length),
        with(&|bad| (bad.from, bad.proof) = ((13, tree.root(12)), Vec::new()))
            .case("one size, two roots", wrong_root),
    ]);
    cases
}

#[test]
fn the_vectors_of_trees_are_what_we_compute() {
    let leaves = (0..SIZE).map(|index| leaf_hash(leaf(index).as_bytes())).collect();
    let tree = Tree { leaves };
    let cases = [roots(&tree), inclusions(&tree), consistencies(&tree)];
    agrees(
        "merkle.json",
        "Trees of RFC 6962 over the leaves given in base64. `edge` are the hashes of the complete subtrees of which a tree consists, the largest first.",
        cases.into_iter().flatten().collect(),
    );
}
