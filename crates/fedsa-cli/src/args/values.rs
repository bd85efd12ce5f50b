//! Values of options that several commands have.

/// The display of progress.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProgressMode {
    /// A bar on a terminal, lines elsewhere
    #[default]
    Auto,
    /// A bar with the time left
    Bar,
    /// A line with the time left every half minute
    Plain,
    /// Nothing
    None,
}

/// A number of seconds from 0 to 1e9.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (0.0..=1e9).contains(&x) => Ok(x),
        _ => Err("not a number of seconds from 0 to 1e9".into()),
    }
}

/// A number of seconds from 0.1 to 86400.
pub(super) fn timeout(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (0.1..=86400.0).contains(&x) => Ok(x),
        _ => Err("not a number of seconds from 0.1 to 86400".into()),
    }
}

/// The destination of a picture.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureStyleArg {
    /// The text width of NeurIPS, 5.5 inches, with 9 point Times
    Neurips,
    /// A column of IEEE, 3.5 inches, with 8 point Times
    Ieee,
    /// A slide of 16:9, with large letters
    Slides,
}

impl FigureStyleArg {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            FigureStyleArg::Neurips => "neurips",
            FigureStyleArg::Ieee => "ieee",
            FigureStyleArg::Slides => "slides",
        }
    }
}
