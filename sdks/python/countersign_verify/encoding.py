"""Section 1: the spellings of digests, base64, times and numbers, and texts with a fixed layout."""

import base64
import hashlib
import re

ZERO_DIGEST = "sha256:" + "0" * 64

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DECIMAL = re.compile(r"0|[1-9][0-9]*")
_TIME = re.compile(r"[0-9]{4}-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.[0-9]{3}Z")
# A canonical string: plain characters, and the escapes that canonical JSON writes. What an escape stands for is checked
# when the string is read. Nothing that was taken is given back, so no place is remembered to go back to: that would be a hundred
# bytes a character.
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]++|\\(?:["\\btnfr]|u00[0-9a-f]{2}))*+)"')
_ESCAPE = re.compile(r"\\(?:u00([0-9a-f]{2})|(.))")
_SHORT_ESCAPES = {'"': '"', "\\": "\\", "b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_ESCAPED = {code: f"\\u{code:04x}" for code in range(32)}
_ESCAPED |= {ord(character): "\\" + letter for letter, character in _SHORT_ESCAPES.items()}
INTEGER_MAX = 2**64 - 1


class Finding(Exception):
    """What is wrong, in one word of section 12; at which entry, and which entry was the last that was right."""

    def __init__(self, code, detail="", seq=None, since=None):
        super().__init__(code, detail, seq)
        self.code = code
        self.detail = detail
        self.seq = seq
        self.since = since

    def __str__(self):
        where = "" if self.seq is None else f"entry {self.seq}: "
        detail = f": {self.detail}" if self.detail else ""
        return f"{where}{self.code}{detail}"


def sha256(*parts):
    """The bytes of the SHA-256 of all parts, one behind the other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def digest_text(digest):
    """The text of a digest."""
    return "sha256:" + digest.hex()


def digest_bytes(text):
    """The bytes of a digest's text."""
    return bytes.fromhex(text.removeprefix("sha256:"))


def is_digest(text):
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def decode_base64(text):
    """The bytes of a text in base64, or None: each value has one spelling."""
    try:
        raw = text.encode("ascii")
        decoded = base64.b64decode(raw, validate=True)
    except ValueError:
        return None
    return decoded if base64.b64encode(decoded) == raw else None


def encode_base64(raw):
    return base64.b64encode(raw).decode("ascii")


def decode_hash(text):
    """The 32 bytes of a hash in base64, or None."""
    decoded = decode_base64(text) if len(text) == 44 else None
    return decoded if decoded is not None and len(decoded) == 32 else None


def decode_decimal(text):
    """A number in decimal digits without leading zeros, or None."""
    if _DECIMAL.fullmatch(text) is None or len(text) > 20:
        return None
    value = int(text)
    return value if value <= INTEGER_MAX else None


def is_time(text):
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return False
    month, day, hour, minute, second = (int(part) for part in match.groups())
    return 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60


def write_string(text):
    """A canonical JSON string."""
    return f'"{text.translate(_ESCAPED)}"'


class Layout:
    """Reads a text with a fixed layout from its beginning to its end. Anything else is the finding `code`."""

    def __init__(self, text, code):
        self.text = text
        self.at = 0
        self.code = code

    def refuse(self, expected):
        raise Finding(self.code, f"expected {expected} at character {self.at}")

    def literal(self, expected):
        if not self.text.startswith(expected, self.at):
            self.refuse(expected)
        self.at += len(expected)

    def digest(self):
        self.literal('"')
        match = _DIGEST.match(self.text, self.at)
        if match is None:
            self.refuse("a digest")
        self.at = match.end()
        self.literal('"')
        return match.group()

    def integer(self):
        match = _DECIMAL.match(self.text, self.at)
        value = decode_decimal(match.group()) if match else None
        if value is None or self.text[match.end() : match.end() + 1].isdigit():
            self.refuse("an integer")
        self.at = match.end()
        return value

    def string(self):
        match = _STRING.match(self.text, self.at)
        value = _unescape(match.group(1)) if match else None
        if value is None or write_string(value) != match.group():
            self.refuse("a canonical string")
        self.at = match.end()
        return value

    def time(self):
        value = self.string()
        if not is_time(value):
            self.refuse("a time")
        return value

    def hashes(self, count_max=53):
        """An array of hashes in base64."""
        hashes = []
        self.literal("[")
        while not self.text.startswith("]", self.at):
            if hashes:
                self.literal(",")
            value = decode_hash(self.string())
            if value is None or len(hashes) == count_max:
                self.refuse("a hash in base64, and not too many")
            hashes.append(value)
        self.literal("]")
        return hashes

    def end(self):
        if self.at != len(self.text):
            self.refuse("the end")


def _unescape(text):
    def character(match):
        code, letter = match.groups()
        # What is no escape stands for nothing, so it is not what the value is written as.
        return chr(int(code, 16)) if code else _SHORT_ESCAPES.get(letter, "")

    return _ESCAPE.sub(character, text)


def decode_utf8(raw, code):
    """The text of bytes that must be UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Finding(code, "it is not UTF-8") from None
