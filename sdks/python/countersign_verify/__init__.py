"""Verifies what Countersign hands out: receipts, proofs, checkpoints and exported ledgers.

Written from docs/receipt-format.md, to be read beside it: the standard library and `cryptography`, no network, no clock. Whatever is
wrong is a `Finding` with the word that the page lists.
"""

from .encoding import Finding
from .evidence import EvidenceReport, verify_evidence
from .exports import ExportReport, ExportVerifier
from .keys import KeySet, VerifierKey
from .notes import Checkpoint, Trust, TrustedCheckpoint
from .proofs import ProvenEntry, verify_proof
from .receipts import Receipt, ReceiptVerifier, read_receipt

__all__ = [
    "Checkpoint",
    "EvidenceReport",
    "ExportReport",
    "ExportVerifier",
    "Finding",
    "KeySet",
    "ProvenEntry",
    "Receipt",
    "ReceiptVerifier",
    "Trust",
    "TrustedCheckpoint",
    "VerifierKey",
    "read_receipt",
    "verify_evidence",
    "verify_proof",
]
