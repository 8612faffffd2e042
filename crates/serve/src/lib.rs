//! Private lookup over gRPC.
