//! Recommendation models (DLRM) under CKKS (Garimella et al., "HE-LRM").
