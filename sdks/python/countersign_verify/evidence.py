"""Evidence: the archive that a log hands to auditors, read once from the beginning to the end."""

import hashlib
import tarfile
from dataclasses import dataclass

from . import canonical
from .encoding import Finding
from .exports import LINE_BYTES_MAX, ExportReport, ExportVerifier

PLAIN = ("README.md", "keys.json")
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
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member)
                folder, _, name = member.name.rpartition("/")
                if content is None:
                    raise Finding("malformed_evidence", f"{member.name} is not a file")
                if folder == "ledger" and name > last_part:
                    last_part = name
                    while line := content.readline(LINE_BYTES_MAX):
                        verifier.push_line(line)
                elif folder == "named":
                    named += 1
                    if hashlib.file_digest(content, "sha256").hexdigest() != name:
                        raise Finding("malformed_evidence", f"{member.name} does not hash to its name")
                elif member.name == "manifest.json":
                    manifest = canonical.parse(content.read().decode(), MANIFEST_DEPTH_MAX, parse_int=int)
                elif member.name not in PLAIN:
                    raise Finding("malformed_evidence", f"{member.name} has no place here")
    except (tarfile.TarError, ValueError) as error:
        raise Finding("malformed_evidence", str(error)) from None
    return _check(verifier.finish(), manifest, named)


def _check(report, manifest, named):
    """Whether the archive has what it says it has."""
    if not isinstance(manifest, dict):
        raise Finding("malformed_evidence", "there is no manifest")
    says = [manifest.get(member) for member in ("tenant", "from_seq", "to_seq")]
    # To Python, True and 1.0 are 1.
    if says != [report.tenant, report.first, report.last] or any(type(seq) is not int for seq in says[1:]):
        raise Finding("malformed_evidence", "the manifest names other entries than there are")
    run_id = manifest.get("run_id")
    if run_id is None and report.left_out:
        raise Finding("malformed_evidence", "bodies are left out, and the manifest names no run")
    if report.unanswered:
        raise Finding("malformed_evidence", f"the answers to {report.unanswered} decisions are missing")
    if not report.has_end:
        raise Finding("malformed_evidence", "there is no end: the archive was cut off")
    return EvidenceReport(report, named, run_id)
