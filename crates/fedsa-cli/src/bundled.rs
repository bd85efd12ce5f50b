//! The experiments inside the program.

/// One bundled experiment.
pub struct Bundled {
    /// Its id: source and figure.
    pub id: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! bundled {
    ($($id:literal),* $(,)?) => {
        /// All bundled experiments, in the order in which `reproduce all` runs them.
        pub const ALL: &[Bundled] = &[$(Bundled { id: $id, text: include_str!(concat!("../../../experiments/", $id, ".toml")) }),*];
    };
}

bundled!(
    "scafflsa/fig1-low",
    "scafflsa/fig1-high",
    "scafflsa/grid",
    "scafflsa/speedup",
    "scafflsa/slides",
    "scafflsa/random-talk",
    "scafflsa/no-speedup",
    "channels/fig4-3",
    "channels/fig4-4",
    "channels/fig4-5",
    "delays/constant",
    "delays/varying",
    "cross/exact-mse",
    "cross/logs",
    "cross/matrix",
    "cross/bits",
);
