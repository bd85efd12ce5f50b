//! Agents whose LIBSVM files end with other columns give the numbers of a run on the files of all.

use std::path::Path;

use fedsa_experiment::deployment::Deployment;
use toml::Value;

use crate::deployment::{agent_of, deployed, each, file, founded, in_one_place, list, made, settings};

/// Of each agent rows that end with another column; of the last one almost all columns have a number.
fn shards(folder: &Path) -> Vec<String> {
    let last = [10, 31, 15];
    let write = |agent: usize| {
        let path = folder.join(format!("shard_{agent}.svm"));
        let row = |i: usize| {
            let sign = if (i * i + i / 3 + agent).is_multiple_of(3) { 1 } else { -1 };
            let is_there = |j: &usize| agent == 2 || (i * 7 + j * 5) % 11 < 2 || (i == 0 && *j == last[agent]);
            let value = |j: usize| if j == 10 || j == 20 { (i % 3 + 1) as f64 } else { ((i * j) as f64 * 0.7).sin() };
            let cells: String = (1..=last[agent]).filter(is_there).map(|j| format!(" {j}:{}", value(j))).collect();
            format!("{sign}{cells}\n")
        };
        std::fs::write(&path, (0..60 + 200 * usize::from(agent == 1)).map(row).collect::<String>()).unwrap();
        path.to_str().unwrap().to_string()
    };
    (0..3).map(write).collect()
}

fn deployment(problem: &str, method: &str) -> Deployment {
    made(&settings(problem, "{ kind = \"mean\" }", method, 3))
}

#[test]
fn shards_of_different_widths_give_the_bits_of_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let files = shards(folder.path());
    let common = "ridge = 1e-2, weighting = \"rows\"";
    let logistic = format!("{{ kind = \"logistic\", intercept = true, {common} }}");
    let squares = format!("{{ kind = \"least-squares\", divide_by = 3.0, {common} }}");
    let dropped = format!("{{ kind = \"logistic\", drop = [\"3\", \"7\"], samples = 50, {common} }}");
    let of_columns = |columns: &str| format!("{{ kind = \"glm\", family = \"gaussian\", {columns}, intercept = true, {common} }}");
    // Two shards end before column 20: it is 0 there.
    let categories = of_columns("categorical = [\"10\"]");
    let [further, offset, both] = ["categorical = [\"20\"]", "offset = \"10\"", "offset = \"20\", categorical = [\"10\"]"].map(of_columns);
    for (problem, method, d) in [
        (&logistic, "{ kind = \"newton\" }", 32),
        (&logistic, "{ kind = \"fib-shed\" }", 32),
        (&logistic, "{ kind = \"scafflsa\", step_size = 0.5, local_steps = 3 }", 32),
        (&squares, "{ kind = \"newton\" }", 31),
        (&dropped, "{ kind = \"newton\" }", 29),
        (&categories, "{ kind = \"newton\" }", 0),
        (&further, "{ kind = \"newton\" }", 34),
        (&offset, "{ kind = \"newton\" }", 31),
        (&both, "{ kind = \"newton\" }", 0),
    ] {
        let text = settings(problem, "{ kind = \"mean\" }", method, 4);
        let all = in_one_place(&text, &[("data", list(&files)), ("partition", Value::String("files".into()))]);
        assert!(
            (d == 0 || all.len() == d) && all.iter().all(|x| x.is_finite()) && all.iter().any(|x| *x != 0.0),
            "{problem}: {}",
            all.len()
        );
        assert_eq!(deployed(&text, &each(&files)), all, "{problem} {method}");
    }
}

