//! Logins: who waits, for how long, and one thread that verifies passwords.
//!
//! A password that was right before is known, and a login with it takes no time. Any other has to be verified, which takes
//! long, so the client waits while a thread does it. After a failed login, the next ones of the same address and user wait
//! first, one after the other and each time longer, whether their password is right or not. So an address has few guesses,
//! however many connections it makes. The thread ends when nobody waits.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::access::Principal;
use super::cluster::Wait;
use super::password::Password;
use super::users::User;
use super::{Service, Stats};
use crate::clock;
use crate::limits::{
    FIRST_LOGIN_DELAY, FORGET_LOGINS, HTTP_LOGIN_TIMEOUT, MAX_FAILED_LOGINS, MAX_PASSWORD_BYTES,
    MAX_WAITING_LOGINS, MAX_WAITING_LOGINS_OF_ONE, MOST_LOGIN_DELAY,
};

/// Why a login failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoginError {
    /// The user or the password is wrong.
    Wrong,
    /// Too many wait, or it has waited for too long.
    Busy,
}

/// The outcome of a login so far.
pub(crate) enum Login {
    Decided(Result<Arc<User>, LoginError>),
    Waits(Arc<Attempt>),
}

/// A login that waits.
pub(crate) struct Attempt {
    /// `None` if there is no such user. The client is not to notice before the verdict.
    user: Option<Arc<User>>,
    password: Zeroizing<Vec<u8>>,
    source: Source,
    pub(crate) wait: Arc<Wait>,
    verdict: OnceLock<bool>,
}

/// Where logins come from, as far as it counts: an address or a network, and a user if it exists.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Source {
    network: IpAddr,
    user: Option<String>,
}

/// The failed logins of a source.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
    /// No login is verified before.
    next: Instant,
}

/// What waits, and what is known of sources.
#[derive(Default)]
struct Queue {
    /// By the moment from which each may be verified, then in the order of arrival.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// How many wait of each source, if any.
    waiting_of: HashMap<Source, usize>,
    failures: HashMap<Source, Failures>,
    last_number: u64,
    has_thread: bool,
}

struct Waiting {
    due: Instant,
    number: u64,
    attempt: Arc<Attempt>,
}

/// What the thread does next.
enum Next {
    Verify(Arc<Attempt>),
    Wait(Instant),
    End,
}

/// The logins of a server.
#[derive(Default)]
pub(crate) struct Logins {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// What is verified in place of the password of a user that does not exist.
    nobody: OnceLock<Password>,
}

impl Attempt {
    /// The outcome, once the wait is over.
    pub(crate) fn outcome(&self) -> Result<Arc<User>, LoginError> {
        match (self.verdict.get(), &self.user) {
            (Some(true), Some(user)) => Ok(Arc::clone(user)),
            (Some(_), _) => Err(LoginError::Wrong),
            (None, _) => Err(LoginError::Busy),
        }
    }
}

impl Source {
    fn new(address: IpAddr, user: Option<&Arc<User>>) -> Source {
        let network = match address.to_canonical() {
            // A host has 2^64 addresses.
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        };
        Source { network, user: user.map(|user| user.name.clone()) }
    }
}

impl Failures {
    fn delay(count: u32) -> Duration {
        let doubled = FIRST_LOGIN_DELAY.checked_mul(1_u32.checked_shl(count - 1).unwrap_or(u32::MAX));
        doubled.map_or(MOST_LOGIN_DELAY, |delay| delay.min(MOST_LOGIN_DELAY))
    }

    fn is_over(&self, moment: Instant) -> bool {
        moment >= self.last + FORGET_LOGINS
    }
}

impl Queue {
    /// Whether the next login of a source has to wait.
    fn has_failed(&self, source: &Source, moment: Instant) -> bool {
        self.failures.get(source).is_some_and(|failures| !failures.is_over(moment))
    }

    /// Adds a login, if there is room.
    fn add(&mut self, attempt: &Arc<Attempt>, moment: Instant) -> bool {
        let of_source = self.waiting_of.get(&attempt.source).copied().unwrap_or(0);
        if self.waiting.len() >= MAX_WAITING_LOGINS || of_source >= MAX_WAITING_LOGINS_OF_ONE {
            return false;
        }
        self.waiting_of.insert(attempt.source.clone(), of_source + 1);
        self.last_number += 1;
        let (due, number) = (moment, self.last_number);
        self.waiting.push(Reverse(Waiting { due, number, attempt: Arc::clone(attempt) }));
        true
    }

