//! What connections cost that have not said who they are. In a process of its own, for it is measured by that.

#![cfg(feature = "server")]

mod served;

use std::io::Write as _;
use std::net::TcpStream;

use served::{Served, config};

#[test]
fn a_thousand_that_dribble_cost_little_memory() {
    const CROWD: u32 = 1_000;
    let mut config = config();
    config.handshake = served::LIMIT;
    config.max_handshakes = 2_000;
    let served = Served::start(config);
    let mut bystander = served.worker("bystander");
    let before = resident_kb();
    let mut crowd: Vec<TcpStream> = (0..CROWD).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    for byte in b"HELLO" {
        for stream in &mut crowd {
            stream.write_all(&[*byte]).unwrap();
        }
        assert_eq!(bystander.ask(r#"BEAT {"wid":"bystander"}"#), "+OK\r\n");
    }
    assert!(served.get("/api/stats").1.contains("\"refused\":0"), "each of them has its place");
    let grown = resident_kb().saturating_sub(before);
    assert!(grown < u64::from(CROWD) * 12, "{grown} KiB for {CROWD} connections");
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
