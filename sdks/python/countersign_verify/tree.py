"""Section 3: the tree of RFC 6962, and its proofs as RFC 9162 verifies them."""

from .encoding import Finding, sha256

HASHES_MAX = 53


def leaf_hash(leaf):
    return sha256(b"\x00", leaf)


def node_hash(left, right):
    return sha256(b"\x01", left, right)


class Edge:
    """The complete subtrees of which a tree consists, the largest first."""

    def __init__(self, size=0, hashes=()):
        if size.bit_count() != len(hashes):
            raise ValueError("an edge has a hash for each one-bit of the size")
        self.size = size
        self.hashes = list(hashes)

    def append(self, leaf):
        """Appends the hash of a leaf."""
        self.hashes.append(leaf)
        count = self.size
        while count % 2 == 1:
            right, left = self.hashes.pop(), self.hashes.pop()
            self.hashes.append(node_hash(left, right))
            count //= 2
        self.size += 1

    def root(self):
        if not self.hashes:
            return sha256()
        root = self.hashes[-1]
        for left in reversed(self.hashes[:-1]):
            root = node_hash(left, root)
        return root


def inclusion_root(index, size, leaf, proof):
    """The root that an inclusion proof leads to: RFC 9162 section 2.1.3.2."""
    if index >= size:
        raise Finding("not_included", f"leaf {index} of {size}")
    fn, sn, root = index, size - 1, leaf
    for sibling in proof:
        if sn == 0:
            raise Finding("wrong_proof_length")
        if fn % 2 == 1 or fn == sn:
            root = node_hash(sibling, root)
            while fn % 2 == 0 and fn != 0:
                fn, sn = fn >> 1, sn >> 1
        else:
            root = node_hash(root, sibling)
        fn, sn = fn >> 1, sn >> 1
    if sn != 0:
        raise Finding("wrong_proof_length")
    return root


def verify_inclusion(index, size, leaf, proof, root):
    if inclusion_root(index, size, leaf, proof) != root:
        raise Finding("wrong_root", "the proof leads to another root")


def verify_consistency(first, first_root, second, second_root, proof):
    """RFC 9162 section 2.1.4.2."""
    if first == 0 or first > second:
        raise Finding("not_before", f"from {first} to {second}")
    if first == second:
        if proof:
            raise Finding("wrong_proof_length")
        if first_root != second_root:
            raise Finding("wrong_root", "one size, two roots")
        return
    path = list(proof)
    if first & (first - 1) == 0:
        path.insert(0, first_root)
    if not path:
        raise Finding("wrong_proof_length")
    fn, sn = first - 1, second - 1
    while fn % 2 == 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for sibling in path[1:]:
        if sn == 0:
            raise Finding("wrong_proof_length")
        if fn % 2 == 1 or fn == sn:
            fr, sr = node_hash(sibling, fr), node_hash(sibling, sr)
            while fn % 2 == 0 and fn != 0:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node_hash(sr, sibling)
        fn, sn = fn >> 1, sn >> 1
    if sn != 0:
        raise Finding("wrong_proof_length")
    if fr != first_root or sr != second_root:
        raise Finding("wrong_root", "the proof leads to another root")
