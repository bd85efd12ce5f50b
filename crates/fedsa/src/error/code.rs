//! Kinds and codes of errors.

/// The kinds of errors, with the meaning of each.
macro_rules! kinds {
    ($($(#[doc = $about:literal])+ $kind:ident,)+) => {
        /// What kind of thing an error is about. A program's exit status and a caller's reaction follow from it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[doc = $about])+ $kind,)+
        }

        impl ErrorKind {
            /// All kinds.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$kind),+];

            /// What errors of this kind are about, in a line.
            pub fn about(self) -> &'static str {
                match self { $(ErrorKind::$kind => concat!($($about),+).trim_ascii_start(),)+ }
            }
        }
    };
}

kinds! {
    /// A setting, an argument, or a file of settings.
    Setting,
    /// Data: a file, an array, a column.
    Data,
    /// A saved state, checkpoint or result of another format or version, or of another run.
    Format,
    /// A message that a node or coordinator refuses.
    RefusedMessage,
    /// Theory has no answer.
    NotAvailable,
    /// More memory would be needed than there is.
    NoMemory,
    /// The machine failed: disk, network, threads. What was written until then is kept.
    Machine,
    /// The caller has cancelled it.
    Cancelled,
}

/// The codes of all errors, with the kind of each, and the text that never changes.
macro_rules! codes {
    ($($(#[doc = $about:literal])+ $code:ident: $kind:ident, $name:literal;)+) => {
        /// What is wrong, finer than [`ErrorKind`]. New codes may be added; the meaning of a code and its text never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[doc = $about])+ $code,)+
        }

        impl ErrorCode {
            /// All codes.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$code),+];

            /// The kind of errors with this code.
            pub fn kind(self) -> ErrorKind {
                match self { $(ErrorCode::$code => ErrorKind::$kind,)+ }
            }

            /// The code as text, for programs in other languages.
            pub fn name(self) -> &'static str {
                match self { $(ErrorCode::$code => $name,)+ }
            }

            /// What is wrong where an error has this code, in a line.
            pub fn about(self) -> &'static str {
                match self { $(ErrorCode::$code => concat!($($about),+).trim_ascii_start(),)+ }
            }
        }
    };
}

codes! {
    /// A setting that cannot be used, for a reason without a code of its own.
    Setting: Setting, "setting";
    /// A key that no setting has.
    UnknownKey: Setting, "setting.unknown-key";
    /// A key of other kinds than that of the table.
    NotForKind: Setting, "setting.not-for-kind";
    /// A setting that is needed and not there; the key is that of the setting.
    MissingKey: Setting, "setting.missing-key";
    /// A value of a type that the setting does not have.
    WrongType: Setting, "setting.wrong-type";
    /// A list of another length than the setting has.
    WrongLength: Setting, "setting.wrong-length";
    /// A name that is not one of those that the setting may have.
    UnknownName: Setting, "setting.unknown-name";
    /// A table that does not say its kind.
    NoKind: Setting, "setting.no-kind";
    /// A number or a name outside the range of the setting.
    OutOfRange: Setting, "setting.out-of-range";
    /// A setting without effect beside the others.
    NoEffect: Setting, "setting.no-effect";
    /// A text that is not TOML.
    NotToml: Setting, "setting.not-toml";
    /// A text that is not the assignment `KEY=VALUE`, or the key, that is asked for.
    NotAnAssignment: Setting, "setting.not-an-assignment";
    /// A place for results at which there are some already.
    OutputExists: Setting, "setting.output-exists";
    /// A place for results that something else occupies, or that can be no folder.
    OutputUnusable: Setting, "setting.output-unusable";
    /// A place for results in which a run is in progress.
    OutputBusy: Setting, "setting.output-busy";
    /// A sweep where a single point is wanted.
    Sweep: Setting, "setting.sweep";
    /// No method, codec or step size is left to choose from.
    NoCandidate: Setting, "setting.no-candidate";
    /// A target that none of the methods that were tried reaches within their limits.
    TargetNotReached: Setting, "setting.target-not-reached";
    /// Data that cannot be used, for a reason without a code of its own.
    Data: Data, "data";
    /// A file that is not there.
    NoFile: Data, "data.no-file";
    /// A column of the name of a new one.
    ColumnExists: Data, "data.column-exists";
    /// A file that cannot be opened or read.
    Unreadable: Data, "data.unreadable";
    /// Data that another source must provide: there is no address, or what is there is another file.
    NoSource: Data, "data.no-source";
    /// Bytes of another format or version than this one reads, or damaged ones.
    Format: Format, "format";
    /// A run that was interrupted and has no results yet.
    Unfinished: Format, "format.unfinished";
    /// The saved state of a run with other settings, other data or another version.
    OtherRun: Format, "format.other-run";
    /// A message that is refused.
    RefusedMessage: RefusedMessage, "refused-message";
    /// Theory has no answer.
    NotKnown: NotAvailable, "not-known";
    /// No estimate of greatest likelihood: separated classes, or columns that are combinations of others.
    NoEstimate: NotAvailable, "not-known.no-estimate";
    /// It needs more memory than there is.
    NoMemory: NoMemory, "no-memory";
    /// The machine failed.
    Machine: Machine, "machine";
    /// The network or a server failed.
    Network: Machine, "machine.network";
    /// The caller has cancelled it.
    Cancelled: Cancelled, "cancelled";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_have_texts_of_their_own_that_begin_with_the_kind() {
        let names: HashSet<&str> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            let first = code.name().split('.').next().unwrap();
            let kind = ErrorCode::ALL.iter().find(|code| code.name() == first).unwrap().kind();
            assert_eq!(code.kind(), kind, "{}", code.name());
        }
    }
}
