use std::sync::atomic::Ordering;

use super::pages::unpacked_size;
use super::*;

#[test]
fn the_size_of_a_page_is_read_from_its_header() {
    assert_eq!(unpacked_size(&[0x15, 0x00, 0x15, 0x80, 0x01, 0x15]), Some((64, false)));
    assert_eq!(unpacked_size(&[0x15, 0x04, 0x15, 0x80, 0x01, 0x15]), Some((64, true)), "a dictionary");
    assert_eq!(unpacked_size(&[0x15, 0x06, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f]), Some((i32::MAX as u64, false)));
    assert!(unpacked_size(&[0x15, 0x00, 0x15, 0x01]).unwrap().0 > i64::MAX as u64, "negative");
    for bad in [
        &[][..],
        &[0x15],
        &[0x15, 0x00, 0x15],
        &[0x15, 0x08, 0x15, 0x02],
        &[0x25, 0x00, 0x15, 0x02],
        &[0x15, 0x00, 0x15, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
    ] {
        assert_eq!(unpacked_size(bad), None, "{bad:?}");
    }
}

#[test]
fn the_pages_of_all_columns_share_a_bound() {
    let pages = Arc::new(Budget { used: AtomicUsize::new(0), limit: 100 });
    let column = || Source { store: vec![].into(), pages: pages.clone(), held: Mutex::default() };
    let (first, second) = (column(), column());
    first.hold(50, Some(false)).unwrap();
    second.hold(30, Some(true)).unwrap();
    // Its bytes are no more than what they unpack to; the page after it takes its place.
    second.hold(20, None).unwrap();
    second.hold(20, Some(false)).unwrap();
    first.hold(40, Some(false)).unwrap();
    first.hold(50, None).unwrap();
    assert_eq!(pages.used.load(Ordering::Relaxed), 100);
    assert!(second.hold(21, Some(false)).unwrap_err().to_string().contains("more than 100 bytes at the same time"));
    assert!(second.hold(101, Some(false)).unwrap_err().to_string().contains("a page claims to unpack to 101 bytes"));
    drop(second);
    assert_eq!(pages.used.load(Ordering::Relaxed), 50);
    first.hold(100, Some(false)).unwrap();
}

#[test]
fn panics_become_errors() {
    let table = crate::trace::Trace::new(vec![("n".into(), crate::trace::TraceColumn::I64(vec![1]))]).unwrap();
    let file = crate::trace::to_bytes(&table).unwrap();
    assert_eq!(contained(file.clone(), |columns| Ok(columns.rows())), Ok(1));
    let e = contained(file, |_| -> Result<()> { panic!("not to be seen") }).unwrap_err();
    assert_eq!(e.what, "not a readable Parquet file: its parts contradict each other");
}
