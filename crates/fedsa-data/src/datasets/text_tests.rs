use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray};
use fedsa_problems::rows::dataset::TextColumn;

use super::*;
use crate::memory::TypedColumns;
use crate::trace::{Trace, TraceColumn, to_bytes};

const TABLE: &str = "id, a,label,site,b\n7, 1.5,yes,north,2\n8,-1e-3, no,south,0\n9,0,yes,north,1\n";

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// The rows have the positions of names. A column named as categorical may begin with a number.
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

/// Python's data frames and arrays are read by the rules for files.
#[test]
fn a_table_in_memory_is_the_data_set_of_its_file() {
    let arrays: Vec<(String, ArrayRef)> = vec![
        ("a".into(), Arc::new(Float64Array::from(vec![1.5, -1e-3, 0.0]))),
        ("label".into(), Arc::new(StringArray::from(vec!["yes", "no", "yes"]))),
        ("id".into(), Arc::new(Int64Array::from(vec![9_007_199_254_740_993, 9_007_199_254_740_992, 7]))),
        ("site".into(), Arc::new(StringArray::from(vec!["north", "south", "north"]))),
    ];
    let mut table = MemoryTable::new("");
    table.add_columns(&TypedColumns::new(arrays).unwrap());
    table.add_matrix(&names(&["b", "c"]), &[2.0, 1.0, 0.0, 3.0, 1.0, 5.0], 2).unwrap();
    let columns = vec![
        ("a".to_string(), TraceColumn::F64(vec![1.5, -1e-3, 0.0])),
        ("label".into(), TraceColumn::Str(names(&["yes", "no", "yes"]))),
        ("id".into(), TraceColumn::I64(vec![9_007_199_254_740_993, 9_007_199_254_740_992, 7])),
        ("site".into(), TraceColumn::Str(names(&["north", "south", "north"]))),
        ("b".into(), TraceColumn::F64(vec![2.0, 0.0, 1.0])),
        ("c".into(), TraceColumn::F64(vec![1.0, 3.0, 5.0])),
    ];
    let file = to_bytes(&Trace::new(columns).unwrap()).unwrap();
    for wanted in [Wanted::default().with_group("id"), Wanted::default().with_categorical(names(&["id", "c"])), Wanted::default()] {
        let of_file = from_parquet(file.clone(), &wanted);
        match (table.dataset(&wanted), of_file) {
            (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
            (Err(ours), Err(theirs)) => assert_eq!(ours.what, theirs.what),
            (ours, theirs) => panic!("{ours:?} and {theirs:?}"),
        }
    }
}

/// Codes such as 007, and ids that no double represents, are names. Other numbers are numbers, whatever other files contain.
#[test]
fn codes_and_ids_of_categories_are_texts() {
    let named = Wanted::default().with_categorical(vec!["site".into()]);
    let texts = |rows: &str| from_csv(format!("a,site,target\n{rows}").into(), &named).unwrap().texts;
    assert_eq!(texts("1,001,0\n2,002,1\n3,001,1\n")[0].names, names(&["001", "002"]));
    assert_eq!(texts("1,7,0\n2,1582218195625938945,1\n")[0].names, names(&["7", "1582218195625938945"]));
    assert_eq!(texts("1,0,0\n2,0.5,1\n"), []);
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
    // The rest of a file is longer than one block.
    let long = rows(&format!("7,8,\"5 inch\n{}", "9,0,c\n".repeat(50_000)));
    assert_eq!(error(&long, &wanted), opened(6));
    // Quotes of two such fields are a pair.
    let pair = rows("7,8,\"5 inch\n9,0,c\n1,2,\"6 inch\n3,4,d\n");
    assert_eq!(error(&pair, &wanted), "line 6: a quote that is opened there is closed in line 8, in the middle of a field");
    assert_eq!(from_csv(rows("7,8,\"5\" inch\n").into(), &wanted).unwrap().rows.len(), 4);
}

/// The first row decides the type of a column: an error about a later field names both.
#[test]
fn a_field_that_is_no_number_is_named_with_the_one_that_is() {
    let begins = "x,target\n0x10,2\n1_000,3\n+5,4\n";
    assert_eq!(error(begins, &Wanted::default()), "line 4, column `x`: `+5` in a column that begins with a text, `0x10` in line 2");
}

#[test]
fn whole_numbers_that_are_no_doubles_are_refused_in_csv_as_in_parquet() {
    let said = |text: &str| error(text, &Wanted::default());
    assert_eq!(said("x,target\n1,0\n9007199254740993,1\n"), "line 3, column `x`: `9007199254740993` has more digits than a number keeps");
    assert_eq!(said("x,target\n1,9007199254740993\n"), "line 2, column `target`: `9007199254740993` has more digits than a number keeps");
    // Groups that differ only in the last digit are different groups, and keep their texts.
    let group = from_csv("x,target,id\n1,0,9007199254740993\n2,0,9007199254740992\n".into(), &Wanted::default().with_group("id")).unwrap();
    assert_eq!(group.groups, Some(Labels::Names { names: names(&["9007199254740993", "9007199254740992"]), of: vec![0, 1] }));
    let columns = vec![("x".to_string(), TraceColumn::I64(vec![1, (1 << 53) + 1])), ("target".into(), TraceColumn::F64(vec![0.0, 1.0]))];
    let e = from_parquet(to_bytes(&Trace::new(columns).unwrap()).unwrap(), &Wanted::default()).unwrap_err();
    assert_eq!(e.to_string(), "column `x`: row 2: 9007199254740993 has more digits than a number keeps");
}

#[test]
fn the_index_that_pandas_writes_is_no_feature() {
    let columns = ["x", "target", "__index_level_0__"].map(|name| (name.to_string(), TraceColumn::F64(vec![1.0, 2.0])));
    let file = to_bytes(&Trace::new(columns.to_vec()).unwrap()).unwrap();
    let e = from_parquet(file.clone(), &Wanted::default()).unwrap_err();
    assert_eq!(e.what, "the column `__index_level_0__` is the index that pandas wrote");
    assert_eq!(e.help, "`drop` leaves it out; pandas writes tables without its index with index=False");
    let dropped = Wanted::default().with_drop(vec!["__index_level_0__".into()]);
    assert_eq!(from_parquet(file.clone(), &dropped).unwrap().columns.len(), 1);
    assert!(from_parquet(file, &Wanted::default().with_group("__index_level_0__")).is_ok());
}

/// A column that only some files have may be dropped.
#[test]
fn a_column_is_dropped_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let sources = [file("a.csv", "x,target\n1,2\n"), file("b.csv", "q,x,target\n9,3,4\n")];
    let read = |sources: &[String], drop: &[&str]| {
        let places = crate::find::Places::from_env("");
        super::read(sources, &places, &Wanted::default().with_drop(names(drop)), &Cancel::never())
    };
    for order in [[0, 1], [1, 0]] {
        let sets = read(&order.map(|i| sources[i].clone()), &["q"]).unwrap();
        assert!(sets.iter().all(|(_, set)| set.columns.len() == 1));
        let e = read(&order.map(|i| sources[i].clone()), &["q", "z"]).unwrap_err();
        assert!(e.to_string().contains("there is no column `z`"), "{e}");
    }
    assert!(read(&sources[..1], &["q"]).unwrap_err().to_string().contains("a.csv: there is no column `q`: the columns are `x`, `target`"));
}

