//! Commits with hand-made plans over the simulated machine: every step kind, cut at every call.

mod apart;
mod checkpointing;
mod contention;
mod covering;
mod crash;
mod disturbed;
mod forged;
mod found;
mod full;
mod group;
mod identity;
mod interleaving;
mod invariants;
mod life;
mod links;
mod log_end;
mod mutants;
mod outsider;
mod redone;
mod reference;
mod repeatable;
mod review;
mod shelf;
mod stuck;
mod times;
mod world;
