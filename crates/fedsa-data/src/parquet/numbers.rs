//! Columns of numbers of a Parquet file.

use fedsa::error::Result;
use parquet::basic::Type;
use parquet::data_type::{BoolType, DoubleType, FloatType, Int32Type, Int64Type};

use super::{Columns, Steps};
use crate::exact;

/// A column of numbers that is read in steps; booleans are 0 and 1.
pub(crate) struct Numbers<'a>(Typed<'a>);

enum Typed<'a> {
    Bool(Steps<'a, BoolType>),
    Float(Steps<'a, FloatType>),
    Double(Steps<'a, DoubleType>),
    Int32(Steps<'a, Int32Type>, Integer),
    Int64(Steps<'a, Int64Type>, Integer),
}

impl<'a> Numbers<'a> {
    /// The column, at its first row.
    ///
    /// # Errors
    /// When it has another type.
    pub(crate) fn new(columns: &'a Columns, column: usize) -> Result<Self> {
        let wrong = || columns.wrong_type(column, "numbers (int, float, double) or booleans");
        Ok(Self(match columns.describe(column).physical_type() {
            Type::BOOLEAN => Typed::Bool(Steps::new(columns, column)?),
            Type::FLOAT => Typed::Float(Steps::new(columns, column)?),
            Type::DOUBLE => Typed::Double(Steps::new(columns, column)?),
            Type::INT32 => Typed::Int32(Steps::new(columns, column)?, columns.integer(column).ok_or_else(wrong)?),
            Type::INT64 => Typed::Int64(Steps::new(columns, column)?, columns.integer(column).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        }))
    }

    /// The same, in which nulls, and integers that a double cannot represent exactly, are NaN.
    pub(crate) fn with_nulls(mut self) -> Self {
        match &mut self.0 {
            Typed::Bool(steps) => steps.with_nulls = true,
            Typed::Float(steps) => steps.with_nulls = true,
            Typed::Double(steps) => steps.with_nulls = true,
            Typed::Int32(steps, _) => steps.with_nulls = true,
            Typed::Int64(steps, _) => steps.with_nulls = true,
        }
        self
    }

    /// Fills `out` with the numbers of the next rows.
    ///
    /// # Errors
    /// When there are fewer rows, one is null, or an integer cannot be represented by a double exactly.
    pub(crate) fn fill(&mut self, out: &mut [f64]) -> Result<()> {
        let inexact = |value: i128| if exact(value).is_none() { Some(value) } else { None };
        match &mut self.0 {
            Typed::Bool(steps) => steps.fill(out, |value| f64::from(u8::from(*value)), |_| None),
            Typed::Float(steps) => steps.fill(out, |value| f64::from(*value), |_| None),
            Typed::Double(steps) => steps.fill(out, |value| *value, |_| None),
            Typed::Int32(steps, Integer::Signed) => steps.fill(out, |value| f64::from(*value), |_| None),
            Typed::Int32(steps, Integer::Unsigned) => steps.fill(out, |value| f64::from(value.cast_unsigned()), |_| None),
            Typed::Int64(steps, Integer::Signed) => steps.fill(out, |value| *value as f64, |value| inexact(i128::from(*value))),
            Typed::Int64(steps, Integer::Unsigned) => {
                steps.fill(out, |value| value.cast_unsigned() as f64, |value| inexact(i128::from(value.cast_unsigned())))
            }
        }
    }
}

/// The sign of a column of integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Integer {
    /// With a sign.
    Signed,
    /// Without one.
    Unsigned,
}
