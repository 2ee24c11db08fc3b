"""Section 10: the files of a log as C2SP tlog-tiles has them."""

from .tree import leaf_hash, node_hash

WIDTH = 256


def place(index, width):
    """The path of a tile within its level."""
    path = f"{index % 1000:03}"
    index //= 1000
    while index:
        path = f"x{index % 1000:03}/{path}"
        index //= 1000
    return path if width == WIDTH else f"{path}.p/{width}"


def files(entries, old_size=0):
    """Path and content of the files that a log of these entries has and one of `old_size` had not."""
    level, hashes, old = 0, [leaf_hash(entry) for entry in entries], old_size
    found = {}
    while hashes:
        for start in range(old // WIDTH * WIDTH, len(hashes), WIDTH) if old < len(hashes) else ():
            tile = hashes[start : start + WIDTH]
            path = place(start // WIDTH, len(tile))
            found[f"tile/{level}/{path}"] = b"".join(tile)
            if level == 0:
                bundle = (len(entry).to_bytes(2, "big") + entry for entry in entries[start : start + WIDTH])
                found[f"tile/entries/{path}"] = b"".join(bundle)
        full = range(0, len(hashes) - len(hashes) % WIDTH, WIDTH)
        hashes = [_root(hashes[start : start + WIDTH]) for start in full]
        level, old = level + 1, old // WIDTH
    return found


def _root(hashes):
    while len(hashes) > 1:
        hashes = [node_hash(left, right) for left, right in zip(hashes[::2], hashes[1::2])]
    return hashes[0]
