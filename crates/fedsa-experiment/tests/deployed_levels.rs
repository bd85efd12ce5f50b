//! Agents whose columns have other categories, or whose rows have other classes, give the numbers of a run on the data of all.

use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::enrolment::Enrolled;
use fedsa::error::{Error, ErrorKind, Result};
use fedsa_data::linear_model::LinearModel;
use fedsa_experiment::config::document::{Caller, Words};
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::deployment::{Deployment, LocalAgent};
use fedsa_experiment::fit::{FitSettings, Model, fit};
use fedsa_experiment::run::run;
use fedsa_experiment::{RunSettings, Unobserved};
use fedsa_problems::rows::preparation::partition::Partition;
use serde_json::json;
use toml::Value;

use crate::deployment::{agent_of, deployed, each, in_one_place, list, results, settings, written};

/// Of each agent some colours and zones; the first one has one label alone, the last one lacks one.
fn tables(folder: &Path) -> Vec<String> {
    let (colours, zones) = ([&["red", "blue"][..], &["green"], &["red", "sea"]], [&[9, 10][..], &[2], &[10, -1]]);
    let labels = [&["no"][..], &["yes", "no", "well"], &["yes", "well"]];
    written(folder, "levels", |agent| {
        let mut text = String::from("x,colour,zone,word,class,count\n");
        for i in 0..40 + 10 * agent {
            let x = (i as f64 * 0.7 + agent as f64).sin();
            // A label for a chance that no feature tells.
            let word = labels[agent][(i * i + i / 3) % labels[agent].len()];
            let (colour, zone) = (colours[agent][i % colours[agent].len()], zones[agent][i / 2 % zones[agent].len()]);
            let class = if word == "yes" || (agent > 0 && i % 5 == 0) { 1 } else { -1 };
            text += &format!("{x},{colour},{zone},{word},{class},{}\n", (i * 7 + agent) % 4);
        }
        text
    })
}

fn deployment(problem: &str, method: &str) -> Deployment {
    Deployment::new(Document::parse("t.toml", &settings(problem, "{ kind = \"mean\" }", method, 3)).unwrap()).unwrap()
}

fn agent(deployment: &Deployment, file: &str) -> LocalAgent {
    agent_of(deployment, &[file.to_string()]).unwrap()
}

/// The federation of those who have these files, of whom there must be so many.
fn founded<'a>(deployment: &Deployment, files: impl ExactSizeIterator<Item = &'a String>, least: usize) -> Result<Enrolled> {
    let mut enrolment = deployment.enrolment(least..=files.len()).unwrap();
    let invitation = enrolment.invite(files.len());
    for (c, file) in files.enumerate() {
        enrolment.take(&format!("{c}"), &agent(deployment, file).handle(&invitation).unwrap().unwrap()).unwrap();
    }
    deployment.found(&enrolment)
}

const NEWTON: &str = "{ kind = \"newton\" }";

#[test]
fn categories_and_classes_are_those_of_all_agents() {
    let folder = tempfile::tempdir().unwrap();
    let files = tables(folder.path());
    let common = "categorical = [\"zone\"], ridge = 1e-2, weighting = \"rows\"";
    let binary = format!("{{ kind = \"logistic\", target = \"class\", drop = [\"word\", \"count\"], intercept = true, {common} }}");
    let no_intercept = binary.replace("intercept = true, ", "");
    let one_of_three = "kind = \"logistic\", target = \"word\", positive = \"yes\", drop = [\"class\", \"count\"], intercept = true";
    let many =
        "kind = \"glm\", family = \"multinomial\", target = \"word\", reference = \"well\", drop = [\"class\", \"count\"], divide_by = 2.0";
    let squares = "kind = \"least-squares\", target = \"count\", drop = [\"word\", \"class\"], intercept = true";
    let counts = "kind = \"glm\", family = \"poisson\", target = \"count\", drop = [\"word\", \"class\"], intercept = true";
    let (one_of_three, many) = (format!("{{ {one_of_three}, {common} }}"), format!("{{ {many}, {common} }}"));
    let named = many.replace("target = \"word\"", "target = \"word\", classes = [\"yes\", \"no\", \"well\", \"never\"]");
    // Four colours, four zones, x and the intercept: of each category one level is the reference.
    for (problem, method, d) in [
        (&binary, NEWTON, 8),
        (&binary, "{ kind = \"fib-shed\" }", 8),
        (&binary, "{ kind = \"scafflsa\", step_size = 0.5, local_steps = 3 }", 8),
        (&no_intercept, NEWTON, 8),
        (&one_of_three, "{ kind = \"giant\" }", 8),
        (&many, NEWTON, 16),
        (&named, NEWTON, 24),
        (&format!("{{ {squares}, {common} }}"), NEWTON, 8),
        (&format!("{{ {counts}, {common} }}"), NEWTON, 8),
    ] {
        let text = settings(problem, "{ kind = \"mean\" }", method, 4);
        let all = in_one_place(&text, &[("data", list(&files)), ("partition", Value::String("files".into()))]);
        assert!(all.len() == d && all.iter().all(|x| x.is_finite()) && all.iter().any(|x| *x != 0.0), "{problem}: {all:?}");
        assert_eq!(deployed(&text, &each(&files)), all, "{problem} {method}");
    }
}

