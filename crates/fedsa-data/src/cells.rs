//! The typed columns of tables, which are Arrow arrays, and their numbers, whole numbers and texts. Files of every format and tables in
//! memory share these rules.

use std::borrow::Cow;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Decimal32Type, Decimal64Type, Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray};
use arrow_schema::DataType;
use fedsa::error::{Error, Result, quoted};

use super::{exact, field};

/// The contents of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// Numbers or flags.
    Numbers,
    /// Whole numbers.
    Whole,
    /// Texts, or bytes that may be texts.
    Texts,
    /// Something else, such as dates.
    Other,
}

/// The contents of a column of this type.
pub fn kind(of: &DataType) -> CellKind {
    use DataType as T;
    match of {
        T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => CellKind::Whole,
        T::Null | T::Boolean | T::Float16 | T::Float32 | T::Float64 | T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) => {
            CellKind::Numbers
        }
        T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView => CellKind::Texts,
        T::Dictionary(_, values) => kind(values),
        _ => CellKind::Other,
    }
}

/// The error for a column with other contents than wanted.
pub fn wrong_type(found: &DataType, wanted: &str) -> Error {
    Error::data("", format!("it holds {}", in_words(found)), format!("a column of {wanted}"))
}

/// The contents of a column of this type, in words.
fn in_words(of: &DataType) -> Cow<'static, str> {
    use DataType as T;
    Cow::Borrowed(match of {
        T::Dictionary(_, values) => return in_words(values),
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) => return format!("lists of {}", in_words(item.data_type())).into(),
        T::Timestamp(..) => "dates with times",
        T::Date32 | T::Date64 => "dates",
        T::Time32(_) | T::Time64(_) => "times of day",
        T::Duration(_) | T::Interval(_) => "durations",
        T::Struct(_) => "structures",
        T::Map(..) => "maps",
        T::FixedSizeBinary(_) => "bytes",
        T::Decimal256(..) => "decimal numbers of more than 38 digits",
        T::Null => "nothing",
        T::Boolean => "flags",
        other => match kind(other) {
            CellKind::Whole => "whole numbers",
            CellKind::Numbers => "numbers",
            CellKind::Texts => "texts",
            CellKind::Other => return format!("values of the Arrow type {other}").into(),
        },
    })
}

/// The first rows without a number that a double represents, by their positions in the column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lacking {
    /// The first null.
    pub null: Option<usize>,
    /// The first whole number that no double represents.
    pub inexact: Option<usize>,
}

/// The numbers of a column, as many as `out` has; flags are 0 and 1. A row without a number gets NaN.
///
/// # Errors
/// When the column does not hold numbers.
pub fn numbers(column: &dyn Array, out: &mut [f64]) -> Result<Lacking> {
    let is_null = |row: usize| column.is_null(row);
    let inexact = match column.data_type() {
        DataType::Null => {
            out.fill(f64::NAN);
            None
        }
        DataType::Boolean => {
            let flags = column.as_boolean().values();
            out.iter_mut().zip(flags).for_each(|(out, flag)| *out = f64::from(u8::from(flag)));
            None
        }
        DataType::Float64 => fill(column.as_primitive::<Float64Type>(), out, Some),
        DataType::Float32 => fill(column.as_primitive::<Float32Type>(), out, |x| Some(x.into())),
        DataType::Float16 => fill(column.as_primitive::<Float16Type>(), out, |x| Some(x.into())),
        DataType::Int64 => fill(column.as_primitive::<Int64Type>(), out, |x| exact(x.into())),
        DataType::Int32 => fill(column.as_primitive::<Int32Type>(), out, |x| Some(x.into())),
        DataType::Int16 => fill(column.as_primitive::<Int16Type>(), out, |x| Some(x.into())),
        DataType::Int8 => fill(column.as_primitive::<Int8Type>(), out, |x| Some(x.into())),
        DataType::UInt64 => fill(column.as_primitive::<UInt64Type>(), out, |x| exact(x.into())),
        DataType::UInt32 => fill(column.as_primitive::<UInt32Type>(), out, |x| Some(x.into())),
        DataType::UInt16 => fill(column.as_primitive::<UInt16Type>(), out, |x| Some(x.into())),
        DataType::UInt8 => fill(column.as_primitive::<UInt8Type>(), out, |x| Some(x.into())),
        DataType::Decimal32(_, scale) => fill(column.as_primitive::<Decimal32Type>(), out, |x| decimal(x.into(), *scale)),
        DataType::Decimal64(_, scale) => fill(column.as_primitive::<Decimal64Type>(), out, |x| decimal(x.into(), *scale)),
        DataType::Decimal128(_, scale) => fill(column.as_primitive::<Decimal128Type>(), out, |x| decimal(x, *scale)),
        DataType::Dictionary(..) => return numbers(&*without_dictionary(column)?, out),
        other => return Err(wrong_type(other, "numbers or flags")),
    };
    let mut lacking = Lacking { null: None, inexact };
    if column.logical_null_count() > 0 {
        lacking.null = (0..out.len()).find(|row| column.data_type() == &DataType::Null || is_null(*row));
        out.iter_mut().enumerate().filter(|(row, _)| is_null(*row)).for_each(|(_, out)| *out = f64::NAN);
    }
    Ok(lacking)
}

