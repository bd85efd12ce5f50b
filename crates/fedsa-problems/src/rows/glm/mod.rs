//! Families of generalised linear models and other losses of linear predictors. [`super::regression`] is their problem; the crate
//! `fedsa-evaluate` has their inference.

pub mod family;
