//! Writing requests, for clients and tests.

use crate::decimal::push_len;

/// Appends a request with these arguments to `out`, as an array of bulk strings.
pub fn write_request(out: &mut Vec<u8>, args: &[&[u8]]) {
    push_len(out, b'*', args.len());
    for arg in args {
        push_len(out, b'$', arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}