/// Writes numbers to `out`, NaN for missing ones, and returns the first row that is not null and has no number.
fn fill<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, out: &mut [f64], number: impl Fn(T::Native) -> Option<f64>) -> Option<usize> {
    let mut is_exact = true;
    for (out, value) in out.iter_mut().zip(column.values()) {
        let number = number(*value);
        is_exact &= number.is_some();
        *out = number.unwrap_or(f64::NAN);
    }
    if is_exact { None } else { (0..out.len()).find(|row| column.is_valid(*row) && number(column.value(*row)).is_none()) }
}

/// The double nearest to `value` / 10^`scale`; `None` for a large whole number that no double represents.
fn decimal(value: i128, scale: i8) -> Option<f64> {
    /// Powers of ten up to this one are doubles.
    const EXACT: i8 = 22;
    match scale {
        0 => exact(value),
        // The quotient of two doubles has a single rounding.
        1..=EXACT if exact(value).is_some() => Some(value as f64 / 10f64.powi(scale.into())),
        _ => format!("{value}e{}", -i32::from(scale)).parse().ok(),
    }
}

/// All numbers of a column, as [`numbers`]; messages count rows from `first`.
///
/// # Errors
/// When the column does not hold numbers, a row is null, or no double represents a whole number.
pub fn all_numbers(column: &dyn Array, first: usize, out: &mut [f64]) -> Result<()> {
    let Lacking { null, inexact } = numbers(column, out)?;
    if let Some(row) = null {
        return Err(null_row(first + row));
    }
    let Some(row) = inexact else { return Ok(()) };
    Err(inexact_row(first + row, &name(column, row).unwrap_or_default()))
}

/// The error for a row with a whole number that no double represents.
pub fn inexact_row(row: usize, whole: &str) -> Error {
    field::too_many_digits(whole).prefixed(format!("row {row}"))
}

/// An error in a column, with its name.
pub(crate) fn in_column(name: &str, e: Error) -> Error {
    e.about("").prefixed(format!("column `{}`", quoted(name)))
}

/// The error for a row without a value.
pub fn null_row(row: usize) -> Error {
    Error::data("", format!("row {row} is null"), "a value in every row: leave such rows out")
}

/// Calls `visit` with all whole numbers of a column, in the order of its rows; `None` for null.
///
/// # Errors
/// When the column does not hold whole numbers, and the first error of `visit`.
pub fn each_whole(column: &dyn Array, mut visit: impl FnMut(Option<i128>) -> Result<()>) -> Result<()> {
    macro_rules! each {
        ($type:ty) => {
            column.as_primitive::<$type>().iter().try_for_each(|x| visit(x.map(i128::from)))
        };
    }
    match column.data_type() {
        DataType::Int64 => each!(Int64Type),
        DataType::Int32 => each!(Int32Type),
        DataType::Int16 => each!(Int16Type),
        DataType::Int8 => each!(Int8Type),
        DataType::UInt64 => each!(UInt64Type),
        DataType::UInt32 => each!(UInt32Type),
        DataType::UInt16 => each!(UInt16Type),
        DataType::UInt8 => each!(UInt8Type),
        DataType::Dictionary(..) => each_whole(&*without_dictionary(column)?, visit),
        other => Err(wrong_type(other, "whole numbers")),
    }
}

