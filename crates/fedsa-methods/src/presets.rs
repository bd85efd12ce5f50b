//! Presets: methods with their links, under the names of their sources.
//!
//! A preset is data: the kind of a method, and codecs and media, each by kind with settings. A file with `kind = "qfedtd"` gets these
//! settings; keys in the file replace them. [`Preset::uplink`] gives a program the ready link.
//!
//! ```
//! use fedsa_methods::presets;
//!
//! let preset = presets::find("qfedtd").unwrap();
//! assert_eq!(preset.method, "fedtd");
//! assert!(!preset.uplink().unwrap().is_clear());
//! ```

use fedsa::error::{Error, Result};
use fedsa::method::MethodSettings;
use fedsa::registry::Kind;
use fedsa::settings::Value;
use fedsa::uplink::{Uplink, codec, stage};

/// A named composition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// The kind of its method, one of [`crate::KINDS`].
    pub method: &'static str,
    /// The settings of its method that differ from the kind's defaults, by name.
    pub settings: &'static [(&'static str, PresetValue)],
    /// The codec of agents' messages; exact by default.
    pub codec: Option<PresetPart>,
    /// The media of agents' messages, in order.
    pub media: &'static [PresetPart],
}

/// A codec or a medium: its kind and its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PresetPart {
    /// The kind, one of [`codec::KINDS`] or [`stage::KINDS`].
    pub kind: &'static str,
    /// The settings that differ from the kind's defaults, by name.
    pub settings: &'static [(&'static str, PresetValue)],
}

/// The value of a setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PresetValue {
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// A name.
    Name(&'static str),
    /// Settings by name.
    Table(&'static [(&'static str, PresetValue)]),
}

use PresetValue::{Name, Number, Table, Whole};

