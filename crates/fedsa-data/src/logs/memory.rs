//! Logs from columns in memory, such as data frames, by the names and rules of files.

use std::path::PathBuf;

use fedsa::error::{Result, quoted};
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::source::Inputs;

use super::columns::LogColumns;
use super::first_pass::{FirstPass, Rows};
use super::format::BATCH;
use super::groups::{self, Whole, WholeRows};
use super::header::Header;
use super::layout::Layout;
use crate::memory::MemoryTable;
use crate::memory_log::MemoryLog;

impl MemoryTable<'_> {
    /// Whether it has logged features, columns `phi_*`.
    ///
    /// # Errors
    /// When two columns have the same name.
    pub fn has_features(&self, form: &LogForm) -> Result<bool> {
        let (state, next) = Inputs::Features.prefixes();
        let header = Header::new(self.names.clone(), &form.columns).map_err(|e| e.about(quoted(&self.name)))?;
        Ok(header.roles.iter().any(|name| name.starts_with(state) && !name.starts_with(next)))
    }

    /// The logs of its agents: one, or one for each agent named in the column of agents, in natural order of the names. Interleaved
    /// environments and episodes are put in order as for files.
    ///
    /// # Errors
    /// When columns are missing, have different lengths, or hold invalid numbers.
    pub fn logs(&self, form: &LogForm) -> Result<Vec<MemoryLog>> {
        form.check()?;
        let table = Whole { path: PathBuf::from(&self.name), rows: WholeRows::Memory(self) };
        let all = match form.agent_column {
            Some(_) => groups::by_agent(&[table], form)?,
            None => vec![groups::of_one(&table, form, &self.name)?],
        };
        let all: Vec<MemoryLog> = all.into_iter().map(|arranged| arranged.log).collect();
        all.iter().try_for_each(|one| one.log.check()).map_err(|e| if e.key.is_empty() { e.about(quoted(&self.name)) } else { e })?;
        Ok(all)
    }

    /// Calls `see` with all transitions, in batches.
    pub(super) fn each_rows(&self, form: &LogForm, see: &mut dyn FnMut(&Rows) -> Result<()>) -> Result<FirstPass> {
        self.rows()?;
        let layout = Layout::new(&self.names, form)?;
        let (empty, most) = (layout.empty(&self.name), layout.batch(BATCH));
        let columns = LogColumns::new(&self.names, layout);
        columns.check_types(|i| self.columns[i].data_type())?;
        let mut table = self.batches(columns.wanted.iter().map(|(i, _)| *i).collect(), most);
        let mut seen = Ok(());
        let told = columns.read(&mut table, &mut || Rows::new(empty.clone()), &mut |rows| {
            seen = see(&rows);
            seen.is_ok()
        });
        seen.and(told)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringArray};
    use fedsa_problems::logs::log::Log;
    use fedsa_problems::logs::log_form::RowPlace;

    use super::*;
    use crate::logs::{from_csv, from_form};
    use crate::memory::TypedColumns;

    type Column = (&'static str, Vec<f64>);

    /// The same table as CSV.
    fn csv(columns: &[Column]) -> Vec<u8> {
        let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let line = |row: usize| columns.iter().map(|(_, x)| x[row].to_string()).collect::<Vec<_>>().join(",");
        let lines: Vec<String> = (0..columns[0].1.len()).map(line).collect();
        format!("{}\n{}\n", head.join(","), lines.join("\n")).into_bytes()
    }

    fn table(columns: &[Column]) -> MemoryTable<'_> {
        let mut table = MemoryTable::new("");
        columns.iter().for_each(|(name, x)| table.add_matrix(&[(*name).to_string()], x, 1).unwrap());
        table
    }

    fn logs(columns: &[Column], form: &LogForm) -> Vec<Log> {
        table(columns).logs(form).unwrap().into_iter().map(|one| one.log).collect()
    }

    fn columns() -> Vec<Column> {
        vec![
            ("next_10", vec![1.0, 2.0, 0.5, 1.5]),
            ("s_10", vec![0.0, 1.0, 0.0, 0.5]),
            ("s_2", vec![5.0, 6.0, 7.0, 8.0]),
            ("next_2", vec![6.0, 7.0, 8.0, 9.0]),
            ("reward", vec![1.0, 0.0, -1.0, 2.0]),
            ("terminated", vec![0.0, 1.0, 0.0, 0.0]),
            ("truncated", vec![0.0, 0.0, 0.0, 1.0]),
            ("episode", vec![3.0, 3.0, 4.0, 4.0]),
            ("target", vec![0.5, 0.25, 1.0, 0.0]),
            ("behaviour", vec![0.5, 0.5, 0.5, 0.5]),
            ("agent", vec![10.0, 10.0, 2.0, 2.0]),
        ]
    }

    #[test]
    fn a_table_in_memory_is_the_log_of_its_file() {
        let columns = columns();
        let found = logs(&columns, &LogForm::default());
        assert_eq!(found, [from_csv(csv(&columns), Inputs::States).unwrap()]);
        assert_eq!(found[0].columns, ["s_2", "s_10"]);
        let form = LogForm::default().with_agent_column(Some("agent".into()));
        let found = logs(&columns, &form);
        assert_eq!(found, from_form(csv(&columns), &form).unwrap());
        assert_eq!(found.len(), 2);
        // Next states come from the following rows.
        let mut without = columns.clone();
        without.retain(|(name, _)| !name.starts_with("next_"));
        assert_eq!(logs(&without, &LogForm::default()), from_form(csv(&without), &LogForm::default()).unwrap());
        let one = table(&without).logs(&LogForm::default()).unwrap().remove(0);
        assert_eq!((one.next_follows, one.left_out[0].rows, one.left_out[0].first), (true, 1, RowPlace::Row(3)));
        // Interleaved episodes and environments.
        let mut mixed = columns.clone();
        mixed[7].1 = vec![3.0, 4.0, 3.0, 4.0];
        mixed[5].1 = vec![0.0; 4];
        mixed[6].1 = vec![0.0; 4];
        mixed.push(("env", vec![0.0, 1.0, 0.0, 1.0]));
        let form = LogForm::default();
        assert_eq!(logs(&mixed, &form), from_form(csv(&mixed), &form).unwrap());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let refused = |change: &dyn Fn(&mut Vec<Column>)| {
            let mut columns = columns();
            change(&mut columns);
            table(&columns).logs(&LogForm::default()).unwrap_err().to_string()
        };
        assert_eq!(refused(&|all| all[5].1[2] = 2.0), "column `terminated`: row 2 is 2");
        assert_eq!(refused(&|all| all[7].1[1] = 0.5), "column `episode`: row 1 is 0.5");
        assert_eq!(refused(&|all| all[9].1[0] = 0.0), "column `behaviour`: row 0 is 0");
        assert_eq!(refused(&|all| all[4].1.truncate(3)), "4 rows of `next_10`, and 3 of `reward`");
        assert_eq!(refused(&|all| all.iter_mut().for_each(|(_, x)| x.clear())), "a log without transitions");
        assert!(refused(&|all| drop(all.remove(4))).contains("there is no column `reward`"));
        assert!(refused(&|all| all[1].1[0] = f64::NAN).contains("NaN is not a finite number"));
        let columns = columns();
        let mut text = table(&columns[..10]);
        let agents: ArrayRef = Arc::new(StringArray::from(vec!["b", "b", "a", "a"]));
        text.add_columns(&TypedColumns::new([("agent".into(), agents)]).unwrap());
        let logs = text.logs(&LogForm::default().with_agent_column(Some("agent".into()))).unwrap();
        assert_eq!(logs.iter().map(|one| &*one.log.name).collect::<Vec<_>>(), ["a", "b"]);
    }
}
