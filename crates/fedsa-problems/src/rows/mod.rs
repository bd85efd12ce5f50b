//! Rows with targets: regression and classification.

pub mod dataset;
pub mod glm;
pub mod preparation;
pub mod regression;
