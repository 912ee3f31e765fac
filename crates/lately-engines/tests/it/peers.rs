//! A mesh of nodes.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use lately::SystemClock;
use lately_engines::{Block, Engine, PeerTls, Peers, PeersConfig};

use crate::{START_MS, check, known, run, write};

/// The nodes of a mesh on free ports. Their connections end with the runtime.
struct Mesh {
    nodes: Vec<Peers>,
}

fn listeners(count: usize) -> (Vec<TcpListener>, Vec<String>) {
    let listeners: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    let url = |listener: &TcpListener| format!("peer://{}", listener.local_addr().expect("it is bound"));
    let urls = listeners.iter().map(url).collect();
    (listeners, urls)
}

fn node(number: usize, urls: Vec<String>, tls: Option<PeerTls>, most_bytes: usize) -> Peers {
    Peers::new(PeersConfig {
        node: format!("n{number}"),
        urls,
        tls,
        most_bytes,
        held_bytes: Arc::<AtomicUsize>::default(),
        clock: Arc::new(SystemClock::new()),
    })
    .expect("addresses")
}

impl Mesh {
    fn start(count: usize) -> Mesh {
        let (listeners, urls) = listeners(count);
        let mut nodes = Vec::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            let mut others = urls.clone();
            others.remove(number);
            let node = node(number, others, None, 1 << 30);
            tokio::spawn(node.network().run(listener));
            nodes.push(node);
        }
        Mesh { nodes }
    }

    /// Waits until each node has read everything of each other one.
    async fn met(&self) {
        for node in &self.nodes {
            until(|| node.is_complete()).await;
        }
    }
}

/// Waits until something is so, and lets the nodes run meanwhile.
async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
        let _ = tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
    }
}

#[test]
fn a_mesh_conforms() {
    run(async {
        let mut mesh = Mesh::start(3);
        mesh.met().await;
        check(mesh.nodes.remove(0)).await;
    });
}

#[test]
fn counts_of_one_node_are_on_all() {
    run(async {
        let mut mesh = Mesh::start(3);
        mesh.met().await;
        for (by, hits) in [(0, 5), (1, 7), (2, 9)] {
            let known = known(by, START_MS, hits);
            mesh.nodes[by].send(&[write(b"k", &known)]).await.expect("others take it");
        }
        let known = known(0, START_MS, 0);
        let block = Block::of(b"k", known.levels, known.cell);
        for node in &mut mesh.nodes {
            loop {
                let told = node.read(&[block]).await.expect("it answers");
                let hits: u64 = told[0].iter().map(|known| known.tally.counted).sum();
                if (told[0].len(), hits) == (3, 21) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    });
}

/// Each refuses what is too much for it, and the others have it.
#[test]
fn a_node_without_room_says_so_and_the_others_count_on() {
    run(async {
        let (listeners, urls) = listeners(2);
        let mut nodes: Vec<Peers> = [4_000, 1 << 30]
            .into_iter()
            .enumerate()
            .map(|(number, most_bytes)| node(number, vec![urls[1 - number].clone()], None, most_bytes))
            .collect();
        for (node, listener) in nodes.iter().zip(listeners) {
            tokio::spawn(node.network().run(listener));
        }
        until(|| nodes.iter().all(Peers::has_met)).await;
        let known = known(1, START_MS, 5);
        let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
        let writes: Vec<_> = keys.iter().map(|key| write(key.as_bytes(), &known)).collect();
        let full = "the counts of all nodes fill their part of the memory ceiling: raise ceiling in [memory]";
        assert_eq!(nodes[0].send(&writes).await.expect_err("no room").to_string(), full);
        // The other one has room, and keeps them for when there is some.
        let _ = nodes[1].send(&writes).await;
        until(|| nodes[0].problem().is_some_and(|problem| problem.ends_with(full))).await;
        let blocks: Vec<_> = writes.iter().map(|write| write.block).collect();
        assert!(nodes[1].read(&blocks).await.expect("it answers").iter().all(|told| told.len() == 1));
    });
}
