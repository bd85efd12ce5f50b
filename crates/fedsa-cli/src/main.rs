//! The `fedsa` program.

use std::process::ExitCode;

use fedsa_cli::{Extensions, main_with};

fn main() -> ExitCode {
    main_with(Extensions::default())
}
