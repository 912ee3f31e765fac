//! Logins: who waits, for how long, and one thread that verifies passwords.
//!
//! A password that was right before is known, and a login with it takes no time. Any other has to be verified, which takes
//! long, so the client waits while a thread does it. After a failed login, the next ones of the same address wait first, one
//! after the other and each time longer, whether their password is right or not. So an address has few guesses, however many
//! connections it makes. The first login of a connection goes before those of connections that have failed, and takes the place
//! of one if none is free: many clients may be behind one address. The thread ends when nobody waits.
//!
//! Names are in a fixed number of groups, which have their own delays. Nothing depends on whether a name has a user. A
//! password that was right on the same connection does not wait (`caller.rs`), and a client that leaves gives its place in
//! the queue back.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::access::Principal;
use super::caller::Caller;
use super::cluster::Wait;
use super::users::User;
use super::{Service, Stats};
use crate::clock;
use crate::limits::{
    FIRST_LOGIN_DELAY, FORGET_LOGINS, HTTP_LOGIN_TIMEOUT, LOGIN_GROUPS, MAX_FAILED_LOGINS,
    MAX_FIRST_LOGINS_OF_ONE, MAX_PASSWORD_BYTES, MAX_WAITING_LOGINS, MAX_WAITING_LOGINS_OF_ONE,
    MOST_LOGIN_DELAY,
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
    Waits(Pending),
}

/// The client's end of a login that waits. Dropping it gives the place in the queue back.
pub(crate) struct Pending {
    service: Arc<Service>,
    attempt: Arc<Attempt>,
}

/// A login that waits.
struct Attempt {
    /// `None` if there is no such user. The client is not to notice before the verdict.
    user: Option<Arc<User>>,
    password: Zeroizing<Vec<u8>>,
    source: Source,
    caller: Arc<Caller>,
    /// A login on its connection has failed before.
    is_further: bool,
    /// The client has closed its side of the connection.
    has_left: AtomicBool,
    wait: Arc<Wait>,
    verdict: OnceLock<bool>,
}

/// Where logins come from: an address or a network, and the keyed hash of a name.
#[derive(Clone, Copy, Debug)]
struct Source {
    place: Place,
    name: u64,
}

/// What has delays of its own: an address or a network, with a group of names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    network: IpAddr,
    group: u64,
}

/// The failed logins of a place.
#[derive(Clone, Copy, Debug)]
struct Failures {
    /// The name that all of them had; `None` for several.
    name: Option<u64>,
    count: u32,
    last: Instant,
    /// No login is verified before.
    next: Instant,
}

/// What waits, and what is known of places.
#[derive(Default)]
struct Queue {
    /// By the moment from which each may be verified, then first logins before further ones, then in the order of arrival.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// How many wait of each place, if any.
    waiting_of: HashMap<Place, usize>,
    failures: HashMap<Place, Failures>,
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
    /// It would have to wait longer, and its client has left.
    Refuse(Arc<Attempt>),
    Wait(Instant),
    End,
}

/// The logins of a server.
#[derive(Default)]
pub(crate) struct Logins {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Pending {
    /// What the client waits for.
    pub(crate) fn wait(&self) -> &Arc<Wait> {
        &self.attempt.wait
    }

    /// The outcome, once the wait is over.
    pub(crate) fn outcome(&self) -> Result<Arc<User>, LoginError> {
        match (self.attempt.verdict.get(), &self.attempt.user) {
            (Some(true), Some(user)) => Ok(Arc::clone(user)),
            (Some(_), _) => Err(LoginError::Wrong),
            (None, _) => Err(LoginError::Busy),
        }
    }

