//! The server of a storm: its address, its handshake, its replies.

use std::fmt;
use std::io;
use std::str::FromStr;

use bytes::{Buf as _, BytesMut};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Most rounds of hashing that a server may ask for: seconds of work, and then somebody is playing.
const MOST_ROUNDS: u32 = 10_000_000;
const PORT: u16 = 7419;

/// Where the server is, and the password it asks for. Shown without that.
#[derive(Clone)]
pub(super) struct Target {
    address: String,
    password: String,
}

impl FromStr for Target {
    type Err = &'static str;

    fn from_str(url: &str) -> Result<Self, Self::Err> {
        let rest = match url.split_once("://") {
            Some(("tcp", rest)) => rest,
            Some(("tcp+tls", _)) => return Err("a storm is without TLS: give a tcp:// address"),
            Some(_) => return Err("not a tcp:// address"),
            None => url,
        };
        let (user, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let place = place.trim_end_matches('/');
        let password = user.split_once(':').map_or("", |(_, password)| password);
        let password = percent_decode_str(password).decode_utf8().map_err(|_| "the password is not UTF-8")?;
        // A port follows the last colon, unless that is within the brackets of IPv6.
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| "the port is not a number up to 65535")?)
            }
            _ => (place, PORT),
        };
        if host.is_empty() || host.contains('/') {
            return Err("not tcp://:password@host:port");
        }
        Ok(Target { address: format!("{host}:{port}"), password: password.into_owned() })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}", self.address)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server said so, in these words.
    Refused(String),
    Broken(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Broken(error)
    }
}

/// HI, as far as it matters here.
#[derive(Deserialize)]
struct Hi {
    #[serde(default)]
    s: Option<String>,
    #[serde(default)]
    i: Option<u32>,
}

/// HELLO.
#[derive(Serialize)]
struct Hello<'a> {
    hostname: &'a str,
    wid: &'a str,
    pid: u32,
    labels: &'a [&'a str],
    v: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pwdhash: Option<String>,
}

impl Target {
    /// A connection of this worker.
    pub(super) async fn connect(&self, wid: &str) -> Result<Link, Failure> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let mut link = Link { stream, bytes: BytesMut::new() };
        let hi = match link.reply().await? {
            Reply::Simple(text) => text,
            other => return Err(other.refusal()),
        };
        let hi: Hi =
            hi.strip_prefix("HI ").and_then(|json| serde_json::from_str(json).ok()).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("not a HI of the protocol: {hi}"))
            })?;
        let pwdhash = match hi.s {
            None => None,
            Some(salt) => Some(self.answer(salt, hi.i.unwrap_or(1)).await?),
        };
        let hello =
            Hello { hostname: "storm", wid, pid: std::process::id(), labels: &["storm"], v: 2, pwdhash };
        let hello = serde_json::to_string(&hello).map_err(io::Error::other)?;
        link.send(format!("HELLO {hello}\r\n").as_bytes()).await?;
        match link.reply().await? {
            Reply::Ok => Ok(link),
            other => Err(other.refusal()),
        }
    }

    /// The answer to a challenge. Off the threads that beat: it is slow on purpose.
    async fn answer(&self, salt: String, rounds: u32) -> Result<String, Failure> {
        if rounds > MOST_ROUNDS {
            return Err(Failure::Refused(format!("it asks for {rounds} rounds of hashing")));
        }
        let password = self.password.clone();
        let hash = move || {
            let mut hash = Sha256::new().chain_update(password).chain_update(salt).finalize();
            for _ in 1..rounds {
                hash = Sha256::digest(hash);
            }
            hash.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        tokio::task::spawn_blocking(hash).await.map_err(|error| io::Error::other(error).into())
    }
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Ok,
    Simple(String),
    Error(String),
    /// A string, which to a beat says the state the worker was told.
    Bulk,
    Nothing,
}

impl Reply {
    fn refusal(self) -> Failure {
        match self {
            Reply::Error(text) => Failure::Refused(text),
            other => Failure::Refused(format!("an answer out of turn: {other:?}")),
        }
    }
}

