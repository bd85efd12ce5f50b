//! Named compositions: a method and its link under the name that they have in their source.
//!
//! A preset is nothing but its settings: `kind = "qfedtd"` stands for the table below, in
//! which every key that the file gives replaces the preset's. What runs, and what `check`
//! prints, is the method itself.

use toml::{Table, Value};

/// A composition and its name.
pub struct Preset {
    /// The value of `kind`.
    pub name: &'static str,
    /// What it stands for, as TOML.
    pub settings: &'static str,
}

/// The compositions of \[T\] ch. 4, with the parameters of its figures.
pub const PRESETS: &[Preset] = &[
    Preset { name: "vanilla-fedtd", settings: "kind = \"fedtd\"" },
    Preset {
        name: "qfedtd",
        settings: "kind = \"fedtd\"
            uplink = { codec = { kind = \"quantised\", bits = 4 }, media = [{ kind = \"erasure\", success = 0.6 }] }",
    },
    Preset {
        name: "oacfedtd",
        settings: "kind = \"fedtd\"
            uplink = { media = [{ kind = \"over-the-air\", gain = { law = \"rayleigh\" }, receiver_noise = 0.2 }] }",
    },
    Preset {
        name: "asyncfedtd",
        settings: "kind = \"fedtd\"
            uplink = { media = [{ kind = \"delay\", law = \"uniform\", min = 1, max = 100 }] }",
    },
];

/// Puts in place of presets what they stand for.
pub fn expand(table: &mut Table) {
    for method in table.get_mut("method").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(own) = method.as_table_mut() else { continue };
        let name = own.get("kind").and_then(Value::as_str);
        let Some(preset) = name.and_then(|name| PRESETS.iter().find(|p| p.name == name)) else { continue };
        let mut settings: Table = preset.settings.parse().expect("a preset is TOML");
        own.remove("kind");
        settings.insert("label".into(), Value::String(preset.name.into()));
        settings.extend(std::mem::take(own));
        *own = settings;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_replaces_what_a_preset_says() {
        let mut table: Table =
            "method = [{ kind = \"qfedtd\", step_size = 0.1 }, { kind = \"asyncfedtd\", label = \"a\", uplink = {} }]".parse().unwrap();
        expand(&mut table);
        let [first, second] = &table["method"].as_array().unwrap()[..] else { panic!() };
        assert_eq!((first["kind"].as_str(), first["label"].as_str()), (Some("fedtd"), Some("qfedtd")));
        assert_eq!(first["uplink"]["codec"]["bits"].as_integer(), Some(4));
        assert_eq!((second["label"].as_str(), second["uplink"].as_table().unwrap().len()), (Some("a"), 0));
    }
}