    /// The client has closed its side of the connection. It may still wait for the answer, and gets it if there is no delay.
    /// Otherwise the login is refused, and gives its place to others.
    pub(crate) fn client_left(&self) {
        self.attempt.has_left.store(true, Relaxed);
        let refused = self.service.logins.queue().refuse(&self.attempt, clock::moment());
        if refused {
            self.attempt.wait.done();
            self.service.wake();
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.attempt.wait.is_over() {
            self.service.logins.queue().remove(&self.attempt);
        }
    }
}

impl Source {
    fn new(address: IpAddr, name: u64) -> Source {
        let network = match address.to_canonical() {
            // A host has 2^64 addresses.
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        };
        Source { place: Place { network, group: name % LOGIN_GROUPS }, name }
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
    /// Whether the next login of a place has to wait.
    fn has_failed(&self, place: Place, moment: Instant) -> bool {
        self.failures.get(&place).is_some_and(|failures| !failures.is_over(moment))
    }

    /// Until when no login of a place is verified, if that is still to come.
    fn delay(&self, place: Place, moment: Instant) -> Option<Instant> {
        self.failures.get(&place).map(|failures| failures.next).filter(|&next| next > moment)
    }

    /// By how many logins too many would wait with one more of a place.
    fn excess(&self, place: Place, moment: Instant) -> usize {
        let most =
            if self.has_failed(place, moment) { MAX_WAITING_LOGINS_OF_ONE } else { MAX_FIRST_LOGINS_OF_ONE };
        let of_place = self.waiting_of.get(&place).copied().unwrap_or(0);
        let too_many = (of_place + 1).saturating_sub(most);
        too_many.max((self.waiting.len() + 1).saturating_sub(MAX_WAITING_LOGINS))
    }

    /// Takes the newest further login of the same place out, if that makes room for a first login.
    fn make_room(&mut self, attempt: &Attempt, moment: Instant) -> Option<Arc<Attempt>> {
        let place = attempt.source.place;
        if attempt.is_further || self.excess(place, moment) != 1 {
            return None;
        }
        let further =
            |waiting: &&Waiting| waiting.attempt.is_further && waiting.attempt.source.place == place;
        let all = self.waiting.iter().map(|Reverse(waiting)| waiting);
        let newest = all.filter(further).max_by_key(|waiting| waiting.number)?;
        let newest = Arc::clone(&newest.attempt);
        self.remove(&newest);
        Some(newest)
    }

    /// Adds a login, if there is room.
    fn add(&mut self, attempt: &Arc<Attempt>, moment: Instant) -> bool {
        if self.excess(attempt.source.place, moment) > 0 {
            return false;
        }
        let of_place = self.waiting_of.get(&attempt.source.place).copied().unwrap_or(0);
        self.waiting_of.insert(attempt.source.place, of_place + 1);
        self.last_number += 1;
        let (due, number) = (moment, self.last_number);
        self.waiting.push(Reverse(Waiting { due, number, attempt: Arc::clone(attempt) }));
        true
    }

    /// Removes a login that waits. False if it does not any more.
    fn remove(&mut self, attempt: &Arc<Attempt>) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|Reverse(waiting)| !Arc::ptr_eq(&waiting.attempt, attempt));
        let is_removed = self.waiting.len() < before;
        if is_removed {
            self.count_out(attempt.source.place);
        }
        is_removed
    }

    /// Removes a login if it has to wait for a delay.
    fn refuse(&mut self, attempt: &Arc<Attempt>, moment: Instant) -> bool {
        self.delay(attempt.source.place, moment).is_some() && self.remove(attempt)
    }

