//! Decides requests: finds the keys of a request, and asks the store or the server.

use std::sync::Arc;

use http::request::Parts;
use lately::limits::MAX_KEY_BYTES;
use lately::{Clock, Decision, JointRequest, Limit, LimitError, Request, Retry, Span, Store, Timestamp};
use lately_keys::Exempt;

use crate::answer::{Fields, Refusal};
use crate::error::DecideError;
use crate::peer::Addresses;
use crate::rule::Rule;
#[cfg(feature = "server")]
use crate::server::{Away, Server, ServerError};

/// Room for the usual key of a request: an address with its prefix. Longer ones take more.
const USUAL_KEY_BYTES: usize = 48;

/// Called with each request that could not be decided.
pub(crate) type OnError = Box<dyn Fn(&DecideError) + Send + Sync>;

/// All that a layer shares.
pub(crate) struct Decider {
    /// Those in shadow are last.
    pub(crate) rules: Vec<Rule>,
    pub(crate) addresses: Addresses,
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) has_headers: bool,
    pub(crate) on_error: OnError,
    #[cfg(feature = "server")]
    pub(crate) server: Option<Server>,
}

/// A limit that applies to a request, with the request's key.
pub(crate) struct Asked<'r> {
    pub(crate) rule: &'r Rule,
    pub(crate) key: Vec<u8>,
}

/// The decision of a limit about a request.
pub(crate) struct Quota<'r> {
    pub(crate) rule: &'r Rule,
    pub(crate) remaining: u64,
    pub(crate) retry: Retry,
    /// The time until more are left, if it is known.
    pub(crate) more_after: Option<Span>,
}

impl Quota<'_> {
    pub(crate) fn is_denial(&self) -> bool {
        self.retry != Retry::Now
    }
}

/// What becomes of a request.
pub(crate) enum Verdict {
    /// It is let through. The response gets these headers.
    Allow(Option<Fields>),
    Refuse(Refusal),
}

impl Decider {
    /// Whether decisions never wait: all keys are there at once, and the store decides.
    pub(crate) fn is_immediate(&self) -> bool {
        #[cfg(feature = "server")]
        if self.server.is_some() {
            return false;
        }
        self.rules.iter().all(|rule| rule.key.is_immediate())
    }

