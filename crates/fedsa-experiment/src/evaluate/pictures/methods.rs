//! The costs of the candidate methods, in rounds and in bits.

use crate::numbers;
use crate::picture::Picture;
use fedsa_figure::{Chart, Panel, PlottedCurve, Style};
use fedsa_theory::cost::Cost;

use crate::choose::Considered;

/// The picture of the predicted rounds and bits of these methods to `target`, a multiple of the residual at zero weights. The first method
/// is the chosen one. `steps` are the settings of methods with local steps, and `chooser` is the caller's word for the choice. `None` if no
/// cost is known.
pub fn methods(considered: &[Considered], target: f64, steps: &str, chooser: &str) -> Option<Picture> {
    let mut known: Vec<(&str, Cost)> = considered.iter().filter_map(|one| Some((one.kind, *one.cost.as_ref().ok()?))).collect();
    known.retain(|(_, cost)| cost.rounds.is_finite() && cost.bits.is_finite());
    if known.is_empty() {
        return None;
    }
    // The axis counts from the bottom.
    known.reverse();
    let points = |of: fn(&Cost) -> f64, is_bound: bool| {
        let of_this_kind = || known.iter().enumerate().filter(move |(_, (_, cost))| cost.is_bound == is_bound);
        PlottedCurve {
            label: if is_bound { "a bound: at most" } else { "an estimate: about" }.into(),
            color: usize::from(!is_bound),
            x: of_this_kind().map(|(_, (_, cost))| of(cost)).collect(),
            y: of_this_kind().map(|(row, _)| row as f64).collect(),
            style: Style::Points,
            ..PlottedCurve::default()
        }
    };
    let panel = |x_label: &str, of: fn(&Cost) -> f64| Panel {
        x_label: x_label.into(),
        x_log: true,
        y_names: known.iter().map(|(kind, _)| (*kind).to_string()).collect(),
        curves: [true, false].map(|is_bound| points(of, is_bound)).into_iter().filter(|curve| !curve.x.is_empty()).collect(),
        ..Panel::default()
    };
    let caption = format!(
        "Predicted cost until the residual is {} of that at zero weights, of the methods that {chooser} considers; the chosen \
         one is the first. Bounds follow from the number of features, estimates from the radius of a round. Methods with local \
         steps: {steps}.",
        numbers::typed(target)
    );
    let unknown = considered.iter().filter_map(|one| Some(format!("{}: {}.", one.kind, one.cost.as_ref().err()?.what)));
    Some(Picture::Chart(Chart {
        title: "Rounds and bits of methods".into(),
        panels: vec![panel("rounds", |cost| cost.rounds), panel("bits, up and down with headers", |cost| cost.bits)],
        caption,
        notes: unknown.collect(),
        ..Chart::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_with_a_cost_are_drawn_and_the_others_named() {
        let cost = |rounds, is_bound| Ok(Cost { rounds, is_bound, bits: 1e6 * rounds });
        let considered = [
            Considered { kind: "lstd", cost: cost(1.0, true) },
            Considered { kind: "scafflsa", cost: cost(160.0, false) },
            Considered { kind: "fedlsa", cost: Err(fedsa::error::Error::not_known("", "it diverges", "")) },
        ];
        let Some(Picture::Chart(chart)) = methods(&considered, 1e-12, "step size 1, 100 local steps", "the choice") else {
            panic!("a chart")
        };
        let [rounds, bits] = &chart.panels[..] else { panic!("two panels") };
        assert_eq!(rounds.y_names, ["scafflsa", "lstd"]);
        let places: Vec<(f64, f64)> = bits.curves.iter().map(|curve| (curve.x[0], curve.y[0])).collect();
        assert_eq!(places, [(1e6, 1.0), (160e6, 0.0)]);
        assert_eq!(chart.notes, ["fedlsa: it diverges."]);
        assert!(chart.caption.contains("1e-12"), "{}", chart.caption);
        assert!(methods(&considered[2..], 1e-12, "", "the choice").is_none());
    }
}
