//! Decimal commas in tables whose fields are separated by semicolons.
//!
//! Programs separate fields by semicolons if the comma is the decimal mark. A file with semicolons may have either decimal mark, but
//! only one for all numbers, and no thousands separators. `1,234` is 1.234 only if another number of the file shows that commas are
//! decimal.

use std::borrow::Cow;
use std::cell::RefCell;

use fedsa::error::{Error, Result, quoted};

const WANTED: &str = "numbers with one decimal mark, a point or a comma, in the whole file, and without separators of thousands";

/// The decimal marks seen so far in the numbers of a file.
pub(crate) struct Decimals {
    /// Whether commas may be decimal marks.
    may_be_commas: bool,
    seen: RefCell<Seen>,
}

/// The first numbers of each kind; line 0 means not yet known.
#[derive(Default)]
struct Seen {
    is_new: bool,
    point: Option<(u64, String)>,
    comma: Option<(u64, String)>,
    both: Option<(u64, String)>,
    /// Whether some number has a comma that cannot separate thousands.
    is_clear: bool,
}

/// The notation of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// With a decimal point.
    Point,
    /// With a decimal comma.
    Comma,
    /// With one comma before three digits, which may be a decimal mark or a thousands separator.
    Either,
    /// With thousands separators.
    Thousands,
    /// Without marks, or not a number.
    Other,
}

impl Decimals {
    /// For a file with this field separator.
    pub(crate) fn of(separator: u8) -> Self {
        Self { may_be_commas: separator == b';', seen: RefCell::default() }
    }

    /// A field of a column of numbers, with a decimal point. Its mark is recorded.
    pub(crate) fn number<'a>(&self, field: &'a str) -> Cow<'a, str> {
        if !self.may_be_commas {
            return Cow::Borrowed(field);
        }
        let form = form(field);
        if form != Form::Other {
            self.seen.borrow_mut().note(form, field);
        }
        converted(form, field)
    }

    /// A field of any column, with a decimal point if it is a number.
    pub(crate) fn any<'a>(&self, field: &'a str) -> Cow<'a, str> {
        if self.may_be_commas { converted(form(field), field) } else { Cow::Borrowed(field) }
    }

    /// Whether a field is a number with thousands separators.
    pub(crate) fn has_thousands(&self, field: &str) -> bool {
        self.may_be_commas && form(field) == Form::Thousands
    }

    /// Checks the marks found in a line.
    ///
    /// # Errors
    /// When its numbers have another mark than earlier ones.
    pub(crate) fn check(&self, line: impl FnOnce() -> u64) -> Result<()> {
        if !self.may_be_commas {
            return Ok(());
        }
        let mut seen = self.seen.borrow_mut();
        if !std::mem::take(&mut seen.is_new) {
            return Ok(());
        }
        let at = line();
        let Seen { point, comma, both, .. } = &mut *seen;
        [&mut *point, &mut *comma, &mut *both].into_iter().flatten().filter(|(line, _)| *line == 0).for_each(|(line, _)| *line = at);
        if let Some((line, field)) = both {
            return Err(Error::data("", format!("line {line}: `{}` has separators of thousands", quoted(field)), WANTED));
        }
        let (Some((line, point)), Some((other, comma))) = (point, comma) else { return Ok(()) };
        let what = format!("line {line}: `{}` has a decimal point, and `{}` in line {other} a comma", quoted(point), quoted(comma));
        Err(Error::data("", what, WANTED))
    }

    /// A message that commas were read as decimal marks; `None` if there were none.
    pub(crate) fn comma(&self) -> Option<String> {
        let seen = self.seen.borrow();
        let (line, field) = seen.comma.as_ref()?;
        Some(format!("a comma is the decimal mark: `{}` in line {line} is {}", quoted(field), quoted(field.replace(',', "."))))
    }

    /// Checks the whole file at its end.
    ///
    /// # Errors
    /// When commas may have been thousands separators.
    pub(crate) fn finish(&self) -> Result<()> {
        let seen = self.seen.borrow();
        let Some((line, field)) = seen.comma.as_ref().filter(|_| !seen.is_clear) else { return Ok(()) };
        let (field, decimal, whole) = (quoted(field), quoted(field.replace(',', ".")), quoted(field.replace(',', "")));
        let what = format!("line {line}: `{field}` is {decimal} or {whole}, and no number of the file says which");
        Err(Error::data("", what, format!("{decimal} or {whole}: numbers with a decimal point, or without marks")))
    }
}

