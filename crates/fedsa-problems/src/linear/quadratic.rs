//! Quadratic losses `f_c(theta) = theta^T A_c theta / 2 - b_c^T theta` with symmetric `A_c` (\[F\] sec. 6.1).
//!
//! | key | meaning |
//! | --- | --- |
//! | `agents`, `dim`, `seed` | N, d, and the seed. Agent c is the same for every N |
//! | `matrices` | law of `A_c`, with entries of G from N(0, 1): |
//! | | `definite`: `G_c^T G_c / d`, each shifted by a multiple of I |
//! | | `indefinite`: `(G_c + G_c^T) / 2`, all shifted by the same multiple of I, which depends on N |
//! | | `indefinite-one-average`: `Abar + D_c - mean D`, with `Abar` and `D_c` drawn as `(G + G^T) / 2` and `Abar` shifted: the average is `Abar` for every N |
//! | `least_eigenvalue` | of each `A_c` if definite, otherwise of their average |
//! | `greatest_eigenvalue` | of each definite `A_c`: spectra are mapped affinely instead of shifted |
//! | `offsets` | `b_c = b + spread e_c`, with `b ~ N(0, I)` drawn `per-agent` or `shared` |
//! | `spread` | factor of `e_c ~ N(0, I)`, per agent |
//! | `disagreement` | k: adds `k u_c` to `b_c`, with `u_c ~ N(0, I)` centred (`sum_c p_c u_c = 0`): the average operator stays |
//! | `a`, `b` | explicit symmetric matrices with a positive definite average, and offsets, instead of all keys above |
//! | `noise` | additive noise ([`mod@crate::noise`]); without it a sample is the mean operator |

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::linear::affine::Linear;
use crate::linear::spectra::{self, Spectrum};
use crate::memory::{self, MemoryEstimate};
use crate::noise::{self, Noise};
use crate::scope::Scope;
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::Isa;
use fedsa::parallel;
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Field, equal_weights};
use fedsa::random::{ALL, Purpose, stream};
use fedsa::registry::FromTable;
use fedsa::sampling::Sampling;
use fedsa::settings::{self, Value};

/// Law of the agents' matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Matrices {
    /// `G^T G / d`, shifted per agent to be positive definite.
    #[default]
    Definite,
    /// `(G + G^T) / 2`, with one shift for all agents that makes the average positive definite.
    Indefinite,
    /// The same, around an average that does not depend on N.
    IndefiniteOneAverage,
}

