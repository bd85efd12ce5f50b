//! Which methods work over which links, and what theory knows of them: a Markdown table on standard output.
//!
//! Every kind of method is put on every kind of link. A run says whether they go together, a
//! [`Forecast`] whether the mean iterate and the mean-square error are known. Run it with
//! `cargo run --release -p fedsa --example method_by_link`.

use std::sync::Arc;

use fedsa::error::Result;
use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa::uplink::codec::{self, Codec};
use fedsa::uplink::stage;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::Noise;
use fedsa_problems::{NoFiles, ProblemSettings};
use fedsa_theory::predict::Forecast;

/// The links, by what the table calls them: codec, error feedback, media, and the downlink's codec.
const LINKS: &[(&str, &str, bool, &[&str], &str)] = &[
    ("clear", EXACT, false, &[], EXACT),
    ("quantised", COARSE, false, &[], EXACT),
    ("top-k, feedback", r#"{"kind": "top-k", "k": 1}"#, true, &[], EXACT),
    ("erasure", EXACT, false, &[r#"{"kind": "erasure", "success": 0.7}"#], EXACT),
    ("bursts", EXACT, false, &[r#"{"kind": "gilbert-elliott", "to_bad": 0.1, "to_good": 0.3}"#], EXACT),
    ("over the air", EXACT, false, &[r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#], EXACT),
    ("delay (pull)", EXACT, false, &[r#"{"kind": "delay", "law": "constant", "rounds": 3}"#], EXACT),
    ("late (push)", EXACT, false, &[r#"{"kind": "late", "law": "constant", "rounds": 3}"#], EXACT),
    ("bit budget", COARSE, false, &[r#"{"kind": "bit-budget", "bits": 3, "fading_snr": 2}"#], EXACT),
    ("clip and noise", EXACT, false, &[r#"{"kind": "clip", "norm": 1.0}"#, r#"{"kind": "noise", "std": 0.1}"#], EXACT),
    ("lossy downlink", EXACT, false, &[], COARSE),
];
const EXACT: &str = r#"{"kind": "exact"}"#;
const COARSE: &str = r#"{"kind": "quantised", "bits": 4}"#;

/// Splits `{"kind": .., ..}` into the kind and the other settings.
fn kind_of(json: &str) -> (String, String) {
    let mut value: serde_json::Value = serde_json::from_str(json).expect("valid JSON");
    let object = value.as_object_mut().expect("an object");
    let kind = object.remove("kind").and_then(|kind| kind.as_str().map(str::to_string)).expect("a kind");
    (kind, value.to_string())
}

fn codec_of(json: &str) -> Result<Arc<dyn Codec>> {
    let (kind, rest) = kind_of(json);
    let entry = codec::KINDS.iter().find(|entry| entry.is_called(&kind)).expect("a known codec");
    let table: fedsa::settings::Value = serde_json::from_str(&rest).expect("JSON");
    let settings = (entry.read)(&table).expect("readable settings");
    settings.check()?;
    Ok(settings.build())
}

fn link(codec: &str, error_feedback: bool, media: &[&str], downlink: &str) -> Result<Uplink> {
    let mut link = Uplink::default().with_codec(codec_of(codec)?).with_error_feedback(error_feedback).with_downlink(codec_of(downlink)?);
    for medium in media {
        let (kind, rest) = kind_of(medium);
        let entry = stage::KINDS.iter().find(|entry| entry.is_called(&kind)).expect("a known medium");
        let table: fedsa::settings::Value = serde_json::from_str(&rest).expect("JSON");
        link.push((entry.read)(&table).expect("readable settings").into())?;
    }
    Ok(link)
}

/// The simplest method of a kind that can be read: with the fewest of a few settings; none when a setting is not the kind's.
fn method(kind: &str, participants: Option<usize>) -> Option<Box<dyn MethodSettings>> {
    let all = [
        "",
        r#""step_size": 0.05"#,
        r#""step_size": 0.05, "local_steps": 4"#,
        r#""step_size": 0.05, "talk_probability": 0.25"#,
        r#""step_size": 0.05, "local_steps": 4, "radius": 100"#,
        r#""step_size": 0.05, "local_steps": 4, "proximal_mu": 1.0"#,
    ];
    let entry = fedsa_methods::KINDS.iter().find(|entry| entry.is_called(kind)).expect("a known method");
    all.into_iter().find_map(|settings| {
        let few = participants.map(|m| format!(r#""participants": {m}"#));
        let text: Vec<&str> = [Some(settings), few.as_deref()].into_iter().flatten().filter(|text| !text.is_empty()).collect();
        let json = format!("{{{}}}", text.join(", "));
        let table: fedsa::settings::Value = serde_json::from_str(&json).expect("JSON");
        (entry.read)(&table).ok()
    })
}

/// What becomes of a method over a link.
fn entry(field: &Arc<dyn Field>, method: &dyn MethodSettings, link: &Uplink) -> String {
    let checked = method.check(field.agents());
    let run = checked
        .and_then(|()| Federation::builder(method).uplink(link).seed(0).on(&**field).and_then(|federation| Run::new(field, &federation)));
    match run {
        Err(e) => format!("refused: {}", e.what),
        Ok(mut run) => {
            (0..20).for_each(|_| run.step());
            let forecast = Forecast::over(field, method, link);
            let unstable = if forecast.outlook().is_unstable() { " (diverges)" } else { "" };
            match (forecast.knows_floor(), forecast.knows_rounds().and_then(|()| forecast.radius())) {
                (Ok(()), _) => format!("runs, mean square predicted{unstable}"),
                (Err(_), Ok(_)) => format!("runs, mean predicted{unstable}"),
                (Err(_), Err(_)) => "runs, measured only".to_string(),
            }
        }
    }
}

/// The table, in Markdown. Reasons of refusals are notes below it.
fn table() -> Result<String> {
    // Agents that differ, with noise, and an objective for the methods that need one.
    let noise = Some(Noise::new(0.3, 0.0, 1));
    let problem = LinearSystems::default().with_agents(6).with_dim(3).with_noise(noise);
    let field = problem.field(&NoFiles, Sampling::default().with_kind(Law::Iid), Isa::best())?;
    let exact = problem.field(&NoFiles, Sampling::default().with_kind(Law::Mean), Isa::best())?;
    let mut out = String::from("| method |");
    LINKS.iter().for_each(|(name, ..)| out += &format!(" {name} |"));
    out += " 3 of 6 agents |\n| --- |";
    (0..=LINKS.len()).for_each(|_| out += " --- |");
    let mut notes: Vec<String> = Vec::new();
    for kind in fedsa_methods::KINDS {
        out += &format!("\n| `{}` |", kind.name);
        let all = method(kind.name, None).expect("settings for every kind");
        let field = if all.needs() == fedsa::method::Needs::Objective { &exact } else { &field };
        let mut entries = Vec::new();
        for (_, codec, feedback, media, downlink) in LINKS {
            entries.push(entry(field, &*all, &link(codec, *feedback, media, downlink)?));
        }
        entries.push(match method(kind.name, Some(3)) {
            Some(few) => entry(field, &*few, &Uplink::default()),
            None => "refused: the method has no such setting".to_string(),
        });
        for text in entries {
            match text.strip_prefix("refused: ") {
                Some(why) => {
                    let known = notes.iter().position(|note| note == why);
                    let number = known.unwrap_or_else(|| {
                        notes.push(why.to_string());
                        notes.len() - 1
                    });
                    out += &format!(" refused ({}) |", number + 1);
                }
                None => out += &format!(" {text} |"),
            }
        }
    }
    out += "\n";
    notes.iter().enumerate().for_each(|(i, why)| out += &format!("\n{}. {why}", i + 1));
    Ok(out + "\n")
}

fn main() -> Result<()> {
    println!("{}", table()?);
    Ok(())
}
