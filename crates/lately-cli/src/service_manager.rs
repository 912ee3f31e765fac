//! Messages to the service manager that started the server, such as systemd with `Type=notify`.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use sd_notify::NotifyState;

use crate::output;

/// Whether the server was ready once.
static WAS_READY: AtomicBool = AtomicBool::new(false);

/// The server accepts clients.
pub(crate) fn ready() {
    WAS_READY.store(true, Relaxed);
    notify(&[NotifyState::Ready]);
}

/// The server reloads its configuration. [`ready`] follows. During a start nothing is sent: the server is not ready after it.
/// Returns whether it was sent.
pub(crate) fn reloading() -> bool {
    let was_ready = WAS_READY.load(Relaxed);
    // systemd compares the time with that of the reload that it requested (`Type=notify-reload`).
    if was_ready && let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
    was_ready
}

/// The server stops.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Sends states to the socket that `NOTIFY_SOCKET` names, if it names one. A failure is logged, and changes nothing else.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        output::message(&format_args!("lately: NOTIFY_SOCKET: the service manager was not reached: {error}"));
    }
}
