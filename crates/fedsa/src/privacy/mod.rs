//! The mathematics of differential privacy, without settings of methods and without messages.
//!
//! | module | contents |
//! | --- | --- |
//! | [`accounting`] | zero-concentrated differential privacy (zCDP): rho of a release, and its (epsilon, delta) |
//! | [`discrete_gaussian`] | exact integer noise |
//! | [`sensitivity`] | by how much one unit changes what is released |
//! | [`shares`] | noise of which every agent adds a share, on the grid of a secure sum |
//!
//! A release adds noise of variance `s^2` to each component of something that one unit changes by at most Delta in the 2-norm. The unit
//! is an agent, a row or an episode; every result that is shown must name it.

pub mod accounting;
pub mod discrete_gaussian;
pub mod sensitivity;
pub mod shares;
pub mod unit;
