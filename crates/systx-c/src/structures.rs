//! Structures that C gives and reads.

use libc::{c_char, size_t};

/// `struct systx_options`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct systx_options {
    /// In bytes, as the program was compiled.
    pub size: size_t,
    /// SYSTX_DURABLE or SYSTX_NOT_DURABLE.
    pub durability: u32,
    /// SYSTX_UNSUPPORTED_ABORT, SYSTX_UNSUPPORTED_DENY or SYSTX_UNSUPPORTED_ALLOW.
    pub unsupported: u32,
    /// Null: the name of the program.
    pub label: *const c_char,
    /// Of `systx_atomically`: most tries after the first; 0: 100.
    pub retries: u32,
    /// SYSTX_OLDEST, SYSTX_FIRST_COMMITTER or SYSTX_PRIORITY.
    pub policy: u32,
    /// With SYSTX_ORDERED: the number.
    pub sequence: u64,
    /// The longest wait in milliseconds, as of systx.h.
    pub stall_ms: u32,
    /// SYSTX_SERIALIZABLE or SYSTX_READ_COMMITTED.
    pub isolation: u32,
}

/// `struct systx_outcome`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct systx_outcome {
    /// In bytes, as the program was compiled.
    pub size: size_t,
    /// SYSTX_RUNNING and its likes.
    pub code: u32,
    /// Of SYSTX_FAILED: the number of the error.
    pub error: i32,
    /// 1 if a further try can help.
    pub can_retry: u32,
    /// Calls that were made outside.
    pub allowed: u32,
    /// Number of changes that were made public.
    pub steps: u64,
    /// Objects of others whose place was taken first.
    pub displaced: u64,
    /// The object that it is about, or null.
    pub path: *const c_char,
    /// A sentence.
    pub message: *const c_char,
}

/// Bytes of a token: as many as no one guesses.
const TOKEN_BYTES: usize = 16;

/// `struct systx_token`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct systx_token {
    /// Random.
    pub bytes: [u8; TOKEN_BYTES],
}
