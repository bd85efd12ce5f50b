//! Named arrays, from which problems are built and to which they are exported.
//!
//! The library neither reads nor writes files; the program turns an `.npz`
//! into [`Arrays`] and back.

use std::collections::BTreeMap;

use crate::error::{Error, Result, quoted};

/// An array of any number of dimensions; a scalar has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Array {
    /// An array from its shape and its entries in C order (last index fastest).
    ///
    /// # Errors
    /// When the number of entries is not the product of the shape.
    pub fn new(shape: Vec<usize>, data: Vec<f64>) -> Result<Self> {
        if count(&shape) == Some(data.len()) {
            return Ok(Self { shape, data });
        }
        let what = format!("{} numbers for an array of shape {}", data.len(), shape_text(&shape));
        Err(Error::data("", what, "the number of entries must be the product of the shape"))
    }

    /// A single number, of shape `()`.
    pub fn scalar(value: f64) -> Self {
        Self { shape: Vec::new(), data: vec![value] }
    }

    /// The size of every dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The entries in C order (last index fastest).
    pub fn data(&self) -> &[f64] {
        &self.data
    }
}

/// The number of entries of an array of this shape; `None` when it overflows.
pub fn count(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size))
}

/// A shape as Python prints it: `()`, `(3,)`, `(3, 4)`; at most the first 12 dimensions.
pub fn shape_text(shape: &[usize]) -> String {
    const MOST: usize = 12;
    match shape {
        [n] => format!("({n},)"),
        _ if shape.len() > MOST => {
            let first = shape[..MOST].iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            format!("({first}, .. {} dimensions)", shape.len())
        }
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Arrays by name, in the order of their names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arrays(BTreeMap<String, Array>);

impl Arrays {
    /// No arrays.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array, replacing one of the same name.
    pub fn insert(&mut self, name: impl Into<String>, array: Array) {
        self.0.insert(name.into(), array);
    }

    /// The array called `name`, if there is one.
    pub fn find(&self, name: &str) -> Option<&Array> {
        self.0.get(name)
    }

    /// The array called `name`.
    ///
    /// # Errors
    /// When there is none; the message lists the existing names.
    pub fn get(&self, name: &str) -> Result<&Array> {
        self.find(name).ok_or_else(|| {
            let found = match self.0.len() {
                0 => "there are no arrays".to_string(),
                _ => {
                    format!("the arrays are {}", self.0.keys().take(20).map(|k| format!("`{}`", quoted(k))).collect::<Vec<_>>().join(", "))
                }
            };
            Error::data(name, "there is no such array", found)
        })
    }

    /// All arrays in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.0.iter().map(|(name, array)| (name.as_str(), array))
    }

    /// The number of arrays.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no array.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_must_fill_the_shape() {
        assert!(Array::new(vec![2, 3], vec![0.0; 6]).is_ok());
        assert!(Array::new(vec![usize::MAX, 0, usize::MAX], Vec::new()).is_ok());
        let e = Array::new(vec![2, 3], vec![0.0; 5]).unwrap_err();
        assert_eq!(e.to_string(), "5 numbers for an array of shape (2, 3)");
        assert!(Array::new(vec![usize::MAX, 2], vec![0.0; 2]).is_err(), "the product overflows");
    }

    #[test]
    fn a_missing_array_is_answered_with_those_there_are() {
        let mut arrays = Arrays::new();
        arrays.insert("Phi", Array::scalar(1.0));
        arrays.insert("P", Array::scalar(2.0));
        let e = arrays.get("gamma").unwrap_err();
        assert_eq!((e.key.as_str(), e.help.as_str()), ("gamma", "the arrays are `P`, `Phi`"));
        assert_eq!(arrays.get("P").unwrap().data(), [2.0]);
    }
}
