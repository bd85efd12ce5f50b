//! The pictures of an improvement: the policy over state columns, and values on held-out episodes beside those of the fit.

use fedsa_evaluate::policy_value::{PossibleValues, ValueEstimate};
use fedsa_figure::{Chart, Panel, PlottedCurve};
use fedsa_problems::control::action_values::ActionValues;
use fedsa_problems::control::pessimism::Coverage;
use fedsa_problems::features::FeatureMap;

use super::notes;
use super::ridge::RidgeChoice;
use crate::evaluate::pictures::StateFunction;
use crate::numbers;
use crate::picture::Picture;

/// The policy, as a function of states: the largest value of an action, the action, and the rows behind it.
pub(super) struct PolicyOfStates<'a> {
    pub map: &'a FeatureMap,
    pub values: ActionValues<'a>,
    pub coverage: &'a Coverage,
    pub actions: &'a [String],
}

impl StateFunction for PolicyOfStates<'_> {
    fn map(&self) -> &FeatureMap {
        self.map
    }
    fn name(&self) -> &'static str {
        "Policy"
    }
    fn labels(&self) -> Vec<String> {
        ["value of the chosen action", "number of the chosen action", "rows behind it in its features, as a power of 10"]
            .map(String::from)
            .to_vec()
    }
    fn at(&self, state: &[f64]) -> Vec<f64> {
        let (mut phi, mut q) = (vec![0.0; self.map.len()], vec![0.0; self.actions.len()]);
        self.map.eval(state, &mut phi);
        let action = self.values.choice(&phi, &mut q);
        self.values.write(&phi, &mut q);
        vec![q[action], action as f64, -self.coverage.h(&phi, action).log10()]
    }
    fn has_error(&self) -> bool {
        false
    }
    fn about(&self, shown: &[usize]) -> String {
        let texts = ["the value of the action that the policy chooses", "its number", "the rows of the logs behind it"];
        let maps: Vec<String> = shown.iter().zip(["first", "second", "third"]).map(|(k, at)| format!("the {at} {}", texts[*k])).collect();
        let names: Vec<String> = self.actions.iter().enumerate().map(|(a, name)| format!("{a} {name}")).collect();
        let same = if shown.contains(&1) { "" } else { " In all cells the action is the same." };
        format!("Maps: {}. Actions: {}.{same}", maps.join(", "), names.join(", "))
    }
}

/// The values of the ridges that were tried; `None` unless two have one. `possible` are the values that rewards allow.
pub(super) fn ridges(choice: &RidgeChoice, possible: Option<PossibleValues>) -> Option<Picture> {
    let mut known: Vec<_> = choice.tried.iter().filter_map(|tried| Some((tried.ridge, tried.value?, tried.in_fit))).collect();
    known.retain(|(_, value, in_fit)| value.estimate.is_finite() && in_fit.is_finite());
    if known.len() < 2 {
        return None;
    }
    // A band is drawn where x rises.
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    let x: Vec<f64> = known.iter().map(|(ridge, ..)| *ridge).collect();
    let of = |number: &dyn Fn(&(f64, ValueEstimate, f64)) -> f64| known.iter().map(number).collect::<Vec<f64>>();
    let held_out = PlottedCurve {
        label: "on held-out episodes".into(),
        x: x.clone(),
        y: of(&|(_, value, _)| value.estimate),
        band: Some((of(&|(_, value, _)| value.low), of(&|(_, value, _)| value.high))),
        ..PlottedCurve::default()
    };
    let y = of(&|(.., in_fit)| *in_fit);
    let in_fit = PlottedCurve { label: "on the episodes of the fit".into(), color: 1, x, y, ..PlottedCurve::default() };
    let panel = Panel {
        x_label: "ridge".into(),
        y_label: "value of the new policy".into(),
        x_log: true,
        curves: vec![held_out, in_fit],
        ..Panel::default()
    };
    let allowed = possible.map_or(String::new(), |range| format!(" ({})", notes::allowed(range)));
    let caption = format!(
        "Values of start states by fitted values{allowed}; band: intervals on held-out episodes. Chosen: {}. Values on the episodes of the \
         fit have its ridge, and those on held-out episodes none.",
        numbers::number(choice.chosen)
    );
    Some(Picture::Chart(Chart { title: "Ridges that were tried".into(), panels: vec![panel], caption, ..Chart::default() }))
}
