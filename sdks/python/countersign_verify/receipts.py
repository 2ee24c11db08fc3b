"""Section 6: answers with their receipts."""

from dataclasses import dataclass

from . import canonical
from .encoding import (
    Finding,
    Layout,
    decode_base64,
    decode_utf8,
    digest_bytes,
    digest_text,
    encode_base64,
    sha256,
)
from .entries import Header
from .tree import inclusion_root, leaf_hash

MEMBER = ',"receipt":'
ANSWER_BYTES_MAX = 4 << 20
ANSWER_DEPTH_MAX = 64


@dataclass(frozen=True)
class Receipt:
    """The receipt of an answer, not verified."""

    header: Header
    hash: str
    answer_hash: str
    index: int
    size: int
    path: tuple
    key: str
    signature: bytes

    def root(self):
        """The root of its batch. The members are those of the entry, and the path fits."""
        if self.header.hash != self.hash:
            raise Finding("wrong_hash", "the receipt names another hash than its members make")
        leaf = leaf_hash(digest_bytes(self.hash) + digest_bytes(self.answer_hash))
        return inclusion_root(self.index, self.size, leaf, self.path)


def read_receipt(answer):
    """Reads the bytes of an answer, as they were sent."""
    if len(answer) > ANSWER_BYTES_MAX:
        raise Finding("malformed_answer", "it is too large")
    text = decode_utf8(answer, "malformed_answer")
    try:
        canonical.parse(text, ANSWER_DEPTH_MAX)
    except canonical.Ambiguous as error:
        raise Finding("malformed_answer", str(error)) from None
    before, member, value = text.rpartition(MEMBER)
    layout = Layout(value, "malformed_receipt")
    if not member:
        layout.refuse("`receipt` as the last member")
    receipt = _receipt(layout, digest_text(sha256(before.encode(), b"}")))
    layout.literal("}")
    layout.end()
    return receipt


def _receipt(layout, answer_hash):
    layout.literal('{"tenant":')
    tenant = layout.string()
    layout.literal(',"seq":')
    seq = layout.integer()
    layout.literal(',"at":')
    at = layout.time()
    layout.literal(',"hash":')
    entry_hash = layout.digest()
    layout.literal(',"prev_hash":')
    prev = layout.digest()
    layout.literal(',"body_hash":')
    body = layout.digest()
    layout.literal(',"batch":{"index":')
    index = layout.integer()
    layout.literal(',"size":')
    size = layout.integer()
    layout.literal(',"path":')
    path = layout.hashes()
    layout.literal(',"key":')
    key = layout.string()
    layout.literal(',"signature":')
    signature = decode_base64(layout.string())
    if signature is None or len(signature) != 64:
        layout.refuse("a signature")
    layout.literal("}}")
    header = Header(tenant, seq, "decision", at, prev, body)
    return Receipt(header, entry_hash, answer_hash, index, size, tuple(path), key, signature)


class ReceiptVerifier:
    """Checks receipts against the keys of a log, and one signature for receipts of one batch that follow each other."""

    def __init__(self, keys):
        self._keys = keys
        self._last = None

    def verify(self, receipt):
        root = receipt.root()
        published = self._keys.find(receipt.key)
        if published is None:
            raise Finding("unknown_key", receipt.key)
        if not published.is_valid_at(receipt.header.at):
            raise Finding("key_not_valid", f"{receipt.key} did not sign at {receipt.header.at}")
        seen = (receipt.size, root, receipt.key, receipt.signature)
        if seen == self._last:
            return
        text = f"countersign-receipts/v1\nsize {receipt.size}\nroot {encode_base64(root)}\n"
        if not published.key.has_signed(text.encode(), receipt.signature):
            raise Finding("bad_signature", f"{receipt.key} has not signed this answer")
        self._last = seen
