"""Section 8: files of entries, line by line, in memory that does not grow with them."""

from dataclasses import dataclass

from . import canonical
from .encoding import ZERO_DIGEST, Finding, Layout, decode_utf8, digest_text, is_time, sha256
from .entries import Header
from .keys import KeyHistory
from .notes import Checkpoint, Note, TrustedCheckpoint
from .receipts import ReceiptVerifier, read_receipt
from .tree import Edge, verify_consistency

# The longest line: well above the largest entry, which tells of a tool with all its schemas.
LINE_BYTES_MAX = 16 << 20
# Whose ledger tells of the log's keys, and in entries of which kinds.
SYSTEM_TENANT = "tnt_" + "0" * 26
KINDS_OF_KEYS = ("log_key_added", "log_key_ended")
# The kinds of the entries whose bodies can be erased. All others stay, whatever an entry says.
ERASABLE_KINDS = ("decision", "outcome_reported", "run_observed", "approval_refused")
# Entries without a body that nobody has told of yet are kept a bit each, in blocks of so many.
BLOCK = 4096
# At most so many blocks; what goes beyond stays untold.
BLOCKS_MAX = 65_536


@dataclass(frozen=True)
class ExportReport:
    """What has been verified."""

    tenant: str
    first: int
    last: int
    hash: str
    erased: int
    left_out: int
    untold: int
    answers: int
    unanswered: int
    # Of how many published keys no entry tells, and of how many ends of other ones: they are younger than the last entry.
    untold_keys: int
    untold_ends: int
    has_end: bool
    is_anchored: bool
    checkpoint: TrustedCheckpoint | None


