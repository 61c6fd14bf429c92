//! outsider tests
