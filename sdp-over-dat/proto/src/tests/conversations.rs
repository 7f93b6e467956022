//! What two ends say to each other.