/// The `quadratic` problem.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(try_from = "Given"))]
#[serde(into = "Given")]
#[non_exhaustive]
pub struct Quadratic {
    /// The number of agents N, unless matrices are explicit.
    pub agents: usize,
    /// The dimension d, unless matrices are explicit.
    pub dim: usize,
    /// The seed.
    pub seed: u64,
    /// The law of matrices.
    pub matrices: Matrices,
    /// The least eigenvalue of each matrix, or of the average.
    pub least_eigenvalue: f64,
    /// The greatest eigenvalue of each matrix; by default it follows from the shift.
    pub greatest_eigenvalue: Option<f64>,
    /// Whether agents share the N(0, I) part of the offsets.
    pub offsets: Scope,
    /// The factor of each agent's own N(0, I) part of the offset.
    pub spread: f64,
    /// The factor k of `k u_c` in the offsets, with `sum_c p_c u_c = 0`.
    pub disagreement: f64,
    /// Explicit matrices `A_c`, N x d x d.
    pub a: Vec<Vec<Vec<f64>>>,
    /// Explicit offsets `b_c`, N x d.
    pub b: Vec<Vec<f64>>,
    /// Additive noise.
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { Quadratic {
    with_agents(agents: usize) = agents;
    with_dim(dim: usize) = dim;
    with_seed(seed: u64) = seed;
    with_matrices(matrices: Matrices) = matrices;
    with_least_eigenvalue(least_eigenvalue: f64) = least_eigenvalue;
    with_greatest_eigenvalue(greatest_eigenvalue: impl Into<Option<f64>>) = greatest_eigenvalue.into();
    with_offsets(offsets: Scope) = offsets;
    with_spread(spread: f64) = spread;
    with_disagreement(disagreement: f64) = disagreement;
    with_a(a: Vec<Vec<Vec<f64>>>) = a;
    with_b(b: Vec<Vec<f64>>) = b;
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

impl Default for Quadratic {
    fn default() -> Self {
        Self {
            agents: 10,
            dim: 10,
            seed: 0,
            matrices: Matrices::Definite,
            least_eigenvalue: 1.0,
            greatest_eigenvalue: None,
            offsets: Scope::PerAgent,
            spread: 0.0,
            disagreement: 0.0,
            a: Vec::new(),
            b: Vec::new(),
            noise: None,
        }
    }
}

/// [`Quadratic`] in a file: the settings of random losses, or explicit matrices and offsets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct Given {
    /// Agents N; 10 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    agents: Option<usize>,
    /// Dimension d; 10 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    dim: Option<usize>,
    /// Seed; 0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Law of matrices; definite by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    matrices: Option<Matrices>,
    /// Least eigenvalue of definite matrices, or of the average; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    least_eigenvalue: Option<f64>,
    /// Greatest eigenvalue of definite matrices.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    greatest_eigenvalue: Option<f64>,
    /// Offsets b; per-agent by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    offsets: Option<Scope>,
    /// Factor of `e_c`; 0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    spread: Option<f64>,
    /// Factor of `u_c`; 0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    disagreement: Option<f64>,
    /// Matrices `A_c`, N x d x d.
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<Vec<Vec<Vec<f64>>>>,
    /// Offsets `b_c`, N x d.
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<Vec<Vec<f64>>>,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    noise: Option<Noise>,
}

impl FromTable for Quadratic {
    fn from_table(table: &Value) -> Result<Self> {
        Self::of(settings::read(table)?)
    }
}

impl Quadratic {
    /// The settings of a file; refuses contradictory ones.
    fn of(given: Given) -> Result<Self> {
        for (key, is_empty) in [("a", given.a.as_ref().is_some_and(Vec::is_empty)), ("b", given.b.as_ref().is_some_and(Vec::is_empty))] {
            if is_empty {
                return Err(Error::new(key, "[] has no agents", format!("one entry for each agent, or no {key}")));
            }
        }
        if given.a.is_some() || given.b.is_some() {
            let drawn = [
                ("agents", given.agents.is_some()),
                ("dim", given.dim.is_some()),
                ("seed", given.seed.is_some()),
                ("matrices", given.matrices.is_some()),
                ("least_eigenvalue", given.least_eigenvalue.is_some()),
                ("greatest_eigenvalue", given.greatest_eigenvalue.is_some()),
                ("offsets", given.offsets.is_some()),
                ("spread", given.spread.is_some()),
                ("disagreement", given.disagreement.is_some()),
            ];
            if let Some((key, _)) = drawn.into_iter().find(|(_, is_given)| *is_given) {
                let what = "a setting of matrices that are drawn, beside matrices that are written out";
                return Err(Error::new(key, what, format!("no {key} beside a and b, which decide it")));
            }
        }
        let default = Self::default();
        Ok(Self {
            agents: given.agents.unwrap_or(default.agents),
            dim: given.dim.unwrap_or(default.dim),
            seed: given.seed.unwrap_or(default.seed),
            matrices: given.matrices.unwrap_or(default.matrices),
            least_eigenvalue: given.least_eigenvalue.unwrap_or(default.least_eigenvalue),
            greatest_eigenvalue: given.greatest_eigenvalue,
            offsets: given.offsets.unwrap_or(default.offsets),
            spread: given.spread.unwrap_or(default.spread),
            disagreement: given.disagreement.unwrap_or(default.disagreement),
            a: given.a.unwrap_or_default(),
            b: given.b.unwrap_or_default(),
            noise: given.noise,
        })
    }
}

impl From<Quadratic> for Given {
    fn from(settings: Quadratic) -> Self {
        let is_drawn = settings.is_drawn();
        Self {
            agents: is_drawn.then_some(settings.agents),
            dim: is_drawn.then_some(settings.dim),
            seed: is_drawn.then_some(settings.seed),
            matrices: is_drawn.then_some(settings.matrices),
            least_eigenvalue: is_drawn.then_some(settings.least_eigenvalue),
            greatest_eigenvalue: settings.greatest_eigenvalue,
            offsets: is_drawn.then_some(settings.offsets),
            spread: is_drawn.then_some(settings.spread),
            disagreement: is_drawn.then_some(settings.disagreement),
            a: (!settings.a.is_empty()).then_some(settings.a),
            b: (!settings.b.is_empty()).then_some(settings.b),
            noise: settings.noise,
        }
    }
}

impl ProblemSettings for Quadratic {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        if !self.is_drawn() {
            return Ok(());
        }
        crate::check_linear(self.agents, self.dim)?;
        crate::check_spread(self.spread)?;
        require(self.disagreement.abs() <= 1e300, "disagreement", self.disagreement, "from -1e300 to 1e300")?;
        Spectrum { least: self.least_eigenvalue, greatest: self.greatest_eigenvalue }.check()?;
        if let (true, Some(greatest)) = (self.matrices != Matrices::Definite, self.greatest_eigenvalue) {
            let what = format!("a greatest eigenvalue of {greatest} of indefinite matrices, which are shifted only");
            return Err(Error::new("greatest_eigenvalue", what, "none here, or matrices = \"definite\""));
        }
        Ok(())
    }

    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["a", "b"]
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        noise::alone_without_effect(self.noise.as_ref(), sampling)
    }

    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let kinds = if self.is_drawn() { self.drawn()? } else { self.written()? };
        let n = kinds.len();
        let systems = Systems::new(kinds, (0..n as u32).collect(), equal_weights(n));
        spectra::check_average("a", &systems)?;
        // Indefinite agents may be singular; only the average must be regular.
        noise::field(Linear::new(systems), self.noise.as_ref(), sampling, isa, true)
    }

    fn memory(&self, _: &dyn Files, _: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let (n, d) = if self.is_drawn() { (self.agents, self.dim) } else { (self.a.len(), self.b.first().map_or(0, Vec::len)) };
        // On every thread, drawing a matrix takes another, and its eigenvalues two more.
        let making = 3.0 * memory::matrix(d as f64, d as f64) * (threads as f64).min(n as f64);
        let (peak, kept) = memory::linear(n as f64, d as f64, true, making, threads);
        let sizes = noise::with_noise((peak, kept), self.noise.as_ref(), n, d);
        Ok(MemoryEstimate::new(sizes, format!("{}, d = {d}", memory::agents(n))))
    }
}

