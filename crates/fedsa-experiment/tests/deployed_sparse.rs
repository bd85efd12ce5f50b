//! Agents whose LIBSVM files end with other columns give the numbers of a run on the files of all.

use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa_data::find::Places;
use fedsa_experiment::config::Document;
use fedsa_experiment::deployment::{Deployment, LocalAgent};
use toml::Value;

use crate::deployment::{deployed, each, founded, in_one_place, list, settings};

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
    Deployment::new(Document::parse("t.toml", &settings(problem, "{ kind = \"mean\" }", method, 3)).unwrap()).unwrap()
}

#[test]
fn shards_of_different_widths_give_the_bits_of_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let files = shards(folder.path());
    let common = "ridge = 1e-2, weights = \"rows\"";
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
    let problem = "{ kind = \"logistic\", categorical = [\"3\"], ridge = 1e-2, weights = \"rows\", intercept = true }";
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
    let deployment = deployment("{ kind = \"logistic\", ridge = 1e-2, weights = \"rows\" }", "{ kind = \"newton\" }");
    let two = founded(&deployment, &files[..1], 1).unwrap();
    assert_eq!((two.federation.dim(), founded(&deployment, &files, 3).unwrap().federation.dim()), (10, 31));
    // Who joins later has no further columns.
    let mut few = founded(&deployment, &[files[0].clone(), files[2].clone()], 2).unwrap().membership;
    let mut wide = LocalAgent::new(&deployment, &files[1..2], &Places::from_env(""), None, &Cancel::never()).unwrap();
    let e = few.take("wide", &wide.handle(&few.invitation()).unwrap().unwrap()).unwrap_err();
    assert!(e.what.contains("a column 31, and the last one is 15"), "{e:?}");
    // An index that no model has is left out, also where there are two such agents; so it is without others.
    let wide = |name: &str, index: u64| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("1 1:1 {index}:2\n-1 2:1\n")).unwrap();
        path.to_str().unwrap().to_string()
    };
    files.insert(0, wide("wide.svm", 1 << 31));
    files.push(wide("wider.svm", (1 << 32) - 3));
    let found = founded(&deployment, &files, 3).unwrap();
    let mut excluded: Vec<&str> = found.excluded.iter().map(|(who, _)| &who[..]).collect();
    excluded.sort_unstable();
    assert_eq!((excluded, found.federation.dim()), (vec!["0", "4"], 31));
    assert!(found.excluded.iter().all(|(_, e)| e.what.contains("columns and 0 levels of categories")), "{:?}", found.excluded);
    assert!(founded(&deployment, &files, 4).err().unwrap().help.contains("at most 8388608 components"));
}
