//! Speed of every codec: GB of f64 input a second, on one core, and the time of a short message.
//!
//! `cargo run --release -p fedsa --example codecs [components]`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::uplink::codec::{Codec, CodecSettings, ExactSettings, Float32, Quantised, RandK, Rounding, TopK};

/// Seconds of encoding and of decoding `x`, the best of many.
fn time(codec: &dyn Codec, x: &[f64]) -> (f64, f64) {
    let open = |round| stream(0, Purpose::Codec, round, ALL);
    let (mut bytes, mut out) = (Vec::new(), vec![0.0; x.len()]);
    let repeats = (200_000_000 / (8 * x.len())).clamp(10, 100_000);
    let inner = (10_000 / x.len()).max(1); // the clock's own 20 ns must not count
    let (mut encode, mut decode) = (f64::INFINITY, f64::INFINITY);
    for round in 0..repeats / inner {
        let start = Instant::now();
        for _ in 0..inner {
            bytes.clear();
            codec.encode(black_box(x), None, &mut open(round as u64), &mut bytes);
        }
        encode = encode.min(start.elapsed().as_secs_f64() / inner as f64);
        let start = Instant::now();
        for _ in 0..inner {
            let mut stream: Stream = open(round as u64);
            codec.decode(black_box(&bytes), &mut stream, &mut out).expect("what was just encoded");
        }
        decode = decode.min(start.elapsed().as_secs_f64() / inner as f64);
        black_box(&out);
    }
    (encode, decode)
}

fn main() {
    let n = std::env::args().nth(1).map_or(1 << 20, |n| n.parse().expect("a number of components"));
    let mut normals = stream(0, Purpose::Start, 0, ALL);
    let x: Vec<f64> = (0..n).map(|_| normals.normal()).collect();
    let mut codecs: Vec<(String, Arc<dyn Codec>)> =
        vec![("exact".into(), ExactSettings {}.build()), ("float32".into(), Float32 {}.build())];
    for rounding in [Rounding::Stochastic, Rounding::Dither, Rounding::Nearest] {
        for bits in [1, 2, 3, 4, 8, 11, 16, 32, 64] {
            codecs.push((
                format!("quantised, {bits} bits, {rounding:?}").to_lowercase(),
                Quantised::new(bits).with_rounding(rounding).build(),
            ));
        }
    }
    for fraction in [0.01, 0.1, 0.5] {
        codecs.push((format!("top-k, fraction {fraction}"), TopK::default().with_k(None).with_fraction(fraction).build()));
        codecs.push((
            format!("rand-k, fraction {fraction}"),
            RandK::default().with_k(None).with_fraction(fraction).with_unbiased(true).build(),
        ));
    }
    println!(
        "{:<34} {:>15} {:>15} {:>14} {:>14}",
        format!("{n} components"),
        "encode, GB/s",
        "decode, GB/s",
        "encode 8, ns",
        "decode 8, ns"
    );
    for (name, codec) in codecs {
        let (encode, decode) = time(&*codec, &x);
        let (encode8, decode8) = time(&*codec, &x[..x.len().min(8)]);
        let rate = |seconds: f64| 8.0 * n as f64 / seconds / 1e9;
        println!("{name:<34} {:>15.2} {:>15.2} {:>14.0} {:>14.0}", rate(encode), rate(decode), encode8 * 1e9, decode8 * 1e9);
    }
}
