//! Lately and its rivals side by side. `cargo xtask bench` runs it; rivals are built nowhere else.

mod rounds;
mod row;

fn main() {}
