//! Keys that two agents share and the server does not know.

use hkdf::Hkdf;
use rand::TryRng;
use rand::rngs::SysRng;
use sha2::Sha256;
use x25519_dalek::StaticSecret;

use crate::error::{Error, Result};

/// The length of keys and seeds in bytes.
pub const KEY_BYTES: usize = 32;

/// The largest number of agents of secure sums between machines: each pair has a key.
pub const MAX_PAIRED: usize = 100;

/// The seed of a mask.
pub type Seed = [u8; KEY_BYTES];

/// The public half of a key (X25519).
pub type PublicKey = [u8; KEY_BYTES];

/// An agent's secret key (X25519).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; KEY_BYTES]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// The key that belongs to an agent's own random bytes, of which other secrets are made too.
    pub fn of_agent(random: &[u8; KEY_BYTES]) -> Self {
        let mut bytes = [0; KEY_BYTES];
        Hkdf::<Sha256>::from_prk(random).expect("32 bytes").expand(b"fedsa/agent/1", &mut bytes).expect("32 bytes");
        Self(bytes)
    }

    /// The key with these bytes.
    pub fn of_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        x25519_dalek::PublicKey::from(&StaticSecret::from(self.0)).to_bytes()
    }
}

/// Random bytes of the operating system.
///
/// # Errors
/// When it has no source of random numbers.
pub fn random_bytes() -> Result<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    SysRng.try_fill_bytes(&mut bytes).map_err(no_random_numbers)?;
    Ok(bytes)
}

/// The error of a system without random numbers.
pub(crate) fn no_random_numbers(e: impl std::fmt::Display) -> Error {
    Error::machine(format!("no random numbers: {e}"), "a system with a source of random numbers")
}

/// The keys `K_ij` that an agent i shares with the other agents j in one epoch.
#[derive(Clone)]
pub struct PairKeys {
    agent: u32,
    /// By agent; `None` for itself.
    keys: Vec<Option<[u8; KEY_BYTES]>>,
    publics: Vec<PublicKey>,
}

impl PairKeys {
    /// The keys of agent `agent` with all others, whose public keys are `publics` by number. They hold for one epoch of the federation whose
    /// settings and members have the hash `settings`:
    ///
    /// `K_ij = HKDF-SHA256(salt settings, X25519, "fedsa/pair/1" | epoch | min(i, j) | max(i, j) | pk_min | pk_max)`
    ///
    /// # Errors
    /// When the agent's own key is not among the public keys at its place, two agents have the same key, or a key gives no shared secret.
    pub fn new(secret: &Secret, agent: usize, publics: &[PublicKey], settings: &[u8; KEY_BYTES], epoch: u64) -> Result<Self> {
        let refused = |what: String| Error::refused_message(what, "a fresh X25519 key of each agent");
        if publics.get(agent) != Some(&secret.public()) {
            return Err(refused(format!("another key in place of that of agent {agent}")));
        }
        let own = StaticSecret::from(secret.0);
        let key = |(j, public): (usize, &PublicKey)| {
            if j == agent {
                return Ok(None);
            }
            if publics[..j].contains(public) {
                return Err(refused(format!("agent {j} with the key of another agent")));
            }
            let shared = own.diffie_hellman(&x25519_dalek::PublicKey::from(*public));
            if !shared.was_contributory() {
                return Err(refused(format!("a key of agent {j} that gives no shared secret")));
            }
            let (low, high) = (agent.min(j), agent.max(j));
            let mut info = b"fedsa/pair/1".to_vec();
            [epoch as u32, low as u32, high as u32].iter().for_each(|x| info.extend(x.to_le_bytes()));
            info.extend(publics[low]);
            info.extend(publics[high]);
            let mut key = [0; KEY_BYTES];
            Hkdf::<Sha256>::new(Some(settings), shared.as_bytes()).expand(&info, &mut key).expect("32 bytes");
            Ok(Some(key))
        };
        let keys = publics.iter().enumerate().map(key).collect::<Result<_>>()?;
        Ok(Self { agent: agent as u32, keys, publics: publics.to_vec() })
    }