impl Quadratic {
    fn is_drawn(&self) -> bool {
        self.a.is_empty() && self.b.is_empty()
    }

    fn drawn(&self) -> Result<Vec<System>> {
        self.check()?;
        let spectrum = Spectrum { least: self.least_eigenvalue, greatest: self.greatest_eigenvalue };
        let d = self.dim;
        let gaussian = |c: usize| spectra::gaussian(d, &mut stream(self.seed, Purpose::System, spectra::MATRIX, c));
        let mut matrices = parallel::try_map(self.agents, |c| match self.matrices {
            Matrices::Definite => {
                let mut a = spectra::wishart(&gaussian(c));
                spectrum.impose(&mut a)?;
                Ok::<_, Error>(a)
            }
            Matrices::Indefinite | Matrices::IndefiniteOneAverage => Ok(spectra::symmetric_part(&gaussian(c))),
        })?;
        if self.matrices != Matrices::Definite {
            let mut mean = Mat::<f64>::zeros(d, d);
            matrices.iter().for_each(|a| mean += a);
            mean *= faer::Scale(1.0 / self.agents as f64);
            // The correction added to every matrix: it shifts the average, or makes it the drawn average.
            let mut average = match self.matrices {
                Matrices::IndefiniteOneAverage => spectra::symmetric_part(&gaussian(ALL)),
                _ => mean.clone(),
            };
            spectrum.impose(&mut average)?;
            let shift = average - mean;
            matrices.iter_mut().for_each(|a| *a += &shift);
        }
        let mut systems: Vec<System> = matrices.into_iter().enumerate().map(|(c, a)| System { a, b: self.offset(c) }).collect();
        let mut offsets: Vec<&mut [f64]> = systems.iter_mut().map(|system| &mut system.b[..]).collect();
        spectra::disagree(self.disagreement, self.seed, &equal_weights(self.agents), &mut offsets);
        Ok(systems)
    }

    /// The offset of agent `c`, before centring.
    fn offset(&self, c: usize) -> Vec<f64> {
        let of = |what: u64, agent: usize, scale: f64| spectra::normals(self.dim, scale, stream(self.seed, Purpose::System, what, agent));
        let mut b = of(spectra::OFFSET, self.offsets.of(c), 1.0);
        b.iter_mut().zip(of(spectra::SPREAD, c, self.spread)).for_each(|(b, e)| *b += e);
        b
    }

