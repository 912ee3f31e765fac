//! Who counted hits: a node, and one of its lives.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::limits::MAX_NODE_BYTES;

/// A node and an incarnation of it. Each start of a node counts under a new incarnation, because it cannot know whether
/// all that it counted before was kept.
///
/// Written as `eu-1.7`: the name, a dot, the incarnation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    node: Arc<str>,
    incarnation: u64,
}

impl Origin {
    /// An origin; `None` when the name is no name of a node: 1 to [`MAX_NODE_BYTES`] letters, digits, `-` and `_`.
    #[must_use]
    pub fn new(node: &str, incarnation: u64) -> Option<Origin> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let fits = (1..=MAX_NODE_BYTES).contains(&node.len()) && node.bytes().all(is_name);
        fits.then(|| Origin { node: node.into(), incarnation })
    }

    /// The name of the node.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Which of its lives.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.node, self.incarnation)
    }
}

/// A text is no origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoOrigin;

impl FromStr for Origin {
    type Err = NoOrigin;

    fn from_str(text: &str) -> Result<Origin, NoOrigin> {
        let (node, incarnation) = text.rsplit_once('.').ok_or(NoOrigin)?;
        let incarnation = incarnation.parse().map_err(|_| NoOrigin)?;
        Origin::new(node, incarnation).filter(|origin| origin.to_string() == text).ok_or(NoOrigin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_name_and_an_incarnation() {
        let origin = Origin::new("eu-1", 7).expect("a name");
        assert_eq!((origin.to_string().as_str(), "eu-1.7".parse()), ("eu-1.7", Ok(origin)));
        let longest = "n".repeat(MAX_NODE_BYTES);
        assert!(Origin::new(&longest, 1).is_some());
        for name in ["", "a.b", "a b", "ä", &format!("{longest}n")] {
            assert_eq!(Origin::new(name, 1), None, "{name:?}");
        }
        for text in ["", "a", "a.", ".1", "a.01", "a.+1", "a.-1", "a.99999999999999999999"] {
            assert_eq!(text.parse::<Origin>(), Err(NoOrigin), "{text:?}");
        }
    }
}
