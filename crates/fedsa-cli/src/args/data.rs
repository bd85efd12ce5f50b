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
    /// Verify the checksums of data sets; exit status 1 if a file differs or is missing
    Verify(VerifyArgs),
}

#[derive(Args, Debug)]
pub struct FetchArgs {
    /// Data sets, such as libsvm/w8a, or libsvm for all below
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Copy from this folder
    #[arg(long, value_name = "DIR", conflicts_with = "url_base")]
    pub from: Option<PathBuf>,
    /// Mirror, as URL/libsvm/w8a; by default $FEDSA_DATA_URL, else the canonical sources
    #[arg(long, value_name = "URL")]
    pub url_base: Option<String>,
    /// Replace cached files that differ
    #[arg(long)]
    pub overwrite: bool,
    /// Longest silence of a server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = timeout)]
    pub timeout: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
    /// Progress; auto: bar on a terminal, else nothing
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
