//! The storage promises kept on SQLite.
