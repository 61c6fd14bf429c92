//! Measures one compare-and-exchange on a file that is open elsewhere, beside a fork that does nothing.
//!
//! `cargo run --release -p systx-os --example exchange [MEBIBYTES]`, with so much memory resident.

use std::os::fd::AsFd;
use std::time::Instant;
use systx_os::{Linux, Open, Os};

fn main() {
    let mebibytes: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let resident = vec![1u8; mebibytes << 20];
    let (os, calls) = (Linux::new(), 200u64);
    let dir = os.open_path(&std::env::temp_dir(), Open::Directory).expect("there is one");
    let file = os.tmpfile(&dir, 0o600).expect("makes a file");
    os.pwrite(&file, &[0; 512], 0).expect("writes");
    let mut images = [[1u8; 512], [0u8; 512]];
    let each = |name: &str, calls: u64, work: &mut dyn FnMut()| {
        let mut least = u128::MAX;
        let began = Instant::now();
        for _ in 0..calls {
            let one = Instant::now();
            work();
            least = least.min(one.elapsed().as_nanos());
        }
        println!("{name}: {} ns a call, at least {least} ns", began.elapsed().as_nanos() / u128::from(calls));
    };
    each("compare_exchange", calls, &mut || {
        images.swap(0, 1);
        assert_eq!(os.compare_exchange(&file, 0, &images[0], &images[1]), Ok(true));
    });
    each("fork and wait", 20, &mut || {
        // SAFETY: the child does nothing but end.
        match unsafe { libc::fork() } {
            // SAFETY: as above.
            0 => unsafe { libc::_exit(0) },
            // SAFETY: a child of ours; no status is asked for.
            child => assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child),
        }
    });
    assert!(rustix::fs::fstat(file.as_fd()).is_ok() && resident.iter().step_by(4096).all(|byte| *byte == 1));
}
