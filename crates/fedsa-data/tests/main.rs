//! All tests of files in one program; `hostile_files` is its own, because it measures the memory of the whole process.

mod datasets_real;
mod fetch;
mod handles;
mod logs_nulls;
mod logs_radii;
mod logs_traces;
mod parquet_kinds;
mod server;
