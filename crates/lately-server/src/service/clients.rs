//! The connected clients, for `CLIENT LIST` and `INFO`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec;

use lately::Timestamp;
use lately_resp::Protocol;
use lately_resp::command::WhichClients;

use crate::config::DEFAULT_USER;
use crate::limits::CLIENTS_STEP;

/// All connected clients, by id.
#[derive(Default, Debug)]
pub(crate) struct Clients(Mutex<State>);

#[derive(Default, Debug)]
struct State {
    last_id: u64,
    connected: BTreeMap<u64, Arc<Client>>,
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct Client {
    id: u64,
    address: SocketAddr,
    local_address: SocketAddr,
    connected_at: Timestamp,
    last_command_ms: AtomicI64,
    about: Mutex<About>,
    doing: Mutex<Doing>,
}

/// The last activity of a client.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Doing {
    /// The name of its last command, if it is known. A subcommand is written `client|list`.
    pub(crate) command: Option<&'static str>,
    /// Commands queued since `MULTI`; `None` outside a transaction.
    pub(crate) queued: Option<usize>,
    /// Whether it gets alerts as messages.
    pub(crate) is_subscribed: bool,
}

/// The names that a client set for itself.
#[derive(Clone, Default, Debug)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) lib_name: String,
    pub(crate) lib_version: String,
    pub(crate) protocol: Protocol,
    /// The user, once it has logged in.
    pub(crate) user: Option<String>,
}

impl Clients {
    pub(crate) fn connect(
        &self,
        address: SocketAddr,
        local_address: SocketAddr,
        now: Timestamp,
    ) -> Arc<Client> {
        let mut state = locked(&self.0);
        state.last_id += 1;
        let client = Arc::new(Client {
            id: state.last_id,
            address,
            local_address,
            connected_at: now,
            last_command_ms: AtomicI64::new(now.as_millis()),
            about: Mutex::default(),
            doing: Mutex::default(),
        });
        state.connected.insert(client.id, Arc::clone(&client));
        client
    }

    pub(crate) fn disconnect(&self, client: &Client) {
        locked(&self.0).connected.remove(&client.id);
    }

    pub(crate) fn len(&self) -> usize {
        locked(&self.0).connected.len()
    }

    /// The selected clients, oldest first.
    pub(crate) fn list(&self, which: WhichClients<'_>) -> ClientsWalk {
        let ids = which.ids();
        let is_wanted = |client: &&Arc<Client>| match which {
            WhichClients::Normal => !locked(&client.doing).is_subscribed,
            WhichClients::Subscribed => locked(&client.doing).is_subscribed,
            _ => ids.as_ref().is_none_or(|ids| ids.contains(&client.id)),
        };
        let clients: Vec<_> = locked(&self.0).connected.values().filter(is_wanted).cloned().collect();
        ClientsWalk { clients: clients.into_iter(), text: String::new() }
    }
}

/// The lines of clients, written a slice at a time.
pub(crate) struct ClientsWalk {
    clients: vec::IntoIter<Arc<Client>>,
    text: String,
}

impl ClientsWalk {
    /// Whether one slice finishes it.
    pub(crate) fn is_short(&self) -> bool {
        self.clients.len() <= CLIENTS_STEP
    }

    /// Writes the next slice. True at the end.
    pub(crate) fn step(&mut self, now: Timestamp) -> bool {
        for client in self.clients.by_ref().take(CLIENTS_STEP) {
            self.text += &client.line(now);
            self.text.push('\n');
        }
        self.clients.len() == 0
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.text.capacity() + self.clients.len() * size_of::<Arc<Client>>()
    }
}

impl Client {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The address that it connected from.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn about(&self) -> About {
        locked(&self.about).clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut About)) {
        change(&mut locked(&self.about));
    }

    pub(crate) fn did(&self, doing: Doing) {
        *locked(&self.doing) = doing;
    }

    pub(crate) fn seen(&self, now: Timestamp) {
        self.last_command_ms.store(now.as_millis(), Relaxed);
    }

    /// The client in the form of `CLIENT LIST`.
    pub(crate) fn line(&self, now: Timestamp) -> String {
        let About { name, lib_name, lib_version, protocol, user } = self.about();
        let user = user.as_deref().unwrap_or(DEFAULT_USER);
        let Doing { command, queued, is_subscribed } = *locked(&self.doing);
        let command = command.unwrap_or("NULL");
        let flags = match (is_subscribed, queued.is_some()) {
            (false, false) => "N",
            (false, true) => "x",
            (true, false) => "P",
            (true, true) => "Px",
        };
        let subscriptions = u8::from(is_subscribed);
        let multi = queued.map_or(-1, |queued| i64::try_from(queued).unwrap_or(i64::MAX));
        let seconds_since = |then_ms: i64| (now.as_millis() - then_ms).max(0) / 1_000;
        format!(
            "id={} addr={} laddr={} name={name} age={} idle={} flags={flags} db=0 sub={subscriptions} psub=0 multi={multi} cmd={command} user={user} lib-name={lib_name} lib-ver={lib_version} resp={}",
            self.id,
            self.address,
            self.local_address,
            seconds_since(self.connected_at.as_millis()),
            seconds_since(self.last_command_ms.load(Relaxed)),
            protocol.version(),
        )
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
