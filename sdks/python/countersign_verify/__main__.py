"""`python3 -m countersign_verify export|evidence|receipt|proof FILE --keys KEYS.JSON`: verifies a file and says what was found.

The exit code is 0 if everything was right, 1 if not, 2 if something could not be read, an option says nothing, or
what was found cannot be written.
"""

import argparse
import os
import sys
from contextlib import contextmanager

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


class Unusable(Exception):
    """A file that an option names is not what it should be: that says nothing of the file that is verified."""


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="countersign_verify", description="Verifies what Countersign hands out.", allow_abbrev=False
    )
    parser.add_argument("what", choices=OPTIONS)
    parser.add_argument("file", help="the file; - for standard input")
    parser.add_argument("--keys", help="the log's keys.json, from somebody you trust")
    parser.add_argument(
        "--witness",
        action="append",
        default=[],
        type=witness,
        help="the verifier key of a witness that must have seen the checkpoint (not for a receipt, which has none)",
    )
    parser.add_argument("--quorum", type=int, help="how many of these must have seen it; all of them without it")
    parser.add_argument("--held", action="append", default=[], help="a checkpoint that you kept (export, evidence)")
    parser.add_argument("--tenant", help="whose ledger it must be (export, evidence)")
    parser.add_argument("--from-seq", type=int, help="the first entry that must be there (export, evidence)")
    parser.add_argument("--to-seq", type=int, help="the last entry that must be there (export, evidence)")
    parser.add_argument(
        "--unsigned",
        action="store_true",
        help="only whether the file agrees with itself, whoever has made it: that proves nothing (export, evidence)",
    )
    found = parser.parse_args(arguments)
    check_options(parser, found)
    return found


def witness(text):
    """The key of a witness."""
    try:
        key = VerifierKey.parse(text)
    except Finding as finding:
        raise argparse.ArgumentTypeError(str(finding)) from None
    if key.kind != COSIGNATURE:
        raise argparse.ArgumentTypeError(f"{key.label} is the key of a log")
    return key


def check_options(parser, found):
    """Refuses options that would not do what they say."""
    named = {name for name, value in vars(found).items() if value != parser.get_default(name)}
    if useless := sorted(f"--{name.replace('_', '-')}" for name in named - OPTIONS[found.what]):
        parser.error(f"{', '.join(useless)}: not of any use for {found.what}")
    if found.keys is None:
        if useless := sorted(f"--{name}" for name in named & {"witness", "quorum", "held"}):
            parser.error(f"{', '.join(useless)}: takes --keys to see who has signed")
        if found.what in ("receipt", "proof"):
            parser.error(f"a {found.what} proves nothing without --keys")
        if not found.unsigned:
            parser.error(
                "nothing says whose it is: name the keys of the log with --keys, "
                "or ask with --unsigned only whether it agrees with itself"
            )
    elif found.unsigned:
        parser.error("--unsigned takes no --keys")
    if (found.from_seq is None) != (found.to_seq is None):
        parser.error("--from-seq and --to-seq go together")
    if found.quorum is not None:
        check_quorum(parser, found)


def check_quorum(parser, found):
    named = len({key.name for key in found.witness})
    if not 1 <= found.quorum <= named:
        parser.error(f"--quorum: {found.quorum} must have seen a checkpoint, and {named} witnesses are named")


def read(path):
    if path == "-":
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


@contextmanager
def told_of(path):
    """Whatever is wrong within is wrong with this file, and not with the one that is verified."""
    try:
        yield
    except OSError as error:
        raise Unusable(f"`{path}`: {error.strerror or error}") from None
    except Finding as finding:
        raise Unusable(f"`{path}`: {finding}") from None


def trust_in(arguments):
    """Whom the options say is to be believed; nobody without keys."""
    if arguments.keys is None:
        return None
    with told_of(arguments.keys):
        keys = KeySet.parse(read(arguments.keys))
    return Trust(keys, tuple(arguments.witness), arguments.quorum)


def open_held(path, trust):
    """A checkpoint that was kept elsewhere."""
    with told_of(path):
        return trust.open(read(path))


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
        entry = f"entry {header.seq} of {header.tenant} at {header.at}, {header.hash}"
        return f"{entry}, in a ledger of {size}{describe_witnesses(trust)}"
    return verify_entries(arguments, trust)


def verify_entries(arguments, trust):
    entries = None if arguments.from_seq is None else (arguments.from_seq, arguments.to_seq)
    held = [open_held(path, trust) for path in arguments.held]
    published = trust.keys if trust else None
    verifier = ExportVerifier(trust, held, arguments.tenant, entries, published)
    evidence = None
    with sys.stdin.buffer if arguments.file == "-" else open(arguments.file, "rb") as file:
        if arguments.what == "evidence":
            evidence = verify_evidence(file, verifier)
            report = evidence.entries
        else:
            report = verifier.verify(file)
    if not report.has_end and not held:
        raise Finding(
            "unsigned",
            "the file has no end: it was cut off, made by hand, or exported by a version that wrote none; "
            "export it again, or hold it against a checkpoint of its last entry (`--held`)",
        )
    signed = f", signed by the log{describe_witnesses(trust)}" if trust else ", NOT compared with any key"
    return describe(report, evidence) + signed


def describe(report, evidence):
    """What was found in words, also what was not there."""
    begins = "" if report.first == 1 else ", NOT from the beginning"
    counts = {
        "without a body": report.erased,
        "of these without a word about it in this file": report.untold,
        "whose body is left out on the word of whoever made the file": report.left_out,
        "answers": report.answers,
        "decisions whose answer is not in this file": report.unanswered,
        "files that decisions name": evidence.named if evidence else 0,
        "files that no decision names": evidence.unnamed if evidence else 0,
        "missing of what decisions name": evidence.missing if evidence else 0,
        "of the published keys without a word about it in this file": report.untold_keys,
        "of the ends of published keys without a word about it in this file": report.untold_ends,
    }
    told = "".join(f", {count} {what}" for what, count in counts.items() if count)
    run = f", about the run `{evidence.run_id}`" if evidence and evidence.run_id is not None else ""
    return f"entries {report.first} to {report.last} of {report.tenant}{begins}, {report.hash}{told}{run}"


def describe_witnesses(trust):
    return f", cosigned by {trust.quorum} of {trust.named} witnesses or more" if trust.quorum else ""


def plain(line):
    """A line as it may be written on a terminal, over which whoever made the file could write another verdict otherwise."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in line)


def tell(line, code, stream):
    """Says what was found; returns the exit code. A success that nobody was told of is none."""
    try:
        # Without a stream, `print` takes standard output.
        print(line, file=stream, flush=True)
    except OSError:
        # At its end Python would try again, and choose an exit code of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
        return 2
    return code


def main():
    arguments = parse_arguments(sys.argv[1:])
    # Names of others are told on every terminal.
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sentence = verify(arguments)
    except Finding as finding:
        return tell(plain(f"{arguments.file}: NOT VERIFIED: {finding}"), 1, sys.stderr)
    except Unusable as unusable:
        return tell(plain(f"{arguments.file}: NOT VERIFIED: {unusable}"), 2, sys.stderr)
    except OSError as error:
        return tell(plain(f"{arguments.file}: NOT VERIFIED: cannot be read: {error.strerror or error}"), 2, sys.stderr)
    return tell(plain(f"{arguments.file}: verified: {sentence}"), 0, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
