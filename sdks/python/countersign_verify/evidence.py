"""Evidence: the archive that a log hands to auditors, read once from the beginning to the end."""

import hashlib
from dataclasses import dataclass

from . import canonical
from .archive import files
from .encoding import Finding, decode_utf8
from .exports import LINE_BYTES_MAX, ExportReport, ExportVerifier

PLAIN = ("README.md", "keys.json")
MANIFEST_BYTES_MAX = 64 << 20
MANIFEST_DEPTH_MAX = 8


@dataclass(frozen=True)
class EvidenceReport:
    """What has been verified."""

    entries: ExportReport
    # Files that are named by their digest.
    named: int
    # The run that it is about, if it is about one.
    run_id: str | None


def verify_evidence(file, verifier=None):
    """Verifies an archive that is open for reading bytes, its entries with the `ExportVerifier` that is given."""
    verifier = verifier or ExportVerifier()
    manifest, named, last_part = None, 0, ""
    for path, content in files(file):
        folder, _, name = path.partition("/")
        if folder == "ledger" and name > last_part:
            last_part = name
            while line := content.readline(LINE_BYTES_MAX):
                verifier.push_line(line)
        elif folder == "named":
            named += 1
            if _digest(content) != name:
                raise Finding("malformed_evidence", f"{path} does not hash to its name")
        elif path == "manifest.json":
            manifest = _read_manifest(content)
        elif path not in PLAIN:
            raise Finding("malformed_evidence", f"{path} has no place here")
    return _check(verifier.finish(), manifest, named)


def _digest(content):
    digest = hashlib.sha256()
    while part := content.read(1 << 16):
        digest.update(part)
    return digest.hexdigest()


def _read_manifest(content):
    """The members of a manifest, whose numbers are integers."""
    raw = b""
    while part := content.read(MANIFEST_BYTES_MAX):
        raw += part
        if len(raw) > MANIFEST_BYTES_MAX:
            raise Finding("malformed_evidence", "the manifest is too large")
    try:
        manifest = canonical.parse(decode_utf8(raw, "malformed_evidence"), MANIFEST_DEPTH_MAX, parse_int=int)
    except canonical.Ambiguous as error:
        raise Finding("malformed_evidence", f"the manifest: {error}") from None
    # To Python, True and 1.0 are 1.
    has_seqs = isinstance(manifest, dict) and all(type(manifest.get(seq)) is int for seq in ("from_seq", "to_seq"))
    if not has_seqs or not isinstance(manifest.get("run_id"), str | None):
        raise Finding("malformed_evidence", "the manifest does not say what the evidence is about")
    return manifest


def _check(report, manifest, named):
    """Whether the archive has what it says it has."""
    if manifest is None:
        raise Finding("malformed_evidence", "there is no manifest")
    says = [manifest.get(member) for member in ("tenant", "from_seq", "to_seq")]
    if says != [report.tenant, report.first, report.last]:
        raise Finding("malformed_evidence", "the manifest names other entries than there are")
    run_id = manifest.get("run_id")
    if run_id is None and report.left_out:
        raise Finding("malformed_evidence", "bodies are left out, and the manifest names no run")
    if report.unanswered:
        raise Finding("malformed_evidence", f"the answers to {report.unanswered} decisions are missing")
    if not report.has_end:
        raise Finding("malformed_evidence", "there is no end: the archive was cut off")
    return EvidenceReport(report, named, run_id)
