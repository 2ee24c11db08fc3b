"""Section 4: verifier keys, and the keys of a log over time."""

import re
import unicodedata
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from . import canonical
from .encoding import Finding, decode_base64, encode_base64, is_time, sha256

NOTE = 0x01
COSIGNATURE = 0x04
NAME_BYTES_MAX = 255

# The prime of Ed25519, and the y of every point of which eight make nothing: 0, 1 and -1, and those of order eight.
_PRIME = 2**255 - 19
_OF_ORDER_EIGHT = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = (0, 1, _PRIME - 1, _OF_ORDER_EIGHT, _PRIME - _OF_ORDER_EIGHT)

_KEY_ID = re.compile(r"[0-9a-f]{8}")


def is_key_name(name):
    if not 1 <= len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX:
        return False
    return not any(
        character == "+" or character.isspace() or unicodedata.category(character) in ("Cc", "Cs") for character in name
    )


def is_point(public):
    """Whether a key can be somebody's: its y is less than the prime, and eight times the point is something, so that nobody can sign for
    it without its secret. Whether it is on the curve only shows when it is used.
    """
    # The highest bit is the sign of x, and what is mirrored is of the same order.
    y = int.from_bytes(public, "little") & ~(1 << 255)
    return y < _PRIME and y not in _SMALL_ORDER


@dataclass(frozen=True)
class VerifierKey:
    """A public key with its name."""

    name: str
    kind: int
    public: bytes

    @classmethod
    def parse(cls, text):
        parts = text.split("+", 2)
        if len(parts) != 3 or _KEY_ID.fullmatch(parts[1]) is None:
            raise Finding("malformed_key", "not <name>+<key id>+<base64>")
        name, key_id, encoded = parts
        raw = decode_base64(encoded)
        if raw is None or len(raw) != 33 or raw[0] not in (NOTE, COSIGNATURE):
            raise Finding("malformed_key", "not an Ed25519 key")
        if not is_key_name(name):
            raise Finding("malformed_key", "not a name")
        if not is_point(raw[1:]):
            raise Finding("malformed_key", "a point for which everybody can sign, or a number of 2^255 - 19 or more")
        key = cls(name, raw[0], raw[1:])
        if key.key_id != key_id:
            raise Finding("malformed_key", f"its id is {key.key_id}, not {key_id}")
        return key

    @property
    def key_id(self):
        return sha256(self.name.encode(), b"\n", bytes([self.kind]), self.public)[:4].hex()

    @property
    def label(self):
        return f"{self.name}+{self.key_id}"

    def __str__(self):
        return f"{self.label}+{encode_base64(bytes([self.kind]) + self.public)}"

    def has_signed(self, message, signature):
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class PublishedKey:
    """A key of a log, and for how long it signs."""

    key: VerifierKey
    not_before: str | None = None
    not_after: str | None = None

    def ended_before(self, at):
        return self.not_after is not None and self.not_after < at

    def is_valid_at(self, at):
        return (self.not_before is None or self.not_before <= at) and not self.ended_before(at)


class KeySet:
    """The keys of a log over time."""

    def __init__(self, keys):
        self.keys = list(keys)
        if not self.keys:
            raise Finding("malformed_keys", "there is no key")
        seen = set()
        for published in self.keys:
            label = published.key.label
            if label in seen:
                raise Finding("malformed_keys", f"{label} stands twice")
            seen.add(label)
            if published.key.kind != NOTE:
                raise Finding("malformed_keys", f"{label} is the key of a witness")
            if published.not_before is not None and published.ended_before(published.not_before):
                raise Finding("malformed_keys", f"{label} ends before it begins")

    @classmethod
    def parse(cls, text):
        """Reads `keys.json`."""
        try:
            text = text.decode() if isinstance(text, bytes) else text
            keys = canonical.parse(text)["keys"]
            return cls(_published(key) for key in keys)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Finding("malformed_keys", str(error)) from None

    @classmethod
    def of(cls, key):
        """One key, for all time."""
        return cls([PublishedKey(key)])

    def find(self, label):
        return next((published for published in self.keys if published.key.label == label), None)


class KeyHistory:
    """What the entries of the log's system tenant say of its keys."""

    def __init__(self):
        self._times = {}
        # The first key of which a later entry names another time than the one that named it first.
        self._contradicted = None

    def read(self, body):
        """Reads the body of an entry about a key. One that says something else tells of nothing. What was named first stays."""
        told = canonical.parse(body)
        vkey, *times = (told.get(member) for member in ("vkey", "not_before", "not_after"))
        if not isinstance(vkey, str) or not all(isinstance(time, str | None) for time in times):
            return
        known = self._times.get(vkey, (None, None))
        if self._contradicted is None and any(None not in (now, before) and now != before for now, before in zip(times, known)):
            self._contradicted = vkey
        self._times[vkey] = tuple(before if before is not None else now for now, before in zip(times, known))

    def check(self, published, until):
        """Whether these are all keys of the log. What is younger than `until`, the time of the last entry, no entry tells.

        Returns of how many keys none tells, and of how many ends of other ones.
        """

        def is_untold(at):
            return at is not None and at > until

        if self._contradicted is not None:
            raise Finding("other_keys", f"an entry tells another time of {self._contradicted} than an earlier one")
        untold_keys = untold_ends = 0
        for key in published.keys:
            told = self._times.get(str(key.key))
            if told is None and is_untold(key.not_before):
                untold_keys += 1
                continue
            if told is None:
                raise Finding("other_keys", f"no entry tells that {key.key.label} was added")
            not_before, not_after = told
            ends_later = not_after is None and is_untold(key.not_after)
            if key.not_before != not_before or (key.not_after != not_after and not ends_later):
                raise Finding("other_keys", f"the entries tell other times of {key.key.label}")
            untold_ends += key.not_after != not_after
        if unpublished := self._times.keys() - {str(key.key) for key in published.keys}:
            raise Finding("other_keys", f"an entry tells of {min(unpublished)}, and it is not published")
        return untold_keys, untold_ends

    def check_signer(self, key):
        """Whether an entry tells of the key that has signed the checkpoint of just these entries."""
        if str(key) not in self._times:
            raise Finding("other_keys", f"{key.label} has signed the checkpoint of these entries, and none of them tells that it was added")


def _published(member):
    times = [member.get("not_before"), member.get("not_after")]
    if any(time is not None and not is_time(time) for time in times):
        raise Finding("malformed_keys", "a time has another layout")
    try:
        key = VerifierKey.parse(member["vkey"])
    except Finding as finding:
        raise Finding("malformed_keys", str(finding)) from None
    return PublishedKey(key, *times)