/// Calls `visit` with all texts of a column, in the order of its rows, as bytes; `None` for null.
fn each_bytes(column: &dyn Array, mut visit: impl FnMut(usize, Option<&[u8]>) -> Result<()>) -> Result<()> {
    macro_rules! each {
        ($array:expr, $bytes:expr) => {
            $array.iter().enumerate().try_for_each(|(row, x)| visit(row, x.map($bytes)))
        };
    }
    match column.data_type() {
        DataType::Utf8 => each!(column.as_string::<i32>(), str::as_bytes),
        DataType::LargeUtf8 => each!(column.as_string::<i64>(), str::as_bytes),
        DataType::Utf8View => each!(column.as_string_view(), str::as_bytes),
        DataType::Binary => each!(column.as_binary::<i32>(), |x| x),
        DataType::LargeBinary => each!(column.as_binary::<i64>(), |x| x),
        DataType::BinaryView => each!(column.as_binary_view(), |x| x),
        DataType::Dictionary(..) => each_bytes(&*without_dictionary(column)?, visit),
        other => Err(wrong_type(other, "texts")),
    }
}

/// Calls `visit` with all texts of a column and their positions; `None` for null. Messages count rows from `first`.
///
/// # Errors
/// When the column does not hold texts, or bytes are not UTF-8; and the first error of `visit`.
pub fn each_text(column: &dyn Array, first: usize, mut visit: impl FnMut(usize, Option<&str>) -> Result<()>) -> Result<()> {
    each_bytes(column, |row, bytes| {
        let text = bytes.map(std::str::from_utf8).transpose();
        visit(row, text.map_err(|_| Error::data("", format!("row {}: not UTF-8", first + row), "texts in UTF-8"))?)
    })
}

/// The text of a row, or its whole number with all digits; otherwise `None`.
pub fn name(column: &dyn Array, row: usize) -> Option<String> {
    let mut found = None;
    let one = column.slice(row, 1);
    match kind(column.data_type()) {
        CellKind::Texts => each_text(&*one, row, |_, text| {
            found = text.map(String::from);
            Ok(())
        })
        .ok()?,
        CellKind::Whole => each_whole(&*one, |whole| {
            found = whole.map(|whole| whole.to_string());
            Ok(())
        })
        .ok()?,
        CellKind::Numbers | CellKind::Other => (),
    }
    found
}

/// The pieces of a column of this type as one array.
///
/// # Errors
/// When they are of different types, or too long for one array.
pub(crate) fn joined(parts: &[ArrayRef], of: &DataType) -> Result<ArrayRef> {
    let parts: Vec<&dyn Array> = parts.iter().map(|part| &**part).collect();
    let all = if parts.is_empty() { Ok(arrow_array::new_empty_array(of)) } else { arrow_select::concat::concat(&parts) };
    all.map_err(|e| Error::data("", format!("its pieces do not fit together: {e}"), "a table that is not damaged"))
}

