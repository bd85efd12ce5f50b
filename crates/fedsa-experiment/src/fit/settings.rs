//! What a fit is asked for, and the experiment that this comes to.

use fedsa::error::{Error, Result, quoted};
use fedsa::methods::Needs;
use fedsa::problem::glm::inference::{CovarianceKind, InferenceSettings};
use fedsa::problem::preparation::partition::Partition;
use toml::{Table, Value};

use crate::choose::{Goal, LossChoice, Network};
use crate::config::{Experiment, read_kind};
use crate::kinds::Kinds;
use crate::made::{self, Changes, Keys, kind_of, table, takes, text, texts, whole};
use crate::numbers;

/// The agents by default.
pub const AGENTS: u64 = 8;

/// mu by default.
const RIDGE: f64 = 1e-5;

/// The local steps of a round by default, for methods that have any.
pub const LOCAL_STEPS: u64 = 10;

/// The name of the method that is chosen for the data ([`crate::choose::choose_for_losses`]).
pub const AUTO: &str = "auto";

/// The counts by which methods are compared.
const COSTS: [&str; 4] = ["exchanges", "vectors_up", "bits_up", "hessians"];

/// What is fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Model {
    /// Logistic regression: two classes, or one against the rest.
    #[default]
    Logistic,
    /// Least squares.
    LeastSquares,
    /// Counts, log link.
    Poisson,
    /// Positive numbers, log link.
    Gamma,
    /// Counts with more variance than Poisson's, log link; alpha is given.
    NegativeBinomial,
    /// Several classes against a reference class.
    Multinomial,
    /// Huber's loss, for numbers with outliers; its threshold is given.
    Huber,
}

impl Model {
    /// All models.
    pub const ALL: [Self; 7] =
        [Self::Logistic, Self::LeastSquares, Self::Poisson, Self::Gamma, Self::NegativeBinomial, Self::Multinomial, Self::Huber];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logistic => "logistic",
            Self::LeastSquares => "least-squares",
            _ => self.family(),
        }
    }

    /// The name of its family in experiment files.
    fn family(self) -> &'static str {
        match self {
            Self::Logistic => "binomial",
            Self::LeastSquares => "gaussian",
            Self::Poisson => "poisson",
            Self::Gamma => "gamma",
            Self::NegativeBinomial => "negative-binomial",
            Self::Multinomial => "multinomial",
            Self::Huber => "huber",
        }
    }
}

/// What is asked for. Errors name the setting at fault, or the key of the experiment that the settings come to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FitSettings {
    /// Files, globs, folders or names of data sets; nothing for data that are given in memory.
    pub data: Vec<String>,
    /// The model; logistic regression by default.
    pub model: Model,
    /// The number of agents that rows are dealt to; by default 8, and what the data say for the partitions files and by-column.
    pub agents: Option<u64>,
    /// The column of targets; by default what the format of the data says.
    pub target: Option<String>,
    /// The class that is told from all others.
    pub positive: Option<String>,
    /// The class of the multinomial model with which others are compared; the first one by default.
    pub reference: Option<String>,
    /// alpha of the negative-binomial model, whose variance is `mu + alpha mu^2`.
    pub alpha: Option<f64>,
    /// The residual from which on Huber's loss is linear, in units of the target.
    pub threshold: Option<f64>,
    /// The column that is added to linear predictors, such as the logarithm of an exposure.
    pub offset: Option<String>,
    /// The column that says how much each row counts.
    pub row_weights: Option<String>,
    /// Columns of tables that are not used.
    pub drop: Vec<String>,
    /// Columns of tables that are categories: a feature for each level but the first. Columns of text are so by themselves.
    pub categorical: Vec<String>,
    /// mu: `mu/2 ||theta||^2` is added to the loss; 1e-5 by default, and 0 with inference.
    pub ridge: Option<f64>,
    /// Whether a column of ones is added; by default for tables (CSV, Parquet) and with inference, and not for LIBSVM and IDX rows.
    pub intercept: Option<bool>,
    /// Whether the ridge applies to the intercept too; by default it does, but for inference.
    pub penalise_intercept: Option<bool>,
    /// Standard errors of the coefficients, deviance and AIC; none by default. The ridge is then 0, and applies to no intercept.
    pub inference: Option<InferenceSettings>,
    /// Every feature is divided by this number; 1 by default.
    pub divide_by: Option<f64>,
    /// Whether columns are scaled to mean 0 and standard deviation 1; false by default.
    pub standardise: bool,
    /// The number of principal components that rows are projected on; none by default.
    pub pca: Option<u64>,
    /// How rows are dealt to agents; shuffled by default.
    pub partition: Partition,
    /// The column whose values are the agents, for the partition by-column.
    pub group: Option<String>,
    /// How much agents count, by the names of experiment files: `rows` by default, which gives the solution of all rows pooled, or `equal`.
    pub weights: String,
    /// The share of each agent's rows that is held out; none by default.
    pub holdout: Option<f64>,
    /// The method, a kind or a preset, or [`AUTO`], which is the default.
    pub method: Option<String>,
    /// What [`AUTO`] minimises; bits by default.
    pub minimise: Goal,
    /// What messages take, for estimates of seconds; nothing by default.
    pub network: Option<Network>,
    /// Methods that are run on the same data. Without `method` the first of them gives the weights.
    pub compare: Vec<String>,
    /// Methods stop when the norm of the gradient is at most this; 0 for never; 1e-9 by default.
    pub tol: f64,
    /// The most rounds; 5000 by default.
    pub rounds: u64,
    /// How rows are drawn by methods with local steps, by the names of experiment files: `mean` by default, or `iid`.
    pub sampling: String,
    /// The number of rows of a local step with independent rows.
    pub batch: Option<u64>,
    /// The local step size, for methods with local steps.
    pub step_size: Option<f64>,
    /// The local steps of a round, for methods with local steps; 10 by default.
    pub local_steps: Option<u64>,
    /// The seed of the run, of the partition and of held-out rows; 0 by default.
    pub seed: u64,
    /// What is changed in the experiment that the settings come to.
    pub changes: Changes,
    /// The kinds of methods that there are; fedsa's own by default.
    pub kinds: Kinds,
}

