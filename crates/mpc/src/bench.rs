//! What garbling costs here.
