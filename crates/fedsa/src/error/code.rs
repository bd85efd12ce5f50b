//! Kinds and codes of errors.

/// The kinds of errors, with the meaning of each.
macro_rules! kinds {
    ($($(#[doc = $about:literal])+ $kind:ident,)+) => {
        /// The kind of an error, which determines a program's exit status and a caller's reaction.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[doc = $about])+ $kind,)+
        }

        impl ErrorKind {
            /// All kinds.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$kind),+];

            /// The subject of errors of this kind, in a line.
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
    /// Not enough memory.
    NoMemory,
    /// The machine failed: disk, network, threads. Files written before remain.
    Machine,
    /// The caller cancelled the work.
    Cancelled,
}

/// The codes of all errors, each with its kind and stable name.
macro_rules! codes {
    ($($(#[doc = $about:literal])+ $code:ident: $kind:ident, $name:literal;)+) => {
        /// The fault, finer than [`ErrorKind`]. New codes may be added; a code's meaning and name never change.
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

            /// Whether the agent's disclosure rules refuse to send something. Texts of such errors contain no value of the data.
            pub fn is_disclosure(self) -> bool {
                self.name().starts_with(DISCLOSURE)
            }

            /// The code as text, for programs in other languages.
            pub fn name(self) -> &'static str {
                match self { $(ErrorCode::$code => $name,)+ }
            }

            /// The fault of errors with this code, in a line.
            pub fn about(self) -> &'static str {
                match self { $(ErrorCode::$code => concat!($($about),+).trim_ascii_start(),)+ }
            }
        }
    };
}

/// The start of the names of codes of disclosure rules.
pub(super) const DISCLOSURE: &str = "disclosure.";

codes! {
    /// A setting that cannot be used, for another reason.
    Setting: Setting, "setting";
    /// An unknown key.
    UnknownKey: Setting, "setting.unknown-key";
    /// A key of another kind than the table's.
    NotForKind: Setting, "setting.not-for-kind";
    /// A required setting is missing; the error's key names it.
    MissingKey: Setting, "setting.missing-key";
    /// A value of the wrong type.
    WrongType: Setting, "setting.wrong-type";
    /// A list of the wrong length.
    WrongLength: Setting, "setting.wrong-length";
    /// An unknown name.
    UnknownName: Setting, "setting.unknown-name";
    /// A table without a kind.
    NoKind: Setting, "setting.no-kind";
    /// A number or a name outside the setting's range.
    OutOfRange: Setting, "setting.out-of-range";
    /// A setting without effect, given the others.
    NoEffect: Setting, "setting.no-effect";
    /// A text that is not TOML.
    NotToml: Setting, "setting.not-toml";
    /// A text that is not the wanted assignment `KEY=VALUE`, or key.
    NotAnAssignment: Setting, "setting.not-an-assignment";
    /// A folder for results that already has some.
    OutputExists: Setting, "setting.output-exists";
    /// A path for results that is occupied or cannot be a folder.
    OutputUnusable: Setting, "setting.output-unusable";
    /// A folder for results with a run in progress.
    OutputBusy: Setting, "setting.output-busy";
    /// A sweep where a single point is wanted.
    Sweep: Setting, "setting.sweep";
    /// No method, codec or step size is left to choose from.
    NoCandidate: Setting, "setting.no-candidate";
    /// A target that no tried method reaches within its limits.
    TargetNotReached: Setting, "setting.target-not-reached";
    /// Data that cannot be used, for another reason.
    Data: Data, "data";
    /// A missing file.
    NoFile: Data, "data.no-file";
    /// A column with the name of a new one.
    ColumnExists: Data, "data.column-exists";
    /// A file that cannot be opened or read.
    Unreadable: Data, "data.unreadable";
    /// Data without a source: no address, or another file at the address.
    NoSource: Data, "data.no-source";
    /// Fewer rows or episodes than the agent's disclosure rules ask for.
    DisclosureRows: Data, "disclosure.rows";
    /// A value that few of the agent's rows have, or lack.
    DisclosureCount: Data, "disclosure.count";
    /// Too many components of the model for the rows.
    DisclosureParameters: Data, "disclosure.parameters";
    /// A column with too many categories or classes.
    DisclosureLevels: Data, "disclosure.levels";
    /// A secure sum over too few agents.
    DisclosureAgents: Data, "disclosure.agents";
    /// A secure sum that differs from an earlier one by too few agents.
    DisclosureDifference: Data, "disclosure.difference";
    /// A range, categories or classes that would be taken from the agent's data.
    DisclosureUndeclared: Data, "disclosure.undeclared";
    /// Bytes that are damaged, or of another format or version.
    Format: Format, "format";
    /// An interrupted run without results.
    Unfinished: Format, "format.unfinished";
    /// The saved state of a run with other settings, other data or another version.
    OtherRun: Format, "format.other-run";
    /// A refused message.
    RefusedMessage: RefusedMessage, "refused-message";
    /// A message that does not follow an agent's state: the state is newer than the server's, or of another federation.
    OtherState: RefusedMessage, "refused-message.other-state";
    /// Theory has no answer.
    NotKnown: NotAvailable, "not-known";
    /// No maximum-likelihood estimate: separated classes, or linearly dependent columns.
    NoEstimate: NotAvailable, "not-known.no-estimate";
    /// Not enough memory.
    NoMemory: NoMemory, "no-memory";
    /// The machine failed.
    Machine: Machine, "machine";
    /// The network or a server failed.
    Network: Machine, "machine.network";
    /// The caller cancelled the work.
    Cancelled: Cancelled, "cancelled";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_have_texts_of_their_own_that_begin_alike_for_one_kind() {
        let names: HashSet<&str> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            let first = |code: &ErrorCode| code.name().split('.').next().unwrap();
            let kind = ErrorCode::ALL.iter().find(|other| first(other) == first(code)).unwrap().kind();
            assert_eq!(code.kind(), kind, "{}", code.name());
        }
    }
}
