//! Every message in every situation.
