"""Section 9: whether a witness may cosign a checkpoint."""

from .encoding import Finding, decode_decimal
from .notes import Checkpoint, Note
from .proofs import read_hashes, read_lines
from .tree import verify_consistency

HASHES_MAX = 63


def check_request(raw, log_keys, known_size, known_root):
    """Checks a request to `add-checkpoint` against what the witness keeps; returns the checkpoint to keep instead."""
    code = "malformed_request"
    lines, note = read_lines(raw, code)
    old = decode_decimal(lines[0].removeprefix("old ")) if lines[0].startswith("old ") else None
    if old is None:
        raise Finding(code, "no old size")
    proof = read_hashes(lines[1:], code, HASHES_MAX)
    note = Note.parse(note)
    note.verify(log_keys)
    checkpoint = Checkpoint.parse(note.text)
    if old > checkpoint.size:
        raise Finding("not_before", f"from {old} to {checkpoint.size}")
    if old != known_size:
        raise Finding("other_size", str(known_size))
    if 0 < old == checkpoint.size and known_root != checkpoint.root:
        raise Finding("wrong_root", "one size, two roots")
    if old > 0:
        verify_consistency(old, known_root, checkpoint.size, checkpoint.root, proof)
    elif proof:
        raise Finding("wrong_proof_length")
    return checkpoint


def status(finding, is_fork):
    """The HTTP status of the answer. A fork is a checkpoint of the size that is kept, with another root."""
    if is_fork or finding.code == "other_size":
        return 409
    if finding.code in ("unknown_key", "bad_signature"):
        return 403
    if finding.code in ("wrong_root", "wrong_proof_length"):
        return 422
    return 400
