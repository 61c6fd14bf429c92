//! One sync for all who wait: it answers only for what was in the log when it began.

use super::stuck::make;
use super::world::*;
use systx_os::FsKind;
use systx_sim::machine::{run_process, Crash, Schedule, SimOs};

#[test]
fn a_commit_that_the_sync_of_another_acknowledges_is_on_the_disk() {
    let start = machine(FsKind::Ext4);
    for seed in 0..200 {
        let machine = start.fork();
        let client = |name: &'static str| -> (SimOs, Box<dyn FnOnce() + Send>) {
            let os = machine.spawn(name);
            let domain = run_process(&os, || open(&os).expect("opens")).expect("lives");
            (os, Box::new(move || drop(make(&domain, name.as_bytes()).expect("commits"))))
        };
        let names = ["one", "two", "three"];
        Schedule::run(seed, names.map(client).into());
        machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(seed));
        let helper = machine.spawn("helper");
        run_process(&helper, || drop(open(&helper).expect("opens"))).expect("lives");
        let tree = public(&machine);
        let lost: Vec<_> = names.iter().filter(|name| !tree.contains_key(&format!("w/{name}"))).collect();
        assert!(lost.is_empty(), "seed {seed}: acknowledged, and lost: {lost:?}");
    }
}
