//! Harness for the stack suites.
