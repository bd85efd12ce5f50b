use super::*;

#[test]
fn panics_become_errors() {
    let table = crate::trace::Trace::new(vec![("n".into(), crate::trace::TraceColumn::I64(vec![1]))]).unwrap();
    let file = crate::trace::to_bytes(&table).unwrap();
    assert_eq!(contained(file.clone(), |columns| Ok(columns.rows())), Ok(1));
    let e = contained(file, |_| -> Result<()> { panic!("not to be seen") }).unwrap_err();
    assert_eq!(e.what, "not a readable Parquet file: its parts contradict each other");
}
