//! The description of the agents' problem, on which the ends of a federation must agree.

use serde::Serialize;

use super::canonical::{Canonical, bytes};
use crate::sampling::Sampling;

/// The common part of the agents' problem: its kind, settings (discount, features, ridge, ..), sampling and dimension, without data, rows
/// and paths. Each end's operator provides it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Description {
    kind: String,
    sampling: Sampling,
    dim: usize,
    /// Settings in canonical form.
    settings: Vec<u8>,
}

impl Description {
    /// A problem of a kind with models of `dim` components, whose other settings need not agree.
    pub fn new(kind: impl Into<String>, sampling: Sampling, dim: usize) -> Self {
        Self { kind: kind.into(), sampling, dim, settings: Vec::new() }
    }

    /// Adds the settings that must agree: the kind's settings, or a map of names to values.
    #[must_use]
    pub fn with(self, settings: &impl Serialize) -> Self {
        self.with_all_but(&[], settings)
    }

    /// [`Description::with`] without settings of these names, in which the ends may differ, such as paths of data.
    #[must_use]
    pub fn with_all_but(self, own: &[&str], settings: &(impl Serialize + ?Sized)) -> Self {
        Self { settings: bytes(settings, own), ..self }
    }

    /// With another number of components.
    pub(crate) fn of_dim(self, dim: usize) -> Self {
        Self { dim, ..self }
    }

    /// Adds a value that is known later and must agree.
    pub(crate) fn agreeing_on(mut self, more: &impl Serialize) -> Self {
        self.settings.extend(bytes(more, &[]));
        self
    }

    /// How samples are drawn.
    pub(crate) fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// Everything except sampling.
    pub(crate) fn without_sampling(&self) -> (&str, usize, &[u8]) {
        (&self.kind, self.dim, &self.settings)
    }
}

/// The hash of a value: the first eight bytes of SHA-256 of its canonical form, little endian.
pub(crate) fn digest(value: &(impl Serialize + ?Sized)) -> u64 {
    u64::from_le_bytes(*full_digest(value).first_chunk().expect("32 bytes"))
}

/// SHA-256 of the canonical form of a value.
pub(crate) fn full_digest(value: &(impl Serialize + ?Sized)) -> [u8; 32] {
    Canonical::digest(value)
}