impl Default for FitSettings {
    fn default() -> Self {
        Self {
            data: Vec::new(),
            model: Model::default(),
            agents: None,
            target: None,
            positive: None,
            reference: None,
            alpha: None,
            threshold: None,
            offset: None,
            row_weights: None,
            drop: Vec::new(),
            categorical: Vec::new(),
            ridge: None,
            intercept: None,
            penalise_intercept: None,
            inference: None,
            divide_by: None,
            standardise: false,
            pca: None,
            partition: Partition::Shuffled,
            group: None,
            weights: "rows".into(),
            holdout: None,
            method: None,
            minimise: Goal::Bits,
            network: None,
            compare: Vec::new(),
            tol: 1e-9,
            rounds: 5_000,
            sampling: "mean".into(),
            batch: None,
            step_size: None,
            local_steps: None,
            seed: 0,
            changes: Changes::default(),
            kinds: Kinds::default(),
        }
    }
}

made::with! { FitSettings:
    /// The same with this model.
    with_model(model: Model) = model;
    /// The same for this many agents.
    with_agents(agents: u64) = Some(agents);
    /// The same with this column of targets.
    with_target(target: impl Into<String>) = Some(target.into());
    /// The same for this class against the rest.
    with_positive(positive: impl Into<String>) = Some(positive.into());
    /// The same with this reference class.
    with_reference(reference: impl Into<String>) = Some(reference.into());
    /// The same with this alpha of the negative-binomial model.
    with_alpha(alpha: f64) = Some(alpha);
    /// The same with this threshold of Huber's loss.
    with_threshold(threshold: f64) = Some(threshold);
    /// The same with this column of offsets.
    with_offset(offset: impl Into<String>) = Some(offset.into());
    /// The same with this column of row weights.
    with_row_weights(row_weights: impl Into<String>) = Some(row_weights.into());
    /// The same with these columns of categories.
    with_categorical(categorical: Vec<String>) = categorical;
    /// The same without these columns of tables.
    with_drop(drop: Vec<String>) = drop;
    /// The same with this ridge.
    with_ridge(ridge: f64) = Some(ridge);
    /// The same with a column of ones, or without.
    with_intercept(intercept: bool) = Some(intercept);
    /// The same with a ridge on the intercept too, or without.
    with_penalise_intercept(penalise_intercept: bool) = Some(penalise_intercept);
    /// The same with standard errors.
    with_inference(inference: InferenceSettings) = Some(inference);
    /// The same with every feature divided by this number.
    with_divide_by(divide_by: f64) = Some(divide_by);
    /// The same with scaled columns, or without.
    with_standardise(standardise: bool) = standardise;
    /// The same with rows projected on this many principal components.
    with_pca(pca: u64) = Some(pca);
    /// The same with rows dealt to agents in this way.
    with_partition(partition: Partition) = partition;
    /// The same with the values of this column for agents; for the partition by-column.
    with_group(group: impl Into<String>) = Some(group.into());
    /// The same with agents that count by their rows (`rows`), or equally (`equal`).
    with_weights(weights: impl Into<String>) = weights.into();
    /// The same with this share of each agent's rows held out.
    with_holdout(holdout: f64) = Some(holdout);
    /// The same with this method.
    with_method(method: impl Into<String>) = Some(method.into());
    /// The same with a method that is chosen for this.
    with_minimise(minimise: Goal) = minimise;
    /// The same on a network on which messages take this.
    with_network(network: Network) = Some(network);
    /// The same with these methods beside each other.
    with_compare(compare: Vec<String>) = compare;
    /// The same that stops at this norm of the gradient.
    with_tol(tol: f64) = tol;
    /// The same with at most this many rounds.
    with_rounds(rounds: u64) = rounds;
    /// The same with rows drawn in this way.
    with_sampling(sampling: impl Into<String>) = sampling.into();
    /// The same with this many rows a local step.
    with_batch(batch: u64) = Some(batch);
    /// The same with this step size.
    with_step_size(step_size: f64) = Some(step_size);
    /// The same with this many local steps.
    with_local_steps(local_steps: u64) = Some(local_steps);
    /// The same with this seed.
    with_seed(seed: u64) = seed;
    /// The same with these changes of its experiment.
    with_changes(changes: Changes) = changes;
    /// The same that knows these kinds of methods.
    with_kinds(kinds: Kinds) = kinds;
}

