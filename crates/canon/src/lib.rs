//! Canonical bytes of a JSON text (RFC 8785) and their SHA-256 digest.