    /// Decides a request, and counts it if it is let through. Nothing is counted before all keys are known.
    pub(crate) async fn decide(&self, parts: &Parts) -> Verdict {
        let mut asked = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            match self.key_of(rule, parts).await {
                Ok(Some(key)) if !self.is_exempt(rule, &key, parts) => asked.push(Asked { rule, key }),
                Ok(_) => {}
                Err(error) => {
                    (self.on_error)(&error);
                    if !rule.is_shadow {
                        return Verdict::Refuse(Refusal::of(&error));
                    }
                }
            }
        }
        let first_shadow = asked.iter().position(|asked| asked.rule.is_shadow).unwrap_or(asked.len());
        let (enforced, shadows) = asked.split_at(first_shadow);
        let quotas = match self.ask(enforced).await {
            Ok(quotas) => quotas,
            Err(verdict) => return verdict,
        };
        let fields = if self.has_headers { Fields::of(&quotas) } else { None };
        if quotas.iter().any(Quota::is_denial) {
            quotas.iter().filter(|quota| quota.is_denial()).for_each(|quota| quota.rule.count_denial());
            return Verdict::Refuse(Refusal::denied(&quotas, fields));
        }
        for shadow in shadows {
            // An error was reported, and a shadow refuses nothing.
            if let Ok(quotas) = self.ask(std::slice::from_ref(shadow)).await {
                quotas.iter().filter(|quota| quota.is_denial()).for_each(|quota| quota.rule.count_denial());
            }
        }
        Verdict::Allow(fields)
    }

    /// The key of a request for a limit: its name, a colon, and what the limit's [`Key`](crate::Key) makes of the request.
    async fn key_of(&self, rule: &Rule, parts: &Parts) -> Result<Option<Vec<u8>>, DecideError> {
        let mut key = Vec::with_capacity(rule.name.len() + USUAL_KEY_BYTES);
        key.extend_from_slice(rule.name.as_bytes());
        key.push(b':');
        if !rule.key.append_to(&mut key, parts, &self.addresses).await? {
            return Ok(None);
        }
        let bytes = key.len();
        if bytes > MAX_KEY_BYTES {
            return Err(DecideError::KeyLength { limit: rule.name.clone(), bytes });
        }
        Ok(Some(key))
    }

    /// Whether a limit does not apply to a request with this key.
    fn is_exempt(&self, rule: &Rule, key: &[u8], parts: &Parts) -> bool {
        if rule.exempt.is_empty() {
            return false;
        }
        let client = self.addresses.client_address(parts);
        rule.exempt.iter().any(|exempt| match exempt {
            Exempt::Network(network) => client.is_some_and(|client| network.contains_address(client)),
            Exempt::Pattern(pattern) => pattern.matches(key),
        })
    }

    /// Decides by limits, all or nothing: all of them in shadow, or none.
    async fn ask<'r>(&self, asked: &[Asked<'r>]) -> Result<Vec<Quota<'r>>, Verdict> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        #[cfg(feature = "server")]
        if let Some(server) = &self.server {
            match self.ask_server(server, asked, now).await {
                Ok(quotas) => return Ok(quotas),
                Err(Away::Local) => {}
                Err(Away::Allow) => return Err(Verdict::Allow(None)),
                Err(Away::Deny) => {
                    let away = DecideError::Server(ServerError::Away);
                    return Err(Verdict::Refuse(Refusal::of(&away)));
                }
            }
        }
        self.ask_store(asked, now).map_err(|error| {
            let error = DecideError::Store(error);
            (self.on_error)(&error);
            Verdict::Refuse(Refusal::of(&error))
        })
    }

    fn ask_store<'r>(&self, asked: &[Asked<'r>], now: Timestamp) -> Result<Vec<Quota<'r>>, LimitError> {
        let quota = |asked: &Asked<'r>, decision: Decision| {
            let (remaining, retry) = (decision.left(), decision.retry);
            let more_after = self.more_after(asked, remaining, now);
            Quota { rule: asked.rule, remaining, retry, more_after }
        };
        // Limits in shadow come one by one.
        if let [only @ Asked { rule, key }] = asked {
            let request = Request::new(key, rule.max, rule.window, 1);
            let request = Request { is_shadow: rule.is_shadow, lockout: rule.starts(), ..request };
            return Ok(vec![quota(only, self.store.decide(request, now)?)]);
        }
        let limits =
            asked.iter().map(|Asked { rule, key }| Limit { key, max: rule.max, window: rule.window });
        let joint = JointRequest { limits: limits.collect(), cost: 1, at: None, is_peek: false };
        let mut decisions = self.store.decide_all(joint, now)?.decisions;
        for (Asked { rule, key }, decision) in asked.iter().zip(&mut decisions) {
            if rule.lockout.is_some() && !decision.is_allowed() {
                // No limit has more room at the same time: it is denied again, and starts the lockout.
                let request = Request::new(key, rule.max, rule.window, 1);
                *decision = self.store.decide(Request { lockout: rule.lockout, ..request }, now)?;
            }
        }
        Ok(asked.iter().zip(decisions).map(|(asked, decision)| quota(asked, decision)).collect())
    }

    /// How long until one more hit is free than is left now, for the headers.
    fn more_after(&self, asked: &Asked<'_>, remaining: u64, now: Timestamp) -> Option<Span> {
        let Asked { rule, key } = asked;
        if !self.has_headers || rule.is_shadow || remaining >= rule.max {
            return None;
        }
        let request = Request::new(key, rule.max, rule.window, remaining + 1);
        match self.store.decide(Request { is_peek: true, ..request }, now).ok()?.retry {
            Retry::After(wait) => Some(wait),
            Retry::Now | Retry::Never => None,
        }
    }

    /// Has the server decide. If it is away or refuses, returns what is to be done then.
    #[cfg(feature = "server")]
    async fn ask_server<'r>(
        &self,
        server: &Server,
        asked: &[Asked<'r>],
        now: Timestamp,
    ) -> Result<Vec<Quota<'r>>, Away> {
        if !server.may_be_asked(now) {
            return Err(server.away);
        }
        let quotas = server.decide(asked, now).await.map_err(|error| {
            (self.on_error)(&DecideError::Server(error));
            server.away
        })?;
        if server.away == Away::Local && !quotas.iter().any(Quota::is_denial) {
            // When the server is away, the local limits go on from what this process let through.
            for Asked { key, .. } in asked {
                let _ = self.store.hit(key, now);
            }
        }
        Ok(quotas)
    }
}
