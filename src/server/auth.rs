//! The password: the challenge in HI, the answer in HELLO.
//!
//! The server greets with a salt and a count; the client answers with the lower-case hex of SHA-256 over password and salt, hashed
//! again until it has been hashed count times in all. A client that speaks version 1 or says no version hashes once.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Rounds of hashing asked of a client; what Faktory asks is between 4 000 and 8 000.
const ROUNDS: u32 = 5_000;

/// What clients have to know. Never shown.
#[derive(Clone)]
pub struct Password(String);

impl Password {
    /// A password; `None` if it is empty, which is none.
    #[must_use]
    pub fn new(password: &str) -> Option<Self> {
        (!password.is_empty()).then(|| Password(password.to_owned()))
    }

    /// Whether `given` is the password; the time it takes tells nothing about how much of it was right.
    #[must_use]
    pub fn is(&self, given: &str) -> bool {
        // Hashes, so that the length tells nothing either.
        Sha256::digest(&self.0).ct_eq(&Sha256::digest(given)).into()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// The challenge of one connection.
#[derive(Clone, Debug)]
pub(super) struct Challenge {
    salt: String,
}

impl Challenge {
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        let mut salt = [0; 8];
        getrandom::fill(&mut salt)?;
        Ok(Challenge { salt: hex(&salt) })
    }

    /// What HI says after the version.
    pub(super) fn hi(&self) -> String {
        format!(r#"+HI {{"v":2,"i":{ROUNDS},"s":"{}"}}"#, self.salt)
    }

    /// Whether `answer` is right, for a client that said version `v`. Slow on purpose: not for an I/O thread.
    pub(super) fn is_met(&self, password: &Password, v: Option<u64>, answer: &str) -> bool {
        let rounds = if v.unwrap_or(1) < 2 { 1 } else { ROUNDS };
        let mut hash = Sha256::new().chain_update(&password.0).chain_update(&self.salt).finalize();
        for _ in 1..rounds {
            hash = Sha256::digest(hash);
        }
        hex(&hash).as_bytes().ct_eq(answer.as_bytes()).into()
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client's side, as the protocol states it.
    fn answer(password: &str, salt: &str, rounds: u32) -> String {
        let mut hash = Sha256::digest(format!("{password}{salt}")).to_vec();
        for _ in 1..rounds {
            hash = Sha256::digest(&hash).to_vec();
        }
        hex(&hash)
    }

    #[test]
    fn the_right_answer_and_no_other() {
        let password = Password::new("sesame").unwrap();
        let challenge = Challenge::new().unwrap();
        let good = answer("sesame", &challenge.salt, ROUNDS);
        assert!(challenge.is_met(&password, Some(2), &good));
        assert!(!challenge.is_met(&password, Some(1), &good));
        assert!(!challenge.is_met(&password, Some(2), &good.to_uppercase()));
        assert!(!challenge.is_met(&password, Some(2), &good[..63]));
        assert!(!challenge.is_met(&password, Some(2), ""));
        let once = answer("sesame", &challenge.salt, 1);
        assert!(challenge.is_met(&password, None, &once));
        assert!(challenge.is_met(&password, Some(0), &once));
        assert!(!challenge.is_met(&password, Some(2), &once));
    }

    #[test]
    fn a_known_hash() {
        // printf abc | sha256sum
        assert_eq!(answer("a", "bc", 1), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn it_is_never_shown_and_empty_is_none() {
        assert_eq!(format!("{:?}", Password::new("sesame")), "Some(Password(…))");
        assert!(Password::new("").is_none());
    }
}
