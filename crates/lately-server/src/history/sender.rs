//! Sends the panes of one history, one after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lately::{Pattern, Timestamp};
use tokio::time::timeout;

use super::keys::Keys;
use super::message::KeyHits;
use super::plan::{Next, Panes};
use super::position::Position;
use super::receiver::{Receiver, Sent};
use crate::config::History;
use crate::limits::{
    HISTORY_AHEAD, HISTORY_LOOK, HISTORY_POSITION_EVERY, LAST_EXPORT_TIMEOUT, MAX_RETRY_PAUSE, RETRY_PAUSE,
    SAMPLES_A_REQUEST, SPLITS_A_PANE,
};
use crate::log::Log;
use crate::pause::pause;
use crate::service::history::{HistoryState, Pane, PaneWalk};
use crate::service::{Service, Stats};
use crate::stopper::Stopper;

/// Memory of a sample beside the bytes of its key.
const SAMPLE_BYTES: usize = 40;

pub(super) struct Sender {
    state: Arc<HistoryState>,
    service: Arc<Service>,
    log: Log,
    pattern: Pattern,
    panes: Panes,
    position: Arc<Position>,
    receiver: Receiver,
    keys: Keys,
    /// Whether the log has the current failure of the receiver, and that of the disk.
    is_failing: bool,
    is_disk_failing: bool,
    /// Whether the log has that keys are left out, that samples are refused, and that hits are not known exactly.
    are_left_out: bool,
    is_refused: bool,
    are_skipped: bool,
}

impl Sender {
    pub(super) fn new(
        history: &History,
        state: Arc<HistoryState>,
        service: Arc<Service>,
        log: Log,
    ) -> Sender {
        let config = &service.config;
        let node = config.cluster.as_ref().map(|cluster| cluster.node.as_str());
        let folder = config.storage.as_ref().map(|storage| storage.path.clone());
        Sender {
            state,
            pattern: history.pattern.clone(),
            panes: Panes {
                interval: history.interval,
                delay: history.delay,
                settings: history.settings(&config.classes),
            },
            position: Arc::new(Position::new(folder, &history.name)),
            receiver: Receiver::new(history, node),
            keys: Keys::new(history.max_keys),
            is_failing: false,
            is_disk_failing: false,
            are_left_out: false,
            is_refused: false,
            are_skipped: false,
            service,
            log,
        }
    }

    /// Sends until the server stops. A request that is under way is finished.
    pub(super) async fn keep(mut self, stopper: Stopper) {
        let mut work = std::pin::pin!(self.work());
        tokio::select! {
            () = &mut work => {}
            () = stopper.stopped() => {
                let _ = timeout(LAST_EXPORT_TIMEOUT, work).await;
            }
        }
    }

    async fn work(&mut self) {
        while self.service.is_loading() {
            pause(Duration::from_millis(50)).await;
        }
        let Some(mut sent_to) = self.begin().await else { return };
        let mut written = sent_to;
        loop {
            self.state.sent_to(sent_to);
            let now = self.now();
            let (to, has_samples) = match self.panes.next(sent_to, now) {
                Next::Wait(until) => {
                    let ms = u64::try_from(until.as_millis() - now.as_millis()).unwrap_or(0);
                    // The clock may be set meanwhile.
                    pause(Duration::from_millis(ms.max(1)).min(HISTORY_LOOK)).await;
                    continue;
                }
                Next::Skip(to) => {
                    let ms = u64::try_from(to.as_millis() - sent_to.as_millis()).unwrap_or(0);
                    Stats::add(&self.state.skipped_ms, ms);
                    self.say(&format!(
                        "the hits of {} s are not sent: their panes were merged into wider ones, or are older than the retention",
                        ms.div_ceil(1_000)
                    ));
                    (to, false)
                }
                Next::Pane(pane) => (pane.to, self.send_pane(pane).await),
            };
            // Without samples, nothing would be sent again.
            if has_samples || to.as_millis() - written.as_millis() >= HISTORY_POSITION_EVERY.as_millis() {
                self.write(to).await;
                written = to;
            }
            sent_to = to;
        }
    }

