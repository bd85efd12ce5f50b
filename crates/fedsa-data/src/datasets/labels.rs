//! A column of targets or groups: numbers, or names if a field is not a number.

use std::collections::HashMap;

use fedsa::error::{Error, Result, quoted};
use fedsa_problems::rows::dataset::Labels;

use super::part::not_finite;
use crate::input::Room;

/// The most distinct fields kept as names while all fields are numbers.
const MAX_NAMES: usize = 1 << 16;

/// Collects the fields of a column.
pub(super) struct Fields {
    /// As numbers, unless a field was not a number.
    numbers: Option<Vec<f64>>,
    /// As names, unless there were too many numbers.
    names: Option<Names>,
    /// Whether codes such as `007`, and whole numbers that no double represents, are names.
    are_levels: bool,
}

#[derive(Default)]
struct Names {
    names: Vec<String>,
    position: HashMap<String, u32>,
    of: Vec<u32>,
}

impl Fields {
    pub(super) fn new() -> Self {
        Self { numbers: Some(Vec::new()), names: Some(Names::default()), are_levels: false }
    }

    /// The fields of groups or categories: codes such as `007` are names, and ids keep all digits.
    pub(super) fn levels() -> Self {
        Self { are_levels: true, ..Self::new() }
    }

    /// Adds a field. `place` gives its position in messages.
    ///
    /// # Errors
    /// When it is empty, not finite, or a text after many numbers.
    pub(super) fn push(&mut self, field: &str, room: &mut Room, place: impl Fn() -> String) -> Result<()> {
        const WANTED: &str = "a finite number on every line, or a name on every line";
        let mut number: Option<f64> = field.parse().ok();
        if field.is_empty() || number.is_some_and(|x| !x.is_finite()) {
            return Err(not_finite(&place(), field, WANTED));
        }
        if self.are_levels {
            number = number.filter(|_| !is_code(field));
        } else {
            crate::field::check_exact(field).map_err(|e| e.prefixed(place()))?;
        }
        room.take(2 * (size_of::<f64>() + size_of::<u32>()), &place)?;
        match (number, &mut self.numbers) {
            (Some(x), Some(numbers)) => numbers.push(x),
            (None, Some(_)) if self.names.is_none() => {
                let what = format!("{}: `{}` is not a number, as the fields above it are", place(), quoted(field));
                return Err(Error::data("", what, WANTED));
            }
            (None, Some(_)) => self.numbers = None,
            (_, None) => (),
        }
        if let Some(names) = &mut self.names {
            names.push(field, room, &place)?;
            if self.numbers.is_some() && names.names.len() > MAX_NAMES {
                self.names = None;
            }
        }
        Ok(())
    }

    /// The column.
    pub(super) fn finish(self) -> Labels {
        match (self.numbers, self.names) {
            (None, Some(Names { names, of, .. })) => Labels::Names { names, of },
            (numbers, _) => Labels::Numbers(numbers.unwrap_or_default()),
        }
    }
}

/// Whether a field is a code, not a number: a whole number with leading zeros, or one that no double represents.
fn is_code(field: &str) -> bool {
    let digits = field.strip_prefix(['-', '+']).unwrap_or(field);
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_whole && digits.len() > 1 && digits.starts_with('0') || crate::field::check_exact(field).is_err()
}

impl Names {
    fn push(&mut self, field: &str, room: &mut Room, place: impl Fn() -> String) -> Result<()> {
        let i = match self.position.get(field) {
            Some(i) => *i,
            None => {
                // Twice the text, two strings, and an entry in the table.
                room.take(2 * field.len() + 160, &place)?;
                let too_many = |_| Error::data("", format!("{}: more than 2^32 different names", place()), "fewer names");
                let i = u32::try_from(self.names.len()).map_err(too_many)?;
                self.names.push(field.into());
                self.position.insert(field.into(), i);
                i
            }
        };
        self.of.push(i);
        Ok(())
    }
}