    /// One less waits of a place.
    fn count_out(&mut self, place: Place) {
        if let Some(count) = self.waiting_of.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.waiting_of.remove(&place);
            }
        }
    }

    fn next(&mut self, moment: Instant) -> Next {
        while let Some(Reverse(first)) = self.waiting.peek() {
            if first.due > moment {
                return Next::Wait(first.due);
            }
            let Some(Reverse(mut first)) = self.waiting.pop() else { break };
            let place = first.attempt.source.place;
            match self.delay(place, moment) {
                // Another one of this place has failed since it came.
                Some(next) if !first.attempt.has_left.load(Relaxed) => {
                    first.due = next;
                    self.waiting.push(Reverse(first));
                }
                delay => {
                    self.count_out(place);
                    let next = if delay.is_some() { Next::Refuse } else { Next::Verify };
                    return next(first.attempt);
                }
            }
        }
        Next::End
    }

    /// Records the verdict about a login. A right one ends the delay, unless others failed with another name: else a client
    /// with a password of its own could end the delays of its guesses of others.
    fn decided(&mut self, source: Source, is_right: bool, moment: Instant) {
        let Source { place, name } = source;
        let before = self.failures.get(&place).filter(|failures| !failures.is_over(moment)).copied();
        if is_right {
            if before.is_none_or(|failures| failures.name == Some(name)) {
                self.failures.remove(&place);
            }
            return;
        }
        if !self.failures.contains_key(&place) && self.failures.len() >= MAX_FAILED_LOGINS {
            self.failures.retain(|_, failures| !failures.is_over(moment));
            let oldest = self.failures.iter().min_by_key(|(_, failures)| failures.last);
            if let Some(oldest) = oldest.map(|(place, _)| *place)
                && self.failures.len() >= MAX_FAILED_LOGINS
            {
                self.failures.remove(&oldest);
            }
        }
        let count = before.map_or(0, |failures| failures.count).saturating_add(1);
        let next = moment + Failures::delay(count);
        let name = before.map_or(Some(name), |failures| failures.name.filter(|&before| before == name));
        self.failures.insert(place, Failures { name, count, last: moment, next });
    }
}

