//! The program `fedsa` with the kinds of this crate: `outside run outside.toml`.

fn main() -> std::process::ExitCode {
    fedsa_cli::main_with(fedsa_cli::Extensions { problems: &outside::problems(), ..outside::KINDS })
}
