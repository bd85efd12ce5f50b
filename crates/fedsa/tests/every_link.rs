//! Every method over every kind of link that it lives with, as bytes beside the engine: the iterates and the counts are the same. Kinds are
//! those of the registries of methods, codecs and media, and a kind that is added there must be added here.

use std::sync::Arc;

use crate::common::{Halves, bits, computing_alone, engine, field, link, methods, objectives, on_the_wire, problems};
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::record::OutputRule;
use fedsa::sampling::Law;
use fedsa::uplink::{Uplink, codec, stage};

const SEED: u64 = 5;
const AGENTS: usize = 5;
const ROUNDS: u64 = 5;

/// Codecs of every kind.
const CODECS: &[&str] = &[
    r#"{"kind": "exact"}"#,
    r#"{"kind": "float32"}"#,
    r#"{"kind": "quantised", "bits": 3}"#,
    r#"{"kind": "quantised", "bits": 2, "rounding": "dither"}"#,
    r#"{"kind": "top-k", "k": 2}"#,
    r#"{"kind": "rand-k", "k": 2}"#,
];

/// Media of every kind, alone and one after the other.
const MEDIA: &[&[&str]] = &[
    &[],
    &[r#"{"kind": "erasure", "success": 0.6}"#],
    &[r#"{"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.3}"#],
    &[r#"{"kind": "late", "law": "uniform", "min": 0, "max": 3}"#],
    &[r#"{"kind": "bit-budget", "bits": 3, "fading_snr": 1.0}"#],
    &[r#"{"kind": "bit-budget", "bits": 40, "fading_snr": 3.0}"#, r#"{"kind": "erasure", "success": 0.6}"#],
    &[r#"{"kind": "erasure", "success": 0.6}"#, r#"{"kind": "late", "law": "uniform", "min": 0, "max": 3}"#],
    &[r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#],
    &[r#"{"kind": "erasure", "success": 0.6}"#, r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#],
    &[r#"{"kind": "secure-sum", "bound": 50.0}"#],
    &[r#"{"kind": "erasure", "success": 0.7}"#, r#"{"kind": "secure-sum", "bound": 0.5, "bits": 11, "least_agents": 4}"#],
    &[r#"{"kind": "clip", "norm": 0.3}"#, r#"{"kind": "noise", "std": 0.1}"#, r#"{"kind": "secure-sum", "bound": 1.0, "bits": 50}"#],
    &[r#"{"kind": "delay", "law": "uniform", "max": 2}"#],
    &[r#"{"kind": "clip", "norm": 0.3}"#],
    &[r#"{"kind": "noise", "std": 0.1}"#],
    &[r#"{"kind": "clip", "norm": 0.3}"#, r#"{"kind": "noise", "std": 0.1}"#, r#"{"kind": "erasure", "success": 0.6}"#],
    &[r#"{"kind": "noise", "std": 0.1}"#, r#"{"kind": "clip", "norm": 0.3}"#, r#"{"kind": "late", "law": "uniform", "min": 0, "max": 3}"#],
];

/// A link of these parts, if there is one.
fn built(codec: &str, feedback: bool, media: &[&str], downlink: &str) -> Option<Uplink> {
    let uplink = link(codec, feedback, media).ok()?;
    Some(uplink.with_downlink(link(downlink, false, &[]).unwrap().codec))
}

/// Every uplink, and every downlink under the first of them; all pairs where `all`.
fn links(all: bool) -> Vec<(String, Uplink)> {
    let mut links = Vec::new();
    for (i, codec) in CODECS.iter().enumerate() {
        for feedback in [false, true] {
            for (j, media) in MEDIA.iter().enumerate() {
                for (k, downlink) in CODECS.iter().enumerate() {
                    // Each codec with each medium, and each downlink with each codec and each medium once.
                    if all || k == 0 || k == (i + j) % CODECS.len() {
                        let name = format!("{codec}, feedback {feedback}, {media:?}, down {downlink}");
                        links.extend(built(codec, feedback, media, downlink).map(|uplink| (name, uplink)));
                    }
                }
            }
        }
    }
    links
}

/// Compares the engine with halves that exchange bytes; whether the method lives with the link and the link is one of nodes.
fn compare(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, what: &str) -> bool {
    let Ok(mut engine) = engine(field, method, uplink, OutputRule::Last, SEED, vec![0.0; field.dim()]) else { return false };
    let Ok(mut halves) = Halves::new(field, method, uplink, SEED) else {
        assert!(uplink.pull().is_some(), "{what}: the engine lives with the link and nodes do not");
        return false;
    };
    for t in 0..ROUNDS {
        engine.step();
        halves.round();
        assert_eq!(bits(halves.server.theta()), bits(engine.theta()), "{what}, round {t}");
    }
    // What is told of the last round has been counted by the engine, and travels with no question any more.
    halves.finish();
    assert_eq!(halves.ledger, on_the_wire(engine.ledger()), "{what}");
    true
}

fn every_link(all: bool) {
    let garnet = field(&*problems(AGENTS)[0].1, Law::Markov);
    let objective = field(&*objectives(AGENTS)[0].1, Law::Markov);
    let first_order = methods(None).into_iter().chain(methods(Some(3))).map(|method| (&garnet, method));
    let every_method: Vec<_> = first_order.chain(computing_alone().into_iter().map(|method| (&objective, method))).collect();
    let links = links(all);
    let mut used = vec![false; links.len()];
    for (field, (kind, method)) in &every_method {
        let mut lives = 0;
        for (used, (name, uplink)) in used.iter_mut().zip(&links) {
            let is_compared = compare(field, &**method, uplink, &format!("{kind} {method:?} over {name}"));
            *used |= is_compared;
            lives += usize::from(is_compared);
        }
        assert!(lives > 0, "{kind} {method:?} lives with no link");
    }
    // A codec may be of no use with a medium, but each is of use with some; only old models have no nodes.
    let is_used = |text: &str| used.iter().zip(&links).any(|(used, (name, _))| *used && name.contains(text));
    for codec in CODECS {
        assert!(is_used(&format!("{codec}, feedback")) && is_used(&format!("down {codec}")), "{codec}");
    }
    for media in MEDIA {
        assert!(is_used(&format!(", {media:?}, ")) || media[0].contains("delay"), "{media:?}");
    }
}

#[test]
fn bytes_and_engine_agree_over_every_link() {
    every_link(false);
}

#[test]
#[ignore = "every downlink with every uplink"]
fn bytes_and_engine_agree_over_every_pair_of_links() {
    every_link(true);
}

/// A new kind of codec or medium must be among those above.
#[test]
fn every_kind_of_codec_and_medium_is_there() {
    let is_named = |texts: &[&str], name: &str| texts.iter().any(|text| text.contains(&format!(r#""kind": "{name}""#)));
    for kind in codec::KINDS {
        assert!(is_named(CODECS, kind.name), "{}", kind.name);
    }
    for kind in stage::KINDS {
        assert!(MEDIA.iter().any(|media| is_named(media, kind.name)), "{}", kind.name);
    }
}