/// Settings of SHED over a clear link.
const fn shed(name: &'static str, settings: &'static [(&'static str, PresetValue)]) -> Preset {
    Preset { name, method: "shed", settings, codec: None, media: &[] }
}

/// Settings of Q-SHED over a clear link.
const fn q_shed(name: &'static str, settings: &'static [(&'static str, PresetValue)]) -> Preset {
    Preset { name, method: "q-shed", settings, codec: None, media: &[] }
}

const FIBONACCI: (&str, PresetValue) = ("renewal", Table(&[("schedule", Name("fibonacci"))]));
const GRADIENT_NORM: (&str, PresetValue) =
    ("renewal", Table(&[("schedule", Name("gradient-norm")), ("factor", Number(0.95)), ("min_distance", Whole(12))]));
const ONE_PAIR: (&str, PresetValue) = ("pairs", Whole(1));
const RANDOM_PAIRS: (&str, PresetValue) = ("pairs", Name("random"));
const NEXT: (&str, PresetValue) = ("rho", Name("next"));
const MIDPOINT: (&str, PresetValue) = ("rho", Name("midpoint"));
const UNIT_STEP: (&str, PresetValue) = ("step", Name("unit"));
const LINE_SEARCH: (&str, PresetValue) = ("step", Name("line-search"));
const SIXTEEN_BITS: (&str, PresetValue) = ("max_bits", Whole(16));

/// The compositions of \[T\] ch. 2 to 4, with the parameters of its figures.
pub const PRESETS: &[Preset] = &[
    shed("shed-ls", &[("renewal", Table(&[("schedule", Name("once"))])), ONE_PAIR, MIDPOINT, UNIT_STEP]),
    shed("shed-periodic", &[("renewal", Table(&[("schedule", Name("every")), ("period", Whole(35))])), ONE_PAIR, MIDPOINT, UNIT_STEP]),
    shed("fib-shed", &[FIBONACCI, ONE_PAIR, NEXT, LINE_SEARCH]),
    shed("fib-shed+", &[FIBONACCI, RANDOM_PAIRS, NEXT, LINE_SEARCH]),
    shed("gn-shed", &[GRADIENT_NORM, ONE_PAIR, NEXT, LINE_SEARCH]),
    shed("gn-shed+", &[GRADIENT_NORM, RANDOM_PAIRS, NEXT, LINE_SEARCH]),
    shed("mont-dec", &[("renewal", Table(&[("schedule", Name("every")), ("period", Whole(1))])), ONE_PAIR, NEXT, LINE_SEARCH]),
    q_shed("nq-shed", &[FIBONACCI, ("allocation", Name("first-vectors")), SIXTEEN_BITS]),
    q_shed("ideal-shed", &[FIBONACCI, ("allocation", Name("ideal")), SIXTEEN_BITS]),
    Preset { name: "vanilla-fedtd", method: "fedtd", settings: &[], codec: None, media: &[] },
    Preset {
        name: "qfedtd",
        method: "fedtd",
        settings: &[],
        codec: Some(PresetPart { kind: "quantised", settings: &[("bits", Whole(4))] }),
        media: &[PresetPart { kind: "erasure", settings: &[("success", Number(0.6))] }],
    },
    Preset {
        name: "oacfedtd",
        method: "fedtd",
        settings: &[],
        codec: None,
        media: &[PresetPart {
            kind: "over-the-air",
            settings: &[("gain", Table(&[("law", Name("rayleigh"))])), ("receiver_noise", Number(0.2))],
        }],
    },
    Preset {
        name: "asyncfedtd",
        method: "fedtd",
        settings: &[],
        codec: None,
        media: &[PresetPart { kind: "delay", settings: &[("law", Name("uniform")), ("min", Whole(1)), ("max", Whole(100))] }],
    },
];

/// The preset of this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// The kind of its method.
    pub fn method(&self) -> &'static Kind<dyn MethodSettings> {
        crate::KINDS.iter().find(|kind| kind.is_called(self.method)).expect("a preset names a kind of method")
    }

    /// Its link.
    ///
    /// # Errors
    /// When a kind or a setting is unknown, which no preset of [`PRESETS`] has.
    pub fn uplink(&self) -> Result<Uplink> {
        let mut link = Uplink::default();
        if let Some(part) = &self.codec {
            let settings = part.read(codec::KINDS)?;
            settings.check()?;
            link.codec = settings.build();
        }
        for part in self.media {
            link.push(part.read(stage::KINDS)?.into())?;
        }
        Ok(link)
    }
}

impl PresetPart {
    /// Its settings, read by its kind.
    fn read<T: ?Sized>(&self, kinds: &'static [Kind<T>]) -> Result<Box<T>> {
        let unknown = || Error::new("kind", format!("there is no `{}`", self.kind), "a kind of codec or medium");
        let kind = kinds.iter().find(|kind| kind.is_called(self.kind)).ok_or_else(unknown)?;
        (kind.read)(&tree(self.settings)).map_err(|e| e.inside(self.kind))
    }
}

/// Settings as a tree.
fn tree(settings: &[(&'static str, PresetValue)]) -> Value {
    Value::table(settings.iter().map(|(key, value)| (*key, value.tree())))
}

impl PresetValue {
    fn tree(&self) -> Value {
        match self {
            Whole(i) => Value::Integer(*i),
            Number(x) => Value::Float(*x),
            Name(name) => Value::Text((*name).into()),
            Table(entries) => tree(entries),
        }
    }
}

impl PresetPart {
    fn tree(&self) -> Value {
        Value::table([("kind", Name(self.kind))].iter().chain(self.settings).map(|(key, value)| (*key, value.tree())))
    }
}

impl Preset {
    /// A method's table of an experiment file: `kind`, its settings, and `uplink` where it has one.
    pub fn table(&self) -> Value {
        let codec = self.codec.iter().map(|codec| ("codec", codec.tree()));
        let media = (!self.media.is_empty()).then(|| ("media", Value::List(self.media.iter().map(PresetPart::tree).collect())));
        let link: Vec<_> = codec.chain(media).collect();
        let link = (!link.is_empty()).then(|| ("uplink", Value::table(link)));
        let own = [("kind", Name(self.method))].iter().chain(self.settings).map(|(key, value)| (*key, value.tree())).collect::<Vec<_>>();
        Value::table(own.into_iter().chain(link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_come_to_their_links() {
        for preset in PRESETS {
            assert!(preset.method().is_called(preset.method), "{}", preset.name);
            let facts = preset.uplink().unwrap_or_else(|e| panic!("{}: {e}", preset.name)).facts();
            assert_eq!(find(preset.name), Some(preset));
            match preset.name {
                _ if ["shed", "q-shed"].contains(&preset.method) => assert!(facts == Default::default()),
                "vanilla-fedtd" => assert!(facts == Default::default()),
                "qfedtd" => assert!(facts.is_altered && facts.is_lost && !facts.is_sum_only),
                "oacfedtd" => assert!(facts.is_sum_only),
                "asyncfedtd" => assert_eq!(facts.stale, Some(100)),
                other => panic!("{other} has no link here to compare with"),
            }
        }
        assert!(find("fedtd").is_none());
    }

    #[test]
    fn a_preset_is_a_table_of_a_file() {
        let table = serde_json::to_value(find("qfedtd").unwrap().table()).unwrap();
        let expected = serde_json::json!({
            "kind": "fedtd",
            "uplink": { "codec": { "kind": "quantised", "bits": 4 }, "media": [{ "kind": "erasure", "success": 0.6 }] },
        });
        assert_eq!(table, expected);
        assert_eq!(serde_json::to_value(find("vanilla-fedtd").unwrap().table()).unwrap(), serde_json::json!({ "kind": "fedtd" }));
    }

    /// The presets of SHED are what their settings say, read by the kind.
    #[test]
    fn presets_of_shed_are_its_settings() {
        use fedsa::schedule::renewal::{Drawn, Pairs, Renewal};

        use crate::shed::Rho;
        use crate::shed::{Shed, StepLength};
        let read = |name: &str| -> Shed {
            let preset = find(name).unwrap();
            fedsa::settings::read(&tree(preset.settings)).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let gradient_norm = Renewal::GradientNorm { factor: 0.95, min_distance: 12 };
        let random = Pairs::Drawn(Drawn::Random);
        let fib = Shed::default();
        let ls = Shed { rho: Rho::Midpoint, step: StepLength::Unit, renewal: Renewal::Once, ..fib.clone() };
        for (name, settings) in [
            ("shed-ls", ls.clone()),
            ("shed-periodic", Shed { renewal: Renewal::Every { period: 35 }, ..ls }),
            ("fib-shed", fib.clone()),
            ("fib-shed+", Shed { pairs: random.clone(), ..fib.clone() }),
            ("gn-shed", Shed { renewal: gradient_norm.clone(), ..fib.clone() }),
            ("gn-shed+", Shed { renewal: gradient_norm, pairs: random, ..fib.clone() }),
            ("mont-dec", Shed { renewal: Renewal::Every { period: 1 }, ..fib }),
        ] {
            assert_eq!(read(name), settings, "{name}");
            MethodSettings::check(&settings, 4).unwrap();
        }
        assert_eq!(PRESETS.iter().filter(|preset| preset.method == "shed").count(), 7);
        use crate::q_shed::BitRule;
        use crate::q_shed::QShed;
        for (name, allocation) in [("nq-shed", BitRule::FirstVectors), ("ideal-shed", BitRule::Ideal)] {
            let settings: QShed = fedsa::settings::read(&tree(find(name).unwrap().settings)).unwrap();
            assert_eq!(settings, QShed { allocation, ..QShed::default() }, "{name}");
            MethodSettings::check(&settings, 4).unwrap();
        }
    }

    #[test]
    fn settings_that_a_kind_does_not_know_are_refused() {
        let wrong = Preset {
            name: "x",
            method: "fedtd",
            settings: &[],
            codec: None,
            media: &[PresetPart { kind: "erasure", settings: &[("sucess", Number(0.5))] }],
        };
        let e = wrong.uplink().err().unwrap();
        assert_eq!((e.code(), e.key.as_str()), (fedsa::error::ErrorCode::UnknownKey, "erasure.sucess"));
    }
}