impl Seen {
    fn note(&mut self, form: Form, field: &str) {
        self.is_clear |= form == Form::Comma;
        let place = match form {
            Form::Point => &mut self.point,
            Form::Comma | Form::Either => &mut self.comma,
            Form::Thousands => &mut self.both,
            Form::Other => return,
        };
        if place.is_none() {
            *place = Some((0, field.into()));
            self.is_new = true;
        }
    }
}

fn converted(form: Form, field: &str) -> Cow<'_, str> {
    if matches!(form, Form::Comma | Form::Either) { Cow::Owned(field.replacen(',', ".", 1)) } else { Cow::Borrowed(field) }
}

/// The notation of a field: `[sign] digits [mark digits] [exponent]`.
fn form(field: &str) -> Form {
    let unsigned = field.strip_prefix(['-', '+']).unwrap_or(field);
    let exponent = unsigned.find(['e', 'E']);
    let (mantissa, power) = exponent.map_or((unsigned, ""), |at| unsigned.split_at(at));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let power_is_whole = power.is_empty() || power[1..].parse::<i32>().is_ok();
    let marks = mantissa.bytes().filter(|byte| matches!(byte, b',' | b'.')).count();
    if marks == 0 || !power_is_whole || !mantissa.bytes().any(|byte| byte.is_ascii_digit()) {
        return Form::Other;
    }
    let pieces: Vec<&str> = mantissa.split([',', '.']).collect();
    if !pieces.iter().all(|piece| is_digits(piece)) {
        return Form::Other;
    }
    let in_threes = (1..=3).contains(&pieces[0].len()) && !pieces[0].starts_with('0');
    let whole = |pieces: &[&str]| pieces.iter().all(|piece| piece.len() == 3);
    match (marks, mantissa.contains(',')) {
        (1, false) => Form::Point,
        (1, true) if in_threes && whole(&pieces[1..]) && power.is_empty() => Form::Either,
        (1, true) => Form::Comma,
        // `1.234,5`, `1,234.5` and `1,234,567`, not `192.168.10.1`.
        _ if in_threes && whole(&pieces[1..marks]) && mantissa.contains(',') => Form::Thousands,
        _ => Form::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_by_their_marks() {
        let of = |fields: &[&str], expected: Form| fields.iter().for_each(|field| assert_eq!(form(field), expected, "{field}"));
        of(&["1.5", "-.5", "1.", "1.234", "2.5e-3"], Form::Point);
        of(&["1,5", "-,5", "0,123", "1234,567", "1,2345", "2,5E+3", "1,234e2"], Form::Comma);
        of(&["1,234", "-12,345", "+999,000"], Form::Either);
        of(&["1.234,5", "1,234.5", "1,234,567", "12.345.678,9"], Form::Thousands);
        of(&["", "7", "-3", "1e5", "x", "a,b", "1,5 mg", "192.168.10.1", "1,2,3", "1,5e", ",", ".", "-"], Form::Other);
    }

    #[test]
    fn one_mark_is_for_a_whole_file() {
        let read = |fields: &[&str]| -> Result<Vec<String>> {
            let decimals = Decimals::of(b';');
            let read = fields.iter().enumerate().map(|(i, field)| {
                let field = decimals.number(field).into_owned();
                decimals.check(|| i as u64 + 2).map(|()| field)
            });
            let read = read.collect::<Result<_>>()?;
            decimals.finish().map(|()| read)
        };
        assert_eq!(read(&["1,5", "7", "1,234"]).unwrap(), ["1.5", "7", "1.234"]);
        assert_eq!(read(&["1.5", "1.234"]).unwrap(), ["1.5", "1.234"]);
        let refused = |fields: &[&str]| read(fields).unwrap_err().what;
        assert_eq!(refused(&["1,5", "3", "2.5"]), "line 4: `2.5` has a decimal point, and `1,5` in line 2 a comma");
        assert_eq!(refused(&["3", "1.234,5"]), "line 3: `1.234,5` has separators of thousands");
        assert_eq!(refused(&["3", "1,234", "5,678"]), "line 3: `1,234` is 1.234 or 1234, and no number of the file says which");
    }

    #[test]
    fn commas_are_marks_in_files_with_semicolons_alone() {
        let decimals = Decimals::of(b',');
        assert_eq!((&*decimals.number("1,5"), &*decimals.any("1,5")), ("1,5", "1,5"));
        assert!(decimals.check(|| 2).is_ok() && decimals.finish().is_ok());
        // `any` records no mark.
        let decimals = Decimals::of(b';');
        assert_eq!((&*decimals.any("1,5"), &*decimals.any("1.5"), &*decimals.any("a,b")), ("1.5", "1.5", "a,b"));
        assert!(decimals.check(|| 2).is_ok() && decimals.finish().is_ok());
    }
}
