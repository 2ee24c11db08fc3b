#!/usr/bin/env python3
"""The vectors of docs/receipt-format.md: a verifier passes if it finds in every case exactly what the case says."""

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tracemalloc
import unittest
from pathlib import Path
from types import SimpleNamespace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "sdks" / "python"))

from countersign_verify import (  # noqa: E402 (the package stands beside, wherever the tests are started)
    ExportVerifier,
    Finding,
    KeySet,
    ReceiptVerifier,
    Trust,
    VerifierKey,
    canonical,
    read_receipt,
    tiles,
    tree,
    verify_evidence,
    verify_proof,
    witness,
)
from countersign_verify.encoding import ZERO_DIGEST, Layout, digest_text, write_string  # noqa: E402
from countersign_verify.entries import Header  # noqa: E402
from countersign_verify.evidence import Named, OfRun  # noqa: E402
from countersign_verify.exports import BLOCK, SYSTEM_TENANT, Untold  # noqa: E402
from countersign_verify.keys import PublishedKey  # noqa: E402
from countersign_verify.notes import Note  # noqa: E402

VECTORS = ROOT / "crates" / "ledger" / "vectors"


PUBLISHED = ROOT.parent / "shared" / "vectors"


def published(test, name):
    """A folder of published vectors. They lie beside the repository; without them a test is skipped, except in CI."""
    folder = PUBLISHED / name
    if not folder.exists():
        test.assertFalse(os.environ.get("CI"), f"{folder} is missing")
        test.skipTest(f"{folder} is missing")
    return folder


def cases(name):
    """The cases of a file, of which there is at least one."""
    found = json.loads((VECTORS / name).read_text(encoding="utf-8"))["cases"]
    assert found, name
    return found


def raw(text):
    return base64.b64decode(text)


def encoded(hashed):
    return base64.b64encode(hashed).decode()


def trust_of(case):
    trust = case.get("trust")
    if trust is None:
        return None
    keys = KeySet.parse(json.dumps({"keys": trust["keys"]}))
    return Trust(keys, tuple(VerifierKey.parse(key) for key in trust["witnesses"]), trust["quorum"])


class VectorTest(unittest.TestCase):
    """Each test is a file."""

    def run_case(self, case, verify):
        """Checks what is found; returns what was verified, if nothing was."""
        try:
            verified, finding = verify(), None
        except Finding as found:
            verified, finding = None, found
        self.assertEqual(finding and finding.code, case["finds"], f"{case['name']}: {finding}")
        return verified, finding

    def each(self, name, check):
        for case in cases(name):
            with self.subTest(case["name"]):
                check(case)

    def test_trees(self):
        def check(case):
            if case["kind"] == "root":
                edge = tree.Edge()
                for leaf in case["leaves"]:
                    edge.append(tree.leaf_hash(raw(leaf)))
                self.assertEqual(encoded(edge.root()), case["root"])
                self.assertEqual([encoded(hashed) for hashed in edge.hashes], case["edge"])
                return
            proof = [raw(hashed) for hashed in case["proof"]]
            if case["kind"] == "inclusion":
                leaf, root = raw(case["leaf_hash"]), raw(case["root"])
                self.run_case(
                    case, lambda: tree.verify_inclusion(case["index"], case["size"], leaf, proof, root)
                )
            else:
                first, second = raw(case["from_root"]), raw(case["to_root"])
                self.run_case(
                    case, lambda: tree.verify_consistency(case["from"], first, case["to"], second, proof)
                )

        self.each("merkle.json", check)

    def test_keys(self):
        def check(case):
            key, _ = self.run_case(case, lambda: VerifierKey.parse(case["vkey"]))
            if key:
                found = {
                    "name": key.name,
                    "key_id": key.key_id,
                    "signature_type": key.kind,
                    "public_key": encoded(key.public),
                }
                self.assertEqual(found, case["key"])
                self.assertEqual(str(key), case["vkey"])

        self.each("keys.json", check)

    def test_key_sets(self):
        def check(case):
            self.run_case(case, lambda: KeySet.parse(case["keys_json"]))

        self.each("key-sets.json", check)

    def test_checkpoints(self):
        def verify(case):
            trusted = trust_of(case).open(case["note"].encode())
            if "covers" in case:
                trusted.check_covers(case["covers"])
            return trusted

        def check(case):
            trusted, _ = self.run_case(case, lambda: verify(case))
            if trusted:
                found = {
                    "tenant": trusted.tenant,
                    "size": trusted.checkpoint.size,
                    "root": encoded(trusted.checkpoint.root),
                    "key": trusted.key.key.label,
                    "witnesses": [{"name": name, "time": time} for name, time in trusted.witnesses],
                }
                self.assertEqual(found, case["opens"])

        self.each("checkpoints.json", check)

    def test_all_witnesses_must_have_cosigned_unless_it_is_said_how_many(self):
        case = next(case for case in cases("checkpoints.json") if case["name"] == "one witness of one")
        trust = trust_of(case)
        with self.assertRaises(Finding) as found:
            Trust(trust.keys, trust.witnesses).open(case["note"].encode())
        self.assertEqual(found.exception.code, "too_few_witnesses")

    def test_receipts(self):
        def verify(case):
            receipt = read_receipt(case["answer"].encode())
            ReceiptVerifier(trust_of(case).keys).verify(receipt)
            return receipt

        def check(case):
            receipt, _ = self.run_case(case, lambda: verify(case))
            if receipt:
                found = {
                    "tenant": receipt.header.tenant,
                    "seq": receipt.header.seq,
                    "at": receipt.header.at,
                    "hash": receipt.hash,
                    "answer_hash": receipt.answer_hash,
                    "header": receipt.header.text,
                    "key": receipt.key,
                }
                self.assertEqual(found, case["receipt"])

        self.each("receipts.json", check)

    def test_proofs(self):
        def check(case):
            proven, _ = self.run_case(case, lambda: verify_proof(case["proof"].encode(), trust_of(case)))
            if proven:
                header, checkpoint = proven.header, proven.checkpoint.checkpoint
                found = {
                    "tenant": header.tenant,
                    "seq": header.seq,
                    "hash": header.hash,
                    "kind": header.kind,
                    "at": header.at,
                    "size": checkpoint.size,
                    "root": encoded(checkpoint.root),
                }
                self.assertEqual(found, case["proves"])

        self.each("proofs.json", check)

    def test_exports(self):
        def verify(case):
            trust = trust_of(case)
            held = [trust.open(note.encode()) for note in case.get("held", [])]
            verifier = ExportVerifier(trust, held, case.get("tenant"), case.get("range"))
            return verifier.verify(io.BytesIO(case["file"].encode()))

        def check(case):
            report, finding = self.run_case(case, lambda: verify(case))
            if finding:
                self.assertEqual((finding.seq, finding.since), (case.get("at"), case.get("since")))
                return
            found = {
                "tenant": report.tenant,
                "first": report.first,
                "last": report.last,
                "hash": report.hash,
                "erased": report.erased,
                "left_out": report.left_out,
                "untold": report.untold,
                "answers": report.answers,
                "unanswered": report.unanswered,
                "has_end": report.has_end,
                "is_anchored": report.is_anchored,
            }
            if report.checkpoint:
                checkpoint = report.checkpoint.checkpoint
                found["checkpoint"] = [checkpoint.size, encoded(checkpoint.root)]
            self.assertEqual(found, case["reports"])

        self.each("exports.json", check)

    def test_requests_to_witnesses(self):
        def check(case):
            keys = [VerifierKey.parse(key) for key in case["log_keys"]]
            known_size, known_root = case["known_size"], raw(case["known_root"])
            request = case["request"].encode()
            _, finding = self.run_case(
                case, lambda: witness.check_request(request, keys, known_size, known_root)
            )
            is_fork = bool(finding) and finding.code == "wrong_root" and f"\n{known_size}\n" in case["request"]
            self.assertEqual(witness.status(finding, is_fork) if finding else 200, case["status"])

        self.each("witness.json", check)

    def test_tiles(self):
        def check(case):
            entries = [f"entry {index}".encode() for index in range(case["to"])]
            found = {
                path: "sha256:" + tree.sha256(content).hex()
                for path, content in tiles.files(entries, case["from"]).items()
            }
            self.assertEqual(found, {file["path"]: file["sha256"] for file in case["files"]})

        self.each("tiles.json", check)


