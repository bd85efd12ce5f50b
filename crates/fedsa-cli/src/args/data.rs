//! The options of `fedsa data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::values::{ProgressMode, timeout};

#[derive(Subcommand, Debug)]
pub enum DataCommand {
    /// List public data sets: name, size, content, sources
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Fetch data sets into the cache, $XDG_CACHE_HOME/fedsa or ~/.cache/fedsa, and verify them; continue interrupted fetches
    Fetch(FetchArgs),
    /// Compare data sets with their checksums; exit status 1 if a file differs or is missing
    Verify(VerifyArgs),
}

#[derive(Args, Debug)]
pub struct FetchArgs {
    /// Data sets, such as libsvm/w8a; libsvm for all that begin with libsvm/
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Copy from this folder instead of downloading
    #[arg(long, value_name = "DIR", conflicts_with = "url_base")]
    pub from: Option<PathBuf>,
    /// Mirror, as URL/libsvm/w8a; by default $FEDSA_DATA_URL, else the canonical sources
    #[arg(long, value_name = "URL")]
    pub url_base: Option<String>,
    /// Replace cached files that differ
    #[arg(long)]
    pub overwrite: bool,
    /// Seconds for which a server may be silent
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = timeout)]
    pub timeout: f64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
    /// Progress; auto: a bar on a terminal, nothing elsewhere
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub progress: ProgressMode,
}

#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// Data sets; by default all in the cache
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
