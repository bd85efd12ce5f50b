//! Ranges of state columns.

use std::collections::BTreeMap;

use fedsa::error::{Error, Result, quoted};

/// The range of each state column, by its name.
pub type Ranges = BTreeMap<String, (f64, f64)>;

/// Refuses empty or infinite ranges, and ranges of missing columns.
pub(super) fn check_ranges(columns: &[String], ranges: &Ranges) -> Result<()> {
    for (name, &(lo, hi)) in ranges {
        if !columns.contains(name) {
            let help = format!("the state columns are {}", quoted(columns.join(", ")));
            return Err(Error::new("ranges", format!("there is no state column `{}`", quoted(name)), help));
        }
        // The width must be finite too, or scaling by it would give 0 or NaN.
        if !(lo < hi && (hi - lo).is_finite()) {
            let help = "a range is two finite numbers, the smaller first";
            return Err(Error::new("ranges", format!("`{}`: [{lo}, {hi}] is not a range", quoted(name)), help));
        }
    }
    Ok(())
}
