"""Section 2: headers of entries."""

from dataclasses import dataclass

from .encoding import digest_text, sha256, write_string
from .tree import leaf_hash


@dataclass(frozen=True)
class Header:
    """What the hash of an entry covers."""

    tenant: str
    seq: int
    kind: str
    at: str
    prev: str
    body: str

    @classmethod
    def read(cls, layout):
        """Reads a header inside a longer text."""
        layout.literal('{"at":')
        at = layout.string()
        layout.literal(',"body":')
        body = layout.digest()
        layout.literal(',"kind":')
        kind = layout.string()
        layout.literal(',"prev":')
        prev = layout.digest()
        layout.literal(',"seq":')
        seq = layout.integer()
        layout.literal(',"tenant":')
        tenant = layout.string()
        layout.literal(',"v":1}')
        return cls(tenant, seq, kind, at, prev, body)

    @property
    def text(self):
        # What was read is canonical, so writing it gives the bytes that were read.
        return (
            f'{{"at":{write_string(self.at)},"body":"{self.body}","kind":{write_string(self.kind)},'
            f'"prev":"{self.prev}","seq":{self.seq},"tenant":{write_string(self.tenant)},"v":1}}'
        )

    @property
    def hash(self):
        return digest_text(sha256(self.text.encode()))

    @property
    def leaf(self):
        return leaf_hash(self.text.encode())