impl FitSettings {
    /// The defaults on these files, globs, folders or data sets.
    pub fn new(data: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { data: data.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The experiment of the settings, without reading the data.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn experiment(&self) -> Result<Experiment, Error> {
        self.check_model()?;
        self.check_choice()?;
        if let Some(how) = self.inference {
            self.check_inference(self.ridge.unwrap_or(0.0), self.weights == "rows")?;
            self.check_clusters(how)?;
        }
        self.experiment_by(None)
    }

    /// The experiment with this choice for [`AUTO`].
    ///
    /// # Errors
    /// As [`FitSettings::experiment`].
    pub(super) fn experiment_by(&self, choice: Option<&LossChoice>) -> Result<Experiment, Error> {
        made::experiment(self.table(choice)?, self.keys()?, &self.changes, &self.kinds)
    }

    /// Whether a method is to be chosen.
    pub(super) fn chooses(&self) -> bool {
        self.named().is_ok_and(|named| named.iter().any(|name| name == AUTO))
    }

    /// Whether the model is one of the kinds without families, offsets and row weights.
    fn is_plain(&self) -> bool {
        matches!(self.model, Model::Logistic | Model::LeastSquares) && self.offset.is_none() && self.row_weights.is_none()
    }

    /// Settings that belong to other models.
    ///
    /// # Errors
    /// When there is one.
    fn check_model(&self) -> Result<()> {
        let given = [
            ("positive", self.positive.is_some(), Model::Logistic),
            ("reference", self.reference.is_some(), Model::Multinomial),
            ("alpha", self.alpha.is_some(), Model::NegativeBinomial),
            ("threshold", self.threshold.is_some(), Model::Huber),
        ];
        if let Some((key, _, model)) = given.into_iter().find(|(_, is_given, model)| *is_given && *model != self.model) {
            let class = self.positive.as_ref().filter(|_| key == "positive").map(|class| format!("`{}`, and ", quoted(class)));
            let what = format!("{}the model is {}", class.unwrap_or_default(), self.model.name());
            return Err(Error::new(key, what, format!("`model = {}`", model.name())));
        }
        let missing = [("alpha", self.alpha, Model::NegativeBinomial), ("threshold", self.threshold, Model::Huber)];
        if let Some((key, ..)) = missing.into_iter().find(|(_, given, model)| *model == self.model && given.is_none()) {
            return Err(Error::new(key, format!("the model {} needs it", self.model.name()), "a positive number"));
        }
        Ok(())
    }

    /// Settings that no part of the fit would use: those of a choice where none is made or where it is made for something else, and how rows are
    /// drawn where all methods use all rows.
    ///
    /// # Errors
    /// When there is one.
    fn check_choice(&self) -> Result<()> {
        let goal = self.minimise.name();
        if self.minimise != Goal::Bits && !self.chooses() {
            return Err(Error::new(
                "minimise",
                format!("{goal}, and the method is given"),
                "no `minimise`, or no `method`, which is then chosen",
            ));
        }
        if let Some(network) = self.network.filter(|_| self.minimise != Goal::Seconds) {
            let key = if network.bandwidth.is_some() { "bandwidth" } else { "exchange_seconds" };
            let what = format!("given, and the method is not chosen for few seconds but for few {goal}");
            return Err(Error::new(key, what, format!("`minimise = seconds`, or no `{key}`")));
        }
        // Batches are refused of their own.
        let named = self.named()?;
        if self.batch.is_none() && self.sampling != FitSettings::default().sampling && named.iter().all(|kind| self.needs_all_rows(kind)) {
            let what = format!("`{}`, and {} uses all rows of an agent in every round", quoted(&self.sampling), quoted(&named[0]));
            return Err(Error::new("sampling", what, "no `sampling`, or methods that draw rows, such as fedlsa"));
        }
        Ok(())
    }

    /// What inference needs of the losses.
    ///
    /// # Errors
    /// When there is a ridge, or agents count otherwise than by their rows: the estimate is then not that of greatest likelihood.
    pub(super) fn check_inference(&self, ridge: f64, by_rows: bool) -> Result<()> {
        if ridge != 0.0 {
            let what = format!("{ridge:?}, beside inference: standard errors of coefficients with a ridge are not defined");
            return Err(Error::new("ridge", what, "no `ridge`, which is then 0, or no `inference`"));
        }
        if !by_rows {
            let what = "agents that count equally, beside inference";
            return Err(Error::new("weights", what, "`weights = rows`, so that every row counts alike"));
        }
        Ok(())
    }

    /// Whether agents are clusters, where errors are to be clustered by them.
    ///
    /// # Errors
    /// When rows are dealt to agents, which has nothing to do with how they depend on each other.
    fn check_clusters(&self, how: InferenceSettings) -> Result<()> {
        if how.covariance != CovarianceKind::Clustered || matches!(self.partition, Partition::Files | Partition::ByColumn) {
            return Ok(());
        }
        let what = "clustered, and the rows are dealt to agents, which are then no clusters";
        Err(Error::new("covariance", what, "agents that are what rows depend on, files or the values of a column: `partition = files`"))
    }

    /// mu.
    pub(super) fn mu(&self) -> f64 {
        self.ridge.unwrap_or(if self.inference.is_some() { 0.0 } else { RIDGE })
    }

    /// Whether a column of ones is added, to data that are a table or not.
    pub fn has_intercept(&self, is_table: bool) -> bool {
        self.intercept.unwrap_or(is_table || self.inference.is_some())
    }

    /// The methods to run, the first of which gives the weights.
    fn named(&self) -> Result<Vec<String>> {
        let compared: Vec<String> = self.compare.iter().map(|name| name.trim().to_string()).collect();
        let help = "different methods separated by commas: fib-shed,fednl,giant";
        if let Some(i) = compared.iter().position(String::is_empty) {
            return Err(Error::new("compare", format!("method {i} has no name"), help));
        }
        if let Some(twice) = compared.iter().enumerate().find(|(i, name)| compared[..*i].contains(name)) {
            return Err(Error::new("compare", format!("`{}` twice", quoted(twice.1)), help));
        }
        let mut all: Vec<String> = self.method.iter().map(|name| name.trim().to_string()).collect();
        let others: Vec<String> = compared.into_iter().filter(|name| !all.contains(name)).collect();
        all.extend(others);
        Ok(if all.is_empty() { vec![AUTO.into()] } else { all })
    }

    /// The keys of the experiment, with the settings from which they come.
    fn keys(&self) -> Result<Keys> {
        let all = [
            ("problem.data", "data"),
            ("problem.kind", "model"),
            ("problem.family", "model"),
            ("problem.alpha", "alpha"),
            ("problem.threshold", "threshold"),
            ("problem.reference", "reference"),
            ("problem.offset", "offset"),
            ("problem.row_weights", "row_weights"),
            ("problem.categorical", "categorical"),
            ("problem.agents", "agents"),
            ("problem.target", "target"),
            ("problem.positive", "positive"),
            ("problem.drop", "drop"),
            ("problem.ridge", "ridge"),
            ("problem.divide_by", "divide_by"),
            ("problem.intercept", "intercept"),
            ("problem.penalise_intercept", "penalise_intercept"),
            ("problem.standardise", "standardise"),
            ("problem.pca.dim", "pca"),
            ("problem.partition", "partition"),
            ("problem.group", "group"),
            ("problem.weights", "weights"),
            ("problem.holdout", "holdout"),
            ("problem.seed", "seed"),
            ("sampling.kind", "sampling"),
            ("sampling.batch", "batch"),
            ("run.rounds", "rounds"),
            ("run.seeds[0]", "seed"),
            ("run.stop.residual", "tol"),
        ];
        let mut keys: Keys = all.map(|(key, setting)| (key.to_string(), setting)).into();
        for i in 0..self.named()?.len() {
            let kind = if i == 0 && (self.method.is_some() || self.compare.is_empty()) { "method" } else { "compare" };
            keys.push((format!("method[{i}].kind"), kind));
            keys.push((format!("method[{i}].step_size"), "step_size"));
            keys.push((format!("method[{i}].local_steps"), "local_steps"));
        }
        Ok(keys)
    }

    /// `[problem]`.
    fn problem(&self) -> Result<Value> {
        let mut entries = vec![
            ("kind", text(if self.is_plain() { self.model.name() } else { "glm" })),
            ("data", texts(&self.data)),
            ("ridge", Value::Float(self.mu())),
            ("partition", Value::try_from(self.partition).expect("plain settings")),
            ("seed", whole("seed", self.seed)?),
        ];
        // The number of groups or of files decides otherwise.
        let decides = matches!(self.partition, Partition::Files | Partition::ByColumn);
        if self.agents.is_some() || !decides {
            entries.push(("agents", whole("agents", self.agents.unwrap_or(AGENTS))?));
        }
        entries.extend(self.group.as_ref().map(|column| ("group", text(column))));
        entries.extend(self.target.as_ref().map(|column| ("target", text(column))));
        for (key, class) in [("positive", &self.positive), ("reference", &self.reference)] {
            let number = class.as_ref().and_then(|class| class.parse::<f64>().ok().filter(|x| x.is_finite()));
            entries.extend(class.as_ref().map(|class| (key, number.map_or_else(|| text(class), Value::Float))));
        }
        if !self.is_plain() {
            entries.push(("family", text(self.model.family())));
        }
        entries.extend(self.alpha.map(|x| ("alpha", Value::Float(x))));
        entries.extend(self.threshold.map(|x| ("threshold", Value::Float(x))));
        entries.extend(self.offset.as_ref().map(|column| ("offset", text(column))));
        entries.extend(self.row_weights.as_ref().map(|column| ("row_weights", text(column))));
        for (key, columns) in [("drop", &self.drop), ("categorical", &self.categorical)] {
            if !columns.is_empty() {
                entries.push((key, texts(columns)));
            }
        }
        entries.extend(self.divide_by.map(|x| ("divide_by", Value::Float(x))));
        let intercept = self.has_intercept(false);
        for (key, is_on) in [("intercept", intercept), ("standardise", self.standardise)] {
            if is_on {
                entries.push((key, Value::Boolean(true)));
            }
        }
        if intercept && !self.penalise_intercept.unwrap_or(self.inference.is_none()) {
            entries.push(("penalise_intercept", Value::Boolean(false)));
        }
        if let Some(dim) = self.pca {
            entries.push(("pca", table(vec![("dim", whole("pca", dim)?)])));
        }
        entries.push(("weights", text(&self.weights)));
        entries.extend(self.holdout.map(|share| ("holdout", Value::Float(share))));
        Ok(table(entries))
    }

    /// `[[method]]` of one kind. In a comparison a step size is for methods that have no step of their own, and local steps for those
    /// that make any.
    ///
    /// # Errors
    /// When a method that is alone has neither.
    fn method_of(&self, kind: &str, is_alone: bool, choice: Option<&LossChoice>) -> Result<Value> {
        if kind == AUTO {
            return self.auto_method(is_alone, choice);
        }
        let mut entries = vec![("kind", text(kind)), ("label", text(kind))];
        let refused = |setting: &str, given: String| {
            let what = format!("{given}, and {} has no such setting", quoted(kind));
            Err(Error::new(setting, what, format!("no `{setting}`, or a method with local steps, such as fedlsa")))
        };
        if let Some(step_size) = self.step_size {
            let may_have = takes(&self.kinds, kind, "step_size");
            if is_alone && !may_have {
                return refused("step_size", numbers::typed(step_size));
            }
            if may_have && (is_alone || !self.needs_all_rows(kind)) {
                entries.push(("step_size", Value::Float(step_size)));
            }
        }
        let makes_steps = takes(&self.kinds, kind, "local_steps");
        match self.local_steps {
            Some(steps) if is_alone && !makes_steps => return refused("local_steps", steps.to_string()),
            steps if makes_steps => entries.push(("local_steps", whole("local_steps", steps.unwrap_or(LOCAL_STEPS))?)),
            _ => {}
        }
        Ok(table(entries))
    }

    /// `[[method]]` of the choice, or of what may be chosen before the data are read.
    fn auto_method(&self, is_alone: bool, choice: Option<&LossChoice>) -> Result<Value> {
        let given = [("step_size", self.step_size.map(numbers::typed)), ("local_steps", self.local_steps.map(|steps| steps.to_string()))];
        if let (true, Some((setting, Some(given)))) = (is_alone, given.into_iter().find(|(_, given)| given.is_some())) {
            let what = format!("{given}, and the methods that {AUTO} chooses have no such setting");
            return Err(Error::new(setting, what, format!("no `{setting}`, or a method with local steps, such as fedlsa")));
        }
        let (kind, settings) = match choice {
            Some(choice) => (choice.kind, choice.settings.clone()),
            None => LossChoice::unread(self.tol, self.model == Model::LeastSquares),
        };
        let mut method = Table::new();
        method.insert("kind".into(), text(kind));
        method.insert("label".into(), text(AUTO));
        method.extend(settings);
        Ok(Value::Table(method))
    }

    /// Whether a method asks agents for gradients, losses or Hessians of all their rows. Those that do have a default for every setting.
    fn needs_all_rows(&self, kind: &str) -> bool {
        if kind == AUTO {
            return true;
        }
        let settings = kind_of(&self.kinds, kind).and_then(|kind| read_kind(kind, &Table::new()));
        settings.is_ok_and(|settings| settings.needs() == Needs::Objective)
    }

    /// The experiment as a table.
    fn table(&self, choice: Option<&LossChoice>) -> Result<Table> {
        let named = self.named()?;
        if let Some(rows) = self.batch
            && let Some(kind) = named.iter().find(|kind| self.needs_all_rows(kind))
        {
            let what = format!("{rows}, and {} uses all rows of an agent in every round", quoted(kind));
            return Err(Error::new("batch", what, "no `batch`, or methods that draw rows, such as fedlsa"));
        }
        let methods = named.iter().map(|kind| self.method_of(kind, named.len() == 1, choice)).collect::<Result<_>>()?;
        let mut run = vec![
            ("rounds", whole("rounds", self.rounds)?),
            ("seeds", Value::Array(vec![whole("seed", self.seed)?])),
            ("record", table(vec![("every", Value::Integer(1))])),
        ];
        if self.tol != 0.0 {
            run.push(("stop", table(vec![("residual", Value::Float(self.tol))])));
        }
        let mut sampling = vec![("kind", text(&self.sampling))];
        sampling.extend(self.batch.map(|rows| Ok::<_, Error>(("batch", whole("batch", rows)?))).transpose()?);
        let x = Value::Array(COSTS.iter().map(|cost| text(cost)).collect());
        let figure = vec![("x", x), ("y", text("residual")), ("columns", Value::Integer(2))];
        let entries = [
            ("id", text("fit")),
            ("title", Value::String(format!("{} by {}", self.model.name(), named.join(", ")))),
            ("problem", self.problem()?),
            ("sampling", table(sampling)),
            ("method", Value::Array(methods)),
            ("run", table(run)),
            ("figure", table(figure)),
        ];
        Ok(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
    }
}
