//! The software iWARP RNIC.
