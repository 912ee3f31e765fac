//! Messages to the service manager that started the server, such as systemd with `Type=notify`.

use sd_notify::NotifyState;

use crate::output;

/// Sends a state to the socket that `NOTIFY_SOCKET` names, if it names one. A failure is logged, and changes nothing else.
pub(crate) fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        output::message(&format_args!("lately: NOTIFY_SOCKET: the service manager was not reached: {error}"));
    }
}