/// Who applies first changes nothing, and who joins later has no other categories.
#[test]
fn categories_do_not_depend_on_the_order_in_which_agents_come() {
    let folder = tempfile::tempdir().unwrap();
    let files = tables(folder.path());
    let problem = "{ kind = \"logistic\", target = \"class\", categorical = [\"zone\"], drop = [\"word\", \"count\"], ridge = 1e-2 }";
    let deployment = deployment(problem, "{ kind = \"fedlsa\", step_size = 0.1, local_steps = 2 }");
    let founded = |order: &[usize]| {
        let mut enrolment = deployment.enrolment(2..=3).unwrap();
        let invitation = enrolment.invite(3);
        for c in order {
            let application = agent(&deployment, &files[*c]).handle(&invitation).unwrap().unwrap();
            enrolment.take(&format!("{c}"), &application).unwrap();
        }
        deployment.found(&enrolment).unwrap()
    };
    let all: Vec<_> = [[0, 1, 2], [2, 0, 1], [1, 2, 0]].iter().map(|order| founded(order)).collect();
    for one in &all[1..] {
        assert_eq!(one.membership.columns(), all[0].membership.columns());
        assert_eq!(one.federation.dim(), 8);
    }
    let names = |at: usize| all[0].membership.columns()[at].values().unwrap().sorted().join(" ");
    assert_eq!((names(0), names(1), names(2)), ("-1 2 9 10".into(), "blue green red sea".into(), "-1 1".into()));
    // Green and zone 2 are those of the second agent alone.
    let mut two = founded(&[0, 2]).membership;
    let application = agent(&deployment, &files[1]).handle(&two.invitation()).unwrap().unwrap();
    let e = two.take("1", &application).unwrap_err();
    assert!(e.kind() == ErrorKind::RefusedMessage && e.what.contains("column `zone`: `2`") && e.help.contains("founded"), "{e:?}");
    let mut two = founded(&[1, 2]).membership;
    let lacks = std::fs::read_to_string(&files[0]).unwrap().replace("blue", "red").replace(",9,", ",10,");
    std::fs::write(&files[0], lacks).unwrap();
    two.take("0", &agent(&deployment, &files[0]).handle(&two.invitation()).unwrap().unwrap()).unwrap();
}

#[test]
fn weights_of_a_federation_name_the_categories_and_classes_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let files = tables(folder.path());
    for (kind, target, drop, model) in [
        ("kind = \"logistic\"", "class", ["word", "count"], Model::Logistic),
        ("kind = \"glm\", family = \"multinomial\"", "word", ["class", "count"], Model::Multinomial),
        ("kind = \"glm\", family = \"poisson\"", "count", ["class", "word"], Model::Poisson),
    ] {
        let problem = format!(
            "{{ {kind}, target = \"{target}\", drop = [\"{}\", \"{}\"], ridge = 1e-2, intercept = true, weighting = \"rows\", divide_by = 4.0 }}",
            drop[0], drop[1]
        );
        let text = settings(&problem, "{ kind = \"mean\" }", NEWTON, 60);
        let deployment = Deployment::new(Document::parse("t.toml", &text).unwrap()).unwrap();
        let membership = founded(&deployment, files.iter(), 3).unwrap().membership;
        let ours = deployment.weights(&membership, &results(&text, &each(&files)), None).unwrap().unwrap();
        let settings = FitSettings {
            model,
            target: Some(target.into()),
            drop: drop.map(String::from).to_vec(),
            ridge: Some(1e-2),
            partition: Some(Partition::Files),
            tol: 1e-10,
            divide_by: Some(4.0),
            ..FitSettings::new(files.clone())
        };
        let whole = fit(&settings, &Unobserved, &Cancel::never()).unwrap().json();
        for key in ["model", "columns", "categories", "classes", "target"] {
            assert_eq!(ours[key], whole[key], "{} {key}", model.name());
        }
        let (own, other) = (LinearModel::from_json(&ours).unwrap(), LinearModel::from_json(&whole).unwrap());
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(own.coefficients.iter().zip(&other.coefficients).all(|(a, b)| close(*a, *b)) && close(own.intercept, other.intercept));
        assert_eq!(own.outputs(), other.outputs());
        assert_eq!(ours["objective"], json!(null));
    }
}