/// Whether rows are stored as dense or sparse ones decides about last digits: also where a category makes the difference, both ends decide alike.
#[test]
fn a_category_counts_alike_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let problem = "{ kind = \"logistic\", categorical = [\"3\"], ridge = 1e-2, weighting = \"rows\", intercept = true }";
    let text = settings(problem, "{ kind = \"mean\" }", "{ kind = \"newton\" }", 4);
    // From sparse to dense, one stored number after the other.
    for stored in 0..12 {
        let files: Vec<String> = (0..2)
            .map(|agent| {
                let path = folder.path().join(format!("{stored}_{agent}.svm"));
                let row = |i: usize| {
                    let sign = if (i * i + agent).is_multiple_of(3) { 1 } else { -1 };
                    let cells: String =
                        (4..16).filter(|j| (i * 5 + j * 7) % 12 < stored).map(|j| format!(" {j}:{}", (i + j) % 5 + 1)).collect();
                    format!("{sign} 3:{}{cells}{}\n", i % 4, if i == 0 && agent == 1 { " 18:1" } else { "" })
                };
                std::fs::write(&path, (0..40).map(row).collect::<String>()).unwrap();
                path.to_str().unwrap().to_string()
            })
            .collect();
        let all = in_one_place(&text, &[("data", list(&files)), ("partition", Value::String("files".into()))]);
        assert_eq!(deployed(&text, &each(&files)), all, "{stored} of 12");
    }
}

/// Alone two shards are dense and one is sparse; together they are one or the other.
#[test]
fn the_weights_have_as_many_columns_as_the_widest_shard() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = shards(folder.path());
    let deployment = deployment("{ kind = \"logistic\", ridge = 1e-2, weighting = \"rows\" }", "{ kind = \"newton\" }");
    let two = founded(&deployment, &files[..1], 1).unwrap();
    assert_eq!((two.federation.dim(), founded(&deployment, &files, 3).unwrap().federation.dim()), (10, 31));
    // Who joins later has no further columns.
    let mut few = founded(&deployment, &[files[0].clone(), files[2].clone()], 2).unwrap().membership;
    let mut wide = agent_of(&deployment, &files[1..2]).unwrap();
    let e = few.take("wide", &wide.handle(&few.invitation()).unwrap().unwrap()).unwrap_err();
    assert!(e.what.contains("a column 31, and the last one is 15"), "{e:?}");
    // An index that no model has is refused as it comes.
    let wide = |name: &str, index: u64| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("1 1:1 {index}:2\n-1 2:1\n")).unwrap();
        path.to_str().unwrap().to_string()
    };
    files.insert(0, wide("wide.svm", 1 << 31));
    files.push(wide("wider.svm", (1 << 32) - 3));
    let e = founded(&deployment, &files, 3).err().unwrap();
    assert!(e.what.starts_with("the application of `0`: 2147483648 columns") && e.help.contains("at most 8388608 components"), "{e:?}");
}

/// One agent's rows that end far beyond those of others would make everybody's model that large.
#[test]
fn an_agent_whose_rows_end_far_beyond_those_of_most_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = shards(folder.path());
    let path = folder.path().join("wide.svm");
    std::fs::write(&path, format!("1 1:1 8000:2\n{}", "-1 2:1\n".repeat(20))).unwrap();
    files.insert(1, path.to_str().unwrap().to_string());
    let deployment = deployment("{ kind = \"logistic\", ridge = 1e-2, weighting = \"rows\" }", "{ kind = \"lbfgs\" }");
    let e = founded(&deployment, &files, 3).err().unwrap();
    assert!(e.what == "`1`: column `the features` reaches more than 100 times as far as those of most agents", "{e:?}");
    // Of two nobody knows who is wrong.
    assert_eq!(founded(&deployment, &files[..2], 2).unwrap().federation.dim(), 8000);
}

/// A server of Newton's method would need matrices of a million columns: the application says so, before anything of that size is made.
#[test]
fn an_application_whose_model_no_server_holds_is_refused_with_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.svm");
    std::fs::write(&path, "1 1:1 5000000:2\n-1 2:1\n").unwrap();
    let deployment = deployment("{ kind = \"logistic\", ridge = 1e-2, weighting = \"rows\" }", "{ kind = \"newton\" }");
    let mut agent = agent_of(&deployment, &[path.to_str().unwrap().to_string()]).unwrap();
    let mut enrolment = deployment.enrolment(1..=3).unwrap();
    let application = agent.handle(&enrolment.invite(1)).unwrap().unwrap();
    let e = deployment.take(&mut enrolment, "eve", &application).unwrap_err();
    assert!(e.what.starts_with("the application of `eve`: the server of 1 agents with a model of d = 5000000 components"), "{e:?}");
    assert!(e.what.contains("needs about ") && e.what.contains(" TB, ") && enrolment.applied().count() == 0, "{e:?}");
    // What is decoded has a limit too.
    let e = enrolment.clone().with_memory(100.0).take("eve", &application).unwrap_err();
    assert!(e.what.contains("bytes may need 0.0 MB of memory, and 0.0 MB are left beside other applications"), "{e:?}");
}