    /// How far the history was sent: a new one begins with the pane in which the server started. Hits may have come since.
    async fn begin(&mut self) -> Option<Timestamp> {
        let position = Arc::clone(&self.position);
        let read = tokio::task::spawn_blocking(move || position.read()).await;
        let known = match read.expect("a panic is a bug that has been reported") {
            Ok(known) => known,
            Err(error) => {
                self.say(&format!("nothing is sent: {error}"));
                return None;
            }
        };
        let current = self.panes.start_of(self.service.started);
        match known {
            Some(known) if known.as_millis() - current.as_millis() > HISTORY_AHEAD.as_millis() => {
                let s = (known.as_millis() - current.as_millis()) / 1_000;
                self.say(&format!(
                    "it was sent up to {s} s after now, when the clock was wrong: it goes on from now"
                ));
                self.write(current).await;
                Some(current)
            }
            Some(known) => Some(known),
            None => {
                self.write(current).await;
                Some(current)
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.service.time_of(self.service.now())
    }

    fn say(&self, what: &str) {
        (self.log)(&format!("history {}: {what}", self.state.name));
    }

    /// Writes how far the history was sent, again and again until it succeeds.
    async fn write(&mut self, sent_to: Timestamp) {
        let mut next = RETRY_PAUSE;
        loop {
            let position = Arc::clone(&self.position);
            let written = tokio::task::spawn_blocking(move || position.write(sent_to)).await;
            match written.expect("a panic is a bug that has been reported") {
                Ok(()) => {
                    if std::mem::take(&mut self.is_disk_failing) {
                        self.say("the position is written again");
                    }
                    return;
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_disk_failing, true) {
                        self.say(&format!("nothing is sent until this can be written: {error}"));
                    }
                    pause(next).await;
                    next = (next * 2).min(MAX_RETRY_PAUSE);
                }
            }
        }
    }

    /// Notes that a request failed that is sent again, and logs it once.
    fn fail(&mut self, why: &str) {
        Stats::add(&self.state.failures, 1);
        if !std::mem::replace(&mut self.is_failing, true) {
            self.say(&format!("{why}: it is tried again"));
        }
    }

    /// Sends the hits of a pane, and returns when the receiver has or has refused all of them. Returns whether there were any.
    async fn send_pane(&mut self, pane: Pane) -> bool {
        let samples = self.read(pane).await;
        let mut splits = SPLITS_A_PANE;
        let (mut refused, mut first): (u64, Option<String>) = (0, None);
        // The last one is the next: parts are pushed in reverse.
        let mut open: Vec<&[KeyHits]> = samples.chunks(SAMPLES_A_REQUEST).rev().collect();
        while let Some(part) = open.pop() {
            let of_part = match self.send(part, pane).await {
                Ok(()) => 0,
                Err(Refusal { samples: None, .. }) if part.len() > 1 && splits > 0 => {
                    splits -= 1;
                    let (first, second) = part.split_at(part.len() / 2);
                    open.extend([second, first]);
                    continue;
                }
                Err(Refusal { why, samples }) => {
                    let key = String::from_utf8_lossy(&part[0].0).escape_debug().to_string();
                    first.get_or_insert(format!("the first of the key {key} or after it: {why}"));
                    samples.unwrap_or(part.len() as u64)
                }
            };
            refused += of_part;
            Stats::add(&self.state.refused_samples, of_part);
            Stats::add(&self.state.samples, part.len() as u64 - of_part);
        }
        self.hold(0);
        let was_refused = std::mem::replace(&mut self.is_refused, first.is_some());
        if let Some(first) = first.filter(|_| !was_refused) {
            let url = &self.receiver.url;
            self.say(&format!("{url} refused {refused} of {} samples of a pane, {first}", samples.len()));
        }
        !samples.is_empty()
    }

    /// Sends a request until the receiver takes or refuses it.
    async fn send(&mut self, samples: &[KeyHits], pane: Pane) -> Result<(), Refusal> {
        let mut next = RETRY_PAUSE;
        loop {
            let sent = self.receiver.send(samples, pane).await;
            let url = &self.receiver.url;
            if !matches!(sent, Sent::Later(..)) && std::mem::take(&mut self.is_failing) {
                self.say(&format!("{url} takes samples again"));
            }
            match sent {
                Sent::Taken => return Ok(()),
                Sent::InPart(refused, why) => return Err(Refusal { why, samples: Some(refused) }),
                Sent::Refused(why) => return Err(Refusal { why, samples: None }),
                Sent::Later(why, after) => {
                    self.fail(&format!("{url} did not take samples: {why}"));
                    pause(after.map_or(next, |after| after.max(next))).await;
                    next = (next * 2).min(MAX_RETRY_PAUSE);
                }
            }
        }
    }

    /// Reads the hits of a pane.
    async fn read(&mut self, pane: Pane) -> Vec<KeyHits> {
        let service = Arc::clone(&self.service);
        // Hits from here on that name an earlier time may be too late.
        self.state.read_to(pane.to);
        // Hits before that are committed, or rolled back.
        let quiesced = Arc::clone(&service);
        let quiesced = tokio::task::spawn_blocking(move || quiesced.quiesce()).await;
        quiesced.expect("a panic is a bug that has been reported");
        let (mut walk, mut found, mut samples) = (PaneWalk::new(&self.pattern, pane), Vec::new(), Vec::new());
        let (mut left_out, mut left_out_keys, mut skipped, mut sample_bytes) = (0_u64, 0_u64, 0_u64, 0);
        self.keys.begin();
        loop {
            let is_last = walk.step(&service, self.now(), &mut found);
            for (key, hits) in found.drain(..) {
                match hits {
                    None => skipped += 1,
                    Some(hits) if self.keys.admit(&key, pane.to.as_millis()) => {
                        sample_bytes += key.len() + SAMPLE_BYTES;
                        samples.push((key, hits));
                    }
                    Some(hits) => {
                        left_out = left_out.saturating_add(hits);
                        left_out_keys += u64::from(hits > 0);
                    }
                }
            }
            self.hold(sample_bytes);
            if is_last {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.note_rest((left_out, left_out_keys), skipped);
        samples
    }

    /// Notes what is not among the samples of a pane.
    fn note_rest(&mut self, (left_out, left_out_keys): (u64, u64), skipped: u64) {
        Stats::add(&self.state.left_out_hits, left_out);
        if left_out == 0 {
            self.are_left_out = false;
        } else if !std::mem::replace(&mut self.are_left_out, true) {
            self.say(&format!(
                "{left_out_keys} keys are left out: there are more than max_keys, which is {}: raise it, or have match name fewer keys",
                self.keys.most()
            ));
        }
        Stats::add(&self.state.skipped_panes, skipped);
        if skipped == 0 {
            self.are_skipped = false;
        } else if !std::mem::replace(&mut self.are_skipped, true) {
            self.say(&format!(
                "{skipped} keys are left out of a pane: their hits came with wider panes, so they are not known exactly"
            ));
        }
    }

    /// Notes the memory of keys and samples. The server charges it.
    fn hold(&self, sample_bytes: usize) {
        self.state.keys.store(self.keys.len(), Relaxed);
        self.state.held_bytes.store(self.keys.held_bytes() + sample_bytes, Relaxed);
    }
}

/// Samples that a receiver will not take.
struct Refusal {
    why: String,
    /// How many, if some were taken.
    samples: Option<u64>,
}
