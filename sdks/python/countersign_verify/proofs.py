"""Section 7: proofs that an entry is in a log."""

from dataclasses import dataclass

from .encoding import Finding, Layout, decode_base64, decode_decimal, decode_hash, decode_utf8, is_time
from .entries import Header
from .notes import TrustedCheckpoint
from .tree import HASHES_MAX, verify_inclusion

PROOF_BYTES_MAX = 2 << 20


@dataclass(frozen=True)
class ProvenEntry:
    """An entry that is in a log."""

    header: Header
    checkpoint: TrustedCheckpoint


def read_lines(raw, code, bytes_max=PROOF_BYTES_MAX):
    """The lines before the first empty line, and the note behind it."""
    if len(raw) > bytes_max:
        raise Finding(code, "it is too large")
    head, empty, note = decode_utf8(raw, code).partition("\n\n")
    if not empty:
        raise Finding(code, "no empty line before the checkpoint")
    return head.split("\n"), note.encode()


def read_hashes(lines, code, count_max):
    hashes = [decode_hash(line) for line in lines]
    if None in hashes or len(hashes) > count_max:
        raise Finding(code, f"hashes in base64, at most {count_max}")
    return hashes


def verify_proof(raw, trust):
    """Verifies a proof; returns what it proves."""
    code = "malformed_proof"
    lines, note = read_lines(raw, code)
    if lines.pop(0) != "c2sp.org/tlog-proof@v1":
        raise Finding(code, "another first line")
    extra = b""
    if lines and lines[0].startswith("extra "):
        extra = decode_base64(lines.pop(0).removeprefix("extra "))
        if extra is None:
            raise Finding(code, "extra data in base64")
    index = decode_decimal(lines[0].removeprefix("index ")) if lines and lines[0].startswith("index ") else None
    if index is None:
        raise Finding(code, "no index")
    path = read_hashes(lines[1:], code, HASHES_MAX)

    layout = Layout(decode_utf8(extra, code), code)
    header = Header.read(layout)
    layout.end()
    trusted = trust.open(note)
    tree = trusted.checkpoint
    verify_inclusion(index, tree.size, header.leaf, path, tree.root)
    if header.tenant != trusted.tenant:
        raise Finding("wrong_tenant", header.tenant)
    if header.seq != index + 1:
        raise Finding("wrong_seq", f"entry {header.seq} is not leaf {index}")
    if not is_time(header.at):
        raise Finding(code, "the time of the entry")
    trusted.check_covers(header.at)
    return ProvenEntry(header, trusted)
