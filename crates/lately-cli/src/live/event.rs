//! The events that a live view waits for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use ratatui_crossterm::crossterm::event;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::error::CliError;
use crate::live::busiest::Answer;

#[derive(Debug)]
pub(crate) enum Event {
    /// Bytes of a stream, by its number.
    Piece { source: usize, bytes: Vec<u8> },
    /// The end of a stream, and the error if it was cut off.
    End { source: usize, failure: Option<io::Error> },
    /// A server answered, or did not.
    Answered(Result<Answer, CliError>),
    /// A key was pressed, or the terminal has another size.
    Terminal(event::Event),
    /// The keyboard cannot be read.
    NoKeyboard(io::Error),
    /// A signal arrived.
    Signal,
}

/// Set by a signal that ends the view.
pub(crate) type Stop = Arc<AtomicBool>;

/// Makes SIGINT, SIGTERM and SIGHUP end the view. A second signal ends the process, in case it is stuck.
pub(crate) fn catch_signals(events: &SyncSender<Event>) -> io::Result<Stop> {
    let stop = Stop::default();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let (events, stopped) = (events.clone(), Arc::clone(&stop));
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if stopped.swap(true, Ordering::Relaxed) {
                _ = emulate_default_handler(signal);
            }
            // If the queue is full, the flag is seen with the next event.
            _ = events.try_send(Event::Signal);
        }
    });
    Ok(stop)
}

/// Starts to read the keyboard.
pub(crate) fn read_keyboard(events: &SyncSender<Event>) {
    let events = events.clone();
    std::thread::spawn(move || {
        loop {
            let (next, is_last) = match event::read() {
                Ok(event) => (Event::Terminal(event), false),
                Err(error) => (Event::NoKeyboard(error), true),
            };
            if events.send(next).is_err() || is_last {
                return;
            }
        }
    });
}
