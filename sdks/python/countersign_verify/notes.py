"""Section 5: notes, checkpoints, and which of them are to be believed."""

from dataclasses import dataclass, field

from .encoding import Finding, decode_base64, decode_decimal, decode_hash, decode_utf8
from .keys import COSIGNATURE, KeySet, PublishedKey, is_key_name

NOTE_BYTES_MAX = 1 << 20
SIGNATURES_MAX = 100
PREFIX = "\u2014 "


@dataclass(frozen=True)
class Signature:
    """One signature line."""

    name: str
    key_id: str
    signature: bytes


@dataclass(frozen=True)
class Note:
    """A text with signatures, none of them verified."""

    text: str
    signatures: tuple

    @classmethod
    def parse(cls, raw):
        if len(raw) > NOTE_BYTES_MAX:
            raise Finding("malformed_note", "it is larger than a megabyte")
        whole = decode_utf8(raw, "malformed_note")
        if any(character < " " and character != "\n" for character in whole):
            raise Finding("malformed_note", "it has control characters")
        end = whole.rfind("\n\n")
        if end < 0:
            raise Finding("malformed_note", "no empty line ends the text")
        text, rest = whole[: end + 1], whole[end + 2 :]
        if not rest.endswith("\n"):
            raise Finding("malformed_note", "no signature, or its line does not end")
        lines = rest[:-1].split("\n")
        if len(lines) > SIGNATURES_MAX:
            raise Finding("malformed_note", "it has more than 100 signatures")
        return cls(text, tuple(_signature(line) for line in lines))

    def verify(self, keys):
        """The keys that have signed, each once, with the time if it is a cosignature."""
        signed = {}
        for signature in self.signatures:
            named = (key for key in keys if (key.name, key.key_id) == (signature.name, signature.key_id))
            key = next(named, None)
            if key is None:
                continue
            time = self._check(key, signature.signature)
            signed.setdefault(key, time)
        if not signed:
            raise Finding("unknown_key", "no key that is known has signed")
        return list(signed.items())

    def _check(self, key, signature):
        time, message = None, self.text
        if key.kind == COSIGNATURE:
            time, signature = int.from_bytes(signature[:8], "big"), signature[8:]
            message = f"cosignature/v1\ntime {time}\n{self.text}"
        is_possible = time is None or time < 1 << 63
        if not is_possible or not key.has_signed(message.encode(), signature):
            raise Finding("bad_signature", f"{key.label} has not signed this")
        return time


def _signature(line):
    name, _, encoded = line.removeprefix(PREFIX).partition(" ")
    raw = decode_base64(encoded)
    if not line.startswith(PREFIX) or raw is None or len(raw) < 5 or not is_key_name(name):
        raise Finding("malformed_note", "a line below the text is not a signature")
    return Signature(name, raw[:4].hex(), raw[4:])


@dataclass(frozen=True)
class Checkpoint:
    """What a log says of itself."""

    origin: str
    size: int
    root: bytes

    @classmethod
    def parse(cls, text):
        lines = text.split("\n")
        is_whole = len(lines) >= 4 and lines[-1] == "" and all(lines[:-1])
        size = decode_decimal(lines[1]) if is_whole else None
        root = decode_hash(lines[2]) if is_whole else None
        if size is None or root is None:
            raise Finding("malformed_checkpoint", "not an origin, a size and a root")
        return cls(lines[0], size, root)


@dataclass(frozen=True)
class TrustedCheckpoint:
    """A checkpoint that is believed. Only `Trust.open` makes one."""

    checkpoint: Checkpoint
    tenant: str
    key: PublishedKey
    witnesses: tuple

    def check_covers(self, at):
        """The key still signed when this entry, which the checkpoint covers, was made."""
        if self.key.ended_before(at):
            raise Finding("key_not_valid", f"{self.key.key.label} ended before {at}")


@dataclass(frozen=True)
class Trust:
    """Whom a verifier trusts."""

    keys: KeySet
    witnesses: tuple = field(default=())
    # How many of the witnesses, by name, must have cosigned a checkpoint; all of them, unless it is said.
    quorum: int | None = None

    def __post_init__(self):
        if self.quorum is None:
            object.__setattr__(self, "quorum", self.named)

    @property
    def named(self):
        """How many witnesses there are. One that has two keys, while it replaces one by the other, is one."""
        return len({witness.name for witness in self.witnesses})

    def open(self, raw):
        """Reads a checkpoint and checks who has signed it."""
        note = Note.parse(raw)
        signed = note.verify([published.key for published in self.keys.keys] + list(self.witnesses))
        checkpoint = Checkpoint.parse(note.text)
        tenant, key = self._signer(checkpoint, {key for key, _ in signed})
        witnesses = {}
        for witness, time in signed:
            if time is not None:
                witnesses[witness.name] = max(time, witnesses.get(witness.name, 0))
        if len(witnesses) < self.quorum:
            raise Finding("too_few_witnesses", f"{len(witnesses)} of {self.quorum}")
        return TrustedCheckpoint(checkpoint, tenant, key, tuple(witnesses.items()))

    def _signer(self, checkpoint, signed):
        signers = [published for published in self.keys.keys if published.key in signed]
        if not signers:
            raise Finding("unknown_key", "no key of the log has signed")
        named = []
        for published in signers:
            prefix = published.key.name + "/"
            tenant = checkpoint.origin.removeprefix(prefix)
            if checkpoint.origin.startswith(prefix) and tenant and "/" not in tenant:
                named.append((tenant, published))
        if not named:
            raise Finding("wrong_origin", checkpoint.origin)
        return max(named, key=lambda signer: (signer[1].not_after is None, signer[1].not_after or ""))
