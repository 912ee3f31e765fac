//! A rule: the limit on a descriptor.

/// The index of a rule in its set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleNumber(pub(crate) u32);

impl RuleNumber {
    /// The index, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The `rate_limit` of a descriptor, with the flags beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The domain that it is in.
    pub domain: Box<str>,
    /// Its keys and values from the top down: `key_value.key`, the name of its statistics.
    pub path: Box<str>,
    /// The limit. `None` is unlimited.
    pub limit: Option<Limit>,
    /// Its name, empty if it has none.
    pub name: Box<str>,
    /// The names of rules that do not count when this one is for a descriptor of the same request.
    pub replaces: Box<[Box<str>]>,
    /// Every request is allowed, and statistics are kept.
    pub is_shadow: bool,
    /// A request is denied only when all its rules with this flag deny it.
    pub is_quota: bool,
    /// The statistics have a line for each value.
    pub has_detailed_metric: bool,
}

/// How many requests are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// The most in a unit. 0 denies every request.
    pub requests: u32,
    /// The length of the window.
    pub unit: Unit,
}

/// A unit of time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// `second`
    Second,
    /// `minute`
    Minute,
    /// `hour`
    Hour,
    /// `day`
    Day,
    /// `week`: 7 days
    Week,
    /// `month`: 30 days
    Month,
    /// `year`: 365 days
    Year,
}

impl Unit {
    /// All units, from short to long.
    pub const ALL: [Unit; 7] =
        [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];

    /// The name, as files write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
            Unit::Year => "year",
        }
    }

    /// Its length in seconds.
    #[must_use]
    pub fn seconds(self) -> u32 {
        const DAY_S: u32 = 86_400;
        match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3_600,
            Unit::Day => DAY_S,
            Unit::Week => 7 * DAY_S,
            Unit::Month => 30 * DAY_S,
            Unit::Year => 365 * DAY_S,
        }
    }

    /// The unit of a name, in any case.
    pub(crate) fn parse(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }
}
