use fedsa::problem::dataset::TextColumn;

use super::*;
use crate::trace::{Trace, TraceColumn, to_bytes};

const TABLE: &str = "id, a,label,site,b\n7, 1.5,yes,north,2\n8,-1e-3, no,south,0\n9,0,yes,north,1\n";

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// The rows have the positions of names. A column that is named may begin with a number.
#[test]
fn columns_of_text_are_categories_of_csv_and_parquet() {
    let text = |column: &str, all: &[&str]| vec![TextColumn { column: column.into(), names: names(all) }];
    let set = from_csv(TABLE.into(), &Wanted::default().with_drop(vec!["id".into()])).unwrap();
    assert_eq!(set.columns.iter().map(|name| name.into_owned()).collect::<Vec<_>>(), ["a", "site", "b"]);
    assert_eq!(set.rows, Rows::Dense { d: 3, values: vec![1.5, 0.0, 2.0, -1e-3, 1.0, 0.0, 0.0, 0.0, 1.0] });
    assert_eq!(set.texts, text("site", &["north", "south"]));
    let columns = vec![
        ("a".into(), TraceColumn::F64(vec![1.5, -1e-3, 0.0])),
        ("label".into(), TraceColumn::Str(names(&["yes", "no", "yes"]))),
        ("site".into(), TraceColumn::Str(names(&["north", "south", "north"]))),
        ("b".into(), TraceColumn::F64(vec![2.0, 0.0, 1.0])),
    ];
    assert_eq!(from_parquet(to_bytes(&Trace::new(columns).unwrap()).unwrap(), &Wanted::default()).unwrap(), set);
    let mixed = "a,site,target\n1,7,0\n2,x,1\n";
    let named = Wanted::default().with_categorical(vec!["site".into()]);
    assert_eq!(from_csv(mixed.into(), &named).unwrap().texts, text("site", &["7", "x"]));
    let numbers = from_csv("a,site,target\n1,7,0\n2,9,1\n".into(), &named).unwrap();
    assert_eq!((numbers.texts, numbers.rows), (Vec::new(), Rows::Dense { d: 2, values: vec![1.0, 7.0, 2.0, 9.0] }));
}

fn error(file: &str, wanted: &Wanted) -> String {
    from_csv(file.into(), wanted).unwrap_err().to_string()
}

/// A quote in the last column swallows the rest of a file without a change of the number of fields.
#[test]
fn a_quote_that_is_not_closed_is_refused_with_its_line() {
    let opened = |line: u64| format!("line {line}: a quote that is opened there is not closed");
    let wanted = Wanted::default().with_drop(vec!["note".into()]);
    let rows = |more: &str| format!("x,target,note\n1,2,\"a, b\"\n3,4,5\"\n5,6,\"say \"\"so\"\"\"\n\n{more}");
    let good = rows("7,8,\"two\nlines\"\n9,0,c\n");
    assert_eq!(from_csv(good.clone().into(), &wanted).unwrap().rows.len(), 5);
    assert_eq!(from_csv(format!("\u{feff}{good}").into(), &wanted).unwrap().rows.len(), 5);
    assert_eq!(error(&rows("7,8,\"5 inch\n9,0,c\n1,2,d\n"), &wanted), opened(6));
    assert_eq!(error(&rows("7,8,\"5 inch"), &wanted), opened(6));
    assert_eq!(error(&rows("7,8,c\n9,0,\""), &wanted), opened(7));
    assert_eq!(error("\u{feff}\"x,target\n1,2\n", &Wanted::default()), opened(1));
    assert_eq!(error("x\ttarget\n1\t2\n3\t\"4\n5\t6\n", &Wanted::default()), opened(3));
    // The rest of a file is longer than what is read at a time.
    let long = rows(&format!("7,8,\"5 inch\n{}", "9,0,c\n".repeat(50_000)));
    assert_eq!(error(&long, &wanted), opened(6));
    // Quotes of two such fields are a pair.
    let pair = rows("7,8,\"5 inch\n9,0,c\n1,2,\"6 inch\n3,4,d\n");
    assert_eq!(error(&pair, &wanted), "line 6: a quote that is opened there is closed in line 8, in the middle of a field");
    assert_eq!(from_csv(rows("7,8,\"5\" inch\n").into(), &wanted).unwrap().rows.len(), 4);
}
