//! Who is connected: what `CLIENT LIST` and `INFO` tell.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use lately::Timestamp;
use lately_resp::Protocol;

/// All connected clients, by id.
#[derive(Default, Debug)]
pub(crate) struct Clients {
    state: Mutex<State>,
    /// Time since the start, as of the last look at it: good enough for who is idle, and free to read.
    uptime_ms: AtomicU64,
}

#[derive(Default, Debug)]
struct State {
    last_id: u64,
    connected: BTreeMap<u64, Arc<Client>>,
    /// Whoever comes now is told to leave at once.
    closed: bool,
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct Client {
    id: u64,
    address: SocketAddr,
    local_address: SocketAddr,
    connected_at: Timestamp,
    last_command_ms: AtomicI64,
    /// On the clock of [`Clients::pass`].
    active_ms: AtomicU64,
    about: Mutex<About>,
    call: Mutex<Call>,
}

/// How a connection that waits is told to leave.
#[derive(Default, Debug)]
struct Call {
    called: bool,
    waiting: Option<Waker>,
}

/// What a client said of itself.
#[derive(Clone, Default, Debug)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) lib_name: String,
    pub(crate) lib_version: String,
    pub(crate) protocol: Protocol,
}

impl Clients {
    pub(crate) fn connect(
        &self,
        address: SocketAddr,
        local_address: SocketAddr,
        now: Timestamp,
    ) -> Arc<Client> {
        let mut state = locked(&self.state);
        state.last_id += 1;
        let client = Arc::new(Client {
            id: state.last_id,
            address,
            local_address,
            connected_at: now,
            last_command_ms: AtomicI64::new(now.as_millis()),
            active_ms: AtomicU64::new(self.uptime_ms.load(Relaxed)),
            about: Mutex::default(),
            call: Mutex::new(Call { called: state.closed, waiting: None }),
        });
        state.connected.insert(client.id, Arc::clone(&client));
        client
    }

    pub(crate) fn disconnect(&self, client: &Client) {
        locked(&self.state).connected.remove(&client.id);
    }

    pub(crate) fn len(&self) -> usize {
        locked(&self.state).connected.len()
    }

    /// Tells all clients to leave, those to come included.
    pub(crate) fn call_all(&self) {
        let mut state = locked(&self.state);
        state.closed = true;
        state.connected.values().for_each(|client| client.call());
    }

    /// Moves the clock that idleness goes by.
    pub(crate) fn pass(&self, uptime: Duration) {
        self.uptime_ms.store(millis(uptime), Relaxed);
    }

    /// Tells those to leave who were silent for `idle`. The clock may be `slack` behind.
    pub(crate) fn call_idle(&self, idle: Duration, slack: Duration) {
        let uptime_ms = self.uptime_ms.load(Relaxed);
        let most_ms = millis(idle.saturating_add(slack));
        let silent =
            |client: &&Arc<Client>| uptime_ms - client.active_ms.load(Relaxed).min(uptime_ms) >= most_ms;
        locked(&self.state).connected.values().filter(silent).for_each(|client| client.call());
    }

    /// A line for each client, oldest first.
    pub(crate) fn list(&self, now: Timestamp) -> String {
        let clients: Vec<_> = locked(&self.state).connected.values().cloned().collect();
        clients.iter().map(|client| client.line(now) + "\n").collect()
    }
}

impl Client {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn about(&self) -> About {
        locked(&self.about).clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut About)) {
        change(&mut locked(&self.about));
    }

    pub(crate) fn seen(&self, now: Timestamp, clients: &Clients) {
        self.last_command_ms.store(now.as_millis(), Relaxed);
        self.active_ms.store(clients.uptime_ms.load(Relaxed), Relaxed);
    }

    fn call(&self) {
        let mut call = locked(&self.call);
        call.called = true;
        if let Some(waker) = call.waiting.take() {
            waker.wake();
        }
    }

    /// Whether the client is to leave; if not, `waker` is woken when it is.
    pub(crate) fn is_called(&self, waker: &Waker) -> bool {
        let mut call = locked(&self.call);
        if !call.called && !call.waiting.as_ref().is_some_and(|waiting| waiting.will_wake(waker)) {
            call.waiting = Some(waker.clone());
        }
        call.called
    }

    /// The client in the form of `CLIENT LIST`.
    pub(crate) fn line(&self, now: Timestamp) -> String {
        let About { name, lib_name, lib_version, protocol } = self.about();
        let seconds_since = |then_ms: i64| (now.as_millis() - then_ms).max(0) / 1_000;
        format!(
            "id={} addr={} laddr={} name={name} age={} idle={} flags=N db=0 sub=0 psub=0 multi=-1 cmd=NULL user=default lib-name={lib_name} lib-ver={lib_version} resp={}",
            self.id,
            self.address,
            self.local_address,
            seconds_since(self.connected_at.as_millis()),
            seconds_since(self.last_command_ms.load(Relaxed)),
            protocol.version(),
        )
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
