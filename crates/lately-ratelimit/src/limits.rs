//! Bounds on rules and their files. A hostile file takes neither memory nor stack beyond them.

/// Bytes of all files together.
pub const MAX_RULES_BYTES: usize = 8 << 20;

/// Descriptors of all files together.
pub const MAX_RULE_DESCRIPTORS: usize = 20_000;

/// Levels of descriptors within descriptors. A request has at most as many entries in a descriptor.
pub const MAX_RULE_DEPTH: usize = 32;

/// Bytes of the path of a rule: the keys and values from the top down to it.
pub const MAX_RULE_PATH_BYTES: usize = 1_024;

/// Bytes of a domain, and of the name of a rule.
pub const MAX_RULE_NAME_BYTES: usize = 256;

/// Rules that a rule replaces.
pub const MAX_RULE_REPLACES: usize = 64;

/// Scalars, lists and maps of all files together. An alias counts as all that it stands for.
pub const MAX_YAML_NODES: usize = 400_000;

/// Lists and maps within each other. A descriptor is a map in a list, and a rule adds `rate_limit` and `replaces`.
pub const MAX_YAML_DEPTH: usize = 2 * MAX_RULE_DEPTH + 6;
