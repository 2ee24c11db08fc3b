//! What storage promises, and the suite that every backend must pass.
