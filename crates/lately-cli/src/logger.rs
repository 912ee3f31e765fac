//! The log of a server: messages to standard error. That may be a pipe that nobody reads, so one thread writes them, and nothing else waits.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::limits::MAX_LOG_BYTES;

/// Messages on their way to a thread that writes them.
pub(crate) struct Logger(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Messages without their newlines, oldest first, and their bytes.
    waiting: VecDeque<String>,
    bytes: usize,
    /// Messages for which there was no room since the last one that was written.
    dropped: u64,
    is_writing: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0 && !self.is_writing
    }

    fn take(&mut self) -> Option<String> {
        let Some(line) = self.waiting.pop_front() else {
            let dropped = std::mem::take(&mut self.dropped);
            let messages = if dropped == 1 { "message was" } else { "messages were" };
            return (dropped > 0)
                .then(|| format!("lately: {dropped} {messages} dropped: nobody had read standard error"));
        };
        self.bytes -= line.len();
        Some(line)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes messages as they come.
    fn write(&self, mut to: impl Write) -> ! {
        let mut state = self.lock();
        loop {
            let Some(line) = state.take() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.is_writing = true;
            drop(state);
            // There is no place to report that standard error failed.
            _ = writeln!(to, "{line}").and_then(|()| to.flush());
            state = self.lock();
            state.is_writing = false;
            self.changed.notify_all();
        }
    }
}

impl Logger {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gave no thread.
    pub(crate) fn start(to: impl Write + Send + 'static) -> io::Result<Logger> {
        let queue = Arc::<Queue>::default();
        let writer = Arc::clone(&queue);
        thread::Builder::new().name("log".to_owned()).spawn(move || writer.write(to))?;
        Ok(Logger(queue))
    }

    /// Gives a message to the thread. When [`MAX_LOG_BYTES`] wait, it is dropped, and counted.
    pub(crate) fn log(&self, line: String) {
        let mut state = self.0.lock();
        if state.bytes + line.len() > MAX_LOG_BYTES && !state.waiting.is_empty() {
            state.dropped += 1;
            return;
        }
        state.bytes += line.len();
        state.waiting.push_back(line);
        self.0.changed.notify_all();
    }

    /// Waits until all messages are written, for this long at most.
    pub(crate) fn flush(&self, patience: Duration) {
        let state = self.0.lock();
        drop(self.0.changed.wait_timeout_while(state, patience, |state| !state.is_idle()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Each message waits until the test lets it through.
    struct Gate {
        opened: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            _ = self.written.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            _ = self.opened.recv();
            Ok(())
        }
    }

    #[test]
    fn messages_that_nobody_reads_are_dropped_and_counted() {
        let ((open, opened), (written, read)) = (channel(), channel());
        let logger = Logger::start(Gate { opened, written }).expect("a thread");
        logger.log("first".to_owned());
        let line = || {
            let mut bytes = Vec::new();
            while bytes.last() != Some(&b'\n') {
                bytes.extend(read.recv().expect("the thread runs"));
            }
            String::from_utf8(bytes).expect("text")
        };
        assert_eq!(line(), "first\n");
        // It is being written. Further ones wait, as far as there is room.
        let long = "x".repeat(MAX_LOG_BYTES / 2);
        for _ in 0..5 {
            logger.log(long.clone());
        }
        logger.flush(Duration::ZERO);
        for _ in 0..4 {
            open.send(()).expect("the thread runs");
        }
        assert_eq!((line(), line()), (format!("{long}\n"), format!("{long}\n")));
        assert_eq!(line(), "lately: 3 messages were dropped: nobody had read standard error\n");
        logger.log("last".to_owned());
        open.send(()).expect("the thread runs");
        assert_eq!(line(), "last\n");
        logger.flush(Duration::MAX);
        assert!(logger.0.lock().is_idle());
    }
}
