//! The open listings of the process, by the pointers that C has.

use crate::border::zeros;
use crate::errors::held;
use crate::numbers::Handle;
use libc::{c_int, dirent};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use systx::posix::Entry;

/// SYSTX_DIR: C sees a pointer only.
pub struct Stream {
    pub number: c_int,
    pub handle: Arc<Handle>,
    /// `None`: it is read at the next look.
    pub entries: Option<std::vec::IntoIter<Entry>>,
    /// The entry that C was given last.
    pub given: Box<dirent>,
}

#[derive(Default)]
pub struct Streams(Mutex<HashMap<usize, Arc<Mutex<Stream>>>>);

impl Streams {
    pub fn add(&self, number: c_int, handle: Arc<Handle>) -> *mut Stream {
        let stream = Stream { number, handle, entries: None, given: Box::new(zeros()) };
        let stream = Arc::new(Mutex::new(stream));
        let name = Arc::as_ptr(&stream) as usize;
        held(&self.0).insert(name, stream);
        name as *mut Stream
    }

    pub fn get(&self, name: *mut Stream) -> Option<Arc<Mutex<Stream>>> {
        held(&self.0).get(&(name as usize)).cloned()
    }

    pub fn remove(&self, name: *mut Stream) -> Option<Arc<Mutex<Stream>>> {
        held(&self.0).remove(&(name as usize))
    }
}
