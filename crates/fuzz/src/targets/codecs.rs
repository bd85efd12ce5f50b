//! The bytes of every codec.

use std::sync::{Arc, LazyLock};

use fedsa::random::Stream;
use fedsa::uplink::codec::{Codec, KINDS};

use super::wire::common;
use crate::{Corpus, Target, Verdict, refused};

/// The bytes of codecs.
pub const CODECS: Target = Target { name: "codecs", about: "the bytes of every codec", corpora, run, memory: |len| (1 << 20) + 64 * len };

/// Every codec, with settings that differ in what is sent.
pub(super) static ALL: LazyLock<Vec<Arc<dyn Codec>>> = LazyLock::new(|| {
    let mut settings = vec![r#"{"kind": "exact"}"#.to_string(), r#"{"kind": "float32"}"#.into()];
    for rounding in ["stochastic", "dither", "nearest"] {
        settings.extend(
            [1, 2, 3, 8, 20, 33, 51, 52, 64].map(|bits| format!(r#"{{"kind": "quantised", "bits": {bits}, "rounding": "{rounding}"}}"#)),
        );
    }
    for kind in ["top-k", "rand-k"] {
        settings
            .extend(["\"k\": 1", "\"k\": 3", "\"fraction\": 0.4", "\"fraction\": 1.0"].map(|k| format!(r#"{{"kind": "{kind}", {k}}}"#)));
    }
    settings.push(r#"{"kind": "rand-k", "k": 3, "unbiased": false}"#.into());
    for kind in KINDS {
        assert!(settings.iter().any(|s| s.contains(&format!("\"kind\": \"{}\"", kind.name))), "{} is not fuzzed", kind.name);
    }
    settings.iter().map(|s| common::link(s, false, &[]).expect("settings in their range").codec).collect()
});

/// Lengths of vectors: around the blocks that codecs work in.
const LENGTHS: [usize; 12] = [3, 4, 5, 7, 8, 16, 17, 64, 65, 127, 129, 300];

fn open() -> Stream {
    Stream::default()
}

fn vector(n: usize) -> Vec<f64> {
    let mut stream = open();
    (0..n).map(|_| stream.normal()).collect()
}

fn corpora() -> Vec<Corpus> {
    let mut seeds = Vec::new();
    for (c, codec) in ALL.iter().enumerate() {
        for (l, n) in LENGTHS.into_iter().enumerate().filter(|(l, _)| (l + c) % 3 == 0) {
            let mut data = vec![c as u8, l as u8];
            codec.encode(&vector(n), None, &mut open(), &mut data);
            seeds.push(data);
        }
    }
    vec![Corpus::bytes(seeds)]
}

fn run(data: &[u8]) -> Verdict {
    let [c, l, bytes @ ..] = data else { return Verdict::PassedOver };
    let codec = &ALL[usize::from(*c) % ALL.len()];
    let n = LENGTHS[usize::from(*l) % LENGTHS.len()];
    let mut out = vec![0.0; n];
    let used = match codec.decode(bytes, &mut open(), &mut out) {
        Ok(used) => used,
        Err(e) => return refused(&e),
    };
    assert!((codec.min_len(n)..=bytes.len()).contains(&used), "{used} bytes of {}", bytes.len());
    // What was decoded is a vector like any other.
    let mut again = Vec::new();
    codec.encode(&out, None, &mut open(), &mut again);
    assert_eq!(Some(again.len()), codec.encoded_len(n, None));
    let mut back = vec![0.0; n];
    assert_eq!(codec.decode(&again, &mut open(), &mut back), Ok(again.len()));
    if codec.is_exact() {
        assert_eq!(again, bytes[..used]);
    }
    Verdict::Accepted
}