    /// The number of this agent.
    pub fn agent(&self) -> usize {
        self.agent as usize
    }

    /// The public keys of all agents, by number.
    pub fn publics(&self) -> &[PublicKey] {
        &self.publics
    }

    /// The number of agents.
    pub fn agents(&self) -> usize {
        self.keys.len()
    }

    /// The seed of the mask of this agent and agent j in one exchange, whose question has this hash:
    /// `k_ij = HKDF-Expand(K_ij, "fedsa/mask/1" | round | exchange | attempt | hash)`. `None` for the agent itself. Agents that got different
    /// questions have different masks, which do not cancel. There is one attempt, 0.
    pub fn seed(&self, j: usize, round: u64, exchange: u8, question: &[u8; 32]) -> Option<Seed> {
        const ATTEMPT: u8 = 0;
        let key = self.keys.get(j)?.as_ref()?;
        let mut info = b"fedsa/mask/1".to_vec();
        info.extend((round as u32).to_le_bytes());
        info.extend([exchange, ATTEMPT]);
        info.extend(question);
        let mut seed = [0; KEY_BYTES];
        Hkdf::<Sha256>::from_prk(key).expect("32 bytes").expand(&info, &mut seed).expect("32 bytes");
        Some(seed)
    }
}

#[cfg(test)]
mod tests {
    use sha2::Digest;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn pairs(agent: usize, secrets: [u8; 2]) -> PairKeys {
        let secrets = secrets.map(|x| Secret::of_bytes([x; 32]));
        let publics = [secrets[0].public(), secrets[1].public()];
        let settings = Sha256::digest(b"fedsa test settings").into();
        PairKeys::new(&secrets[agent], agent, &publics, &settings, 0).unwrap()
    }

    /// Computed separately.
    #[test]
    fn keys_and_seeds_have_the_reference_values() {
        let question = Sha256::digest(b"question").into();
        for (secrets, pair, seed) in
            [([1, 2], ("a6aec020", "438e7b5e"), ("1edcb03e", "861d7b81")), ([2, 1], ("a0f9faf5", "fa55f179"), ("eb158ed9", "d274bf402a"))]
        {
            for agent in 0..2 {
                let pairs = pairs(agent, secrets);
                let key = hex(&pairs.keys[1 - agent].unwrap());
                assert!(key.starts_with(pair.0) && key.ends_with(pair.1), "{key}");
                let k = hex(&pairs.seed(1 - agent, 5, 0, &question).unwrap());
                assert!(k.starts_with(seed.0) && k.ends_with(seed.1), "{k}");
                assert_eq!(pairs.seed(agent, 5, 0, &question), None);
            }
        }
    }

    #[test]
    fn every_change_of_the_exchange_gives_another_seed() {
        let (pairs, question) = (pairs(0, [1, 2]), [7; 32]);
        let seed = |round, exchange, question: &[u8; 32]| pairs.seed(1, round, exchange, question).unwrap();
        let first = seed(5, 0, &question);
        assert!([seed(6, 0, &question), seed(5, 1, &question), seed(5, 0, &[8; 32])].iter().all(|other| *other != first));
    }

    #[test]
    fn keys_that_cannot_be_are_refused() {
        let [a, b] = [1, 2].map(|x| Secret::of_bytes([x; 32]));
        let of = |publics: &[PublicKey]| PairKeys::new(&a, 0, publics, &[0; 32], 0);
        assert!(of(&[a.public(), b.public()]).is_ok());
        assert!(of(&[b.public(), a.public()]).is_err(), "its own key at another place");
        assert!(of(&[a.public(), b.public(), b.public()]).is_err(), "a key twice");
        assert!(of(&[a.public(), [0; 32]]).is_err(), "a key of small order");
    }

    #[test]
    fn secrets_are_not_the_random_bytes_and_not_shown() {
        let secret = Secret::of_agent(&[9; 32]);
        assert!(secret != Secret::of_bytes([9; 32]) && secret == Secret::of_agent(&[9; 32]));
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
