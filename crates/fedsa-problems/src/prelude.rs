//! The names of this crate that most programs need: `use fedsa_problems::prelude::*;`.

pub use crate::linear::affine::LinearSystems;
pub use crate::linear::file::ArrayFile;
pub use crate::td::garnet::{Garnet, Heterogeneity};
pub use crate::{NoFiles, ProblemSettings};
