//! Commands about the connection and the server: `HELLO`, `CLIENT`, `INFO` and others.

use lately::{Pattern, Timestamp};
use lately_resp::command::{ClientCommand, Hello, Verb, write_help};
use lately_resp::texts::HELLO_NOAUTH;
use lately_resp::{ArgList, Command, Encoder, Protocol, texts};

use super::{Flow, Session, info, integer};
use crate::REDIS_VERSION;
use crate::config::DEFAULT_USER;
use crate::service::clients::About;

impl Session {
    pub(super) fn connection_command(
        &mut self,
        command: &Command<'_>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Flow {
        if let Command::Hello(hello) = command {
            self.hello(hello, out);
            return Flow::Continue;
        }
        let mut reply = Encoder::new(out, self.protocol);
        match command {
            Command::Ping { message } if self.is_subscribed() && self.protocol == Protocol::V2 => {
                reply.array(2);
                reply.bulk("pong");
                reply.bulk(message.unwrap_or_default());
            }
            Command::Ping { message: None } => reply.simple("PONG"),
            Command::Ping { message: Some(message) } | Command::Echo { message } => reply.bulk(message),
            Command::Auth { user: None, .. } if self.service.users.get().is_open() => {
                reply.error(texts::AUTH_WITHOUT_PASSWORD);
            }
            Command::Auth { user, .. } => match self.log_in(user.unwrap_or(DEFAULT_USER.as_bytes())) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error),
            },
            Command::WhoAmI => reply.bulk(self.principal.name()),
            Command::Select => reply.ok(),
            Command::Client(client) => self.client(client, now, &mut reply),
            Command::Reset => {
                (self.protocol, self.transaction, self.subscription) = (Protocol::default(), None, None);
                self.principal = self.service.users.stranger();
                // The names of the library stay, as in Redis.
                self.client.change(|about| (about.name, about.protocol, about.user) = Default::default());
                reply.simple("RESET");
            }
            Command::Quit => {
                reply.ok();
                return Flow::Close;
            }
            Command::Command(query) => query.answer(&mut reply),
            Command::Info { sections } => {
                let may_read_all = self.principal.check(Some(Verb::Read), |_| None::<Option<()>>).is_ok();
                reply.verbatim(&info::text(&self.service, (*sections, may_read_all), now));
            }
            Command::ConfigGet { patterns } => self.config_get(*patterns, &mut reply),
            Command::Time => {
                let now = self.service.time_of(now);
                let (seconds, millis) = (now.as_millis() / 1_000, now.as_millis() % 1_000);
                reply.array(2);
                reply.bulk(seconds.to_string());
                reply.bulk((millis * 1_000).to_string());
            }
            Command::BackgroundSave => match self.service.journal() {
                Some(journal) => {
                    journal.want_checkpoint();
                    reply.simple("Background saving started");
                }
                None => reply.error("ERR counts are in memory only: there is nothing to save to"),
            },
            Command::LastSave => {
                let saved = self.service.journal().and_then(|journal| journal.stats().checkpoint_at);
                reply.integer(saved.unwrap_or(self.service.started).as_millis() / 1_000);
            }
            Command::Shutdown => return Flow::Shutdown,
            Command::ShutdownAbort => reply.error(texts::NO_SHUTDOWN),
            Command::Help { container } => write_help(&mut reply, *container),
            // `command` above handles the rest.
            _ => reply.error("ERR not a command of a connection"),
        }
        Flow::Continue
    }

    fn hello(&mut self, hello: &Hello<'_>, out: &mut Vec<u8>) {
        if let Some(Err(error)) = hello.auth.map(|(user, _)| self.log_in(user)) {
            Encoder::new(out, self.protocol).error(error);
            return;
        }
        if self.principal.is_nobody() {
            Encoder::new(out, self.protocol).error(HELLO_NOAUTH);
            return;
        }
        let protocol = hello.protocol.unwrap_or(self.protocol);
        self.protocol = protocol;
        self.client.change(|about| {
            about.protocol = protocol;
            if let Some(name) = hello.name {
                about.name = text(name);
            }
        });
        let mut reply = Encoder::new(out, protocol);
        reply.map(7);
        for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            reply.bulk(name);
            reply.bulk(value);
        }
        reply.bulk("proto");
        reply.integer(protocol.version());
        reply.bulk("id");
        reply.integer(integer(self.client.id()));
        for (name, value) in [("mode", "standalone"), ("role", "master")] {
            reply.bulk(name);
            reply.bulk(value);
        }
        reply.bulk("modules");
        reply.array(0);
    }

    /// Records the last command of this client. Inside `EXEC` that is `exec`, as in Redis.
    pub(super) fn asked_for_clients(&self, command: &'static str) {
        self.did(Some(if self.executed.is_some() { "exec" } else { command }));
    }

    fn client(&self, command: &ClientCommand<'_>, now: Timestamp, reply: &mut Encoder<'_>) {
        match command {
            ClientCommand::Id => reply.integer(integer(self.client.id())),
            ClientCommand::GetName => match self.client.about().name {
                name if name.is_empty() => reply.null(),
                name => reply.bulk(name),
            },
            ClientCommand::Info => {
                self.asked_for_clients("client|info");
                reply.verbatim(&(self.client.line(now) + "\n"));
            }
            ClientCommand::SetName(name) => self.about(|about| about.name = text(name), reply),
            ClientCommand::SetLibraryName(name) => self.about(|about| about.lib_name = text(name), reply),
            ClientCommand::SetLibraryVersion(version) => {
                self.about(|about| about.lib_version = text(version), reply);
            }
            // This server never evicts, tracks or mutes clients in these ways, so the request is already met.
            _ => reply.ok(),
        }
    }

    fn about(&self, change: impl FnOnce(&mut About), reply: &mut Encoder<'_>) {
        self.client.change(change);
        reply.ok();
    }

    fn config_get(&self, patterns: ArgList<'_>, reply: &mut Encoder<'_>) {
        let config = &self.service.config;
        let timeout = config.idle_timeout.map_or(0, |timeout| timeout.as_secs());
        let settings = [
            ("appendonly", if self.service.has_journal() { "yes" } else { "no" }.to_owned()),
            ("bind", config.resp.ip().to_string()),
            ("databases", "1".to_owned()),
            ("maxclients", self.service.most_clients().to_string()),
            ("maxmemory", config.ceiling_bytes.to_string()),
            ("port", config.resp.port().to_string()),
            ("proto-max-bulk-len", lately_resp::limits::MAX_BULK_BYTES.to_string()),
            ("save", String::new()),
            ("timeout", timeout.to_string()),
        ];
        let mut wanted = settings.each_ref().map(|_| false);
        for pattern in patterns.iter().map(|pattern| Pattern::new(&pattern.to_ascii_lowercase())) {
            for (wanted, (name, _)) in wanted.iter_mut().zip(&settings) {
                *wanted |= pattern.matches(name.as_bytes());
            }
        }
        let found = settings.iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(setting, _)| setting);
        reply.map(found.clone().count());
        for (name, value) in found {
            reply.bulk(name);
            reply.bulk(value);
        }
    }
}

/// The text of a name. The parser accepts printable ASCII only.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
