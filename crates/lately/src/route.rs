//! Which node a key belongs to: the same answer in every process, on every platform and in every version.
//!
//! Rendezvous hashing, also called highest random weight (Thaler and Ravishankar, "Using Name-Based Mappings to Increase
//! Hit Rates", IEEE/ACM Transactions on Networking, 1998). Each node has a weight for the key, and the key belongs to the
//! node with the greatest. So a node that leaves gives up its own keys and no others, and one that joins takes its share
//! from all.
//!
//! The weight is `mix(fnv(key) ^ mix(fnv(node)))`, in 64 bits. `fnv` is FNV-1a (Fowler, Noll and Vo). `mix` is the last step
//! of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014). Programs in other
//! languages can compute it in a dozen lines. The hash has no secret: who chooses the keys can choose their node.

/// The nodes that keys are spread over.
///
/// ```
/// let nodes = lately::route::Nodes::new(["eu-1", "eu-2", "us-1"]);
/// assert_eq!(nodes.of(b"login:alice"), Some(&"eu-2"));
/// ```
#[derive(Clone, Debug)]
pub struct Nodes<N> {
    /// Hashes and names, in the order of the names.
    nodes: Vec<(u64, N)>,
}

impl<N: AsRef<[u8]>> Nodes<N> {
    /// Nodes by their names, which may be any bytes. Their order does not matter. A name that is given twice is one node.
    pub fn new(names: impl IntoIterator<Item = N>) -> Nodes<N> {
        let mut nodes: Vec<_> = names.into_iter().map(|name| (mix(fnv(name.as_ref())), name)).collect();
        nodes.sort_by(|(_, one), (_, other)| one.as_ref().cmp(other.as_ref()));
        nodes.dedup_by(|(_, one), (_, other)| one.as_ref() == other.as_ref());
        Nodes { nodes }
    }

    /// The node that a key belongs to; `None` without nodes. Of nodes with equal weights it is the one whose name is the
    /// greatest by its bytes.
    ///
    /// Takes time in proportion to the number of nodes, and allocates nothing.
    #[must_use]
    pub fn of(&self, key: &[u8]) -> Option<&N> {
        let key = fnv(key);
        // The last of equal ones.
        self.nodes.iter().max_by_key(|(node, _)| mix(key ^ node)).map(|(_, name)| name)
    }
}

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The last step of SplitMix64.
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // The vectors of the authors of FNV, and the first number of SplitMix64 with the seed 0.
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf);
    }

    /// Computed by another program, in Python, from the definition above. They never change.
    #[test]
    fn weights_and_nodes_are_the_same_everywhere() {
        let check = |node: &str, key: &[u8], expected: u64| {
            assert_eq!(mix(fnv(key) ^ mix(fnv(node.as_bytes()))), expected, "{node} {key:?}");
        };
        check("a", b"", 0x2b78_5f76_56b4_9c83);
        check("a", b"a", 0xfdb1_bcdc_9f49_7854);
        check("eu-1", b"user:42", 0xacf7_3b0a_7506_1faf);
        check("10.0.0.7:7379", b"\x00\xff\r\n", 0x2bf6_9fb2_6efb_8c86);
        check("nœud", "Käse".as_bytes(), 0xbca4_3733_e881_374a);
        let nodes = Nodes::new(["eu-1", "eu-2", "us-1"]);
        let check = |key: &[u8], expected| assert_eq!(nodes.of(key), Some(&expected), "{key:?}");
        check(b"user:42", "eu-1");
        check(b"login:alice", "eu-2");
        check(b"", "eu-1");
        check(b"\x00\xff", "eu-1");
        check(b"b", "us-1");
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|node| format!("node-{node}")).collect()
    }

    #[test]
    fn keys_are_spread_evenly() {
        const KEYS: usize = 1_000_000;
        let nodes = Nodes::new(names(100));
        let mut keys = std::collections::HashMap::new();
        for key in 0..KEYS {
            *keys.entry(nodes.of(format!("user:{key}").as_bytes()).expect("nodes")).or_insert(0_usize) += 1;
        }
        let (least, most) = (keys.values().min().expect("nodes"), keys.values().max().expect("nodes"));
        assert_eq!(keys.len(), 100);
        // Within 5 % of an even share.
        assert!(least * 100 >= KEYS * 95 / 100 && most * 100 <= KEYS * 105 / 100, "{least} to {most}");
    }

    #[test]
    fn a_node_that_leaves_moves_its_own_keys_only() {
        let all = names(20);
        let before = Nodes::new(&all);
        for leaving in &all {
            let after = Nodes::new(all.iter().filter(|name| *name != leaving));
            let mut moved = 0;
            for key in 0..2_000 {
                let key = format!("login:{key}");
                let (old, new) = (before.of(key.as_bytes()), after.of(key.as_bytes()));
                assert_eq!(old == new, old != Some(&leaving), "{key}");
                moved += usize::from(old != new);
            }
            assert!((50..200).contains(&moved), "{moved} of 2,000 belonged to {leaving}");
        }
    }

    #[test]
    fn neither_the_order_of_nodes_nor_repeated_names_matter() {
        let all = names(30);
        let mut others: Vec<_> = all.iter().rev().chain(&all[..10]).collect();
        others.rotate_left(7);
        let (nodes, others) = (Nodes::new(&all), Nodes::new(others));
        for key in 0..5_000 {
            let key = format!("{key}");
            assert_eq!(nodes.of(key.as_bytes()), others.of(key.as_bytes()), "{key}");
        }
        assert_eq!(Nodes::new([""; 0]).of(b"k"), None);
        assert_eq!(Nodes::new(["a", "a"]).of(b"k"), Some(&"a"));
    }

    #[test]
    fn of_equal_weights_the_greatest_name_wins() {
        // Names whose hashes are equal are hard to find, so these are given the same hash.
        let nodes = |names: [&'static str; 3]| {
            let mut nodes = Nodes::new(names);
            nodes.nodes.iter_mut().for_each(|(hash, _)| *hash = 7);
            nodes
        };
        assert_eq!(nodes(["b", "c", "a"]).of(b"k"), Some(&"c"));
        assert_eq!(nodes(["c", "a", "b"]).of(b"k"), Some(&"c"));
    }
}
