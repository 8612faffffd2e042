//! Budgets and the privacy of updates, end to end; whole clients of training servers over a simulated network.

mod budget;
mod session;
mod update_privacy;
