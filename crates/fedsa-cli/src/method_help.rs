//! The help of `--method`, which names all kinds of methods.

use fedsa::presets::PRESETS;
use fedsa_experiment::Kinds;
use fedsa_experiment::evaluate::ANDERSON_BASE;

/// That of `fedsa evaluate`.
pub fn of_evaluate(kinds: &Kinds) -> String {
    let kinds: Vec<&str> = kinds.methods().iter().map(|kind| kind.name).collect();
    let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    format!(
        "The method: auto (the one that reaches --tol with the fewest bits), {}; or one with its link: {}. anderson accelerates \
         {ANDERSON_BASE}, which gets the step size and the local steps",
        kinds.join(", "),
        presets.join(", ")
    )
}

/// That of `fedsa fit`.
pub fn of_fit(kinds: &Kinds) -> String {
    let kinds = kinds.methods().iter().map(|kind| kind.name);
    let all: Vec<&str> = kinds.chain(PRESETS.iter().map(|preset| preset.name)).collect();
    format!("The method: auto (few bits, rounds or seconds, see --objective; it changes on the way), {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_all_kinds_of_methods() {
        let text = of_evaluate(&Kinds::default());
        for name in fedsa::methods::KINDS.iter().map(|kind| kind.name).chain(PRESETS.iter().map(|preset| preset.name)) {
            assert!(text.contains(name), "{name}: {text}");
        }
    }
}
