//! A mesh of nodes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lately::SystemClock;
use lately_engines::{Block, Engine, PeerTls, Peers, PeersConfig, Resolve};

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
    let config = PeersConfig::new(&format!("n{number}"), urls, Arc::new(SystemClock::new()));
    Peers::new(PeersConfig { tls, most_bytes, ..config }).expect("addresses")
}

impl Mesh {
    fn start(count: usize) -> Mesh {
        let (listeners, urls) = listeners(count);
        let mut nodes = Vec::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            let mut others = urls.clone();
            others.remove(number);
            let node = node(number, others, None, 1 << 30);
            tokio::spawn(node.network().run(listener, None));
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
            tokio::spawn(node.network().run(listener, None));
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

/// One name has the addresses of all nodes: they come and go with it, and each leaves its own out.
#[test]
fn nodes_come_and_go_with_their_name() {
    run(async {
        let (listeners, _) = listeners(3);
        let addresses: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().expect("it is bound")).collect();
        let found = Arc::new(Mutex::new(Ok(addresses[..2].to_vec())));
        let set = |new: Result<Vec<SocketAddr>, &'static str>| *found.lock().expect("no panic") = new;
        let mut nodes = Vec::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            let found = Arc::clone(&found);
            let resolve: Resolve = Arc::new(move |host, port| {
                assert_eq!((host.as_str(), port), ("lately.example", 7382));
                let found = found.lock().expect("no panic").clone().map_err(io::Error::other);
                Box::pin(async move { found })
            });
            let urls = vec!["dns://lately.example".to_owned()];
            let config = PeersConfig::new(&format!("n{number}"), urls, Arc::new(SystemClock::new()));
            let node = Peers::new(PeersConfig { resolve: Some(resolve), ..config }).expect("a name");
            tokio::spawn(node.network().run(listener, None));
            nodes.push(node);
            if number == 1 {
                // The third one starts later.
                for node in &nodes {
                    until(|| node.is_complete()).await;
                }
                set(Ok(addresses.clone()));
            }
        }
        let (mut counted, block) = (known(0, START_MS, 5), known(0, START_MS, 0));
        let block = Block::of(b"k", block.levels, block.cell);
        nodes[0].send(&[write(b"k", &counted)]).await.expect("others take it");
        for node in &mut nodes {
            until_read(node, block, 5).await;
            until(|| node.is_complete() && node.problem().is_none()).await;
        }
        // The last answer is kept, and the failure is said.
        set(Err("no such name"));
        let mut warning = None;
        until(|| {
            warning = nodes[0].warning();
            warning.is_some()
        })
        .await;
        let expected =
            "dns://lately.example:7382 cannot be resolved: no such name: its last addresses are used";
        assert_eq!(warning.as_deref(), Some(expected));
        counted.tally.counted = 7;
        nodes[0].send(&[write(b"k", &counted)]).await.expect("others take it");
        until_read(&mut nodes[2], block, 7).await;
        assert_eq!(nodes[0].problem(), None);
        // One that does not answer is missed until the name does not have it any more.
        let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
        set(Ok(vec![addresses[0], addresses[2], gone]));
        until(|| nodes.iter().all(|node| node.problem().is_some())).await;
        set(Ok(vec![addresses[0], addresses[2]]));
        until(|| nodes.iter().all(|node| node.problem().is_none())).await;
    });
}

/// Waits until a node has this number of hits in a block.
async fn until_read(node: &mut Peers, block: Block<'_>, hits: u64) {
    loop {
        let told = node.read(&[block]).await.expect("it answers");
        if told[0].iter().map(|known| known.tally.counted).sum::<u64>() == hits {
            return;
        }
        tokio::task::yield_now().await;
    }
}
