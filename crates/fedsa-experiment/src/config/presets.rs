//! Methods whose `kind` is a preset of the library.
//!
//! `kind = "qfedtd"` stands for the settings in [`fedsa_methods::presets`]. Keys in the file replace keys of the preset, also if `--set` or
//! a sweep sets the `kind`. The program runs the method itself, and `check` prints its settings.

use fedsa_methods::presets;
use toml::{Table, Value};

/// Replaces presets by their settings.
pub fn expand(table: &mut Table) {
    for method in table.get_mut("method").and_then(Value::as_array_mut).into_iter().flatten() {
        method.as_table_mut().map(expand_one);
    }
}

/// Replaces a method's table by the settings of its preset, if its `kind` is a preset.
pub fn expand_one(own: &mut Table) {
    let name = own.get("kind").and_then(Value::as_str);
    let Some(preset) = name.and_then(presets::find) else { return };
    let mut settings = Table::try_from(preset.table()).expect("a preset has tables, numbers and names");
    own.remove("kind");
    settings.insert("label".into(), Value::String(preset.name.into()));
    settings.extend(std::mem::take(own));
    *own = settings;
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

    #[test]
    fn a_preset_can_be_set_and_swept() {
        let mut table: Table = "method = [{ kind = \"fedtd\", label = \"TD\", step_size = 0.1 }]".parse().unwrap();
        let set = |table: &mut Table, name: &str| {
            super::super::dotted::set(table, "method.TD.kind", &Value::String(name.into())).unwrap();
            table["method"][0].clone()
        };
        let method = set(&mut table, "qfedtd");
        assert_eq!((method["kind"].as_str(), method["label"].as_str()), (Some("fedtd"), Some("TD")));
        assert_eq!((method["step_size"].as_float(), method["uplink"]["codec"]["bits"].as_integer()), (Some(0.1), Some(4)));
    }
}
