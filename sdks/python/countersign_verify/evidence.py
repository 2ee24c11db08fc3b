"""Evidence: the archive that a log hands to auditors, read once from the beginning to the end."""

import hashlib
import re
from dataclasses import dataclass

from . import canonical
from .archive import files
from .encoding import Finding, decode_utf8, is_digest
from .exports import LINE_BYTES_MAX, ExportReport, ExportVerifier

# What is there once, beside entries and what decisions name.
PLAIN = ("README.md", "manifest.json", "keys.json")
MANIFEST_BYTES_MAX = 64 << 20
MANIFEST_DEPTH_MAX = 8
# Digests that are kept in mind.
NAMED_MAX = 1_000_000

# Files of entries are numbered, so no two names lead to one place where they are unpacked.
_PART = re.compile(r"[0-9]+\.ndjson")


@dataclass(frozen=True)
class EvidenceReport:
    """What has been verified."""

    entries: ExportReport
    # How many different files there are that decisions name.
    named: int
    # Those that no decision names, which say nothing of any.
    unnamed: int
    # Those that decisions name and that are not there. They may have been taken away where they were stored.
    missing: int
    # The run that it is about, if it is about one.
    run_id: str | None


class Named:
    """What decisions name by a digest, and what of that is there, in whichever order they come."""

    def __init__(self):
        self._there = set()
        # What decisions name, and whether it is policies that were recorded with what they looked at. Those are about nobody, so
        # nobody has a reason to take them away.
        self._wanted = {}
        # Whether there was more than is kept in mind.
        self._is_too_much = False

    def want(self, body):
        """Takes in what the body of a decision names."""
        digests, policies = _read_named(canonical.parse(body))
        for digest in digests:
            if len(self._wanted) >= NAMED_MAX and digest not in self._wanted:
                self._is_too_much = True
            else:
                self._wanted[digest] = self._wanted.get(digest, False) or digest == policies

    def come(self, digest):
        """Takes in what is there."""
        if len(self._there) >= NAMED_MAX and digest not in self._there:
            self._is_too_much = True
        else:
            self._there.add(digest)

    def count(self):
        """How many files decisions name, how many no decision names, and how many are missing, unless that is policies."""
        if self._is_too_much:
            raise Finding("malformed_evidence", f"decisions name more than {NAMED_MAX} things")
        missing = self._wanted.keys() - self._there
        if policies := [digest for digest in missing if self._wanted[digest]]:
            raise Finding("malformed_evidence", f"the policies {min(policies)} are missing, and decisions name them")
        named = len(self._wanted) - len(missing)
        return named, len(self._there) - named, len(missing)


def _read_named(told):
    """What a decision names, and the policies among it if it also names what they looked at."""
    policies, facts = told.get("policy_digest"), told.get("facts", {})
    delegators, teams = told.get("delegators", []), told.get("user_teams", [])
    if not isinstance(facts, dict) or not isinstance(delegators, list) or not isinstance(teams, list):
        return [], None
    if not all(isinstance(delegator, dict) for delegator in delegators):
        return [], None
    agents = [delegator.get("agent") for delegator in delegators]
    their_teams = [delegator["team"] for delegator in delegators if delegator.get("team") is not None]
    digests = [*facts.values(), *agents, *their_teams, *teams, policies]
    if not all(is_digest(digest) for digest in digests):
        return [], None
    return digests, policies if facts else None


class OfRun:
    """Which run the decisions name, and whether the first and the last entry can be of one."""

    def __init__(self):
        self._runs = set()
        # Whether the first entry is a decision that is not left out, and whether the last one is not left out, and a decision or about one
        # unless it was erased.
        self._begins, self._ends = None, False

    def push(self, header, body, is_left_out):
        """Takes in the next entry."""
        is_decision = header.kind == "decision"
        run_id, decision_id = _read_whose(body)
        self._ends = not is_left_out and (is_decision or body is None or decision_id is not None)
        if self._begins is None:
            self._begins = is_decision and not is_left_out
        # Two are as many as it takes to tell that it is not one.
        if is_decision and body is not None and len(self._runs) < 2:
            self._runs.add(run_id)

    def check(self, run_id):
        """Refuses what cannot be evidence of this run. Which bodies of it are left out is the word of whoever made the archive."""
        if self._runs - {run_id}:
            raise Finding("malformed_evidence", "the manifest names a run, and a decision is of another one, or of none")
        if not self._begins or not self._ends:
            raise Finding("malformed_evidence", "the manifest names a run, and the first or the last entry is not of it")


def _read_whose(body):
    """The run that a body names, and the decision."""
    told = None if body is None else canonical.parse(body)
    if not isinstance(told, dict):
        return None, None
    run_id, parent, decision_id = (told.get(member) for member in ("run_id", "parent_run_id", "decision_id"))
    if not all(isinstance(name, str | None) for name in (run_id, parent, decision_id)):
        return None, None
    return parent if run_id is None else run_id, decision_id


def verify_evidence(file, verifier=None):
    """Verifies an archive that is open for reading bytes, its entries with the `ExportVerifier` that is given."""
    verifier = verifier or ExportVerifier()
    manifest, named, last_part, plain = None, Named(), "", set()
    of_run, is_ended = OfRun(), True
    verifier.on_decision, verifier.on_entry = named.want, of_run.push
    for path, content in files(file):
        folder, _, name = path.partition("/")
        if folder == "ledger" and _PART.fullmatch(name) and name > last_part:
            last_part = name
            while line := content.readline(LINE_BYTES_MAX):
                if not is_ended:
                    raise Finding("malformed_evidence", "a file of entries has no newline at its end, and another one follows")
                is_ended = line.endswith(b"\n")
                verifier.push_line(line)
        elif folder == "named":
            if _digest(content) != name:
                raise Finding("malformed_evidence", f"{path} does not hash to its name")
            named.come(f"sha256:{name}")
        elif path in PLAIN and path not in plain:
            plain.add(path)
            manifest = _read_manifest(content) if path == "manifest.json" else manifest
        else:
            raise Finding("malformed_evidence", f"{path} has no place here, or has had it")
    report = verifier.finish()
    return _check(report, manifest, named, of_run)


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


def _check(report, manifest, named, of_run):
    """Whether the archive has what it says it has, and what its decisions name."""
    if manifest is None:
        raise Finding("malformed_evidence", "there is no manifest")
    says = [manifest.get(member) for member in ("tenant", "from_seq", "to_seq")]
    if says != [report.tenant, report.first, report.last]:
        raise Finding("malformed_evidence", "the manifest names other entries than there are")
    run_id = manifest.get("run_id")
    if run_id is None and report.left_out:
        raise Finding("malformed_evidence", "bodies are left out, and the manifest names no run")
    if run_id is not None:
        of_run.check(run_id)
    if report.unanswered:
        raise Finding("malformed_evidence", f"the answers to {report.unanswered} decisions are missing")
    if not report.has_end:
        raise Finding("malformed_evidence", "there is no end: the archive was cut off")
    return EvidenceReport(report, *named.count(), run_id)
