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