class Untold:
    """Entries whose body was erased, until an entry behind them tells of it."""

    def __init__(self):
        self._blocks = {}
        self._beyond = None
        self.count = 0

    def note(self, seq):
        self.count += 1
        if len(self._blocks) >= BLOCKS_MAX and seq // BLOCK not in self._blocks:
            self._beyond = self._beyond or seq
            return
        self._blocks[seq // BLOCK] = self._blocks.get(seq // BLOCK, 0) | 1 << seq % BLOCK

    def read(self, body, seq):
        """Reads the body of an erasure. One that says nothing tells of nothing."""
        told = canonical.parse(body).get("seqs")
        if not isinstance(told, list) or not all(isinstance(row, list) and _is_row(row) for row in told):
            return
        for first, last in told:
            self._tell(int(first), min(int(last), seq - 1))

    def first(self):
        kept = [number * BLOCK + (bits & -bits).bit_length() - 1 for number, bits in self._blocks.items()]
        return min(kept + ([self._beyond] if self._beyond else []), default=None)

    def _tell(self, first, last):
        if first > last:
            return
        # A row can be longer than all that is kept, and of short ones there can be as many as blocks.
        shorter, longer = sorted((range(first // BLOCK, last // BLOCK + 1), self._blocks), key=len)
        for number in [number for number in shorter if number in longer]:
            start = number * BLOCK
            low, high = max(first - start, 0), min(last - start, BLOCK - 1)
            row = ((1 << (high - low + 1)) - 1) << low
            self.count -= (self._blocks[number] & row).bit_count()
            self._blocks[number] &= ~row
            if not self._blocks[number]:
                del self._blocks[number]


def _is_row(row):
    is_seq = [isinstance(seq, float) and seq.is_integer() and 0 <= seq < 1 << 64 for seq in row]
    return is_seq == [True, True]


class ExportVerifier:
    """Verifies a file: `push_line` for each line, then `finish`. Both raise the first finding.

    `published` is the `KeySet` of all keys of the log, if they are to be those that the ledger of its system tenant tells of.
    """

    def __init__(self, trust=None, held=(), tenant=None, entries=None, published=None):
        if entries is not None and not 1 <= entries[0] <= entries[1]:
            raise Finding("invalid_range", f"{entries[0]} to {entries[1]}")
        self._trust = trust
        self._receipts = ReceiptVerifier(trust.keys) if trust else None
        self._held = sorted(held, key=lambda trusted: trusted.checkpoint.size)
        # How many entries the last of them had that was met, and who has signed those of so many.
        self._agreed, self._signers = None, []
        self._tenant = tenant
        self._range = entries
        self._lines = 0
        self._first = None
        self._seq, self._hash, self._at = 0, ZERO_DIGEST, None
        self._tree = None
        self._has_start = self._is_started = False
        self._erased = self._left_out = self._answers = self._unanswered = 0
        self._untold = Untold()
        self._published, self._history = published, KeyHistory()
        # Whether the body of an entry that tells of a key is left out.
        self._lacks_keys = False
        # The body of the decision that an answer may follow, in a tuple because an erased body is None; None where no
        # answer may follow.
        self._answerable = None
        self._end = self._end_size = None
        # What is called with the body of each decision, and with each entry: its header, its body, and whether that is left out.
        self.on_decision = self.on_entry = None
        for trusted in self._held:
            self._join_tenant(trusted.tenant, 1)

    def verify(self, file):
        """Verifies all lines of a file that is open for reading bytes."""
        while line := file.readline(LINE_BYTES_MAX):
            self.push_line(line)
        return self.finish()

    def push_line(self, line):
        self._lines += 1
        if len(line) >= LINE_BYTES_MAX and not line.endswith(b"\n"):
            self._refuse("malformed_line", "it is too long")
        line = line.removesuffix(b"\n")
        if self._end is not None:
            self._refuse("malformed_line", "a line behind the end")
        if line.startswith(b'{"answer":'):
            self._push_answer(line[len(b'{"answer":') :])
            return
        self._answerable = None
        is_started, self._is_started = self._is_started, line.startswith(b'{"start":')
        try:
            text = decode_utf8(line, "malformed_line")
            if text.startswith('{"start":'):
                self._push_start(text, is_started)
            elif text.startswith('{"end":'):
                self._end = _read_end(text)
            else:
                header, recorded, body, is_left_out = _read_entry(text)
        except Finding as finding:
            self._refuse(finding.code, finding.detail)
        if not text.startswith(('{"start":', '{"end":')):
            self._push_entry(header, recorded, body, is_left_out)

    def finish(self):
        trusted = self._check_end() if self._end else None
        if self._first is None:
            raise Finding("empty", "there is no entry")
        if self._held:
            size = self._held[0].checkpoint.size
            code = "cut" if self._tree and self._tree.size < size else "not_compared"
            raise Finding(code, f"a checkpoint has {size} entries")
        if self._range is not None and tuple(self._range) != (self._first, self._seq):
            raise Finding("wrong_range", f"the entries are {self._first} to {self._seq}")
        # What stands behind a checkpoint nobody has signed: only one of exactly these entries stands for the end.
        if self._trust and not self._end and self._agreed != self._seq:
            raise Finding("unsigned", "there is no checkpoint of these entries")
        # Whoever tells of an erasure stands behind it: there nothing stands behind the entries.
        size = self._end_size if self._end else self._agreed
        if size == self._seq and self._untold.count:
            raise Finding("untold", "the body is gone, and no entry tells of its erasure", self._untold.first())
        untold_keys, untold_ends = self._check_keys(trusted)
        return ExportReport(
            tenant=self._tenant,
            first=self._first,
            last=self._seq,
            hash=self._hash,
            erased=self._erased,
            left_out=self._left_out,
            untold=self._untold.count,
            answers=self._answers,
            unanswered=self._unanswered,
            untold_keys=untold_keys,
            untold_ends=untold_ends,
            has_end=self._end is not None,
            is_anchored=self._tree is not None,
            checkpoint=trusted,
        )

    def _check_keys(self, trusted):
        """Holds the published keys against the ledger that tells of them, where this is the whole of it."""
        is_whole = self._first == 1 and not self._lacks_keys
        if not self._published or self._tenant != SYSTEM_TENANT or not is_whole:
            return 0, 0
        untold = self._history.check(self._published, self._at)
        if self._end:
            size, signers = self._end_size, [trusted.key.key] if trusted else []
        else:
            size, signers = self._agreed, self._signers
        for signer in signers if size == self._seq else []:
            self._history.check_signer(signer)
        return untold

    def _refuse(self, code, detail="", seq=None):
        seq = self._seq + 1 if seq is None else seq
        since = self._seq if self._first is not None else None
        raise Finding(code, detail, seq, since)

    def _join_tenant(self, tenant, seq):
        if self._tenant is None:
            self._tenant = tenant
        if self._tenant != tenant:
            self._refuse("wrong_tenant", f"{tenant} is not {self._tenant}", seq)

    def _push_start(self, text, is_started):
        layout = Layout(text, "malformed_line")
        layout.literal('{"start":{"seq":')
        seq = layout.integer()
        layout.literal(',"hash":')
        entry_hash = layout.digest()
        layout.literal(',"edge":')
        edge = layout.hashes()
        layout.literal("}}")
        layout.end()
        if seq == 0 or seq >= 1 << 53 or seq.bit_count() != len(edge):
            layout.refuse("a hash for each bit of `seq`")
        start = (seq, entry_hash, Edge(seq, edge))
        if self._lines > 1:
            known = self._tree is not None and (self._seq, self._hash, self._tree.root())
            if is_started or known != (seq, entry_hash, start[2].root()):
                raise Finding("malformed_line", "a start further on that says something else")
            return
        self._seq, self._hash, self._tree = start
        self._has_start = True

    def _push_entry(self, header, recorded, body, is_left_out):
        if self._tenant is not None and header.tenant != self._tenant:
            self._refuse("wrong_tenant", header.tenant, header.seq)
        due, prev = self._seq + 1, self._hash
        if self._first is None and not self._has_start and header.seq > 1:
            due, prev = header.seq, header.prev
        if header.seq != due:
            self._refuse("wrong_seq", f"entry {due} is due", header.seq)
        if header.prev != prev:
            self._refuse("wrong_prev", "the entry before has another hash", header.seq)
        if header.hash != recorded:
            self._refuse("wrong_hash", "the header hashes to something else", header.seq)
        if not is_time(header.at) or (self._at is not None and header.at < self._at):
            self._refuse("wrong_time", header.at, header.seq)
        self._check_body(header, body, is_left_out)
        self._accept(header, recorded, body)
        if self.on_entry:
            self.on_entry(header, body, is_left_out)
        if body is None:
            self._left_out += is_left_out
            self._lacks_keys |= is_left_out and header.kind in KINDS_OF_KEYS
            self._erased += not is_left_out
            if not is_left_out:
                self._untold.note(header.seq)
        elif header.kind == "bodies_erased":
            self._untold.read(body, header.seq)
        elif header.kind == "decision" and self.on_decision:
            self.on_decision(body)
        elif header.kind in KINDS_OF_KEYS and header.tenant == SYSTEM_TENANT and self._published:
            self._history.read(body)

    def _check_body(self, header, body, is_left_out):
        if body is None:
            if not is_left_out and header.kind not in ERASABLE_KINDS:
                detail = f"the body is gone, and an entry of the kind {header.kind} is never erased"
                self._refuse("untold", detail, header.seq)
            return
        if digest_text(sha256(body.encode())) != header.body:
            self._refuse("wrong_body", "the body hashes to something else", header.seq)
        if not canonical.is_canonical(body):
            self._refuse("body_not_canonical", "", header.seq)

    def _accept(self, header, recorded, body):
        if self._first is None:
            if header.seq == 1:
                self._tree = Edge()
            self._meet_held(header.seq, None)
        if self._tree is not None:
            self._tree.append(header.leaf)
            self._meet_held(header.seq, header.at)
        if self._first is None:
            self._first, self._tenant = header.seq, header.tenant
        self._seq, self._hash, self._at = header.seq, recorded, header.at
        if header.kind == "decision":
            self._answerable = (body,)
            self._unanswered += body is not None

    def _meet_held(self, seq, at):
        """Compares the tree with the checkpoints of its size that are held elsewhere."""
        while self._tree is not None and self._held and self._held[0].checkpoint.size == self._tree.size:
            trusted = self._held[0]
            if trusted.checkpoint.root != self._tree.root():
                self._refuse("wrong_root", f"a checkpoint of {self._tree.size} entries has another root", seq)
            if at is not None:
                self._at_last(trusted.check_covers, at, seq=seq)
            if self._agreed != self._tree.size:
                self._agreed, self._signers = self._tree.size, []
            self._signers.append(trusted.key.key)
            self._held.pop(0)

    def _at_last(self, check, *arguments, seq=None):
        """Runs a check whose finding is about the last entry."""
        try:
            return check(*arguments)
        except Finding as finding:
            self._refuse(finding.code, finding.detail, self._seq if seq is None else seq)

    def _push_answer(self, rest):
        if self._answerable is None:
            self._refuse("malformed_line", "an answer behind no decision")
        (body,), self._answerable = self._answerable, None
        self._at_last(self._check_answer, rest, body)
        self._answers += 1
        self._unanswered -= body is not None

    def _check_answer(self, rest, body):
        receipt = read_receipt(rest[:-1] if rest.endswith(b"}") else b"")
        if receipt.hash != self._hash:
            raise Finding("other_entry", "the receipt names another entry")
        if self._receipts:
            self._receipts.verify(receipt)
        else:
            receipt.root()
        if body is not None and canonical.parse(body).get("answer_hash") != receipt.answer_hash:
            raise Finding("other_answer", "the entry names another answer")

    def _check_end(self):
        note, proof = self._end
        if self._trust:
            trusted = self._at_last(self._trust.open, note)
            if self._tenant not in (None, trusted.tenant):
                self._refuse("wrong_tenant", trusted.tenant, self._seq)
            if self._at is not None:
                self._at_last(trusted.check_covers, self._at)
            checkpoint = trusted.checkpoint
        else:
            trusted, checkpoint = None, self._at_last(_read_checkpoint, note)
        self._end_size = checkpoint.size
        if self._first is not None:
            if self._tree is None:
                raise Finding("not_compared", "what is before the first entry is not known")
            tree = self._tree
            verify_consistency(tree.size, tree.root(), checkpoint.size, checkpoint.root, proof)
        return trusted


def _read_checkpoint(raw):
    return Checkpoint.parse(Note.parse(raw).text)


def _read_entry(text):
    layout = Layout(text, "malformed_line")
    layout.literal('{"header":')
    header = Header.read(layout)
    layout.literal(',"hash":')
    recorded = layout.digest()
    if text[layout.at :] == "}":
        return header, recorded, None, True
    layout.literal(',"body":')
    rest = text[layout.at :]
    body = rest[:-1]
    if not rest.endswith("}"):
        layout.refuse("}")
    if body == "null":
        return header, recorded, None, False
    if len(body) < 2 or body[0] != "{" or body[-1] != "}":
        layout.refuse("an object or null")
    return header, recorded, body, False


def _read_end(text):
    layout = Layout(text, "malformed_line")
    layout.literal('{"end":{"checkpoint":')
    note = layout.string()
    layout.literal(',"proof":')
    proof = layout.hashes()
    layout.literal("}}")
    layout.end()
    return note.encode(), proof
