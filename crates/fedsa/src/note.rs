//! Notes: what a reader of a result must know besides the numbers.
//!
//! Whoever finds something odd makes a [`Note`] and puts it into its result. Results pass notes on; a summary collects them, and the
//! terminal, Python's `warnings`, `summary.json` and the report show the same ones. A kind of note is one line of [`NoteCode`].

use std::fmt;

/// How much a note matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The numbers are right; this says how they came about.
    Info,
    /// The numbers may not mean what a reader takes them for.
    Warning,
}

impl Severity {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
        }
    }
}

/// The codes, one a kind of note: name in files, severity, what it is about.
macro_rules! codes {
    ($($variant:ident, $name:literal, $severity:ident, $about:literal;)*) => {
        /// The kind of a note. Codes never change; texts may.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum NoteCode { $(#[doc = $about] $variant,)* }

        impl NoteCode {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in files, such as `rows.left-out`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// How much notes of this kind matter.
            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// What notes of this kind are about, in a sentence.
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

codes! {
    RowsLeftOut, "rows.left-out", Warning, "Rows of the data were left out.";
    EstimateByNewton, "inference.estimate-by-newton", Info, "The method missed its target, and the estimate is that of Newton steps.";
    RootUnknown, "root.unknown", Info, "The solution is not known, so that no errors are measured.";
}

/// Something that a reader of a result must know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its kind.
    pub code: NoteCode,
    /// What is so and what to do about it, in plain sentences. Settings are named in backticks.
    pub text: String,
}

impl Note {
    /// A note of this kind.
    pub fn new(code: NoteCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// How much it matters.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
