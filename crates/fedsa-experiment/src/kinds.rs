//! The kinds of problems, methods, codecs and media in experiment files: fedsa's own, and other crates'.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

use fedsa::error::{Error, Result, quoted};
use fedsa::method::MethodSettings;
use fedsa::registry::Kind;
use fedsa::uplink::codec::{self, CodecSettings};
use fedsa::uplink::stage::{self, LinkStage};
use fedsa_methods::presets::PRESETS;
use fedsa_problems::ProblemSettings;

/// Kinds in addition to fedsa's own, made with [`fedsa::kind!`], or with [`Kind::new`] if they hold data.
#[derive(Clone, Copy, Default)]
pub struct Extensions<'a> {
    /// Problems.
    pub problems: &'a [Kind<dyn ProblemSettings>],
    /// Methods.
    pub methods: &'a [Kind<dyn MethodSettings>],
    /// Codecs.
    pub codecs: &'a [Kind<dyn CodecSettings>],
    /// Media.
    pub media: &'a [Kind<dyn LinkStage>],
}

/// All kinds that experiment files may name. A clone shares the lists. [`Kinds::default`] has fedsa's own.
///
/// A [`crate::config::Document`] holds its kinds; the experiment and its plan take them from it.
#[derive(Clone)]
pub struct Kinds(Arc<Lists>);

struct Lists {
    problems: Vec<Kind<dyn ProblemSettings>>,
    methods: Vec<Kind<dyn MethodSettings>>,
    codecs: Vec<Kind<dyn CodecSettings>>,
    media: Vec<Kind<dyn LinkStage>>,
}

impl Kinds {
    /// fedsa's own kinds, and others.
    ///
    /// # Errors
    /// When a name or an alias of a kind is taken, or is not a word of lower-case letters, digits and hyphens; names it.
    pub fn with(extensions: Extensions<'_>) -> Result<Self> {
        let Extensions { problems, methods, codecs, media } = extensions;
        let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).chain(["auto"]).collect();
        Ok(Self(Arc::new(Lists {
            problems: joined(fedsa_problems::KINDS, problems, "problem", &[])?,
            methods: joined(fedsa_methods::KINDS, methods, "method", &presets)?,
            codecs: joined(codec::KINDS, codecs, "codec", &[])?,
            media: joined(stage::KINDS, media, "medium", &[])?,
        })))
    }

    /// The kinds of problems.
    pub fn problems(&self) -> &[Kind<dyn ProblemSettings>] {
        &self.0.problems
    }

    /// The kinds of methods.
    pub fn methods(&self) -> &[Kind<dyn MethodSettings>] {
        &self.0.methods
    }

    /// The kinds of codecs.
    pub fn codecs(&self) -> &[Kind<dyn CodecSettings>] {
        &self.0.codecs
    }

    /// The kinds of media.
    pub fn media(&self) -> &[Kind<dyn LinkStage>] {
        &self.0.media
    }
}

impl Default for Kinds {
    fn default() -> Self {
        static OWN: LazyLock<Kinds> = LazyLock::new(|| Kinds::with(Extensions::default()).expect("the names of fedsa's kinds differ"));
        OWN.clone()
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lists { problems, methods, codecs, media } = &*self.0;
        write!(f, "Kinds({} problems, {} methods, {} codecs, {} media)", problems.len(), methods.len(), codecs.len(), media.len())
    }
}

/// fedsa's kinds, followed by other crates'.
fn joined<T: ?Sized>(own: &[Kind<T>], more: &[Kind<T>], what: &str, taken: &[&str]) -> Result<Vec<Kind<T>>> {
    let mut names: HashSet<&str> = taken.iter().copied().collect();
    for kind in own.iter().chain(more) {
        for name in std::iter::once(kind.name).chain(kind.aliases.iter().copied()) {
            let is_word = name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            if !is_word {
                let help = "a word of lower-case letters, digits and hyphens that begins with a letter";
                return Err(Error::new("kind", format!("`{}` is not a name for a {what}", quoted(name)), help));
            }
            if !names.insert(name) {
                let accepted = "a name that no other kind, and no preset, has";
                return Err(Error::new("kind", format!("there is already a {what} `{name}`"), accepted));
            }
        }
    }
    Ok(own.iter().chain(more).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_taken_are_refused() {
        let find = |name: &str| fedsa_methods::KINDS.iter().find(|kind| kind.is_called(name)).unwrap().clone();
        let with = |kind: Kind<dyn MethodSettings>| Kinds::with(Extensions { methods: &[kind], ..Extensions::default() });
        for (kind, taken) in [
            (find("fedlsa"), "fedlsa"),
            (Kind { name: "fedavg", aliases: &[], ..find("fedhsa") }, "fedavg"),
            (Kind { name: "mine", aliases: &["scafflsa"], ..find("fedhsa") }, "scafflsa"),
            (Kind { name: "mine", aliases: &["mine"], ..find("fedhsa") }, "mine"),
            (Kind { name: "qfedtd", aliases: &[], ..find("fedtd") }, "qfedtd"),
        ] {
            let e = with(kind).unwrap_err();
            assert!(e.to_string().contains(&format!("there is already a method `{taken}`")), "{e}");
        }
        for name in ["", "Mine", "my method", "-x", "1"] {
            assert!(with(Kind { name, aliases: &[], ..find("fedhsa") }).is_err(), "{name}");
        }
        let mine = with(Kind { name: "mine", aliases: &["my-own"], ..find("fedhsa") }).unwrap();
        assert_eq!(mine.methods().len(), fedsa_methods::KINDS.len() + 1);
        assert!(mine.methods().last().unwrap().is_called("my-own"));
    }
}