    fn next(&mut self, moment: Instant) -> Next {
        while let Some(Reverse(first)) = self.waiting.peek() {
            if first.due > moment {
                return Next::Wait(first.due);
            }
            let Some(Reverse(mut first)) = self.waiting.pop() else { break };
            let failures = self.failures.get(&first.attempt.source);
            match failures.map(|failures| failures.next).filter(|&next| next > moment) {
                // Another one of this source has failed since it came.
                Some(next) => {
                    first.due = next;
                    self.waiting.push(Reverse(first));
                }
                None => return Next::Verify(first.attempt),
            }
        }
        Next::End
    }

    /// Records the verdict about a login.
    fn decided(&mut self, source: &Source, is_right: bool, moment: Instant) {
        if let Some(count) = self.waiting_of.get_mut(source) {
            *count -= 1;
            if *count == 0 {
                self.waiting_of.remove(source);
            }
        }
        if is_right {
            self.failures.remove(source);
            return;
        }
        if !self.failures.contains_key(source) && self.failures.len() >= MAX_FAILED_LOGINS {
            self.failures.retain(|_, failures| !failures.is_over(moment));
            let oldest = self.failures.iter().min_by_key(|(_, failures)| failures.last);
            if let Some(oldest) = oldest.map(|(source, _)| source.clone())
                && self.failures.len() >= MAX_FAILED_LOGINS
            {
                self.failures.remove(&oldest);
            }
        }
        let before = self.failures.get(source).filter(|failures| !failures.is_over(moment));
        let count = before.map_or(0, |failures| failures.count).saturating_add(1);
        let next = moment + Failures::delay(count);
        self.failures.insert(source.clone(), Failures { count, last: moment, next });
    }
}

impl Logins {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nobody(&self) -> &Password {
        self.nobody.get_or_init(Password::of_nobody)
    }
}

impl Service {
    /// Begins a login. One that waits is decided later: then [`Service::wake`] is called.
    pub(crate) fn begin_login(self: &Arc<Self>, name: &[u8], password: &[u8], address: IpAddr) -> Login {
        let users = self.users.get();
        let user = std::str::from_utf8(name).ok().and_then(|name| users.find(name)).cloned();
        let source = Source::new(address, user.as_ref());
        let moment = clock::moment();
        let mut queue = self.logins.queue();
        if !queue.has_failed(&source, moment)
            && let Some(user) = &user
            && user.password.is_known(password, &self.users.keyed)
        {
            return Login::Decided(Ok(Arc::clone(user)));
        }
        // A longer one is wrong, and need not be kept.
        let password = Zeroizing::new(password[..password.len().min(MAX_PASSWORD_BYTES + 1)].to_vec());
        let attempt =
            Arc::new(Attempt { user, password, source, wait: Wait::new(), verdict: OnceLock::new() });
        if !queue.add(&attempt, moment) {
            return Login::Decided(Err(LoginError::Busy));
        }
        if !queue.has_thread {
            let service = Arc::clone(self);
            let thread = std::thread::Builder::new().name("lately-login".to_owned());
            // Without a thread it waits until the next login, or until it is refused.
            queue.has_thread = thread.spawn(move || service.verify_logins()).is_ok();
        }
        drop(queue);
        self.logins.changed.notify_one();
        Login::Waits(attempt)
    }