/// The column with values instead of dictionary keys.
fn without_dictionary(column: &dyn Array) -> Result<ArrayRef> {
    let bad = |e| Error::data("", format!("a key of its dictionary is wrong: {e}"), "a table that is not damaged");
    let dictionary = column.as_any_dictionary();
    arrow_select::take::take(dictionary.values(), dictionary.keys(), None).map_err(bad)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int8Type;
    use arrow_array::{
        BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, Float16Array, Float64Array, Int64Array, NullArray, StringArray,
        StringViewArray, UInt8Array, UInt64Array,
    };

    use super::*;

    fn read(column: &dyn Array) -> (Vec<f64>, Lacking) {
        let mut out = vec![7.0; column.len()];
        let lacking = numbers(column, &mut out).unwrap();
        (out, lacking)
    }

    #[test]
    fn numbers_of_every_type_are_doubles() {
        let float16: Float16Array = [0.5f32, -2.0].into_iter().map(|x| Some(x.to_string().parse().unwrap())).collect();
        let decimals = |scale| Decimal128Array::from(vec![50, -200]).with_precision_and_scale(38, scale).unwrap();
        let keys: DictionaryArray<Int8Type> =
            DictionaryArray::new(vec![1, 0].into(), Arc::new(Float64Array::from(vec![-2.0, 0.5])) as ArrayRef);
        let all: [(&dyn Array, [f64; 2]); 6] = [
            (&Float64Array::from(vec![0.5, -2.0]), [0.5, -2.0]),
            (&float16, [0.5, -2.0]),
            (&decimals(2), [0.5, -2.0]),
            (&keys, [0.5, -2.0]),
            (&BooleanArray::from(vec![true, false]), [1.0, 0.0]),
            (&UInt8Array::from(vec![255, 1]), [255.0, 1.0]),
        ];
        for (column, expected) in all {
            assert_eq!(read(column), (expected.to_vec(), Lacking::default()), "{}", column.data_type());
        }
        assert_eq!(read(&decimals(-1)).0, [500.0, -2000.0]);
    }

    #[test]
    fn decimals_are_the_nearest_doubles() {
        for (value, scale, expected) in [(1, 1, 0.1), (123_456_789_012_345_678_901, 20, 1.234_567_890_123_456_8), (-7, 25, -7e-25)] {
            assert_eq!(decimal(value, scale), Some(expected));
        }
        assert_eq!((decimal(1 << 53, 0), decimal((1 << 53) + 1, 0)), (Some(9007199254740992.0), None));
    }

    #[test]
    fn rows_without_a_number_are_named() {
        let (out, lacking) = read(&Int64Array::from(vec![Some(1), None, Some(i64::MAX), None]));
        assert!(out[0] == 1.0 && out[1..].iter().all(|x| x.is_nan()));
        assert_eq!(lacking, Lacking { null: Some(1), inexact: Some(2) });
        assert_eq!(read(&NullArray::new(2)).1.null, Some(0));
        let all = |column: &dyn Array| all_numbers(column, 1, &mut vec![0.0; column.len()]).unwrap_err().to_string();
        assert_eq!(all(&Float64Array::from(vec![Some(1.0), None])), "row 2 is null");
        assert_eq!(all(&UInt64Array::from(vec![1, u64::MAX])), "row 2: 18446744073709551615 has more digits than a number keeps");
        assert_eq!(all(&StringArray::from(vec!["a"])), "it holds texts");
    }

    #[test]
    fn texts_of_every_type_are_read() {
        let keys: DictionaryArray<Int8Type> = vec![Some("é"), None, Some("b")].into_iter().collect();
        let all: [&dyn Array; 4] = [
            &StringArray::from(vec![Some("é"), None, Some("b")]),
            &StringViewArray::from(vec![Some("é"), None, Some("b")]),
            &BinaryArray::from(vec![Some("é".as_bytes()), None, Some(b"b")]),
            &keys,
        ];
        for column in all {
            let mut texts = Vec::new();
            each_text(column, 0, |row, text| {
                texts.push((row, text.map(String::from)));
                Ok(())
            })
            .unwrap();
            assert_eq!(texts, [(0, Some("é".into())), (1, None), (2, Some("b".into()))], "{}", column.data_type());
        }
        let bytes = BinaryArray::from(vec![&b"a"[..], b"\xff"]);
        assert_eq!(each_text(&bytes, 1, |_, _| Ok(())).unwrap_err().to_string(), "row 2: not UTF-8");
        assert_eq!(name(&Int64Array::from(vec![1_582_218_195_625_938_945]), 0).as_deref(), Some("1582218195625938945"));
    }
}
