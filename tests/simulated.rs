//! The simulated fleet of the examples comes out the same in every run.

#![allow(dead_code, unreachable_pub, reason = "it is a program of its own")]

#[path = "../examples/simulated.rs"]
mod simulated;

const EXPECTED: &str = r"
  0 s:    67 live,    0 late,    0 expired,     0 left
 30 s: 10000 live,    0 late,    0 expired,     0 left
 60 s: 10000 live,    0 late,    0 expired,     0 left
 90 s: 10000 live, 1000 late,    0 expired,     0 left
120 s:  9000 live,    0 late, 1000 expired,     0 left
150 s:  9000 live,    0 late, 1000 expired,     0 left
180 s: 10000 live,    0 late, 1000 expired,     0 left
210 s: 10000 live,    0 late, 1000 expired,   500 left
240 s: 10000 live,    0 late, 1000 expired,   500 left, drain active: 0 of 10000 done, 1000 out (at most 1000), 9000 waiting, 0 vanished
270 s: 10000 live,    0 late, 1000 expired, 10406 left, drain active: 9906 of 10000 done, 94 out (at most 1000), 0 waiting, 0 vanished
300 s: 10000 live,    0 late, 1000 expired, 10500 left, drain finished: 10000 of 10000 done, 0 out (at most 1000), 0 waiting, 0 vanished
330 s: 10000 live,    0 late, 1000 expired, 10500 left, drain finished: 10000 of 10000 done, 0 out (at most 1000), 0 waiting, 0 vanished
10000 workers run the new version
";

#[test]
fn it_is_the_same_in_every_run() {
    for _ in 0..2 {
        let mut out = Vec::new();
        simulated::run(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), EXPECTED[1..]);
    }
}
