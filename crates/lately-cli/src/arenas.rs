//! How many arenas the allocator has.
//!
//! By default glibc gives each thread an arena: what one thread frees of another's is no room for its own. Lists that several
//! threads grow in turn then take up to a fifth more memory. It can be told otherwise by a foreign function or, before a
//! program starts, by a variable of the environment; the latter needs no unsafe code. Other allocators do not know it.

use std::env;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::limits::THREADS_PER_ARENA;

/// Read by glibc when a program starts.
const VARIABLE: &str = "MALLOC_ARENA_MAX";

/// Starts this program anew, as the same process and with the same arguments, with as many arenas as so many threads
/// need; unless the environment has it already, or somebody said otherwise.
pub(crate) fn share(threads: NonZeroUsize) {
    if threads.get() == 1 || env::var_os(VARIABLE).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut command = Command::new(program);
    command.args(env::args_os().skip(1));
    command.env(VARIABLE, threads.get().div_ceil(THREADS_PER_ARENA).to_string());
    // Where that fails it goes on as it is: it takes more memory.
    let _failed = command.exec();
}
