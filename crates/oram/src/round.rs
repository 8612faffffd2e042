//! (being built) See the signatures in /tmp/round.txt
