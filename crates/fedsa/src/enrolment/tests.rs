//! Impossible applications and states.

use super::*;
use crate::method::testing::Unused;
use crate::prelude::{Description, Sampling};

fn enrolment() -> Enrolment {
    let terms = Terms::new(&Unused {}, Description::new("garnet", Sampling::default(), 4));
    Enrolment::new(&terms, 2..=3).unwrap()
}

fn application(agent: Option<u32>, rows: u64, dim: u32) -> Application {
    Application {
        terms: enrolment().terms.hashes(),
        agent,
        rows,
        dim: Some(dim),
        columns: Vec::new(),
        form: None,
        key: None,
        weighted: None,
    }
}

/// The server would otherwise allocate a start of 34 GB before it refuses.
#[test]
fn an_application_of_too_many_components_is_refused() {
    let mut enrolment = enrolment();
    for dim in [0, u32::MAX, MAX_COMPONENTS + 1] {
        let e = enrolment.take("a", &frame::written(Kind::Application, &application(None, 7, dim))).unwrap_err();
        assert!(e.help.contains("8388608"), "{e:?}");
    }
}

/// The server refuses columns with too many categories before it sends them, because agents would refuse them.
#[test]
fn categories_of_all_agents_that_are_too_many_are_named() {
    let mut enrolment = enrolment();
    for who in ["a", "b"] {
        let names = (0..600).map(|i| (format!("{who}{i}"), 1)).collect();
        let columns = vec![ColumnSummary::of_categories("colour", DistinctValues::new(names, false)).unwrap()];
        enrolment.take(who, &frame::written(Kind::Application, &Application { columns, ..application(None, 600, 4) })).unwrap();
    }
    let e = enrolment.close(None).err().unwrap();
    assert!(e.what.contains("`colour`: 1200 categories") && e.help.contains("1 to 1,000"), "{e:?}");
}

/// The server rejects applications with impossible values, with the reason, and keeps the others.
#[test]
fn impossible_counts_are_refused_one_by_one() {
    let mut enrolment = enrolment();
    let numbers = |name: &str, n: usize| ColumnSummary::of_numbers(name, (0..n).map(|i| i as f64)).unwrap();
    let labels = |count: u64| {
        ColumnSummary::of_labels("y", DistinctValues::new([("no".into(), 1), ("yes".into(), count - 1)].into(), false)).unwrap()
    };
    let of = |rows, columns| Application { columns, ..application(None, rows, 4) };
    for (one, why) in [
        (of(0, vec![]), "0 rows"),
        (of(1 << 53, vec![]), "9007199254740992 rows"),
        (of(u64::MAX, vec![]), "18446744073709551615 rows"),
        (of(4, vec![numbers("x", 5)]), "column `x`: 5 rows of 4"),
        (of(4, vec![labels(1 << 53)]), "column `y`: 9007199254740992 rows of 4294967295"),
        (of(9, vec![numbers("x", 5), numbers("x", 4)]), "two columns `x`"),
    ] {
        let e = enrolment.take("liar", &frame::written(Kind::Application, &one)).unwrap_err();
        assert!(e.what.contains(why), "{why}: {e:?}");
    }
    for who in ["a", "b"] {
        enrolment.take(who, &frame::written(Kind::Application, &of(5, vec![numbers("x", 5), labels(5)]))).unwrap();
    }
    assert_eq!(enrolment.close(None).unwrap().federation.weights(), [0.5, 0.5]);
}

/// A minority of distant ranges does not move the median.
#[test]
fn ranges_of_placeholders_are_those_of_outliers() {
    let of = |ranges: &[(f64, f64)]| {
        let mut enrolment = Enrolment::new(&enrolment().terms, 1..=9).unwrap();
        for (i, (low, high)) in ranges.iter().enumerate() {
            let columns = vec![ColumnSummary::of_numbers("x", [*low, *high]).unwrap(), ColumnSummary::of_numbers("y", [1.0]).unwrap()];
            let bytes = frame::written(Kind::Application, &Application { columns, ..application(None, 7, 4) });
            enrolment.take(&i.to_string(), &bytes).unwrap();
        }
        let found = enrolment.check_reach(&["x".into(), "y".into()]).err().map_or_else(String::new, |e| e.what);
        found.split(": column `x` reaches more than 1000000 times").next().unwrap_or_default().to_string()
    };
    let usual = [(0.0, 1.0), (-3.0, 2.0), (5.0, 5.5)];
    assert_eq!(of(&usual), "");
    assert_eq!(of(&[&usual[..], &[(0.0, 1e30)]].concat()), "`3`");
    assert_eq!(of(&[&[(-1e30, 0.0)], &usual[..], &[(1e12, 1e12 + 1.0)]].concat()), "`0`");
    assert_eq!(of(&[&[(-1e150, 1e150)], &usual[..]].concat()), "`0`");
    // Agents that differ moderately, and agents of which most have a column of zeros.
    assert_eq!(of(&[(0.0, 1.0), (0.0, 1e5), (-1e5, 3.0)]), "");
    assert_eq!(of(&[(0.0, 0.0), (0.0, 0.0), (2.0, 900.0)]), "");
    // With two agents it is unknown which one is wrong.
    assert_eq!(of(&[(0.0, 1.0), (0.0, 1e30)]), "");
}

/// If the dimension follows from all agents' columns, an agent with its own dimension is another one.
#[test]
fn an_agent_that_alone_says_a_number_of_components_is_named() {
    let mut all = Enrolment::new(&enrolment().terms, 2..=3).unwrap();
    for (who, dim) in [("a", None), ("b", Some(1)), ("c", None)] {
        let names = [(who.to_string(), 7)].into();
        let columns = vec![ColumnSummary::of_categories("colour", DistinctValues::new(names, false)).unwrap()];
        let one = Application { columns, dim, ..application(None, 7, 4) };
        all.take(who, &frame::written(Kind::Application, &one)).unwrap();
    }
    // Also if its dimension is the one of all columns together.
    for dim in [4, 1] {
        assert_eq!(all.close(Some(dim)).err().unwrap().what, "`b`: 1 components in place of no number of components");
    }
    all.withdraw("b");
    assert_eq!(all.columns()[0].values().unwrap().sorted(), ["a", "c"]);
    assert_eq!(all.most_alone(), Some(("a", "colour", 1)));
}
