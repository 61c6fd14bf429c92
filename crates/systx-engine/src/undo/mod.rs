//! Undoing a committed transaction: what is kept for it, and how it is restored.
//!
//! Owns: the *before-image* of a transaction ([`Image`]), the directory `undo/` of the area that holds them
//! ([`area`]), and the verbs that restore one. An undoable transaction keeps an image just before the commit
//! ([`Transaction::keep_image`]); others pay nothing. An undo is an ordinary transaction: it checks that
//! everything that the image names is as that commit left it ([`Transaction::look_at_image`]), which makes
//! facts of all of it, and restores it ([`Transaction::put_back`]). So the commit protocol decides about
//! changes meanwhile, and knows nothing of this. Guarantees: where anything differs, nothing is restored;
//! symbolic links are not followed. Does not: know which transactions have read the changes; give directories
//! whose names change back the time that they had; keep inode numbers.
//!
//! [`Transaction::keep_image`]: crate::transaction::Transaction::keep_image
//!
//! [`Transaction::look_at_image`]: crate::transaction::Transaction::look_at_image
//!
//! [`Transaction::put_back`]: crate::transaction::Transaction::put_back

mod again;
pub mod area;
mod back;
mod image;
mod keep;
mod look;

pub use crate::paths::on_the_way;
pub use image::{Dir, Image, Name, Range, State, Thing, Unreadable, IMAGE_VERSION};
pub use keep::Kept;
pub use look::{Differs, Looked};