def without_end(archive):
    """The files of an archive, without the zeros behind them."""
    files = archive.rstrip(b"\0")
    return files + bytes(-len(files) % 512)


def sealed(archive):
    """An archive whose first header has the right sum, which is taken with spaces in its own place."""
    total = sum(archive[:148]) + 8 * ord(" ") + sum(archive[156:512])
    return archive[:148] + b"%06o\0 " % total + archive[156:]


class EvidenceTest(unittest.TestCase):
    """Archives with entries that the vectors have."""

    def setUp(self):
        case = next(case for case in cases("exports.json") if case["name"] == "all entries and answers")
        self.trust = trust_of(case)
        lines = case["file"].splitlines(keepends=True)
        digest = tree.sha256(b"permit;").hex()
        manifest = {"tenant": case["reports"]["tenant"], "from_seq": 1, "to_seq": 13, "run_id": None}
        self.files = {
            "README.md": b"# Evidence",
            "manifest.json": json.dumps(manifest).encode(),
            "keys.json": b"{}",
            "ledger/00000001.ndjson": "".join(lines[:7]).encode(),
            f"named/{digest}": b"permit;",
            "ledger/00000002.ndjson": "".join(lines[7:]).encode(),
        }

    def archive(self, **changes):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for name, content_of_file in {**self.files, **changes}.items():
                if content_of_file is None:
                    continue
                member = tarfile.TarInfo(name)
                member.size = len(content_of_file)
                archive.addfile(member, io.BytesIO(content_of_file))
        return content.getvalue()

    def verify(self, archive):
        return verify_evidence(io.BytesIO(archive), ExportVerifier(self.trust))

    def test_what_is_whole_verifies(self):
        report = self.verify(self.archive())
        self.assertEqual((report.entries.answers, report.named, report.unnamed), (10, 0, 1))
        self.assertIsNotNone(report.entries.checkpoint)

    def test_what_was_changed_or_is_missing_does_not(self):
        first, second = (self.files[f"ledger/0000000{part}.ndjson"] for part in (1, 2))
        for changes in [
            {"manifest.json": None},
            {"manifest.json": self.files["manifest.json"].replace(b"13", b"12")},
            {"manifest.json": self.files["manifest.json"].replace(b"1,", b"true,")},
            {"manifest.json": self.files["manifest.json"].replace(b"1,", b"1.0,")},
            {"manifest.json": self.files["manifest.json"].replace(b'"run_id": null', b'"run_id": null, "run_id": null')},
            {"manifest.json": self.files["manifest.json"].replace(b"null", b"NaN")},
            {"manifest.json": self.files["manifest.json"].replace(b"null", b'null, "z": ' + b"9" * 400)},
            {"manifest.json": b"\xef\xbb\xbf" + self.files["manifest.json"]},
            {"manifest.json": self.files["manifest.json"].decode().encode("utf-16")},
            {"manifest.json": b"[" * 100_000},
            {"manifest.json": self.files["manifest.json"].replace(b"null", b"7")},
            {"manifest.json": self.files["manifest.json"].replace(b"null", b"false")},
            {"ledger/00000001.ndjson": None},
            {"ledger/00000002.ndjson": None},
            {"ledger/00000001.ndjson": second, "ledger/00000002.ndjson": first},
            {"ledger/00000001.ndjson": first[: first.rindex(b'{"answer"')]},
            {"ledger/00000001.ndjson": first.replace(b"agt_1", b"agt_2")},
            {"ledger/00000001.ndjson": first.removesuffix(b"\n")},
            {"named/" + "0" * 64: b"permit;"},
            {"more.txt": b""},
        ]:
            with self.subTest(list(changes)), self.assertRaises(Finding):
                self.verify(self.archive(**changes))

    def test_only_the_last_line_of_all_may_lack_its_newline(self):
        second = self.files["ledger/00000002.ndjson"]
        self.assertTrue(second.endswith(b"\n"))
        unended = {"ledger/00000002.ndjson": second.removesuffix(b"\n")}
        self.verify(self.archive(**unended))
        self.verify(self.archive(**unended, **{"ledger/00000003.ndjson": b""}))
        first = self.files["ledger/00000001.ndjson"].removesuffix(b"\n")
        with self.assertRaisesRegex(Finding, "no newline at its end"):
            self.verify(self.archive(**{"ledger/00000001.ndjson": first}))

    def test_what_is_cut_off_does_not(self):
        whole = self.archive()
        end = whole.rindex(b"named/") + 512
        for length in (0, 700, len(whole) // 4, end):
            with self.subTest(length), self.assertRaises(Finding):
                self.verify(whole[:length])
        end = len(without_end(whole))
        for length in (end, end + 512, end + 1023, len(whole) - 1):
            with self.subTest(length), self.assertRaises(Finding):
                self.verify(whole[:length])
        self.verify(whole[: end + 1024])

    def test_what_only_some_programs_read_does_not(self):
        whole = self.archive()
        long_name = tarfile.TarInfo("name")
        long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, 1
        names = (long_name.tobuf(tarfile.GNU_FORMAT) + b"a" + bytes(511)) * 1_000
        renamed = tarfile.TarInfo("other.json")
        renamed.pax_headers = {"path": "manifest.json"}
        renamed.size = len(self.files["manifest.json"])
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            archive.addfile(renamed, io.BytesIO(self.files["manifest.json"]))
        renamed = without_end(content.getvalue()) + self.archive(**{"manifest.json": None})
        for archive in (without_end(whole) + bytes(512) + whole, whole + b"x" * 512, names + whole, renamed):
            with self.assertRaises(Finding):
                self.verify(archive)
        # Numbers of which some programs read a digit more, or which they read in another way.
        for place, byte in [(135, b"0"), (124, b"+")]:
            with self.subTest(place), self.assertRaises(Finding):
                self.verify(sealed(whole[:place] + byte + whole[place + 1 :]))

    def test_what_lies_over_another_file_when_it_is_unpacked_does_not(self):
        name = b"ledger/./00000001.ndjson"
        whole = self.archive()
        at = whole.index(b"ledger/00000001.ndjson")
        renamed = whole[:at] + sealed(name + whole[at + len(name) :])
        with self.assertRaises(Finding):
            self.verify(renamed)
        for name in ("README.md", "manifest.json", "keys.json"):
            content = io.BytesIO()
            with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
                member = tarfile.TarInfo(name)
                member.size = len(self.files[name])
                archive.addfile(member, io.BytesIO(self.files[name]))
            with self.subTest(name), self.assertRaisesRegex(Finding, "or has had it"):
                self.verify(without_end(content.getvalue()) + whole)

    def test_what_was_packed_in_another_way_is_told_so(self):
        whole = self.archive()
        for name, form, words in [
            ("README.md", tarfile.GNU_FORMAT, "pack it with `--format=ustar`"),
            ("a" * 60 + "/" + "b" * 60, tarfile.USTAR_FORMAT, "has a prefix"),
        ]:
            archive = tarfile.TarInfo(name).tobuf(form) + whole
            with self.subTest(words), self.assertRaisesRegex(Finding, words):
                self.verify(archive)
        for kind, words in [
            (tarfile.DIRTYPE, "there is a folder or a link in the archive"),
            (tarfile.SYMTYPE, "there is a folder or a link in the archive"),
            (tarfile.XHDTYPE, "pack it with `--format=ustar`"),
        ]:
            member = tarfile.TarInfo("ledger")
            member.type = kind
            archive = member.tobuf(tarfile.USTAR_FORMAT) + whole
            with self.subTest(kind), self.assertRaisesRegex(Finding, words):
                self.verify(archive)

    def test_policies_have_to_be_there_and_the_rest_is_counted(self):
        policies, agent = (f"sha256:{tree.sha256(of).hex()}" for of in (b"policies", b"agent"))
        early = {"policy_digest": policies}
        whole = {"facts": {"agent": agent}, **early}
        for before, bodies, behind, expected in [
            ([policies], [whole, early], [agent], 0),
            ([], [whole], [policies], 1),
            ([], [early], [], 1),
            ([agent], [whole, early], [], None),
            ([], [early, whole], [agent], None),
            ([], [{"facts": 7, **early}, {"facts": {"agent": "a"}, **early}, {"delegators": [7], **early}], [], 0),
        ]:
            named = Named()
            for digest in before:
                named.come(digest)
            for body in bodies:
                named.want(json.dumps(body))
            for digest in behind:
                named.come(digest)
            with self.subTest(f"{before} {bodies} {behind}"):
                if expected is None:
                    self.assertRaises(Finding, named.count)
                else:
                    self.assertEqual(named.count()[2], expected)

    def test_files_are_counted_once_and_those_that_no_decision_names_by_themselves(self):
        policies, agent, stray = (f"sha256:{tree.sha256(of).hex()}" for of in (b"policies", b"agent", b"stray"))
        named = Named()
        for digest in (stray, policies, policies):
            named.come(digest)
        for _ in range(2):
            named.want(json.dumps({"facts": {"agent": agent}, "policy_digest": policies}))
        self.assertEqual(named.count(), (1, 1, 1))

    def test_evidence_of_a_run_begins_and_ends_with_it_and_has_decisions_of_no_other(self):
        own, child, of_own, none = (
            ("decision", json.dumps(body), False)
            for body in ({"run_id": "r"}, {"parent_run_id": "r", "run_id": "child"}, {"parent_run_id": "r"}, {"run_id": 7})
        )
        erased, left_out = ("decision", None, False), ("decision", None, True)
        outcome = ("outcome_reported", json.dumps({"decision_id": "dec_1"}), False)
        other = ("agent_created", "{}", False)
        for entries, is_of_it in [
            ([own], True),
            ([own, left_out, other, of_own], True),
            ([erased, own, outcome], True),
            ([own, erased], True),
            ([own, child], False),
            ([child], False),
            ([own, none, own], False),
            ([left_out, own], False),
            ([own, left_out], False),
            ([outcome, own], False),
            ([own, other], False),
            ([], False),
        ]:
            found = OfRun()
            for kind, body, is_left_out in entries:
                found.push(SimpleNamespace(kind=kind), body, is_left_out)
            with self.subTest(entries):
                if is_of_it:
                    found.check("r")
                else:
                    self.assertRaises(Finding, found.check, "r")

    def test_evidence_of_everything_is_none_of_a_run(self):
        manifest = self.files["manifest.json"].replace(b"null", b'"run-1"')
        with self.assertRaisesRegex(Finding, "of another one, or of none"):
            self.verify(self.archive(**{"manifest.json": manifest}))


class SystemLedger:
    """The entries that tell of the two keys of the vectors, and the keys."""

    ADDED, ENDED = "log_key_added", "log_key_ended"

    def __init__(self, tenant=SYSTEM_TENANT):
        case = next(case for case in cases("exports.json") if case["name"] == "all entries and answers")
        self.tenant = tenant
        self.published = trust_of(case).keys
        self.old, self.new = self.published.keys
        self.lines, self.edge, self._prev = [], tree.Edge(), ZERO_DIGEST

    def tell(self, kind, body, at="2026-07-01T12:00:11.000Z", is_left_out=False):
        text = canonical.write(body)
        digest = digest_text(tree.sha256(text.encode()))
        header = Header(self.tenant, len(self.lines) + 1, kind, at, self._prev, digest)
        rest = "" if is_left_out else f',"body":{text}'
        self.lines.append(f'{{"header":{header.text},"hash":"{header.hash}"{rest}}}\n')
        self.edge.append(header.leaf)
        self._prev = header.hash

    def tell_all(self):
        self.tell(self.ADDED, {"vkey": str(self.old.key)})
        self.tell(self.ADDED, {"vkey": str(self.new.key), "not_before": self.new.not_before})
        self.tell(self.ENDED, {"vkey": str(self.old.key), "not_after": self.old.not_after})
        return self

    def checkpoint(self):
        """That of all entries, signed by the new key."""
        text = f"ledger.example/{self.tenant}\n{self.edge.size}\n{encoded(self.edge.root())}\n"
        signature = Ed25519PrivateKey.from_private_bytes(bytes([2]) * 32).sign(text.encode())
        signed = encoded(bytes.fromhex(self.new.key.key_id) + signature)
        return f"{text}\n\u2014 ledger.example {signed}\n"

    def end(self):
        """The last line."""
        return f'{{"end":{{"checkpoint":{write_string(self.checkpoint())},"proof":[]}}}}\n'

    def check(self, published, first=1):
        """What is found with these keys, in the file that begins with this entry."""
        verifier = ExportVerifier(published=KeySet(published))
        try:
            verifier.verify(io.BytesIO("".join(self.lines[first - 1 :]).encode()))
        except Finding as finding:
            return finding.code
        return None


class KeyHistoryTest(unittest.TestCase):
    """Keys that are published, and what the ledger of the log's system tenant tells of them."""

    def test_keys_are_those_that_entries_tell_of(self):
        ledger = SystemLedger().tell_all()
        old, new = ledger.old, ledger.new
        stranger = PublishedKey(VerifierKey(new.key.name, new.key.kind, bytes(32)), new.not_before)
        for published, expected in [
            ([old, new], None),
            ([new, old], None),
            ([new], "other_keys"),
            ([old, new, stranger], "other_keys"),
            ([PublishedKey(old.key), new], "other_keys"),
            ([old, PublishedKey(new.key)], "other_keys"),
            ([PublishedKey(old.key, old.not_after, old.not_after), new], "other_keys"),
        ]:
            with self.subTest(published):
                self.assertEqual(ledger.check(published), expected)
        # Without the first entry nobody knows what it told.
        self.assertIsNone(ledger.check([new], first=2))

    def test_what_an_entry_names_first_stays_and_another_time_is_found(self):
        late = "2026-08-01T00:00:00.000Z"
        for later in [("not_after", late), ("not_before", late)]:
            ledger = SystemLedger().tell_all()
            ledger.tell(ledger.ADDED, {"vkey": str(ledger.new.key), "not_before": ledger.new.not_before})
            ledger.tell(ledger.ENDED, {"vkey": str(ledger.old.key), "not_after": ledger.old.not_after})
            self.assertIsNone(ledger.check([ledger.old, ledger.new]))
            key = ledger.old if later[0] == "not_after" else ledger.new
            ledger.tell(ledger.ADDED, {"vkey": str(key.key), **dict([later])})
            longer = PublishedKey(ledger.old.key, None, late)
            later_new = PublishedKey(ledger.new.key, late)
            for published in ([ledger.old, ledger.new], [longer, ledger.new], [ledger.old, later_new]):
                with self.subTest((later, published)):
                    self.assertEqual(ledger.check(published), "other_keys")

    def test_what_is_younger_than_the_last_entry_is_not_held_against_it(self):
        ledger = SystemLedger()
        ledger.tell(ledger.ADDED, {"vkey": str(ledger.old.key)}, at="2026-07-01T12:00:01.000Z")
        self.assertIsNone(ledger.check([ledger.old, ledger.new]))
        ledger.tell("tenant_created", {})
        self.assertEqual(ledger.check([ledger.old, ledger.new]), "other_keys")

    def test_a_key_of_which_no_entry_tells_is_counted_and_signs_no_whole_ledger_that_tells_of_keys(self):
        late = "9999-12-31T23:59:59.999Z"
        ledger = SystemLedger()
        ledger.tell(ledger.ADDED, {"vkey": str(ledger.old.key), "not_before": "2026-07-01T12:00:01.000Z"})
        # What is left out of another entry tells nothing of keys.
        ledger.tell("tenant_created", {}, is_left_out=True)
        told = PublishedKey(ledger.old.key, "2026-07-01T12:00:01.000Z", late)
        put_in = PublishedKey(ledger.new.key, late)

        def find(published, held, lines):
            trust = Trust(KeySet(published))
            held = [trust.open(ledger.checkpoint().encode())] if held else []
            verifier = ExportVerifier(trust, held, published=trust.keys)
            return verifier.verify(io.BytesIO("".join(lines).encode()))

        report = ExportVerifier(published=KeySet([told, put_in])).verify(io.BytesIO("".join(ledger.lines).encode()))
        self.assertEqual((report.untold_keys, report.untold_ends), (1, 1))
        # It is the one that has signed the checkpoint, whether that is the end or stands for it.
        whole = [*ledger.lines, ledger.end()]
        for held, lines in ((False, whole), (True, ledger.lines)):
            with self.subTest(held), self.assertRaises(Finding) as found:
                find([told, put_in], held, lines)
            self.assertEqual(found.exception.code, "other_keys")
        # Once an entry tells of it, nothing is wrong with that.
        ledger.tell(ledger.ADDED, {"vkey": str(ledger.new.key), "not_before": late})
        ledger.tell("tenant_created", {})
        report = find([PublishedKey(ledger.old.key, told.not_before), put_in], True, [*ledger.lines, ledger.end()])
        self.assertEqual((report.untold_keys, report.untold_ends), (0, 0))

    def test_other_ledgers_and_files_with_less_in_them_tell_nothing(self):
        other = SystemLedger("tnt_01jz0000000000000000000000").tell_all()
        self.assertIsNone(other.check([other.new]))
        partial = SystemLedger().tell_all()
        partial.tell(partial.ADDED, {"vkey": str(partial.new.key)}, is_left_out=True)
        self.assertIsNone(partial.check([partial.new]))
        # A body of another kind would not have told of keys.
        other_kind = SystemLedger().tell_all()
        other_kind.tell("tenant_created", {}, is_left_out=True)
        self.assertIsNone(other_kind.check([other_kind.old, other_kind.new]))
        self.assertEqual(other_kind.check([other_kind.new]), "other_keys")


class UntoldTest(unittest.TestCase):
    """Entries without a body, until they are told of."""

    class Blocks(dict):
        """Blocks that count how often one of them is looked for."""

        looked = 0

        def __iter__(self):
            for number in super().__iter__():
                self.looked += 1
                yield number

        def __contains__(self, number):
            self.looked += 1
            return super().__contains__(number)

    def noted(self, count):
        """One entry in each of so many blocks."""
        untold = Untold()
        untold._blocks = self.Blocks()
        for number in range(count):
            untold.note(number * BLOCK + 7)
        untold._blocks.looked = 0
        return untold

    def test_many_short_rows_do_not_look_at_all_blocks_each(self):
        count = 500
        untold = self.noted(count)
        for number in range(count):
            seq = number * BLOCK + 7
            untold.read(f'{{"seqs":[[{seq},{seq}]]}}', count * BLOCK)
        self.assertEqual((untold.count, untold.first()), (0, None))
        self.assertLessEqual(untold._blocks.looked, 2 * count)

    def test_a_row_that_is_longer_than_all_blocks_looks_at_these(self):
        untold = self.noted(3)
        untold.read('{"seqs":[[8,9007199254740992]]}', 1 << 60)
        self.assertEqual((untold.count, untold.first()), (1, 7))
        self.assertLessEqual(untold._blocks.looked, 2 * 3)


class LayoutTest(unittest.TestCase):
    """Texts with a fixed layout, as far as vectors do not reach."""

    def test_a_long_text_takes_some_times_the_memory_that_it_has(self):
        def string(text):
            return lambda: Layout(text, "malformed_line").string()

        count = 1 << 17
        numbers = f"[{'1,' * count}1]"
        texts = [f'"{part * count}"' for part in ("a", "\\n", "a\\n", "\\u0001")]
        for text, read in [*((text, string(text)) for text in texts), (numbers, lambda: canonical.parse(numbers))]:
            tracemalloc.start()
            read()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            with self.subTest(text[:10]):
                self.assertLess(peak, 32 * len(text))

    def test_what_is_no_canonical_string_is_none(self):
        for text in ['"a', '"\\q"', '"\\u00"', '"\\u0041"', '"\\u001F"', '"\\/"', '"\n"', '"\\', "a"]:
            with self.subTest(text), self.assertRaises(Finding):
                Layout(text, "malformed_line").string()


class KeyTest(unittest.TestCase):
    """Keys that are none."""

    def test_what_is_no_key_is_found(self):
        for text in ["[" * 100_000, '\ufeff{"keys":[]}', '{"keys":[],"keys":[]}', b'\xff\xfe{\x00']:
            with self.subTest(text[:20]), self.assertRaises(Finding):
                KeySet.parse(text)
        with self.assertRaises(Finding):
            VerifierKey.parse("\ud800+b3e2f2ad+AfmZYwdSWGvgEzO58dpKVdCFjmy7Jo9uCFCzBPTwTKEi")

    def test_what_everybody_can_sign_for_and_what_is_spelt_in_another_way_is_none(self):
        prime = 2**255 - 19
        of_order_eight = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
        small = [0, 1, prime - 1, of_order_eight, prime - of_order_eight]
        for y, expected in [*((y, True) for y in [*small, *range(prime, 1 << 255)]), (2, False), (prime - 2, False)]:
            for sign in (0, 1 << 255):
                vkey = str(VerifierKey("log.example", 1, (y | sign).to_bytes(32, "little")))
                with self.subTest(vkey):
                    if expected:
                        with self.assertRaises(Finding) as found:
                            VerifierKey.parse(vkey)
                        self.assertEqual(found.exception.code, "malformed_key")
                    else:
                        self.assertEqual(str(VerifierKey.parse(vkey)), vkey)


class CanonicalTest(unittest.TestCase):
    """Canonical JSON, as far as bodies need it."""

    def test_numbers_are_written_as_ecmascript_writes_them(self):
        for token, expected in {
            "0": "0",
            "-0.0": "0",
            "1.0": "1",
            "-1.50": "-1.5",
            "1e21": "1e+21",
            "1e20": "100000000000000000000",
            "123456789012345678901234": "1.2345678901234569e+23",
            "0.000001": "0.000001",
            "0.0000001": "1e-7",
            "1.5e-9": "1.5e-9",
            "333333333.33333329": "333333333.3333333",
            "5e-324": "5e-324",
            "1.7976931348623157e308": "1.7976931348623157e+308",
            "9007199254740993": "9007199254740992",
            "100": "100",
            "12.5e2": "1250",
        }.items():
            self.assertEqual(canonical.write(canonical.parse(token)), expected, token)

    def test_members_are_sorted_by_utf16(self):
        text = '{"\U0001f600":1,"\ufb33":2,"a":3}'
        self.assertEqual(canonical.write(canonical.parse(text)), '{"a":3,"\U0001f600":1,"\ufb33":2}')

    def test_what_has_two_meanings_is_refused(self):
        for text in ['{"a":1,"a":1}', '"\\ud800"', "NaN", "1e400", "[1,]", "01", "", '{"a":1} x', '"\t"', "[" * 300]:
            with self.assertRaises(canonical.Ambiguous, msg=text):
                canonical.parse(text)

    def test_the_published_numbers_and_samples(self):
        folder = published(self, "jcs")
        for sample in sorted((folder / "input").iterdir()):
            expected = (folder / "output" / sample.name).read_text(encoding="utf-8")
            self.assertEqual(canonical.write(canonical.parse(sample.read_text(encoding="utf-8"))), expected)


class PublishedTest(unittest.TestCase):
    """Vectors of others."""

    def is_right(self, verify):
        try:
            verify()
        except Finding:
            return False
        return True

    def test_notes(self):
        found = json.loads((published(self, "signed-note") / "signed-note-cases.json").read_text(encoding="utf-8"))
        key = VerifierKey.parse(found["verifier_key"])
        for case in found["cases"]:
            with self.subTest(case["name"]):
                note = case["note"].encode()
                self.assertEqual(self.is_right(lambda: Note.parse(note).verify([key])), case["accept"])

    def test_proofs(self):
        for path in sorted(published(self, "merkle").rglob("*.json")):
            with self.subTest(path.name):
                case = json.loads(path.read_text(encoding="utf-8"))
                proof = [raw(hashed) for hashed in case["proof"] or []]
                if any(len(hashed) != 32 for hashed in proof):
                    # No text of a proof gets as far as this: a hash has 32 bytes when it is read.
                    self.assertTrue(case["wantErr"])
                    continue
                if "leafIdx" in case:
                    leaf, root = raw(case["leafHash"]), raw(case["root"])
                    arguments = (case["leafIdx"], case["treeSize"], leaf, proof, root)
                    is_right = self.is_right(lambda: tree.verify_inclusion(*arguments))
                else:
                    first, second = raw(case["root1"]), raw(case["root2"])
                    arguments = (case["size1"], first, case["size2"], second, proof)
                    is_right = self.is_right(lambda: tree.verify_consistency(*arguments))
                self.assertEqual(is_right, not case["wantErr"])


class CommandTest(unittest.TestCase):
    """The command, as somebody would use it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text.encode())
        return str(path)

    def run_command(self, *arguments):
        command = [sys.executable, "-m", "countersign_verify", *arguments]
        done = subprocess.run(command, cwd=ROOT / "sdks" / "python", capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def file(self, name, member, finds=None):
        """The first case of which this is found, as a file, and its keys."""
        case = next(case for case in cases(name) if "trust" in case and case["finds"] == finds)
        keys = self.write("keys.json", json.dumps({"keys": case["trust"]["keys"]}))
        return case, self.write(f"{finds}", case[member]), keys

    def test_receipts(self):
        case, good, keys = self.file("receipts.json", "answer")
        code, said = self.run_command("receipt", good, "--keys", keys)
        self.assertEqual(code, 0, said)
        self.assertIn(f"entry {case['receipt']['seq']} of {case['receipt']['tenant']}", said)
        _, bad, keys = self.file("receipts.json", "answer", "bad_signature")
        code, said = self.run_command("receipt", bad, "--keys", keys)
        self.assertEqual(code, 1, said)
        self.assertIn("NOT VERIFIED: bad_signature", said)
        self.assertEqual(self.run_command("receipt", good)[0], 2)

    def test_a_success_that_nobody_was_told_of(self):
        _, good, keys = self.file("receipts.json", "answer")
        command = [sys.executable, "-m", "countersign_verify", "receipt", good, "--keys", keys]
        with open("/dev/full", "wb") as full:
            # A log of both, as jobs write it, is full for both.
            for both in [subprocess.PIPE, subprocess.STDOUT]:
                done = subprocess.run(command, cwd=ROOT / "sdks" / "python", stdout=full, stderr=both, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
        closed = ["sh", "-c", '"$@" >&-', "sh", *command]
        done = subprocess.run(closed, cwd=ROOT / "sdks" / "python", capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_exports(self):
        case, path, keys = self.file("exports.json", "file")
        code, said = self.run_command("export", path, "--keys", keys)
        self.assertEqual(code, 0, said)
        self.assertIn(f"entries 1 to 13 of {case['reports']['tenant']}, ", said)
        code, said = self.run_command("export", path, "--keys", keys, "--from-seq", "1", "--to-seq", "12")
        self.assertEqual(code, 1, said)
        self.assertIn("wrong_range", said)

    def test_a_ledger_that_tells_of_the_keys(self):
        ledger = SystemLedger().tell_all()
        path = self.write("system.ndjson", "".join(ledger.lines) + ledger.end())
        members = [
            {"vkey": str(key.key), "not_before": key.not_before, "not_after": key.not_after}
            for key in (ledger.new, ledger.old)
        ]
        keys = self.write("keys.json", json.dumps({"keys": members}))
        code, said = self.run_command("export", path, "--keys", keys)
        self.assertEqual(code, 0, said)
        keys = self.write("keys.json", json.dumps({"keys": members[:1]}))
        code, said = self.run_command("export", path, "--keys", keys)
        self.assertEqual(code, 1, said)
        self.assertIn("NOT VERIFIED: other_keys", said)
        self.assertNotIn("published keys", said)
        late = "9999-12-31T23:59:59.999Z"
        put_in = VerifierKey(ledger.new.key.name, ledger.new.key.kind, bytes([9]) * 32)
        members = [*members, {"vkey": str(put_in), "not_before": late}]
        keys = self.write("keys.json", json.dumps({"keys": members}))
        code, said = self.run_command("export", path, "--keys", keys)
        self.assertEqual(code, 0, said)
        self.assertIn(", 1 of the published keys without a word about it in this file, signed by the log", said)

    def case(self, name):
        """An export of that name as a file, with its keys."""
        case = next(case for case in cases("exports.json") if case["name"] == name)
        keys = self.write("keys.json", json.dumps({"keys": case["trust"]["keys"]}))
        return case, self.write("ledger.ndjson", case["file"]), keys

    def test_an_export_without_keys(self):
        _, path, keys = self.case("all entries and answers")
        for what in ("export", "evidence"):
            code, said = self.run_command(what, path)
            self.assertEqual(code, 2, said)
            self.assertIn("nothing says whose it is", said)
        code, said = self.run_command("export", path, "--unsigned")
        self.assertEqual(code, 0, said)
        self.assertIn("NOT compared with any key", said)
        for options in (["--keys", keys], ["--keys", ""], ["--held", path], ["--quorum", "1"]):
            with self.subTest(options):
                self.assertEqual(self.run_command("export", path, "--unsigned", *options)[0], 2)

    def test_witnesses(self):
        case, path, keys = self.case("with a witness")
        first, second = case["trust"]["witnesses"]
        log = case["trust"]["keys"][0]["vkey"]
        found = {}
        for name, witnesses in {"one": [first], "other": [second], "both": [first, second]}.items():
            options = [option for witness in witnesses for option in ("--witness", witness)]
            found[name] = self.run_command("export", path, "--keys", keys, *options)
        codes = {name: code for name, (code, _) in found.items()}
        # One of them has seen it, and all that are named must have.
        self.assertEqual(sorted(codes.values()), [0, 1, 1], found)
        self.assertEqual(codes["both"], 1, found)
        self.assertIn("too_few_witnesses", found["both"][1])
        self.assertIn("signed by the log, cosigned by 1 of 1 witnesses or more", found["one"][1] + found["other"][1])
        both = ("--keys", keys, "--witness", first, "--witness", second)
        code, said = self.run_command("export", path, *both, "--quorum", "1")
        self.assertEqual(code, 0, said)
        self.assertIn("cosigned by 1 of 2 witnesses or more", said)
        for options in [
            ("--witness", first),
            ("--keys", keys, "--witness", "garbage"),
            ("--keys", keys, "--witness", log),
            ("--keys", keys, "--witness", "\udcff+02dc2294+BGa+fjMsekUzMr2dCn99sFX1xe8aBq2mbZizn7aBDEc6"),
            ("--keys", keys, "--quorum", "1"),
            (*both, "--quorum", "3"),
            (*both, "--quorum", "0"),
            (*both, "--quorum=-1"),
        ]:
            with self.subTest(options):
                code, said = self.run_command("export", path, *options)
                self.assertEqual(code, 2, said)
                self.assertIn("usage:", said)

    def test_options_that_say_nothing_are_refused(self):
        for what, name, member in (("receipt", "receipts.json", "answer"), ("proof", "proofs.json", "proof")):
            _, path, keys = self.file(name, member)
            options = [["--tenant", "tnt_other"], ["--from-seq", "0", "--to-seq", "0"], ["--held", keys], ["--unsigned"]]
            for option in options + ([["--quorum", "1"]] if what == "receipt" else []):
                with self.subTest((what, option)):
                    code, said = self.run_command(what, path, "--keys", keys, *option)
                    self.assertEqual(code, 2, said)
                    self.assertIn("not of any use", said)

    def test_the_file_that_is_wrong_is_named(self):
        _, path, keys = self.case("all entries and answers")
        nested = self.write("nested.json", "[" * 100_000)
        for options in (["--keys", "nowhere"], ["--keys", nested], ["--keys", keys, "--held", nested]):
            with self.subTest(options):
                code, said = self.run_command("export", path, *options)
                self.assertEqual(code, 2, said)
                self.assertIn(f"{path}: NOT VERIFIED: `{options[-1]}`: ", said)

    def test_what_would_steer_a_terminal_is_written_by_its_number(self):
        case, _, keys = self.case("all entries and answers")
        path = self.write("\r\x1b[2K.ndjson", case["file"])
        code, said = self.run_command("export", path, "--keys", keys)
        self.assertEqual(code, 0, said)
        self.assertIn(r"\r\x1b[2K.ndjson: verified: ", said)
        # What the file says of itself: its time is the verdict that somebody would like to see.
        verdict = "\r\x1b[2K\u202eledger.ndjson: verified: entries 1 to 5"
        header = Header("tnt_1", 1, "decision", verdict, ZERO_DIGEST, digest_text(tree.sha256(b"{}")))
        path = self.write("forged.ndjson", f'{{"header":{header.text},"hash":"{header.hash}","body":{{}}}}\n')
        code, said = self.run_command("export", path, "--keys", keys)
        self.assertEqual(code, 1, said)
        self.assertIn(r"\r\x1b[2K\u202eledger.ndjson", said)
        code, said = self.run_command("export", str(self.folder / "\x1b[8m"), "--keys", keys)
        self.assertEqual(code, 2, said)
        self.assertIn(r"\x1b[8m: NOT VERIFIED: cannot be read", said)
        code, said = self.run_command("export", path, "--keys", "\x1b[8m")
        self.assertEqual(code, 2, said)
        self.assertIn(r"`\x1b[8m`: ", said)
        self.assertNotIn("\x1b", said)

    def test_what_is_not_there_is_told(self):
        for name, told in {
            "an erased body beside its answer": ", 1 without a body, 4 answers, ",
            "an erased body that is told of behind the file": ", 1 of these without a word about it in this file, ",
            "a body that is left out": ", 1 whose body is left out on the word of whoever made the file, 10 answers, ",
            "a range with its start and a later checkpoint": ", NOT from the beginning, ",
        }.items():
            with self.subTest(name):
                _, path, keys = self.case(name)
                code, said = self.run_command("export", path, "--keys", keys)
                self.assertEqual(code, 0, said)
                self.assertIn(told, said)

    def test_answers_that_were_taken_out_are_told(self):
        case, _, keys = self.case("all entries and answers")
        lines = case["file"].splitlines(keepends=True)
        answers = [at for at, line in enumerate(lines) if line.startswith('{"answer":')]
        del lines[answers[0]]
        code, said = self.run_command("export", self.write("fewer.ndjson", "".join(lines)), "--keys", keys)
        self.assertEqual(code, 0, said)
        self.assertIn(", 9 answers, 1 decisions whose answer is not in this file, signed by the log", said)

    def test_proofs(self):
        _, path, keys = self.file("proofs.json", "proof")
        code, said = self.run_command("proof", path, "--keys", keys)
        self.assertEqual(code, 0, said)
        self.assertIn("in a ledger of 13", said)
        self.assertEqual(self.run_command("proof", str(self.folder / "missing"), "--keys", keys)[0], 2)


if __name__ == "__main__":
    unittest.main()
