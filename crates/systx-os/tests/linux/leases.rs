//! Leases.

use systx_os::{Errno, Lease, Linux, Open, Os};

use crate::place::{alone, Place};

#[test]
fn a_write_lease_is_granted_only_to_whoever_is_alone() {
    let _alone = alone();
    let os = Linux::new();
    for place in Place::all() {
        let file = os.create(&place.dir, b"f", 0o600).unwrap();
        let other = os.open(&place.dir, b"f", Open::Read).unwrap();
        assert_eq!(os.lease(&file, Lease::Write), Err(Errno::AGAIN));
        assert_eq!(os.lease_held(&file), Ok(Lease::None));
        drop(other);
        let _identity_only = os.open(&place.dir, b"f", Open::Path).unwrap();
        os.lease(&file, Lease::Write).unwrap();
        assert_eq!(os.lease_held(&file), Ok(Lease::Write));
        os.lease(&file, Lease::None).unwrap();
        assert_eq!(os.lease_held(&file), Ok(Lease::None));
        os.lease(&file, Lease::None).unwrap();
    }
}

#[test]
fn a_break_is_seen_and_kills_nobody() {
    let _alone = alone();
    let os = Linux::new();
    for place in Place::all() {
        let file = os.create(&place.dir, b"f", 0o600).unwrap();
        os.lease(&file, Lease::Write).unwrap();
        assert_eq!(os.open(&place.dir, b"f", Open::Read).err(), Some(Errno::AGAIN));
        assert_eq!(os.lease_held(&file), Ok(Lease::Read));
        assert_eq!(os.open(&place.dir, b"f", Open::ReadWrite).err(), Some(Errno::AGAIN));
        assert_ne!(os.lease_held(&file), Ok(Lease::Write));
        os.lease(&file, Lease::None).unwrap();
        os.open(&place.dir, b"f", Open::ReadWrite).unwrap();
    }
}

#[test]
fn a_read_lease_is_refused_while_there_is_a_writer() {
    let _alone = alone();
    let os = Linux::new();
    for place in Place::all() {
        let writer = os.create(&place.dir, b"f", 0o600).unwrap();
        let reader = os.open(&place.dir, b"f", Open::Read).unwrap();
        assert_eq!(os.lease(&reader, Lease::Read), Err(Errno::AGAIN));
        drop(writer);
        let second_reader = os.open(&place.dir, b"f", Open::Read).unwrap();
        os.lease(&reader, Lease::Read).unwrap();
        assert_eq!(os.lease_held(&reader), Ok(Lease::Read));
        assert_eq!(os.open(&place.dir, b"f", Open::Write).err(), Some(Errno::AGAIN));
        assert_eq!(os.lease_held(&reader), Ok(Lease::None));
        drop(reader);
        os.open(&place.dir, b"f", Open::Write).unwrap();
        drop(second_reader);
    }
}
