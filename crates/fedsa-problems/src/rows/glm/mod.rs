//! Families of generalised linear models and other losses of linear predictors. Their problem is that of [`super::regression`]; inference is
//! in the crate `fedsa-evaluate`.

pub mod family;