/// A connection after its HELLO.
#[derive(Debug)]
pub(super) struct Link {
    stream: TcpStream,
    bytes: BytesMut,
}

impl Link {
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads once. An error at the end of the stream.
    pub(super) async fn read(&mut self) -> io::Result<()> {
        self.bytes.reserve(512);
        match self.stream.read_buf(&mut self.bytes).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// The next of the replies that were read whole.
    pub(super) fn next(&mut self) -> io::Result<Option<Reply>> {
        next(&mut self.bytes)
    }

    async fn reply(&mut self) -> io::Result<Reply> {
        loop {
            match self.next()? {
                Some(reply) => return Ok(reply),
                None => self.read().await?,
            }
        }
    }

    /// Says goodbye.
    pub(super) async fn end(mut self) -> io::Result<()> {
        self.send(b"END\r\n").await?;
        self.stream.shutdown().await
    }
}

fn next(bytes: &mut BytesMut) -> io::Result<Option<Reply>> {
    const OK: &[u8] = b"+OK\r\n";
    if bytes.starts_with(OK) {
        bytes.advance(OK.len());
        return Ok(Some(Reply::Ok));
    }
    let Some(end) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
    let line = bytes[..end].trim_ascii_end();
    let text = || String::from_utf8_lossy(&line[1..]).into_owned();
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not a reply of the protocol");
    let (reply, len) = match line.first() {
        Some(b'+') => (Reply::Simple(text()), end + 1),
        Some(b'-') => (Reply::Error(text()), end + 1),
        Some(b'$') if line == b"$-1" => (Reply::Nothing, end + 1),
        Some(b'$') => {
            let len: u32 = text().parse().map_err(|_| invalid())?;
            let whole = end + 1 + len as usize + 2;
            if bytes.len() < whole {
                return Ok(None);
            }
            (Reply::Bulk, whole)
        }
        _ => return Err(invalid()),
    };
    bytes.advance(len);
    Ok(Some(reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (url, address, password) in [
            ("tcp://127.0.0.1:7419", "127.0.0.1:7419", ""),
            ("tcp://:se%40same@host:1/", "host:1", "se@same"),
            ("tcp://user:a:b@host", "host:7419", "a:b"),
            ("host:9", "host:9", ""),
            ("tcp://:x@[::1]", "[::1]:7419", "x"),
            ("tcp://[::1]:5", "[::1]:5", ""),
        ] {
            let target: Target = url.parse().unwrap();
            assert_eq!((target.address.as_str(), target.password.as_str()), (address, password), "{url}");
            assert_eq!(format!("{target:?}"), format!("tcp://{address}"), "the password is not shown");
        }
        for url in
            ["tcp+tls://host", "http://host", "tcp://", "tcp://:x@", "tcp://host:port", "tcp://a/b", ""]
        {
            assert!(url.parse::<Target>().is_err(), "{url}");
        }
    }

    #[test]
    fn replies_whole_and_torn() {
        let text =
            b"+OK\r\n$17\r\n{\"state\":\"quiet\"}\r\n-ERR unknown worker w\r\n$-1\r\n$0\r\n\r\n+HI {}\r\n";
        let expected = [
            Reply::Ok,
            Reply::Bulk,
            Reply::Error("ERR unknown worker w".to_owned()),
            Reply::Nothing,
            Reply::Bulk,
            Reply::Simple("HI {}".to_owned()),
        ];
        for cut in 0..text.len() {
            let (mut bytes, mut seen) = (BytesMut::new(), Vec::new());
            for part in [&text[..cut], &text[cut..]] {
                bytes.extend_from_slice(part);
                while let Some(reply) = next(&mut bytes).unwrap() {
                    seen.push(reply);
                }
            }
            assert_eq!(seen, expected, "cut at {cut}");
        }
        assert!(next(&mut BytesMut::from("$x\r\n")).is_err());
        assert!(next(&mut BytesMut::from("OK\r\n")).is_err());
    }
}
