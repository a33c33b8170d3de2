//! Peers that mean no good, or know no better: each meets its limit, and everybody else is served meanwhile.

#![cfg(feature = "server")]

mod served;

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use heartwheel::server::{Config, Password};
use served::{Client, Served, config};
use socket2::{Domain, Socket, Type};

/// A worker that must not notice anything.
struct Bystander(Client);

impl Bystander {
    fn of(served: &Served) -> Self {
        Bystander(served.worker("bystander"))
    }

    fn is_served(&mut self) {
        assert_eq!(self.0.ask(r#"BEAT {"wid":"bystander"}"#), "+OK\r\n");
    }
}

/// Nobody is timed out while the test is at work.
fn patient() -> Config {
    let mut config = config();
    config.handshake = served::LIMIT;
    config
}

#[test]
fn one_connection_too_many_is_told_so_and_the_others_and_the_api_are_not_touched() {
    let mut config = config();
    config.max_connections = 3;
    let served = Served::start(config);
    let mut bystander = Bystander::of(&served);
    let (one, _two) = (served.worker("one"), served.worker("two"));
    for _ in 0..5 {
        let mut refused = served.connect();
        refused.send("HELLO {\"v\":2}\r\n");
        assert_eq!(refused.line(), "-ERR too many connections: the limit is 3\r\n");
        assert_eq!(refused.rest().unwrap(), b"", "FIN, and no reset");
    }
    bystander.is_served();
    assert_eq!(served.get("/api/workers").0, 200);
    drop(one);
    served.until("its place is free", |registry| registry.get("one").is_none());
    // The place is given back a moment after the worker has left.
    served.until("somebody else has it", |_| served.connect().line().starts_with("+HI"));
}

#[test]
fn an_address_holds_only_so_many_places_without_a_hello() {
    let mut config = patient();
    config.max_handshakes = 4;
    let served = Served::start(config);
    let mut bystander = Bystander::of(&served);
    let mut crowd: Vec<Client> = (0..4).map(|_| served.connect()).collect();
    for client in &mut crowd {
        assert!(client.line().starts_with("+HI"));
    }
    let mut refused = served.connect();
    assert_eq!(
        refused.line(),
        "-ERR too many connections from your address without a HELLO: the limit is 4\r\n"
    );
    assert_eq!(refused.rest().unwrap(), b"");
    bystander.is_served();
    let mut elsewhere = Client::from(from(Ipv4Addr::new(127, 0, 0, 9), served.address));
    assert!(elsewhere.line().starts_with("+HI"), "another address has places of its own");
    // A HELLO makes room.
    assert_eq!(crowd[0].ask("HELLO {\"v\":2}"), "+OK\r\n");
    assert!(served.connect().line().starts_with("+HI"));
}

#[test]
fn who_does_not_say_hello_in_time_is_closed_however_slowly_it_talks() {
    let mut config = config();
    config.handshake = Duration::from_millis(500);
    let served = Served::start(config);
    let mut bystander = Bystander::of(&served);
    let mut silent = served.connect();
    silent.line();
    assert_eq!(silent.rest().unwrap(), b"");
    let mut dripping = served.connect();
    for byte in b"HELLO {\"wid\":\"slow\",\"hostname\":\"one byte after the other\"".iter().cycle() {
        if dripping.send_bytes(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bystander.is_served();
    assert_eq!(served.registry.stats().joined, 1);
}

#[test]
fn who_does_not_read_its_replies_is_closed() {
    let mut config = config();
    config.write_timeout = Duration::from_millis(300);
    let served = Served::start(config);
    let mut bystander = Bystander::of(&served);
    let mut deaf = served.worker("deaf");
    let commands = "INFO\r\n".repeat(10_000);
    let mut rounds = 0;
    while deaf.send_bytes(commands.as_bytes()).is_ok() {
        rounds += 1;
        assert!(rounds < 1_000, "it was let through");
    }
    served.until("it has left", |registry| registry.get("deaf").is_none());
    bystander.is_served();
}

#[test]
fn a_hello_that_is_none_ends_its_connection_only() {
    let served = Served::start(config());
    let mut bystander = Bystander::of(&served);
    let deep = format!("HELLO {{\"v\":2,\"x\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let wide = format!("HELLO {{\"v\":2,\"x\":\"{}\"}}", "x".repeat(40_000));
    let labels = format!("HELLO {{\"v\":2,\"wid\":\"w\",\"labels\":[{}\"l\"]}}", "\"l\",".repeat(64));
    for (line, reply) in [
        ("", ""),
        ("\0\0\0\0", ""),
        ("GET / HTTP/1.1", ""),
        ("\x16\x03\x01\x02\x00\x01\x00", ""),
        ("BEAT {\"wid\":\"bystander\"}", ""),
        ("hello {\"v\":2}", ""),
        ("HELLO {", ""),
        ("HELLO \"text\"", ""),
        ("HELLO {\"v\":\"two\"}", ""),
        ("HELLO {\"v\":-1}", ""),
        ("HELLO {\"wid\":7}", ""),
        ("HELLO {\"wid\":\"a\",\"wid\":\"b\"}", ""),
        ("HELLO {\"pid\":1e999}", ""),
        ("HELLO {\"labels\":{}}", ""),
        ("HELLO {\"v\":2} trailing", ""),
        (&wide, "-ERR line is longer than 32768 bytes\r\n"),
        (&labels, "-ERR 65 labels are over the limit of 64\r\n"),
    ] {
        let mut client = served.connect();
        assert!(client.line().starts_with("+HI"));
        client.send(line);
        client.send("\r\n");
        let shown: String = line.chars().take(60).collect();
        let rest = client.rest().unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(String::from_utf8(rest).unwrap(), reply, "{shown}");
        bystander.is_served();
    }
    // However deep what nobody reads is, it is skipped.
    let mut client = served.connect();
    client.line();
    assert_eq!(client.ask(&deep), "+OK\r\n");
    let nested = format!("BEAT {{\"wid\":\"bystander\",\"x\":{}", "{\"x\":".repeat(10_000));
    assert!(client.ask(&nested).starts_with("-ERR invalid BEAT"));
    let stats = served.registry.stats();
    assert_eq!((stats.joined, stats.live()), (1, 1));
}

#[test]
fn a_byte_at_a_time_is_as_good_as_all_at_once() {
    let served = Served::start(patient());
    let mut client = served.connect();
    client.line();
    for byte in b"HELLO {\"wid\":\"w\xc3\xb6rk\",\"v\":2}\r\nBEAT {\"wid\":\"w\xc3\xb6rk\"}\r\n" {
        client.send_bytes(&[*byte]).unwrap();
    }
    assert_eq!((client.line().as_str(), client.line().as_str()), ("+OK\r\n", "+OK\r\n"));
}

#[test]
fn a_storm_of_logins_holds_up_neither_beats_nor_the_logins_of_others() {
    let mut config = config();
    config.password = Password::new("sesame");
    config.handshake = served::LIMIT;
    let served = Served::start(config);
    let answer = |hi: &str| served::answer("sesame", hi);
    let login = |mut client: Client, wid: &str| {
        let hash = answer(&client.line());
        assert_eq!(client.ask(&format!(r#"HELLO {{"v":2,"wid":"{wid}","pwdhash":"{hash}"}}"#)), "+OK\r\n");
        client
    };
    let mut bystander = Bystander(login(served.connect(), "bystander"));
    let guess = format!("HELLO {{\"v\":2,\"pwdhash\":\"{}\"}}\r\n", "0".repeat(64));
    let mut storm: Vec<Client> = (0..500)
        .map(|_| {
            let mut client = Client::from(from(Ipv4Addr::new(127, 0, 0, 9), served.address));
            client.send(&guess);
            client
        })
        .collect();
    bystander.is_served();
    // Not behind all of them: an address has one turn at a time.
    login(served.connect(), "w1");
    bystander.is_served();
    for client in &mut storm {
        client.line();
        assert_eq!(client.line(), "-ERR Invalid password\r\n");
    }
}

#[test]
fn without_a_descriptor_left_it_waits_and_goes_on() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_heartwheel"))
        .args(["serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"])
        .env_remove("HEARTWHEEL_PASSWORD")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = std::io::BufReader::new(program.stderr.take().unwrap());
    let mut first = String::new();
    std::io::BufRead::read_line(&mut log, &mut first).unwrap();
    let address: SocketAddr =
        first.split("workers=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let mut bystander = Client::new(address);
    bystander.line();
    assert_eq!(bystander.ask("HELLO {\"wid\":\"bystander\",\"v\":2}"), "+OK\r\n");
    let limit = |soft: u32| {
        let limit = format!("--nofile={soft}:");
        let done = Command::new("prlimit").args(["--pid", &program.id().to_string(), &limit]).status();
        assert!(done.unwrap().success());
    };
    limit(20);
    let mut crowd: Vec<Client> = (0..40).map(|_| Client::new(address)).collect();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(bystander.ask(r#"BEAT {"wid":"bystander"}"#), "+OK\r\n");
    let spent = cpu_ms(program.id());
    std::thread::sleep(Duration::from_secs(1));
    let spent = cpu_ms(program.id()) - spent;
    assert!(spent < 500, "{spent} ms of a second: it spins");
    limit(400);
    assert!(crowd[39].line().starts_with("+HI"), "the last in line is accepted after all");
    drop((crowd, bystander));
    program.kill().unwrap();
    program.wait().unwrap();
    let said = std::io::read_to_string(log).unwrap();
    assert_eq!(said.matches("cannot accept").count(), 1, "{said}");
}

/// Processor time of a process.
fn cpu_ms(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // Ticks of a hundredth of a second, in user and in system mode.
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

/// A connection from another loopback address.
fn from(address: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}
