//! A server in this process, on ports of its own, and a plain client for it.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(unreachable_pub, reason = "shared by test crates")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use heartwheel::server::{Config, Server};
use heartwheel::{Policy, Registry};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

/// A running server; stopped when dropped.
pub struct Served {
    pub address: SocketAddr,
    pub api: SocketAddr,
    pub registry: Registry,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The default configuration, on free ports.
pub fn config() -> Config {
    let mut config = Config::default();
    config.listen.set_port(0);
    config.api.set_port(0);
    config
}

/// A short policy for tests of reaping.
pub fn short(ttl: Duration, tick: Duration) -> Config {
    let mut policy = Policy::default();
    policy.ttl = ttl;
    policy.tick = tick;
    let mut config = config();
    config.policy = policy;
    config
}

impl Served {
    pub fn start(config: Config) -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(config).await.unwrap();
                let addresses = (server.address().unwrap(), server.api_address().unwrap());
                tell.send((addresses, server.registry().clone())).unwrap();
                server.run(async { drop(stopped.await) }).await.unwrap();
            });
        });
        let ((address, api), registry) = told.recv().unwrap();
        Served { address, api, registry, stop: Some(stop), thread: Some(thread) }
    }

    /// A connection that has read nothing yet.
    pub fn connect(&self) -> Client {
        Client::new(self.address)
    }

    /// A connection after HI and HELLO.
    pub fn hello(&self, hello: &str) -> Client {
        let mut client = self.connect();
        client.line();
        client.send(&format!("HELLO {hello}\r\n"));
        assert_eq!(client.line(), "+OK\r\n");
        client
    }

    pub fn worker(&self, wid: &str) -> Client {
        self.hello(&format!(r#"{{"wid":"{wid}","hostname":"h","pid":1,"labels":[],"v":2}}"#))
    }

    /// An HTTP request; the status and the body.
    pub fn http(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.api).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.http(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.http(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// Waits until `done`, for at most the limit of all tests.
    pub fn until(&self, what: &str, mut done: impl FnMut(&Registry) -> bool) {
        for _ in 0..LIMIT.as_millis() / 5 {
            if done(&self.registry) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("waited in vain: {what}");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server panicked");
        }
    }
}

/// The answer to the challenge in HI.
pub fn answer(password: &str, hi: &str) -> String {
    let hi: serde_json::Value = serde_json::from_str(hi.strip_prefix("+HI ").unwrap()).unwrap();
    hash(password, hi["s"].as_str().unwrap(), hi["i"].as_u64().unwrap())
}

/// The hash of a password and a salt, after so many rounds.
pub fn hash(password: &str, salt: &str, rounds: u64) -> String {
    let mut hash = Sha256::digest(format!("{password}{salt}")).to_vec();
    for _ in 1..rounds {
        hash = Sha256::digest(&hash).to_vec();
    }
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// So long may anything take before a test calls it lost.
pub const LIMIT: Duration = Duration::from_secs(20);

/// One connection, in plain blocking calls.
pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl From<TcpStream> for Client {
    fn from(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Client { stream, reader }
    }
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        TcpStream::connect(address).unwrap().into()
    }

    pub fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// One line with its end; empty at the end of the stream.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).unwrap();
        String::from_utf8_lossy(&line).into_owned()
    }

    /// One reply: a line, and what it announces.
    pub fn reply(&mut self) -> String {
        let mut reply = self.line();
        if let Some(len) = reply.strip_prefix('$').and_then(|len| len.trim().parse::<usize>().ok()) {
            let mut bulk = vec![0; len + 2];
            self.reader.read_exact(&mut bulk).unwrap();
            reply.push_str(&String::from_utf8_lossy(&bulk));
        }
        reply
    }

    pub fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.send("\r\n");
        self.reply()
    }

    /// The text of a bulk reply.
    pub fn ask_bulk(&mut self, command: &str) -> Option<String> {
        let reply = self.ask(command);
        let (head, rest) = reply.split_once("\r\n")?;
        assert!(head.starts_with('$'), "{reply}");
        rest.strip_suffix("\r\n").map(str::to_owned)
    }

    /// Exactly so many bytes.
    pub fn read(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The rest of the stream; an error if it ends with a reset.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
