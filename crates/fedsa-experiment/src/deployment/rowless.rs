//! The model of a federation of rows, without rows: what the server knows of its agents' features and targets.

use fedsa::enrolment::Membership;
use fedsa::error::Result;
use fedsa_problems::rows::dataset::{Columns, Rows};
use fedsa_problems::rows::glm::family::ModelFamily;
use fedsa_problems::rows::preparation::columns::Category;
use fedsa_problems::rows::preparation::levels::RowLevels;
use fedsa_problems::rows::preparation::moments::FeatureScales;
use fedsa_problems::rows::preparation::quality::LabelledRows;
use fedsa_problems::rows::preparation::targets::Targets;
use fedsa_problems::rows::preparation::transform::Transform;
use fedsa_problems::rows::preparation::{Preparation, Prepared};
use serde::Deserialize;

use super::forms::RowsForm;
use super::levels::{self, no_form};
use super::{Deployment, Source};

impl Deployment {
    /// The family, features and targets of the agents' rows, without rows; `None` if agents have no rows, or have not told their form.
    ///
    /// # Errors
    /// When the agents' statement is no form of rows.
    pub(super) fn rowless(&self, membership: &Membership) -> Result<Option<Prepared>> {
        let Some(form) = membership.form().filter(|_| self.source == Source::Rows) else { return Ok(None) };
        let how = levels::preparation(&self.experiment)?;
        let columns = membership.columns();
        let mut model = if columns.is_empty() || levels::are_moments(columns) {
            of_form(&how, serde_json::from_str(form).map_err(|_| no_form())?)?
        } else {
            of_levels(&how, levels::levels_of(levels::form(form)?, columns, &how))?
        };
        if let Some(FeatureScales { means, deviations }) = levels::scales(columns) {
            (model.transform.means, model.transform.deviations) = (means, deviations);
        }
        let d = model.transform.width + usize::from(how.intercept);
        if d * model.train.family.outputs() != membership.federation().dim() {
            return Err(no_form());
        }
        model.train.rows = Rows::Dense { d, values: Vec::new() };
        model.held_out = model.train.clone();
        model.weights = membership.federation().weights().to_vec();
        model.names = membership.members().iter().map(|one| one.sender.clone()).collect();
        Ok(Some(model))
    }
}

/// The model of rows whose features and targets are known without other agents.
fn of_form(how: &Preparation, form: RowsForm) -> Result<Prepared> {
    let text = |key: &str| form.model.get(key);
    let names: Option<Vec<String>> = match text("columns").and_then(|columns| columns.as_array()) {
        Some(names) => Some(names.iter().map(|name| name.as_str().map(String::from)).collect::<Option<_>>().ok_or_else(no_form)?),
        None => None,
    };
    let targets = match how.targets.of_classes(None)? {
        Some(targets) => targets,
        None => match text("target_map").and_then(|map| map.as_array()).map(|map| map.iter().filter_map(|x| x.as_f64()).collect()) {
            None => Targets::Numbers { offset: 0.0, scale: 1.0 },
            Some(map) => {
                let map: Vec<f64> = map;
                let [offset, factor] = map[..] else { return Err(no_form()) };
                Targets::Numbers { offset, scale: 1.0 / factor }
            }
        },
    };
    let all = form.dim.checked_div(targets.outputs()).and_then(|d| d.checked_sub(usize::from(how.intercept)));
    let width = all.filter(|width| names.as_ref().is_none_or(|names| names.len() == *width)).ok_or_else(no_form)?;
    let categories = text("categories").and_then(|all| all.as_array()).into_iter().flatten();
    let categories = categories.map(|one| serde_json::from_value::<CategoryForm>(one.clone()).ok().map(CategoryForm::category));
    let categories = categories.collect::<Option<Vec<Category>>>().ok_or_else(no_form)?;
    Ok(Prepared { categories, ..of_columns(how, width, names, targets) })
}

/// A category in the form of a model.
#[derive(Deserialize)]
struct CategoryForm {
    column: String,
    levels: Vec<String>,
    reference: Option<String>,
    first: usize,
}

impl CategoryForm {
    fn category(self) -> Category {
        let Self { column, levels, reference, first } = self;
        Category { column, levels, reference, first }
    }
}

/// The model of rows with these levels of all agents.
fn of_levels(how: &Preparation, levels: RowLevels) -> Result<Prepared> {
    let targets = how.targets.of_classes(levels.classes.as_deref())?;
    let targets = targets.unwrap_or(Targets::Numbers { offset: 0.0, scale: 1.0 });
    let categories = levels.features(how.intercept);
    let width = levels.plain + categories.iter().map(|category| category.levels.len()).sum::<usize>();
    let names = levels.names.map(|names| names.into_iter().chain(categories.iter().flat_map(Category::features)).collect());
    let model = of_columns(how, width, names, targets);
    Ok(Prepared { categories, levels: levels.categories, ..model })
}

fn of_columns(how: &Preparation, width: usize, names: Option<Vec<String>>, targets: Targets) -> Prepared {
    let family = match (&targets, how.family) {
        (Targets::Many { classes, .. }, _) => ModelFamily::Multinomial { classes: classes.len() },
        // Numbers are not classes.
        (Targets::Numbers { .. }, ModelFamily::Binomial) => ModelFamily::Gaussian,
        (_, family) => family,
    };
    let columns = names.map_or(Columns::Counted { width, left_out: Vec::new() }, Columns::Named);
    let none = LabelledRows {
        rows: Rows::Dense { d: width, values: Vec::new() },
        first: vec![0],
        targets: Vec::new(),
        offsets: Vec::new(),
        row_weights: Vec::new(),
        family,
    };
    let transform = Transform {
        divide_by: how.divide_by,
        means: Vec::new(),
        deviations: Vec::new(),
        components: None,
        intercept: how.intercept,
        columns,
        width,
    };
    Prepared {
        train: none.clone(),
        held_out: none,
        weights: Vec::new(),
        names: Vec::new(),
        transform,
        targets,
        categories: Vec::new(),
        levels: Vec::new(),
        notes: Vec::new(),
    }
}
