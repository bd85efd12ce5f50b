//! The experiments that are bundled with the program.

/// One bundled experiment.
pub struct Bundled {
    /// Its id: source and figure.
    pub id: &'static str,
    /// The text of its file.
    pub text: &'static str,
    /// Measured run time on two cores of an AMD EPYC with AVX-512, in seconds.
    pub seconds: f64,
}

macro_rules! bundled {
    ($($id:literal takes $seconds:literal),* $(,)?) => {
        /// All bundled experiments, in the order in which `reproduce all` runs them.
        pub const ALL: &[Bundled] = &[$(Bundled {
            id: $id,
            text: include_str!(concat!("../../../experiments/", $id, ".toml")),
            seconds: $seconds,
        }),*];
    };
}

bundled!(
    "scafflsa/fig1-low" takes 3.0,
    "scafflsa/fig1-high" takes 5.0,
    "scafflsa/grid" takes 300.0,
    "scafflsa/speedup" takes 170.0,
    "scafflsa/slides" takes 2.0,
    "scafflsa/random-talk" takes 16.0,
    "scafflsa/no-speedup" takes 8.0,
    "channels/fig4-3" takes 3.0,
    "channels/fig4-4" takes 2.0,
    "channels/fig4-5" takes 12.0,
    "delays/constant" takes 25.0,
    "delays/varying" takes 3.0,
    "fedhsa/fig2-noiseless" takes 1.0,
    "fedhsa/fig2-noisy" takes 2.0,
    "fedhsa/fig3" takes 6.0,
    "fedhsa/fig4" takes 3.0,
    "fedhsa/fig5" takes 12.0,
    "fedhsa/fig6" takes 11.0,
    "fedhsa/fig7" takes 13.0,
    "fedhsa/fig8" takes 110.0,
    "fedhsa/fig9" takes 6.0,
    "fedhsa/disagreement" takes 5.0,
    "fedhsa/compare" takes 9.0,
    "shed/fig2-2" takes 1.0,
    "shed/fig2-4" takes 900.0,
    "shed/fig2-5" takes 200.0,
    "shed/fig2-6" takes 80.0,
    "shed/fig2-7" takes 2.0,
    "shed/fig2-8" takes 20.0,
    "shed/figA" takes 900.0,
    "shed/superlinear" takes 1.0,
    "qshed/allocation" takes 1.0,
    "qshed/fig3-1" takes 3.0,
    "qshed/fig3-2" takes 6.0,
    "cross/second-order" takes 600.0,
    "cross/exact-mse" takes 1.0,
    "cross/logs" takes 70.0,
    "cross/evaluation" takes 25.0,
    "cross/matrix" takes 12.0,
    "cross/bits" takes 17.0,
    "cross/markov" takes 100.0,
    "cross/nonlinear" takes 35.0,
);
