//! Files that problems read.

use std::sync::Arc;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::problem::arrays::Arrays;

use crate::logs::by_policy::KnownPolicy;
use crate::logs::log_form::LogForm;
use crate::logs::source::LogSource;
use crate::rows::dataset::{Dataset, Wanted};

/// How problems find the files that their settings name. This library itself reads no files.
pub trait Files {
    /// The arrays of an `.npz` file.
    ///
    /// # Errors
    /// When there is no such file or it cannot be read.
    fn arrays(&self, path: &str) -> Result<Arrays>;
    /// Logs of transitions: files, globs, folders or names of data sets. One agent per file, unless the form says otherwise.
    ///
    /// # Errors
    /// When there are no logs, or a log cannot be opened.
    fn logs(&self, sources: &[String], form: &LogForm) -> Result<Vec<Box<dyn LogSource>>>;
    /// Rows with targets: files, globs, folders or names of data sets, one [`Dataset`] per file, in their order. All have the same columns.
    ///
    /// # Errors
    /// When there are no such files, or one cannot be read.
    fn datasets(&self, sources: &[String], _wanted: &Wanted) -> Result<Vec<Dataset>> {
        Err(Error::new("data", format!("{}: no files here", sources.join(" ")), "a problem that reads none"))
    }
    /// A policy in a file.
    ///
    /// # Errors
    /// When there is no such file, or it has no policy.
    fn policy(&self, path: &str) -> Result<Arc<dyn KnownPolicy>> {
        Err(Error::new("policy", format!("{path}: no files here"), "a problem that reads none"))
    }
    /// The token that cancels the building of a problem. Problems whose agents take long to build check it before each agent.
    fn cancel(&self) -> &Cancel {
        static NEVER: Cancel = Cancel::never();
        &NEVER
    }
}

/// For problems that read no files.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn arrays(&self, path: &str) -> Result<Arrays> {
        Err(Error::new("path", format!("{path}: no files here"), "a problem that reads none"))
    }
    fn logs(&self, sources: &[String], _: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        self.arrays(&sources.join(" ")).map(|_| Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProblemSettings;
    use crate::nonlinear::random_logistic::RandomLogistic;
    use crate::td::garnet::Garnet;
    use crate::td::random_mrp::RandomMrp;
    use fedsa::error::ErrorKind;
    use fedsa::kernel::Isa;
    use fedsa::sampling::Sampling;

    /// Files whose token is cancelled.
    struct Stopped(Cancel);

    impl Files for Stopped {
        fn arrays(&self, path: &str) -> Result<Arrays> {
            NoFiles.arrays(path)
        }
        fn logs(&self, sources: &[String], form: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
            NoFiles.logs(sources, form)
        }
        fn cancel(&self) -> &Cancel {
            &self.0
        }
    }

    #[test]
    fn problems_whose_agents_take_long_are_built_until_they_are_cancelled() {
        let files = Stopped(Cancel::new());
        let problems: [&dyn ProblemSettings; 2] = [&Garnet::default(), &RandomMrp::default()];
        for problem in problems {
            problem.field(&files, Sampling::default(), Isa::best()).unwrap();
        }
        files.0.cancel();
        for problem in problems {
            let e = problem.field(&files, Sampling::default(), Isa::best()).map(|_| ()).unwrap_err();
            assert_eq!((e.kind(), e.what.as_str()), (ErrorKind::Cancelled, "it was cancelled"));
        }
    }

    #[test]
    fn an_optimum_that_was_cancelled_is_computed_again() {
        let field = RandomLogistic::default().field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        let cancel = Cancel::new();
        cancel.cancel();
        assert_eq!(field.solve(&cancel).unwrap_err().kind(), ErrorKind::Cancelled);
        assert!(field.solution().is_ok());
    }
}