    /// Verifies logins until none waits.
    fn verify_logins(&self) {
        let logins = &self.logins;
        let mut queue = logins.queue();
        loop {
            let moment = clock::moment();
            match queue.next(moment) {
                Next::End => {
                    queue.has_thread = false;
                    return;
                }
                Next::Wait(until) => {
                    let waited = logins.changed.wait_timeout(queue, until.saturating_duration_since(moment));
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Next::Verify(attempt) => {
                    drop(queue);
                    let known = attempt.user.as_ref().map(|user| &*user.password);
                    let is_right =
                        known.unwrap_or_else(|| logins.nobody()).verify(&attempt.password, &self.users.keyed);
                    let is_right = is_right && known.is_some();
                    Stats::add(&self.stats.failed_logins, u64::from(!is_right));
                    queue = logins.queue();
                    queue.decided(&attempt.source, is_right, clock::moment());
                    let _ = attempt.verdict.set(is_right);
                    attempt.wait.done();
                    self.wake();
                }
            }
        }
    }

    /// Logs a client of HTTP in, and waits for the verdict.
    pub(crate) async fn login(
        self: &Arc<Self>,
        name: &[u8],
        password: &[u8],
        address: IpAddr,
    ) -> Result<Principal, LoginError> {
        let attempt = match self.begin_login(name, password, address) {
            Login::Decided(outcome) => return outcome.map(Principal::User),
            Login::Waits(attempt) => attempt,
        };
        let decided = async {
            loop {
                let mut woken = std::pin::pin!(self.verdicts.notified());
                woken.as_mut().enable();
                if attempt.wait.is_over() {
                    return;
                }
                woken.await;
            }
        };
        // In time or not: the attempt knows.
        let _ = tokio::time::timeout(HTTP_LOGIN_TIMEOUT, decided).await;
        attempt.outcome().map(Principal::User)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> Source {
        Source::new(IpAddr::from(number.to_be_bytes()), None)
    }

    fn attempt(source: Source) -> Arc<Attempt> {
        let (password, wait) = (Zeroizing::default(), Wait::new());
        Arc::new(Attempt { user: None, password, source, wait, verdict: OnceLock::new() })
    }

    /// The number of seconds from `start` until the next login is verified, which fails then.
    fn fail(queue: &mut Queue, start: Instant, moment: &mut Instant) -> f64 {
        loop {
            match queue.next(*moment) {
                Next::Verify(attempt) => {
                    queue.decided(&attempt.source, false, *moment);
                    return (*moment - start).as_secs_f64();
                }
                Next::Wait(until) => *moment = until,
                Next::End => return f64::INFINITY,
            }
        }
    }

    #[test]
    fn each_failure_doubles_the_delay() {
        let (start, mut queue) = (clock::moment(), Queue::default());
        let mut moment = start;
        // All at once: they are verified one after the other.
        for _ in 0..8 {
            assert!(queue.add(&attempt(source(1)), start));
        }
        let times: Vec<f64> = (0..8).map(|_| fail(&mut queue, start, &mut moment)).collect();
        assert_eq!(times, [0.0, 0.25, 0.75, 1.75, 3.75, 5.75, 7.75, 9.75]);
        assert!(queue.waiting_of.is_empty() && matches!(queue.next(moment), Next::End));
        // Another address does not wait.
        assert!(!queue.has_failed(&source(2), moment) && queue.has_failed(&source(1), moment));
        queue.add(&attempt(source(2)), moment);
        assert!(matches!(queue.next(moment), Next::Verify(_)));
        // A right password ends it, and so does time.
        let forgotten = moment + FORGET_LOGINS;
        assert!(queue.has_failed(&source(1), forgotten - Duration::from_millis(1)));
        assert!(!queue.has_failed(&source(1), forgotten));
        queue.decided(&source(1), true, moment);
        assert!(!queue.has_failed(&source(1), moment));
    }

    #[test]
    fn few_logins_wait() {
        let (moment, mut queue) = (clock::moment(), Queue::default());
        for number in 0..MAX_WAITING_LOGINS_OF_ONE {
            assert!(queue.add(&attempt(source(0)), moment), "{number}");
        }
        assert!(!queue.add(&attempt(source(0)), moment));
        let mut number = 0;
        while queue.waiting.len() < MAX_WAITING_LOGINS {
            number += 1;
            assert!(queue.add(&attempt(source(number)), moment));
        }
        assert!(!queue.add(&attempt(source(number + 1)), moment));
        fail(&mut queue, moment, &mut moment.clone());
        assert!(queue.add(&attempt(source(number + 1)), moment));
    }

    #[test]
    fn few_failures_are_known() {
        let (start, mut queue) = (clock::moment(), Queue::default());
        let most = u32::try_from(MAX_FAILED_LOGINS).expect("few");
        for number in 0..=most {
            queue.decided(&source(number), false, start + Duration::from_millis(number.into()));
        }
        assert_eq!(queue.failures.len(), MAX_FAILED_LOGINS);
        assert!(!queue.has_failed(&source(0), start) && queue.has_failed(&source(1), start));
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let of = |text: &str| Source::new(text.parse().expect(text), None);
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3:4:5"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