/// What cannot be merged is refused at the server, with the agent and the column.
#[test]
fn categories_and_labels_that_do_not_go_together_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let table = |name: &str, rows: &str| {
        let path = folder.path().join(format!("{name}.csv"));
        std::fs::write(&path, format!("x,colour,y\n{rows}")).unwrap();
        path.to_str().unwrap().to_string()
    };
    let text = table("text", "1,red,0\n2,blue,1\n");
    let numbers = table("numbers", "1,3,0\n2,4,1\n");
    let labels = table("labels", "1,red,no\n2,blue,yes\n");
    let wide = |from: usize| (0..600).map(|i| format!("{i},c{},{}\n", from + i, i % 2)).collect::<String>();
    let (low, high) = (table("low", &wide(0)), table("high", &wide(600)));
    let one = table("one", "1,red,1\n2,blue,1\n");
    let of = |more: &str, files: &[&String], at_least: usize| {
        let deployment = deployment(&format!("{{ kind = \"logistic\", target = \"y\", ridge = 1e-2{more} }}"), NEWTON);
        founded(&deployment, files.iter().copied(), at_least)
    };
    for (more, files, column) in [
        (
            "",
            [&text, &text, &numbers],
            "column 1 is `the labels` of labels that are numbers in place of `colour` of categories that are texts",
        ),
        (
            ", categorical = [\"colour\"]",
            [&text, &text, &numbers],
            "`colour` of categories that are numbers in place of `colour` of categories that are texts",
        ),
        ("", [&text, &text, &labels], "`the labels` of labels that are names in place of `the labels` of labels that are numbers"),
    ] {
        let e = of(more, &files, 2).err().unwrap();
        assert!(e.what.starts_with("`2`: column ") && e.what.contains(column), "{e:?}");
    }
    let e = of("", &[&low, &high], 2).err().unwrap();
    assert!(e.what.contains("column `colour`: 1200 categories") && e.help.contains("1 to 1,000 categories"), "{e:?}");
    let e = of("", &[&one, &one], 2).err().unwrap();
    assert!(e.key == "problem.target" && e.what.starts_with("all rows have the target 1"), "{e:?}");
    let e = of(", positive = 5", &[&text, &one], 2).err().unwrap();
    assert!(e.key == "problem.positive" && e.what.contains("no row has the label 5"), "{e:?}");
    assert!(of("", &[&text, &one], 2).is_ok());
}

/// One agent whose values go with nobody's stops the founding, and the error names it and the column.
#[test]
fn an_agent_that_is_in_the_way_of_a_federation_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let table = |name: &str, rows: String| {
        let path = folder.path().join(format!("{name}.csv"));
        std::fs::write(&path, format!("x,colour,y\n{rows}")).unwrap();
        path.to_str().unwrap().to_string()
    };
    let usual = |c: usize| (0..20).map(|i| format!("{i},{},{}\n", ["red", "blue", "sea"][(i + c) % 3], (i + c) % 2)).collect::<String>();
    let honest: Vec<String> = (0..3).map(|c| table(&format!("honest{c}"), usual(c))).collect();
    let third = table("third", usual(0) + "3,red,7\n");
    let many = table("many", (0..999).map(|i| format!("{i},c{i},{}\n", i % 2)).collect());
    let deployment = deployment("{ kind = \"logistic\", target = \"y\", ridge = 1e-2 }", NEWTON);
    for (other, why, alone) in [
        (&third, "labels", "`3` alone has 1 of the values of column `the labels`"),
        (&many, "categories", "`3` alone has 999 of the values of column `colour`"),
    ] {
        let files: Vec<&String> = honest.iter().chain([other]).collect();
        let e = founded(&deployment, files.into_iter(), 3).err().unwrap();
        assert!(e.what.contains(why) && e.what.ends_with(alone), "{e:?}");
    }
    assert!(founded(&deployment, honest.iter(), 3).is_ok());
}

