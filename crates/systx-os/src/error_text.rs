//! The kernel's errors in words.

use crate::types::Errno;
use std::ffi::CStr;

/// Returns what the C library says of an error, without its number.
///
/// Source: strerror_r(3).
pub fn error_text(error: Errno) -> String {
    // The longest text of glibc has 49 bytes.
    let mut text = [0_u8; 256];
    // SAFETY: the call writes at most `text.len()` bytes to `text`, which outlives it, and keeps no pointer.
    unsafe { libc::strerror_r(error.raw_os_error(), text.as_mut_ptr().cast(), text.len()) };
    // Of an unknown number it says so.
    CStr::from_bytes_until_nul(&text)
        .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_library_without_the_number() {
        for error in [Errno::NOENT, Errno::IO, Errno::NOSPC] {
            assert_eq!(
                error.to_string(),
                format!("{} (os error {})", error_text(error), error.raw_os_error())
            );
        }
    }
}
