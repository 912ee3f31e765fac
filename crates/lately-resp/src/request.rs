//! Writing requests, for clients and tests.

use crate::reply::write_decimal;

/// Appends a request with these arguments to `out`, as an array of bulk strings.
pub fn write_request(out: &mut Vec<u8>, args: &[&[u8]]) {
    out.push(b'*');
    write_decimal(out, args.len());
    out.extend_from_slice(b"\r\n");
    for arg in args {
        out.push(b'$');
        write_decimal(out, arg.len());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}