/// Targets that each agent would scale by its own rows are refused before anybody fits them.
#[test]
fn targets_are_not_scaled_by_each_agent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    std::fs::write(&path, "x,colour,y\n1,red,3\n2,blue,7\n").unwrap();
    let scaled = |range: &str| {
        let deployment = deployment(&format!("{{ kind = \"least-squares\", target = \"y\"{range}, ridge = 1e-2 }}"), NEWTON);
        agent_of(&deployment, &[path.to_str().unwrap().to_string()]).err()
    };
    let e = scaled(", target_range = [0.0, 1.0]").unwrap();
    assert!(e.key == "problem.target_range" && e.what.contains("by its own rows"), "{e:?}");
    assert!(scaled("").is_none());
}

/// The names of columns travel once, in an application, whose length is that of many more than tables have.
#[test]
fn a_table_of_seventy_thousand_columns_takes_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.csv");
    let names: String = (0..70_000).map(|i| format!("x_{i},")).collect();
    let row = |y: usize| format!("{}{y}\n", "0.5,".repeat(70_000));
    std::fs::write(&path, format!("{names}y\n{}{}", row(0), row(1))).unwrap();
    let deployment = deployment("{ kind = \"logistic\", target = \"y\", ridge = 1e-2 }", "{ kind = \"lbfgs\" }");
    let mut enrolment = deployment.enrolment(1..=1).unwrap();
    let invitation = enrolment.invite(1);
    let mut agent = agent(&deployment, path.to_str().unwrap());
    enrolment.take("a", &agent.handle(&invitation).unwrap().unwrap()).unwrap();
    let founded = deployment.found(&enrolment).unwrap();
    assert_eq!(founded.federation.dim(), 70_000);
    assert!(agent.handle(&founded.admissions[0].bytes).unwrap().is_none());
}

/// What one agent's rows have that no rows may have is refused before it applies, also where it does not know yet what others have.
#[test]
fn rows_that_cannot_be_fitted_are_refused_at_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, problem: &str, text: &str| {
        let path = folder.path().join(format!("{name}.csv"));
        std::fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_string();
        let settings = settings(&format!("{{ {problem}, target = \"y\", ridge = 1e-2 }}"), "{ kind = \"mean\" }", NEWTON, 3);
        let deployment = Deployment::new(Document::parse("t.toml", &settings).unwrap()).unwrap();
        let e = agent_of(&deployment, std::slice::from_ref(&path)).err();
        (e, settings, path)
    };
    let (poisson, logistic) = ("kind = \"glm\", family = \"poisson\"", "kind = \"logistic\"");
    let clash = "c=red,c,y\n1,blue,0\n2,red,1\n3,sea,0\n";
    for (name, problem, text) in [
        ("negative", poisson.to_string(), "x,c,y\n1,u,3\n2,v,-1\n"),
        ("words", poisson.to_string(), "x,c,y\n1,u,one\n2,v,two\n"),
        ("offset", format!("{poisson}, offset = \"c\""), "x,c,z,y\n1,u,a,1\n2,v,b,2\n"),
        ("no_offset", format!("{poisson}, offset = \"o\""), "x,c,y\n1,u,1\n2,v,2\n"),
        ("few", format!("{logistic}, samples = 3"), "x,c,y\n1,u,0\n2,v,1\n"),
        ("clash", logistic.to_string(), clash),
        ("classes", format!("{logistic}, classes = [0, 1]"), "x,c,y\n1,u,0\n2,v,5\n"),
    ] {
        let (e, settings, path) = refused(name, &problem, text);
        let (e, whole) = (e.unwrap_or_else(|| panic!("{name}")), failed_in_one_place(&settings, &path));
        assert_eq!((&e.key, &e.what, &e.help, e.kind()), (&whole.key, &whole.what, &whole.help, whole.kind()), "{name}");
    }
    // Numbers of such a size are refused together too, in other words.
    for (problem, text) in [
        (poisson, "x,c,y\n1e200,u,3\n2,v,2\n"),
        (logistic, "x,c,y\n1e200,u,0\n2,v,1\n"),
        ("kind = \"least-squares\"", "x,c,y\n1e100,u,0\n2,v,1e200\n"),
    ] {
        let e = refused("large", problem, text).0.unwrap();
        assert!(e.key == "problem.data" && e.what.contains("large.csv: row ") && e.what.contains("gradient is not finite"), "{e:?}");
    }
    assert!(refused("few", &format!("{logistic}, samples = 2"), "x,c,y\n1,u,0\n2,v,1\n").0.is_none());
    // The first category has no feature, here and where all of `c=blue` have none either.
    assert!(refused("first", &format!("{logistic}, intercept = true"), &clash.replace("c=red", "c=blue")).0.is_none());
}

