//! Of hybrid inference.
