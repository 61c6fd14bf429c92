//! Commits with hand-made plans over the simulated machine: every step kind, cut at every call.

mod crash;
mod interleaving;
mod outsider;
mod review;
mod world;