impl Logins {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// Begins a login. One that waits is decided later: then [`Service::wake`] is called.
    pub(crate) fn begin_login(self: &Arc<Self>, name: &[u8], password: &[u8], caller: &Arc<Caller>) -> Login {
        // A longer one is wrong.
        let password = &password[..password.len().min(MAX_PASSWORD_BYTES + 1)];
        if let Some(user) = caller.recall(name, password, &self.users) {
            return Login::Decided(Ok(user));
        }
        let (users, keyed) = (self.users.get(), &self.users.keyed);
        let user = std::str::from_utf8(name).ok().and_then(|name| users.find(name)).cloned();
        let source = Source::new(caller.address, keyed.number(name));
        // A name without a user takes the same time.
        let is_known = match &user {
            Some(user) => user.password.is_known(password, keyed),
            None => keyed.is_of(None, password),
        };
        let moment = clock::moment();
        let mut queue = self.logins.queue();
        if !queue.has_failed(source.place, moment)
            && is_known
            && let Some(user) = &user
        {
            caller.remember(user, password, &self.users);
            return Login::Decided(Ok(Arc::clone(user)));
        }
        let attempt = Arc::new(Attempt {
            user,
            password: Zeroizing::new(password.to_vec()),
            source,
            caller: Arc::clone(caller),
            is_further: caller.has_failed(),
            has_left: AtomicBool::new(false),
            wait: Wait::new(),
            verdict: OnceLock::new(),
        });
        if let Some(refused) = queue.make_room(&attempt, moment) {
            refused.wait.done();
            self.wake();
        }
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
        Login::Waits(Pending { service: Arc::clone(self), attempt })
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
                Next::Refuse(attempt) => {
                    attempt.wait.done();
                    self.wake();
                }
                Next::Verify(attempt) => {
                    drop(queue);
                    let is_right = self.verify(&attempt);
                    Stats::add(&self.stats.failed_logins, u64::from(!is_right));
                    queue = logins.queue();
                    queue.decided(attempt.source, is_right, clock::moment());
                    if !is_right {
                        attempt.caller.fail();
                    }
                    let _ = attempt.verdict.set(is_right);
                    attempt.wait.done();
                    self.wake();
                }
            }
        }
    }

    /// Verifies a password. Takes long, and as long for a name without a user as for one that has one.
    fn verify(&self, attempt: &Attempt) -> bool {
        let Some(user) = &attempt.user else {
            if let Some(password) = self.users.get().stand_in(attempt.source.name) {
                password.pretend(&attempt.password);
            }
            return false;
        };
        let (password, keyed) = (&attempt.password, &self.users.keyed);
        // Another login may have shown it while this one waited.
        let is_right = user.password.is_known(password, keyed) || user.password.verify(password, keyed);
        if is_right {
            attempt.caller.remember(user, &attempt.password, &self.users);
        }
        is_right
    }

    /// Logs a client of HTTP in, and waits for the verdict.
    pub(crate) async fn login(
        self: &Arc<Self>,
        name: &[u8],
        password: &[u8],
        caller: &Arc<Caller>,
    ) -> Result<Principal, LoginError> {
        let pending = match self.begin_login(name, password, caller) {
            Login::Decided(outcome) => return outcome.map(Principal::User),
            Login::Waits(pending) => pending,
        };
        // In time or not: the outcome says which.
        self.over(pending.wait(), HTTP_LOGIN_TIMEOUT).await;
        let user = Principal::User(pending.outcome()?);
        // The users may have been replaced meanwhile.
        match self.users.renewed(&user) {
            Principal::Nobody => Err(LoginError::Wrong),
            renewed => Ok(renewed),
        }
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
        let order = |waiting: &Waiting| (waiting.due, waiting.attempt.is_further, waiting.number);
        order(self).cmp(&order(other))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use lately::{ManualClock, Timestamp};
    use lately_resp::command::Verb;
    use tempfile::TempDir;

    use super::*;
    use crate::config::{Config, User as ConfigUser};
    use crate::limits::MAX_USERS_OF_CONNECTION;

    const NAME: u64 = 7;

    fn source(number: u32) -> Source {
        Source::new(IpAddr::from(number.to_be_bytes()), NAME)
    }

    fn attempt(source: Source) -> Arc<Attempt> {
        attempt_of(source, false)
    }

    fn attempt_of(source: Source, is_further: bool) -> Arc<Attempt> {
        Arc::new(Attempt {
            is_further,
            user: None,
            password: Zeroizing::default(),
            source,
            caller: Caller::new(source.place.network),
            has_left: AtomicBool::new(false),
            wait: Wait::new(),
            verdict: OnceLock::new(),
        })
    }

    /// The number of seconds from `start` until the next login is verified, which fails then.
    fn fail(queue: &mut Queue, start: Instant, moment: &mut Instant) -> f64 {
        loop {
            match queue.next(*moment) {
                Next::Verify(attempt) => {
                    queue.decided(attempt.source, false, *moment);
                    return (*moment - start).as_secs_f64();
                }
                Next::Refuse(_) => unreachable!("no client has left"),
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
        assert!(!queue.has_failed(source(2).place, moment) && queue.has_failed(source(1).place, moment));
        queue.add(&attempt(source(2)), moment);
        assert!(matches!(queue.next(moment), Next::Verify(_)));
        // A right password ends it, and so does time.
        let forgotten = moment + FORGET_LOGINS;
        assert!(queue.has_failed(source(1).place, forgotten - Duration::from_millis(1)));
        assert!(!queue.has_failed(source(1).place, forgotten));
        queue.decided(source(1), true, moment);
        assert!(!queue.has_failed(source(1).place, moment));
    }

    #[test]
    fn few_logins_wait() {
        let (moment, mut queue) = (clock::moment(), Queue::default());
        queue.decided(source(0), false, moment);
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

    /// Symptom: of 50 clients behind one address that connected again after a start, 34 were refused. Cause: 16 logins of an
    /// address could wait, even if none had failed.
    #[test]
    fn many_logins_of_an_address_wait_while_none_has_failed() {
        let (moment, mut queue) = (clock::moment(), Queue::default());
        let last = attempt(source(1));
        for number in 1..MAX_FIRST_LOGINS_OF_ONE {
            assert!(queue.add(&attempt(source(1)), moment), "{number}");
        }
        assert!(queue.add(&last, moment) && !queue.add(&attempt(source(1)), moment));
        assert!(queue.add(&attempt(source(2)), moment));
        // After a failure, no other gets in until fewer wait, and nobody loses a place for one that does not.
        assert!(queue.remove(&last) && queue.add(&attempt_of(source(1), true), moment));
        queue.decided(source(1), false, moment);
        assert!(!queue.add(&attempt(source(1)), moment));
        let waiting = queue.waiting.len();
        assert!(queue.make_room(&attempt(source(1)), moment).is_none());
        assert_eq!(queue.waiting.len(), waiting);
    }

    /// Symptom: connections with wrong passwords kept all others of the address out. Fix: the first login of a connection goes
    /// before, and takes the place of the newest one that has failed before.
    #[test]
    fn the_first_login_of_a_connection_goes_before_further_ones() {
        let (moment, mut queue) = (clock::moment(), Queue::default());
        queue.decided(source(1), false, moment);
        let further: Vec<_> = (0..MAX_WAITING_LOGINS_OF_ONE).map(|_| attempt_of(source(1), true)).collect();
        assert!(further.iter().all(|attempt| queue.add(attempt, moment)));
        // Another further login takes nobody's place.
        let late = attempt_of(source(1), true);
        assert!(queue.make_room(&late, moment).is_none() && !queue.add(&late, moment));
        let first = attempt(source(1));
        let refused = queue.make_room(&first, moment).expect("a further one");
        assert!(Arc::ptr_eq(&refused, further.last().expect("there are some")));
        assert!(queue.add(&first, moment) && !queue.add(&late, moment));
        let later = moment + MOST_LOGIN_DELAY;
        let order: Vec<_> = std::iter::from_fn(|| match queue.next(later) {
            Next::Verify(attempt) => Some(attempt),
            _ => None,
        })
        .collect();
        assert!(Arc::ptr_eq(&order[0], &first) && Arc::ptr_eq(&order[1], &further[0]));
        assert_eq!(order.len(), MAX_WAITING_LOGINS_OF_ONE);
        // With room, nobody loses a place; and first logins take none of each other.
        assert!(queue.make_room(&attempt(source(1)), moment).is_none());
        while queue.add(&attempt(source(1)), moment) {}
        assert!(queue.make_room(&attempt(source(1)), moment).is_none());
    }

    #[test]
    fn few_failures_are_known() {
        let (start, mut queue) = (clock::moment(), Queue::default());
        let most = u32::try_from(MAX_FAILED_LOGINS).expect("few");
        for number in 0..=most {
            queue.decided(source(number), false, start + Duration::from_millis(number.into()));
        }
        assert_eq!(queue.failures.len(), MAX_FAILED_LOGINS);
        assert!(!queue.has_failed(source(0).place, start) && queue.has_failed(source(1).place, start));
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let of = |text: &str| Source::new(text.parse().expect(text), NAME).place;
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3:4:5"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn a_client_that_left_gives_its_place_back() {
        let (before, mut queue) = (clock::moment(), Queue::default());
        queue.decided(source(1), false, before);
        // The delay is over.
        let moment = before + FIRST_LOGIN_DELAY;
        let attempts: Vec<_> = (0..MAX_WAITING_LOGINS_OF_ONE).map(|_| attempt(source(1))).collect();
        assert!(attempts.iter().all(|attempt| queue.add(attempt, moment)));
        // Without a delay, it may wait for its answer.
        assert!(!queue.refuse(&attempts[0], moment));
        assert!(!queue.add(&attempt(source(1)), moment));
        assert!(queue.remove(&attempts[0]) && !queue.remove(&attempts[0]));
        assert!(queue.add(&attempts[0], moment));
        assert!(!queue.add(&attempt(source(1)), moment));
        // Now one fails, and the others have a delay.
        fail(&mut queue, moment, &mut moment.clone());
        assert!(queue.add(&attempt(source(1)), moment));
        assert!(queue.refuse(&attempts[2], moment));
        assert!(queue.add(&attempt(source(1)), moment));
        attempts[3].has_left.store(true, Relaxed);
        let Next::Refuse(refused) = queue.next(moment) else { unreachable!("one has left") };
        assert!(Arc::ptr_eq(&refused, &attempts[3]));
        assert!(queue.add(&attempt(source(1)), moment));
        assert!(!queue.add(&attempt(source(1)), moment));
        assert!(matches!(queue.next(moment), Next::Wait(_)));
    }

    #[test]
    fn a_right_password_ends_the_delays_of_its_own_name_only() {
        let (moment, mut queue) = (clock::moment(), Queue::default());
        let place = source(1).place;
        let [mine, other] = [NAME, NAME + LOGIN_GROUPS].map(|name| Source::new(place.network, name));
        assert_eq!([mine.place, other.place], [place; 2]);
        queue.decided(mine, false, moment);
        queue.decided(mine, true, moment);
        assert!(!queue.has_failed(place, moment));
        queue.decided(mine, false, moment);
        queue.decided(other, true, moment);
        assert!(queue.has_failed(place, moment));
        queue.decided(other, false, moment);
        queue.decided(mine, true, moment);
        assert!(queue.has_failed(place, moment));
        assert!(!queue.has_failed(place, moment + FORGET_LOGINS));
    }

    /// A hash that is checked fast.
    const FAST: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    struct Stage {
        folder: TempDir,
        service: Arc<Service>,
    }

    impl Stage {
        /// A service with these users and the contents of their password files.
        fn new(users: &[(&str, &str)]) -> Stage {
            let folder = tempfile::tempdir().expect("a folder");
            let path = |name: &str| -> PathBuf { folder.path().join(name) };
            users.iter().for_each(|(name, content)| std::fs::write(path(name), content).expect("room"));
            let user = |(name, _): &(&str, &str)| ConfigUser {
                name: (*name).to_owned(),
                password_file: path(name),
                keys: vec![lately::Pattern::new(b"*")],
                verbs: Verb::ALL.to_vec(),
            };
            let config = Config { users: users.iter().map(user).collect(), ..Config::default() };
            let clock = ManualClock::new(Timestamp::from_seconds(1_700_000_040).expect("in range"));
            let service = Service::new(config, Arc::new(clock)).expect("valid settings");
            let stage = Stage { folder, service: Arc::new(service) };
            stage.reload();
            stage
        }

        fn reload(&self) {
            let users = &self.service.users;
            users.replace(users.load(&self.service.config.users).expect("files"));
        }

        fn begin(&self, name: &str, password: &str, caller: &Arc<Caller>) -> Login {
            self.service.begin_login(name.as_bytes(), password.as_bytes(), caller)
        }

        /// Whether the password is right, verified if need be.
        fn is_right(&self, name: &str, password: &str, caller: &Arc<Caller>) -> bool {
            match self.begin(name, password, caller) {
                Login::Decided(outcome) => outcome.is_ok(),
                Login::Waits(pending) => {
                    while !pending.wait().is_over() {
                        std::thread::yield_now();
                    }
                    pending.outcome().is_ok()
                }
            }
        }

        fn waits(&self, name: &str, password: &str, caller: &Arc<Caller>) -> bool {
            matches!(self.begin(name, password, caller), Login::Waits(_))
        }
    }

    /// Failed logins of others at the same address delay new connections only.
    #[test]
    fn a_password_is_remembered_for_its_connection() {
        let stage = Stage::new(&[("web", FAST)]);
        let (mine, other) = (Caller::new(ADDRESS), Caller::new(ADDRESS));
        assert!(stage.is_right("web", "password", &mine));
        assert!(!stage.waits("web", "password", &other));
        assert!(!stage.is_right("web", "wrong", &Caller::new(ADDRESS)));
        for caller in [&mine, &other] {
            let decided = stage.begin("web", "password", caller);
            assert!(matches!(decided, Login::Decided(Ok(user)) if user.name == "web"));
        }
        assert!(stage.waits("web", "password", &Caller::new(ADDRESS)));
        // Others may share the connection. Their guesses wait, and so does what would show which of them is right.
        assert!(stage.waits("web", "another", &mine));
        assert!(stage.waits("web", "password", &mine));
        // Another name is another user.
        assert!(stage.waits("nobody", "password", &other));
        assert!(!stage.waits("web", "password", &other));
        // Users that a reload did not change stay. Of their files only the first line counts.
        stage.reload();
        assert!(!stage.waits("web", "password", &other));
        let write = |content: &str| {
            std::fs::write(stage.folder.path().join("web"), content).expect("room");
            stage.reload();
        };
        for content in [format!("{FAST}\n"), format!("\u{feff}{FAST}\r\na comment")] {
            write(&content);
            assert!(!stage.waits("web", "password", &other), "{content:?}");
        }
        write("password");
        assert!(stage.waits("web", "password", &other));
    }

    #[test]
    fn few_users_are_remembered_for_a_connection() {
        let names: Vec<String> = (0..=MAX_USERS_OF_CONNECTION).map(|number| format!("u{number}")).collect();
        let users: Vec<_> = names.iter().map(|name| (name.as_str(), FAST)).collect();
        let (stage, caller) = (Stage::new(&users), Caller::new(ADDRESS));
        let recalled = |name: &String| caller.recall(name.as_bytes(), b"password", &stage.service.users);
        for name in &names {
            assert!(stage.is_right(name, "password", &caller));
            assert!(recalled(name).is_some());
        }
        assert!(recalled(&names[0]).is_none());
        assert!(names[1..].iter().all(|name| recalled(name).is_some()));
    }

    /// The delays of a name do not show whether it has a user.
    #[test]
    fn names_have_the_same_delays_with_and_without_a_user() {
        let stage = Stage::new(&[("web", FAST)]);
        let group = |name: &str| stage.service.users.keyed.number(name.as_bytes()) % LOGIN_GROUPS;
        assert!(stage.is_right("web", "password", &Caller::new(ADDRESS)));
        let names = || (0..).map(|number| format!("n{number}"));
        let far = names().find(|name| group(name) != group("web")).expect("there are more groups");
        assert!(!stage.is_right(&far, "x", &Caller::new(ADDRESS)));
        assert!(!stage.waits("web", "password", &Caller::new(ADDRESS)));
        let near = names().find(|name| group(name) == group("web")).expect("a hash");
        assert!(!stage.is_right(&near, "x", &Caller::new(ADDRESS)));
        assert!(stage.waits("web", "password", &Caller::new(ADDRESS)));
    }

    #[test]
    fn a_name_without_a_user_is_verified_at_the_cost_of_a_user() {
        let cost = |stage: &Stage, name: &str| {
            let number = stage.service.users.keyed.number(name.as_bytes());
            stage.service.users.get().stand_in(number).expect("there are users").cost()
        };
        let fast = Stage::new(&[("web", FAST)]);
        assert_eq!(cost(&fast, "nobody"), "argon2id Some(19) m=256,t=2,p=1");
        let mixed = Stage::new(&[("a", FAST), ("b", "secret"), ("c", FAST), ("d", "another")]);
        let mut costs: Vec<_> = (0..100).map(|number| cost(&mixed, &format!("n{number}"))).collect();
        mixed.reload();
        assert_eq!(cost(&mixed, "n7"), costs[7]);
        costs.sort();
        costs.dedup();
        assert_eq!(costs, ["argon2id Some(19) m=19456,t=2,p=1", "argon2id Some(19) m=256,t=2,p=1"]);
        assert!(!mixed.is_right("nobody", "secret", &Caller::new(ADDRESS)));
    }
}
