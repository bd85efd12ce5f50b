//! The pages of a Parquet file, checked before they are unpacked.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use crate::store::{Store, StoreReader};

/// What is read of a page at first; its header is seldom longer.
const HEADER: usize = 512;

/// The bytes of all pages that are in memory.
pub(super) struct Budget {
    pub used: AtomicUsize,
    pub limit: usize,
}

/// The file as the reader of one column sees it. Reading the header of a page fails if the page claims to unpack to more than
/// the size of the file justifies, or if the pages of all columns together do.
pub(super) struct Source {
    pub store: Store,
    pub pages: Arc<Budget>,
    pub held: Mutex<ColumnPages>,
}

/// The bytes of the pages that a column has in memory: a dictionary and a page of values.
#[derive(Default)]
pub(super) struct ColumnPages {
    dictionary: usize,
    values: usize,
    is_dictionary: bool,
}

impl Source {
    /// Accounts for a page of this size in place of the column's last page of its kind.
    pub fn hold(&self, size: usize, is_dictionary: Option<bool>) -> parquet::errors::Result<()> {
        let held = &mut *self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.is_dictionary = is_dictionary.unwrap_or(held.is_dictionary);
        let page = if held.is_dictionary { &mut held.dictionary } else { &mut held.values };
        // The header of a page comes before its bytes, and the larger of both sizes counts.
        let before = *page;
        *page = if is_dictionary.is_some() { size } else { size.max(before) };
        let (page, limit) = (*page, self.pages.limit);
        let others = self.pages.used.fetch_add(page, Ordering::Relaxed) - before;
        self.pages.used.fetch_sub(before, Ordering::Relaxed);
        if page > limit {
            return Err(ParquetError::General(format!("a page claims to unpack to {page} bytes")));
        } else if others > limit - page {
            return Err(ParquetError::General(format!("the pages of its columns take more than {limit} bytes at the same time")));
        }
        Ok(())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.pages.used.fetch_sub(held.dictionary + held.values, Ordering::Relaxed);
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.store.len()
    }
}

impl ChunkReader for Source {
    type T = BufReader<StoreReader>;

    /// Called for the headers of pages only.
    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        if start > self.store.len() {
            return Err(ParquetError::EOF("a page beyond the end".into()));
        }
        let mut header = BufReader::with_capacity(HEADER, self.store.reader_at(start));
        match unpacked_size(header.fill_buf()?) {
            Some((size, is_dictionary)) => self.hold(size.min(u64::from(u32::MAX)) as usize, Some(is_dictionary)).map(|()| header),
            None => Err(ParquetError::General("a page has no valid header".into())),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.hold(length, None)?;
        Ok(self.store.bytes(start, length)?)
    }
}

/// The size that a page claims to unpack to, and whether it is a dictionary: the second and the first of the first two fields
/// of its header, `uncompressed_page_size` and `type`, both of type i32 (0x15
/// is "the next field, an i32" in Thrift's compact protocol). A negative size
/// becomes a huge one.
pub(super) fn unpacked_size(header: &[u8]) -> Option<(u64, bool)> {
    const DICTIONARY: i64 = 2;
    let (page_type, size) = varint_field(header).and_then(|(page_type, rest)| Some((page_type, varint_field(rest)?.0)))?;
    let zigzag = |v: u64| (v >> 1).cast_signed() ^ -((v & 1).cast_signed());
    let page_type = zigzag(page_type);
    (0..=3).contains(&page_type).then_some((zigzag(size).cast_unsigned(), page_type == DICTIONARY))
}

/// A field of type i32 and what follows it.
fn varint_field(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = bytes.strip_prefix(&[0x15])?;
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// Pages; those whose claimed sizes the decoders would trust too much are refused.
pub(super) struct Pages {
    pub inner: SerializedPageReader<Source>,
    pub physical: Type,
}

impl Pages {
    fn check(&self, page: &Page) -> parquet::errors::Result<()> {
        let refuse = |why: String| Err(ParquetError::General(why));
        match page {
            // The decoder allocates all entries before it decodes the first.
            Page::DictionaryPage { buf, num_values, .. } => {
                let width = match self.physical {
                    Type::INT32 | Type::FLOAT => 4,
                    Type::INT64 | Type::DOUBLE => 8,
                    Type::BYTE_ARRAY => 4, // its length
                    other => return refuse(format!("a dictionary of {other}")),
                };
                if *num_values as usize > buf.len() / width {
                    return refuse(format!("a dictionary of {} bytes claims to hold {num_values} entries", buf.len()));
                }
            }
            // The decoders of delta-encoded strings allocate as many values as the page claims.
            Page::DataPage { encoding, .. } | Page::DataPageV2 { encoding, .. } => {
                if matches!(encoding, Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY) {
                    return refuse(format!("strings encoded as {encoding} are not supported"));
                }
            }
        }
        Ok(())
    }
}

impl Iterator for Pages {
    type Item = parquet::errors::Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
        let page = self.inner.get_next_page()?;
        page.as_ref().map_or(Ok(()), |page| self.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        self.inner.skip_next_page()
    }
}
