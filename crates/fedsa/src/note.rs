//! Notes: information that a reader of a result needs in addition to the numbers.
//!
//! Code that finds something odd puts a [`Note`] into its result. A summary collects the notes; the terminal, Python's `warnings`,
//! `summary.json` and the report show them. Each kind of note is one line of [`NoteCode`].

use std::fmt;

/// The importance of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The numbers are right; the note explains how they arose.
    Info,
    /// The numbers may mislead a reader.
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

/// The codes, one per kind of note: name in files, severity, subject.
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

            /// The importance of notes of this kind.
            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }

            /// The subject of notes of this kind, in a sentence.
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }
        }
    };
}

codes! {
    AgentsOneRow, "agents.one-row", Warning, "Every row is an agent of its own.";
    BitsMostlyHeader, "bits.mostly-header", Info, "More than half of the bits are headers of messages.";
    CategoryManyLevels, "categories.many-levels", Warning, "A category has about as many levels as there are rows.";
    ColumnsFarFromZero, "columns.far-from-zero", Warning, "A column varies by little beside its mean.";
    ColumnsLeftOut, "columns.left-out", Info, "Columns of a table hold neither numbers nor flags nor text.";
    ColumnsRemovedByRidge, "columns.removed-by-ridge", Warning, "The ridge leaves nothing of the coefficients of columns of small numbers.";
    ColumnsUnlikeScales, "columns.unlike-scales", Warning, "Columns are of very different scales.";
    ConstantTarget, "target.constant", Warning, "All targets are the same.";
    DecimalComma, "data.decimal-comma", Info, "A comma was read as the decimal mark of numbers.";
    EpisodesResumed, "episodes.resumed", Warning, "Episodes go on after their end under the same number.";
    EstimateByNewton, "inference.estimate-by-newton", Info, "The method missed its target, and the estimate is that of Newton steps.";
    FeaturesBytes, "features.bytes", Info, "Features are whole numbers from 0 to 255.";
    FeaturesDependent, "features.dependent", Info, "Features depend on each other, and weights are those of least norm.";
    FeaturesFewJudges, "features.few-judges", Warning, "Features were chosen by few episodes, or by those of a kind.";
    FederationAgentsAreMachines, "federation.agents-are-machines", Info, "Rows are not divided among agents in a federation.";
    FederationDataElsewhere, "federation.data-elsewhere", Info, "The settings of a federation name data, which are not read.";
    FederationDeclared, "federation.declared", Info, "The settings of a federation declare categories or classes of the files of this fit.";
    FederationSumsMissing, "federation.sums-missing", Warning, "Agents did not send the sums after the last round.";
    FederationTargetElsewhere, "federation.target-elsewhere", Info, "The server of a federation cannot measure the target.";
    InferenceFewAgents, "inference.few-agents", Warning, "Clustered errors are of few agents.";
    InferenceAfterPca, "inference.after-pca", Warning, "Standard errors take the principal components as known.";
    InferenceFewDegrees, "inference.few-degrees", Warning, "The normal distribution is used where few rows determine the dispersion.";
    InferenceOverdispersed, "inference.overdispersed", Warning, "Counts vary by more than their family allows.";
    LevelRare, "levels.rare", Warning, "A level of a category has few rows.";
    LevelsAlike, "levels.alike", Warning, "Levels of a category differ by case and spaces alone.";
    NextStatesFollow, "states.next-follow", Info, "Next states are those of following rows.";
    NextStatesOfNextEpisode, "next-state.of-next-episode", Warning, "Ends of episodes whose next state is of the next episode were left out.";
    PositiveClass, "labels.positive", Info, "A class was chosen as the positive one, or several classes are counted as one.";
    PolicyFewEffective, "policy.few-effective", Info, "Importance ratios leave too few episodes for a weighted value of a new policy.";
    PolicyFewRows, "policy.few-rows", Warning, "Few rows are behind the actions that a new policy chooses.";
    PolicyMayBeWorse, "policy.may-be-worse", Warning, "A new policy may be worse than the one that acted.";
    PolicyOtherGamma, "policy.other-gamma", Info, "A policy is evaluated with another discount factor than it was found with.";
    PolicyRidgeNotChosen, "policy.ridge-not-chosen", Info, "The ridge of a new policy was not chosen by held-out episodes.";
    PolicyUnsettled, "policy.unsettled", Warning, "The iteration that finds a policy has not settled.";
    PolicyValueImpossible, "policy.value-impossible", Warning, "The value of a new policy is beyond what rewards allow.";
    PolicyValueUnknown, "policy.value-unknown", Warning, "No held-out episodes say whether a new policy is better.";
    PredictionMissing, "prediction.missing", Info, "A predicted line that the figure asked for is not known.";
    PrivacySimulated, "privacy.simulated", Warning, "The noise of private sums comes from the seed.";
    PrivacySpent, "privacy.spent", Info, "The epsilon that the rounds of a federation have spent.";
    RatiosClipped, "ratios.clipped", Warning, "Importance ratios are clipped, which biases values.";
    RatiosFewEffective, "ratios.few-effective", Warning, "A few transitions carry the weight of the importance ratios.";
    RatiosMeanNotOne, "ratios.mean-not-one", Warning, "The mean importance ratio is not 1.";
    RatiosNotUsed, "ratios.not-used", Info, "The logs have importance ratios that are not used.";
    RatiosNoValue, "ratios.no-value", Warning, "No value is estimated, because the importance ratios cannot be those of the policies.";
    RatiosUsed, "ratios.used", Info, "The logs have importance ratios, which are used.";
    RewardsZero, "rewards.zero", Warning, "All rewards are 0.";
    RootNotAlone, "root.not-alone", Info, "The mean operator has several roots, and errors are measured to one that is stable.";
    RootUnknown, "root.unknown", Info, "The solution is not known, so that no errors are measured.";
    RowsLeftOut, "rows.left-out", Warning, "Rows of the data were left out.";
    RowsOfResets, "rows.of-resets", Warning, "Rows of a log that only reset an environment were left out.";
    RowsOutOfOrder, "rows.out-of-order", Warning, "Rows of episodes are not in the order of time.";
    RowsShuffled, "rows.shuffled", Warning, "Episodes are not known, because rows are not in the order of time.";
    RowsTerminalAndTruncated, "rows.terminal-and-truncated", Warning, "Rows are marked as terminal and as truncated.";
    StatesClipped, "states.clipped", Warning, "States are outside of the ranges of their columns.";
    StatesConstant, "states.constant", Info, "State columns have the same value in every transition.";
    StatesMayBeLabels, "states.may-be-labels", Info, "States that are taken as quantities may be labels.";
    SumsClipped, "sums.clipped", Warning, "Agents clipped numbers to the bound of secure sums.";
    TargetsFractional, "targets.fractional", Warning, "Targets of a model of counts are no whole numbers.";
    TolBelowRounding, "tol.below-rounding", Info, "The target for the gradient is below its rounding errors.";
    TolMetAtZero, "tol.met-at-zero", Warning, "Zero weights meet the target for the gradient.";
    TracesCut, "traces.cut", Info, "Traces start anew where rows do not follow each other.";
    ValueErrorLarge, "value.error-large", Warning, "A standard error of a policy's value exceeds the range of the returns.";
    ValueErrorUnknown, "value.error-unknown", Warning, "The data do not determine the error of the value.";
    ValueFewEffective, "value.few-effective", Warning, "A few episodes carry the weight of the importance ratios.";
    ValueFewEpisodes, "value.few-episodes", Warning, "Few episodes determine the value and its interval.";
    ValueFittedPart, "value.fitted-part", Warning, "Fitted values of what would follow make up much of a value by returns.";
    ValueImpossible, "value.impossible", Warning, "Values lie outside what rewards and discount allow.";
    ValueOtherWeights, "value.other-weights", Warning, "The weights of the run have not come to the pooled solution, whose value is given.";
    ValuePoorFeatures, "value.poor-features", Warning, "Fitted values are further from returns than chance allows.";
    WeightFarFromRows, "weight.far-from-rows", Warning, "An agent counts by far more than its share of the rows.";
    WeightsNotFound, "weights.not-found", Warning, "The fit of the weights did not find those that it was to find.";
}

/// Information that a reader of a result needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Its kind.
    pub code: NoteCode,
    /// The finding and what to do about it, in plain sentences. Settings are in backticks; users' names, such as columns, in double quotes.
    pub text: String,
}

impl Note {
    /// A note of this kind.
    pub fn new(code: NoteCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Its importance.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
