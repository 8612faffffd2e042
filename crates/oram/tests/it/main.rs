//! Budgets and the privacy of updates, end to end.

mod budget;
mod update_privacy;