/// A shard that ends before a column that is no feature has zeros there, as together with the others.
#[test]
fn shards_may_end_before_a_column_that_is_no_feature() {
    let folder = tempfile::tempdir().unwrap();
    let files = shards(folder.path());
    let common = "ridge = 1e-2, weighting = \"rows\"";
    let dropped = |columns: &str| format!("{{ kind = \"logistic\", drop = [{columns}], intercept = true, {common} }}");
    let (one, last, many) = (dropped("\"20\""), dropped("\"31\""), dropped("\"3\", \"12\", \"20\", \"31\""));
    let target = format!("{{ kind = \"least-squares\", target = \"20\", {common} }}");
    let both = format!("{{ kind = \"glm\", family = \"gaussian\", target = \"20\", drop = [\"31\"], offset = \"10\", {common} }}");
    let category = format!("{{ kind = \"logistic\", drop = [\"25\"], categorical = [\"20\"], {common} }}");
    for (problem, d) in [(&one, 31), (&last, 31), (&many, 28), (&target, 30), (&both, 28), (&category, 0)] {
        let text = settings(problem, "{ kind = \"mean\" }", "{ kind = \"newton\" }", 4);
        let all = in_one_place(&text, &[("data", list(&files)), ("partition", Value::String("files".into()))]);
        assert!((d == 0 || all.len() == d) && all.iter().any(|x| *x != 0.0), "{problem}: {}", all.len());
        assert_eq!(deployed(&text, &each(&files)), all, "{problem}");
    }
    // A column that nobody has is a mistake, as it is together.
    for named in ["drop = [\"40\"]", "offset = \"40\"", "target = \"40\""] {
        let deployment = deployment(&format!("{{ kind = \"glm\", family = \"gaussian\", {named}, {common} }}"), "{ kind = \"newton\" }");
        let e = founded(&deployment, &files, 2).err().unwrap();
        assert!(e.key == "problem.data" && e.what == "no agent has a column `40`: there are 31 columns", "{named}: {e:?}");
    }
}

/// Whose targets lie between others would scale them by another factor.
#[test]
fn targets_of_shards_are_not_scaled_by_each_agent() {
    let folder = tempfile::tempdir().unwrap();
    let files = shards(folder.path());
    let deployment = deployment("{ kind = \"least-squares\", target_range = [0.0, 1.0], ridge = 1e-2 }", "{ kind = \"newton\" }");
    let e = agent_of(&deployment, &files[..1]).err().unwrap();
    assert!(e.key == "problem.target_range" && e.what.contains("by its own rows") && e.what.contains("LIBSVM"), "{e:?}");
}

/// A shard whose only column is no feature, and one of rows without a number, are rows as they are in one process.
#[test]
fn shards_without_a_feature_of_their_own_take_part() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| file(folder.path(), name, text);
    let files = vec![
        write("a.svm", "1 1:1 2:1 3:0.5\n-1 1:2 3:1\n1 1:3\n-1 2:-1\n"),
        write("b.svm", "1 1:1\n-1 1:2\n1 1:3\n"),
        write("c.svm", "1\n-1\n-1\n"),
    ];
    let problem = "{ kind = \"logistic\", drop = [\"1\"], ridge = 1e-2, weighting = \"rows\" }";
    let text = settings(problem, "{ kind = \"mean\" }", "{ kind = \"newton\" }", 4);
    let all = in_one_place(&text, &[("data", list(&files)), ("partition", Value::String("files".into()))]);
    assert_eq!((deployed(&text, &each(&files)), all.len()), (all.clone(), 2));
}