    fn written(&self) -> Result<Vec<System>> {
        let (n, d) = (self.a.len(), self.a.first().map_or(0, Vec::len));
        require(n >= 1, "a", "no matrices beside offsets", "one matrix for each offset of b")?;
        require(self.b.len() == n, "b", format!("{} offsets for {n} matrices", self.b.len()), "one per matrix of a")?;
        for (c, (a, b)) in self.a.iter().zip(&self.b).enumerate() {
            if let Some((i, row)) = a.iter().enumerate().find(|(_, row)| row.len() != a.len()) {
                let what = format!("the matrix of agent {c} is not square: it has {} rows, and row {i} has {} entries", a.len(), row.len());
                return Err(Error::new("a", what, "square matrices, all of one size"));
            }
            let what = || format!("agent {c} has a matrix of {} rows and an offset of {} components", a.len(), b.len());
            let fits = d >= 1 && a.len() == d && b.len() == d;
            require(fits, if a.len() == d { "b" } else { "a" }, what(), &format!("{} of each, as the first agent has", d.max(1)))?;
        }
        let finite = self.a.iter().flatten().flatten().chain(self.b.iter().flatten()).all(|x| x.is_finite());
        require(finite, "a", "a number that is not finite", "finite numbers")?;
        let systems: Vec<System> = (0..n).map(|c| System { a: Mat::from_fn(d, d, |i, j| self.a[c][i][j]), b: self.b[c].clone() }).collect();
        systems.iter().enumerate().try_for_each(|(c, system)| spectra::check_symmetric("a", c, &system.a))?;
        Ok(systems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoFiles;

    fn systems(settings: &Quadratic) -> Systems {
        let field = settings.field(&NoFiles, Sampling::default(), Isa::Portable).unwrap();
        field.systems().unwrap().clone()
    }

    fn least(a: &Mat<f64>) -> f64 {
        spectra::extremes(a).unwrap().0
    }

    #[test]
    fn matrices_have_the_eigenvalues_that_are_asked_for() {
        for matrices in [Matrices::Definite, Matrices::Indefinite, Matrices::IndefiniteOneAverage] {
            let settings = Quadratic { agents: 7, matrices, least_eigenvalue: 0.5, ..Quadratic::default() };
            let systems = systems(&settings);
            assert!(systems.is_symmetric());
            let own: Vec<f64> = systems.kinds.iter().map(|system| least(&system.a)).collect();
            if matrices == Matrices::Definite {
                assert!(own.iter().all(|low| (low - 0.5).abs() < 1e-13), "{own:?}");
            } else {
                assert!(own.iter().all(|low| *low < 0.0), "{own:?}");
                assert!((least(&systems.mean().a) - 0.5).abs() < 1e-13);
            }
        }
        let mapped = Quadratic { agents: 3, least_eigenvalue: 1e-6, greatest_eigenvalue: Some(4.0), ..Quadratic::default() };
        for system in &systems(&mapped).kinds {
            let (low, high) = spectra::extremes(&system.a).unwrap();
            assert!((low - 1e-6).abs() < 1e-14 && (high - 4.0).abs() < 1e-13, "{low} {high}");
        }
    }

    #[test]
    fn agents_are_the_first_of_one_pool_and_one_average_does_not_depend_on_their_number() {
        let of = |agents, matrices| systems(&Quadratic { agents, matrices, spread: 3.0, ..Quadratic::default() });
        let (few, many) = (of(3, Matrices::Definite), of(9, Matrices::Definite));
        assert!((0..3).all(|c| few.kinds[c].a == many.kinds[c].a && few.kinds[c].b == many.kinds[c].b));
        let (few, many) = (of(3, Matrices::IndefiniteOneAverage), of(9, Matrices::IndefiniteOneAverage));
        assert!((few.mean().a - many.mean().a).norm_max() < 1e-14);
        assert!((few.kinds[0].a.clone() - &many.kinds[0].a).norm_max() > 0.01, "deviations are centred over the agents that there are");
    }

    #[test]
    fn disagreement_moves_the_agents_and_not_their_average() {
        let of = |disagreement| systems(&Quadratic { disagreement, ..Quadratic::default() });
        let (none, some) = (of(0.0), of(100.0));
        let mut most = 0.0f64;
        for (none, some) in none.kinds.iter().zip(&some.kinds) {
            assert_eq!(none.a, some.a);
            most = most.max(fedsa::linalg::distance_sq(&none.b, &some.b));
        }
        assert!(most > 1e4);
        assert!(fedsa::linalg::distance_sq(&none.mean().b, &some.mean().b) < 1e-25);
    }

    #[test]
    fn shared_offsets_differ_by_their_spread_only() {
        let of = |spread| systems(&Quadratic { offsets: Scope::Shared, spread, ..Quadratic::default() });
        let (same, other) = (of(0.0), of(2.0));
        assert!(same.kinds.iter().all(|system| system.b == same.kinds[0].b));
        assert!(other.kinds.iter().skip(1).all(|system| system.b != other.kinds[0].b));
    }
}
