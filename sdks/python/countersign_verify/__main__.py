"""`python3 -m countersign_verify export|evidence|receipt|proof FILE --keys KEYS.JSON`: verifies a file and says what was found.

The exit code is 0 if everything was right, 1 if not, 2 if something could not be read.
"""

import argparse
import sys

from . import (
    ExportVerifier,
    Finding,
    KeySet,
    ReceiptVerifier,
    Trust,
    VerifierKey,
    read_receipt,
    verify_evidence,
    verify_proof,
)
from .keys import COSIGNATURE


# What can be said about each of the things that are verified.
OF_ENTRIES = {"what", "file", "keys", "witness", "quorum", "held", "tenant", "from_seq", "to_seq", "unsigned"}
OPTIONS = {
    "export": OF_ENTRIES,
    "evidence": OF_ENTRIES,
    "receipt": {"what", "file", "keys"},
    "proof": {"what", "file", "keys", "witness", "quorum"},
}


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="countersign_verify", description="Verifies what Countersign hands out.")
    parser.add_argument("what", choices=["export", "evidence", "receipt", "proof"])
    parser.add_argument("file", help="the file; - for standard input")
    parser.add_argument("--keys", help="the log's keys.json, from somebody you trust")
    parser.add_argument("--witness", action="append", default=[], help="the verifier key of a witness")
    parser.add_argument("--quorum", type=int, help="how many of these must have seen a checkpoint; all of them without it")
    parser.add_argument("--held", action="append", default=[], help="a checkpoint that you kept (export, evidence)")
    parser.add_argument("--tenant", help="whose ledger it must be (export, evidence)")
    parser.add_argument("--from-seq", type=int, help="the first entry that must be there (export, evidence)")
    parser.add_argument("--to-seq", type=int, help="the last entry that must be there (export, evidence)")
    parser.add_argument(
        "--unsigned",
        action="store_true",
        help="only whether the file agrees with itself, whoever has made it (export, evidence)",
    )
    found = parser.parse_args(arguments)
    check_options(parser, found)
    return found


def check_options(parser, found):
    """Refuses options that would not do what they say."""
    named = [name for name, value in vars(found).items() if value not in (None, [], False)]
    useless = [f"--{name.replace('_', '-')}" for name in named if name not in OPTIONS[found.what]]
    if useless:
        parser.error(f"{', '.join(useless)}: not of any use for {found.what}")
    if found.unsigned == bool(found.keys):
        what = "proves nothing without --keys" if found.what in ("receipt", "proof") else "takes --keys, or --unsigned"
        parser.error(f"{found.what} {what}" if not found.unsigned else "--unsigned takes no --keys")
    if found.unsigned and (found.held or found.witness):
        parser.error("--held and --witness take --keys to see who has signed")
    if (found.from_seq is None) != (found.to_seq is None):
        parser.error("--from-seq and --to-seq go together")
    if found.quorum is not None and found.quorum < 1:
        parser.error("--quorum is 1 at least")


def trust_in(arguments):
    """Whom the options say is to be believed; nobody without keys."""
    if not arguments.keys:
        return None
    keys = KeySet.parse(read(arguments.keys))
    witnesses = tuple(VerifierKey.parse(text) for text in arguments.witness)
    for witness in witnesses:
        if witness.kind != COSIGNATURE:
            raise Finding("malformed_key", f"{witness.label} is the key of a log, not of a witness")
    # One with two keys, while it replaces one by the other, is one.
    named = len({witness.name for witness in witnesses})
    quorum = named if arguments.quorum is None else arguments.quorum
    if quorum > named:
        raise Finding("too_few_witnesses", f"{quorum} must have seen a checkpoint, and {named} are named")
    return Trust(keys, witnesses, quorum)


def read(path):
    if path == "-":
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


def verify(arguments):
    """Verifies; returns a sentence."""
    trust = trust_in(arguments)
    if arguments.what == "receipt":
        receipt = read_receipt(read(arguments.file))
        ReceiptVerifier(trust.keys).verify(receipt)
        header = receipt.header
        return f"entry {header.seq} of {header.tenant} at {header.at}, {receipt.hash}, signed by {receipt.key}"
    if arguments.what == "proof":
        proven = verify_proof(read(arguments.file), trust)
        header, size = proven.header, proven.checkpoint.checkpoint.size
        return f"entry {header.seq} of {header.tenant} at {header.at}, {header.hash}, in a ledger of {size}"
    return verify_entries(arguments, trust)


def verify_entries(arguments, trust):
    entries = None if arguments.from_seq is None else (arguments.from_seq, arguments.to_seq)
    held = [trust.open(read(path)) for path in arguments.held]
    verifier = ExportVerifier(trust, held, arguments.tenant, entries)
    with sys.stdin.buffer if arguments.file == "-" else open(arguments.file, "rb") as file:
        if arguments.what == "evidence":
            report = verify_evidence(file, verifier).entries
        else:
            report = verifier.verify(file)
    if not report.has_end and not held:
        raise Finding("unsigned", "the file has no end: it was cut off, or made by hand")
    signed = "a checkpoint that is trusted" if report.checkpoint or held else "nobody's signature"
    begins = "" if report.is_anchored else ", NOT from the beginning"
    counts = {
        "erased": report.erased,
        "of these without a word about it in this file": report.untold,
        "whose body is left out": report.left_out,
        "answers": report.answers,
    }
    told = "".join(f", {count} {what}" for what, count in counts.items() if count)
    return f"entries {report.first} to {report.last} of {report.tenant}{begins}, {report.hash}{told}, under {signed}"


def main():
    arguments = parse_arguments(sys.argv[1:])
    try:
        sentence = verify(arguments)
    except Finding as finding:
        print(f"{arguments.file}: NOT VERIFIED: {finding}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{arguments.file}: {error}", file=sys.stderr)
        return 2
    print(f"{arguments.file}: verified: {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
