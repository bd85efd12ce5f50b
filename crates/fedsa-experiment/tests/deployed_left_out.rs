//! Who is left out where there is no federation of all who have applied: those who are in the way of the others, and as few of them as there can be.

use std::time::{Duration, Instant};

use fedsa_experiment::deployment::Deployment;
use tempfile::TempDir;

use crate::deployment::{self, founded, made, settings};

fn binary() -> Deployment {
    let problem = "{ kind = \"logistic\", target = \"y\", ridge = 1e-2 }";
    made(&settings(problem, "{ kind = \"mean\" }", "{ kind = \"newton\" }", 3))
}

/// A table of these colours, and of labels that are 0 and 1 in turn.
fn table(folder: &TempDir, name: &str, colours: impl Iterator<Item = String>) -> String {
    let rows: String = colours.enumerate().map(|(i, colour)| format!("{i},{colour},{}\n", i % 2)).collect();
    written(folder, name, &format!("x,colour,y\n{rows}"))
}

fn written(folder: &TempDir, name: &str, text: &str) -> String {
    deployment::file(folder.path(), &format!("{name}.csv"), text)
}

/// Common colours, and one that nobody else has.
fn honest(folder: &TempDir, c: usize) -> String {
    table(folder, &format!("honest{c}"), ["red", "blue", "sea", &format!("own{c}")].into_iter().map(String::from))
}

/// Almost as many colours as there may be.
fn liar(folder: &TempDir, c: usize, of: usize) -> String {
    table(folder, &format!("liar{c}"), (0..999).map(|i| format!("c{of}_{i}")))
}

/// The numbers of those who are excluded, in order.
fn left_out(files: &[String], least: usize) -> Vec<usize> {
    let found = founded(&binary(), files, least).unwrap();
    assert!(found.excluded.iter().all(|(_, e)| e.what.contains("`colour`") || e.what.contains("labels")), "{:?}", found.excluded);
    let mut out: Vec<usize> = found.excluded.iter().map(|(who, _)| who.parse().unwrap()).collect();
    out.sort_unstable();
    out
}

/// It took more than a minute, and a thousand agents would have taken a day.
#[test]
fn sixty_of_a_hundred_agents_that_are_in_the_way_are_found_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let is_liar = |c: usize| c % 5 < 3;
    let files: Vec<String> = (0..100).map(|c| if is_liar(c) { liar(&folder, c, c) } else { honest(&folder, c) }).collect();
    let began = Instant::now();
    let out = left_out(&files, 40);
    assert_eq!(out, (0..100).filter(|c| is_liar(*c)).collect::<Vec<_>>());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Neither of two has a colour alone, and each of the others has.
#[test]
fn two_agents_that_say_the_same_do_not_hide_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<String> = (0..5).map(|c| honest(&folder, c)).collect();
    files.insert(1, liar(&folder, 0, 0));
    files.push(liar(&folder, 1, 0));
    assert_eq!(left_out(&files, 3), [1, 6]);
}

/// Whoever was suspected first comes back where only others were in the way.
#[test]
fn an_agent_with_many_colours_of_its_own_stays_where_others_are_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<String> = (0..4).map(|c| honest(&folder, c)).collect();
    files.push(table(&folder, "many", (0..40).map(|i| format!("m{i}"))));
    files.push(written(&folder, "third", "x,colour,y\n1,red,0\n2,blue,1\n3,red,7\n"));
    files.push(written(&folder, "fourth", "x,colour,y\n1,red,0\n2,blue,1\n3,red,8\n"));
    assert_eq!(left_out(&files, 4), [5, 6]);
}

/// Those of most agents are decided once: four who lack a column are not more than the others when one of these is left out.
#[test]
fn columns_of_most_agents_stay_those_when_one_of_them_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<String> = (0..4).map(|c| written(&folder, &format!("fewer{c}"), "colour,y\nred,0\nblue,1\n")).collect();
    files.extend((0..4).map(|c| honest(&folder, c)));
    files.push(written(&folder, "third", "x,colour,y\n1,red,0\n2,blue,1\n3,red,7\n"));
    let found = founded(&binary(), &files, 4).unwrap();
    let mut out: Vec<&str> = found.excluded.iter().map(|(who, _)| who.as_str()).collect();
    out.sort_unstable();
    assert_eq!((out, found.federation.agents()), (vec!["0", "1", "2", "3", "8"], 4));
}

/// Each of most agents has a site or a device of its own. Two that copy each other have none, and other labels than all others: they were the
/// federation, and all others were excluded.
#[test]
fn two_agents_with_labels_of_their_own_do_not_take_over_a_federation_whose_agents_differ_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let row =
        |c: usize, i: usize| if c.is_multiple_of(2) { (format!("s{c}"), "d".into()) } else { ("s".to_string(), format!("d{c}_{}", i / 4)) };
    let one = |c: usize, labels: [&str; 2]| {
        let rows = (0..4).map(|i| {
            let (site, device) = if labels[0] == "n" { ("s".into(), "d".into()) } else { row(c, i) };
            format!("{i},{site},{device},{}\n", labels[i % 2])
        });
        written(&folder, &format!("agent{c}"), &format!("x,site,device,y\n{}", rows.collect::<String>()))
    };
    for honest in [6, 20] {
        let mut files: Vec<String> = (0..honest).map(|c| one(c, ["no", "yes"])).collect();
        files.extend([one(98, ["n", "y"]), one(99, ["n", "y"])]);
        for least in [2, honest / 2] {
            let found = founded(&binary(), &files, least).unwrap();
            let mut out: Vec<usize> = found.excluded.iter().map(|(who, _)| who.parse().unwrap()).collect();
            out.sort_unstable();
            assert_eq!(out, [honest, honest + 1], "{honest} and {least}");
        }
    }
}
