//! The server with one worker connected to it, both on one thread: every instruction and every microsecond of an exchange is in
//! one place, the client's too, which only writes bytes that are ready and reads until all answers are there.

use std::time::Duration;

use heartwheel::server::{Config, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

const BEAT: &str = "BEAT {\"wid\":\"4qpc2443vpvai\",\"rss_kb\":54176}\r\n";
const OK: &str = "+OK\r\n";

/// A server and a worker's connection.
pub(crate) struct Served {
    runtime: Runtime,
    worker: TcpStream,
}

impl Served {
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut config = Config::default();
        config.listen.set_port(0);
        config.api.set_port(0);
        // Under valgrind everything takes longer.
        config.handshake = Duration::from_secs(60);
        let worker = runtime.block_on(async {
            let server = Server::bind(config).await.expect("free ports");
            let address = server.address().expect("it is bound");
            tokio::spawn(server.run(std::future::pending()));
            let mut worker = TcpStream::connect(address).await.expect("it listens");
            worker.set_nodelay(true).expect("it is a socket");
            expect(&mut worker, "+HI {\"v\":2}\r\n", 1).await;
            let hello =
                r#"HELLO {"hostname":"app-1","wid":"4qpc2443vpvai","pid":40275,"labels":["blue"],"v":2}"#;
            worker.write_all(format!("{hello}\r\n").as_bytes()).await.expect("it is open");
            expect(&mut worker, OK, 1).await;
            worker
        });
        Served { runtime, worker }
    }

    /// Sends `deep` beats at once and waits for their answers, `rounds` times. Panics unless each is answered OK.
    pub(crate) fn beats(&mut self, deep: usize, rounds: u64) {
        let lines = BEAT.repeat(deep);
        let worker = &mut self.worker;
        self.runtime.block_on(async {
            for _ in 0..rounds {
                worker.write_all(lines.as_bytes()).await.expect("it is open");
                expect(worker, OK, deep).await;
            }
        });
    }
}

/// Reads `answer`, `times` in a row, and nothing else.
async fn expect(worker: &mut TcpStream, answer: &str, times: usize) {
    let mut got = vec![0; answer.len() * times];
    worker.read_exact(&mut got).await.expect("it is open");
    assert!(got.chunks(answer.len()).all(|got| got == answer.as_bytes()), "not {answer:?}: {got:?}");
}