/// Why an agent of these rows alone is refused in one process.
fn failed_in_one_place(text: &str, file: &str) -> Error {
    let mut document = Document::parse("all.toml", text).unwrap();
    let one = [("data", list(&[file.to_string()])), ("partition", Value::String("even".into())), ("agents", Value::Integer(1))];
    for (key, value) in one {
        document.set_value(&format!("problem.{key}"), &value, Caller::new("test", Words::default()).without_keys()).unwrap();
    }
    let experiment = Experiment::read(document).unwrap();
    run(experiment, &RunSettings::default(), &Unobserved, &Cancel::never()).err().unwrap()
}

/// A column of all agents, and a category of one of them that becomes a feature of that name.
#[test]
fn a_category_with_the_name_of_a_column_is_found_at_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let table = |name: &str, colours: [&str; 2]| {
        let path = folder.path().join(format!("{name}.csv"));
        let rows: String = (0..20).map(|i| format!("{i},{},{}\n", colours[i % 2], i * i % 3)).collect();
        std::fs::write(&path, format!("c=green,c,y\n{rows}")).unwrap();
        path.to_str().unwrap().to_string()
    };
    let files = [table("green", ["green", "green"]), table("a", ["blue", "red"]), table("b", ["red", "blue"])];
    let deployment = deployment("{ kind = \"logistic\", target = \"y\", ridge = 1e-2, intercept = true }", NEWTON);
    let e = founded(&deployment, files.iter(), 3).err().unwrap();
    let what = "the column `c=green`, and a level of the category `c` of this name; `0` alone has 1 of the values of column `c`";
    assert!(e.key == "problem.categorical" && e.what == what, "{e:?}");
    assert_eq!(founded(&deployment, files[1..].iter(), 2).unwrap().federation.dim(), 3);
}

/// A model that no machine could keep is refused before anything of its size is made, and whose levels make it so is named.
#[test]
fn levels_whose_model_does_not_fit_into_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let table = |name: &str, levels: usize, classes: usize| {
        let path = folder.path().join(format!("{name}.csv"));
        let rows: String = (0..1000).map(|i| format!("{i},a{},b{},c{},k{}\n", i % levels, i % levels, i % levels, i % classes)).collect();
        std::fs::write(&path, format!("x,a,b,c,y\n{rows}")).unwrap();
        path.to_str().unwrap().to_string()
    };
    let files = [table("many", 999, 100), table("few", 4, 3), table("other", 3, 3), table("third", 2, 3)];
    let of = |method: &str| {
        deployment(
            "{ kind = \"glm\", family = \"multinomial\", target = \"y\", ridge = 1e-2, intercept = true, weighting = \"rows\" }",
            method,
        )
    };
    let newton = of(NEWTON);
    let e = founded(&newton, files.iter(), 4).err().unwrap();
    // 2,994 levels with a feature, x and the intercept, for 99 classes: matrices of 88 billion numbers.
    assert_eq!((e.kind(), &e.key[..]), (ErrorKind::NoMemory, "problem"), "{e:?}");
    for text in ["4 agents", "d = 296604", "999 of `a`", "100 of `the labels`", "needs about ", " TB"] {
        assert!(e.what.contains(text), "{text}: {e:?}");
    }
    assert!(e.help.contains("levels of categories") && e.help.contains("FEDSA_MEMORY"), "{e:?}");
    assert!(e.what.ends_with("; `0` alone has 995 of the values of column `a`"), "{e:?}");
    let found = founded(&newton, files[1..].iter(), 3).unwrap();
    assert_eq!((found.federation.agents(), found.federation.dim()), (3, 2 * 11));
    // Vectors of that length are small.
    assert_eq!(founded(&of("{ kind = \"fedlsa\", step_size = 0.1, local_steps = 2 }"), files.iter(), 4).unwrap().federation.dim(), 296_604);
}
