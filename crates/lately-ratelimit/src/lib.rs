//! The rules of [envoyproxy/ratelimit](https://github.com/envoyproxy/ratelimit): its YAML files, and which rule is for
//! a descriptor. It counts nothing and does no I/O.
//!
//! ```
//! use lately_ratelimit::{Rules, Unit};
//!
//! let text = "
//! domain: shop
//! descriptors:
//! - key: path
//!   value: /cart/*
//!   rate_limit: { unit: minute, requests_per_unit: 30 }
//! ";
//! let rules = Rules::parse(&[("shop.yaml", text)]).expect("valid");
//! let found = rules.find("shop", &[("path", "/cart/add")]).expect("a rule");
//! let limit = rules.rule(found.number).limit.expect("not unlimited");
//! assert_eq!((limit.requests, limit.unit), (30, Unit::Minute));
//! assert!(rules.find("shop", &[("path", "/")]).is_none());
//! ```

mod error;
mod file;
pub mod limits;
mod rule;
mod rules;
mod tree;
mod wildcard;
mod yaml;

pub use error::RulesError;
pub use rule::{Limit, Rule, RuleNumber, Unit};
pub use rules::{Found, Rules, path};
