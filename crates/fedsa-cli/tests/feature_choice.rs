//! `evaluate --features auto`.

use crate::common::Folder;
use fedsa_problems::features::FeatureSpec;
use serde_json::json;

/// Two state columns of which the value is a parabola of one: the least error of the list is not that of a line.
#[test]
fn features_are_chosen_by_their_error_on_held_out_episodes() {
    let folder = Folder::new();
    let log = |seed: u64| {
        let mut state = seed;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut log = "episode,s_0,s_1,next_0,next_1,reward,done\n".to_string();
        // Episodes of one step: the return is the reward, (2 x - 1)^2 and a little noise.
        for episode in 0..200 {
            let (x, y) = (uniform(), uniform());
            log += &format!("{episode},{x},{y},0,0,{},1\n", (2.0 * x - 1.0).powi(2) + 0.01 * uniform());
        }
        log
    };
    folder.write("logs/a.csv", log(1));
    folder.write("logs/b.csv", log(2));
    let run = |more: &[&str]| folder.run(&[&["evaluate", "logs", "--features", "auto"], more].concat());
    let ran = run(&["--out", "o", "--holdout", "0.1"]).exits(0);
    let weights = folder.json("o/weights.json");
    let tried = &weights["features_tried"];
    assert_eq!(&folder.json("o/summary.json")["features_tried"], tried);
    let list = tried["tried"].as_array().unwrap();
    let rms = |name: &str| list.iter().find(|one| one["features"] == name).unwrap()["rms"].as_f64();
    // A parabola is in the span of polynomials of degree 2, and of 3, up to the noise of 0.01 / sqrt(12); a line is not.
    assert!(rms("polynomial:2").unwrap() < 0.0035 && rms("identity:bias").unwrap() > 0.2, "{tried}");
    let least = list.iter().filter_map(|one| one["rms"].as_f64()).fold(f64::INFINITY, f64::min);
    let chosen = tried["chosen"].as_str().unwrap();
    assert_eq!(rms(chosen), Some(least));
    assert_eq!(weights["feature_map"], serde_json::to_value(chosen.parse::<FeatureSpec>().unwrap()).unwrap());
    assert!(
        ran.stdout.contains(&format!(" of {chosen}, chosen by --features auto")) && ran.stdout.contains("identity:bias, 3 features: 0.")
    );
    assert!(rms("tiles:8x8").is_none(), "512 features");
    // A fifth of the episodes that --holdout leaves: 180 of each agent.
    assert_eq!(tried["episodes"], json!(72));
    let few = run(&["--out", "f", "--max-features", "4"]).exits(0);
    assert!(few.stdout.contains("polynomial:2, 6 features: left out, more than 4 features"), "{}", few.stdout);
    assert!(folder.json("f/weights.json")["theta"].as_array().unwrap().len() <= 4);
    // The same again, whatever the threads.
    run(&["--out", "again", "--holdout", "0.1", "--threads", "1"]).exits(0);
    assert_eq!(folder.json("again/weights.json")["features_tried"], *tried);
    folder.write("cut/a.csv", log(1).replace(",1\n", ",0\n"));
    folder.write("none/a.csv", log(1).replace("episode", "other"));
    for (options, message) in [
        (&["cut", "--features", "auto"][..], "no held-out episode terminates"),
        (&["none", "--features", "auto"], "a has no column `episode`"),
        (&["logs", "--features", "auto", "--max-features", "1"], "none of the features can be used: more than 1 features"),
        (&["logs", "--max-features", "9"], "--max-features: 9, and features are not chosen"),
    ] {
        let refused = folder.run(&[&["evaluate"], options, &["--out", "r"]].concat());
        assert!(refused.status == 2 && refused.message().contains(message), "{options:?}: {}", refused.message());
        assert!(!folder.path("r").exists());
    }
}