/// The same rows with commas, semicolons and tabs; semicolons with decimal commas too.
#[test]
fn semicolons_and_decimal_commas_are_read_as_points() {
    let wanted = Wanted::default().with_drop(vec!["id".into()]).with_group("site");
    let expected = from_csv(TABLE.into(), &wanted).unwrap();
    assert_eq!(from_csv(TABLE.replace(',', ";").into(), &wanted).unwrap(), expected);
    assert_eq!(from_csv(TABLE.replace(',', "\t").into(), &wanted).unwrap(), expected);
    let commas = from_csv(TABLE.replace(',', ";").replace('.', ",").into(), &wanted).unwrap();
    assert!(commas.notes[0].text.contains("`1,5` in line 2 is 1.5"), "{:?}", commas.notes);
    assert_eq!(Dataset { notes: Vec::new(), ..commas }, expected);
    // A comma within a quoted name does not separate.
    let quoted = from_csv("\"dose, mg\";\"a, b\";target\n1,5;2;0,25\n".into(), &Wanted::default()).unwrap();
    assert_eq!(quoted.columns.iter().map(|name| name.into_owned()).collect::<Vec<_>>(), ["dose, mg", "a, b"]);
    assert_eq!((quoted.rows, quoted.targets), (Rows::Dense { d: 2, values: vec![1.5, 2.0] }, Some(Labels::Numbers(vec![0.25]))));
    // Texts keep their commas.
    let texts = from_csv("a;target\nx,y;1\nz;0\n".into(), &Wanted::default()).unwrap().texts;
    assert_eq!(texts[0].names, names(&["x,y", "z"]));
}

#[test]
fn decimal_marks_that_are_not_clear_are_refused() {
    let refused = |rows: &str| error(&format!("a;b;target\n{rows}"), &Wanted::default());
    assert_eq!(refused("1,5;2;0\n2;3;1\n4;2.5;1\n"), "line 4: `2.5` has a decimal point, and `1,5` in line 2 a comma");
    assert_eq!(refused("1;2;0\n\n2,5;3.5;1\n"), "line 4: `3.5` has a decimal point, and `2,5` in line 4 a comma");
    assert_eq!(refused("1,234;2;0\n2,345;3;1\n"), "line 2: `1,234` is 1.234 or 1234, and no number of the file says which");
    assert_eq!(refused("1.234,5;2;0\n"), "line 2: `1.234,5` has separators of thousands");
    assert_eq!(refused("2;1,5;0\n2;1.234,5;0\n"), "line 3: `1.234,5` has separators of thousands");
    // One number shows that commas are decimal; it may be the target.
    assert_eq!(from_csv("a;target\n1,234;0\n2,345;0,5\n".into(), &Wanted::default()).unwrap().rows.row(0).next(), Some((0, 1.234)));
    // Without semicolons a comma separates.
    assert_eq!(error("a\ttarget\n1\t0\n1,5\t1\n", &Wanted::default()), "line 3, column `a`: `1,5` is a number with a decimal comma");
}
