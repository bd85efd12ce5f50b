//! Natural compression: entries rounded to powers of two.

use fedsa::message::{Body, Part};
use fedsa::protocol::Len;
use fedsa::random::Stream;
use fedsa::triangle::{Support, entries};

use super::{BITS, Compressed, Compressor, MatrixChange, unpacked};

/// Every entry rounded at random, without bias, to one of the two neighbouring powers of two, with omega 1/8: 12 bits per entry (Horvath et
/// al. 2022). Numbers below the least normal f64 become 0.
#[derive(Debug)]
pub struct Natural;

impl Compressor for Natural {
    fn part(&self, d: usize) -> (Part, Len) {
        (Part::PackedMatrix, Len::AtMost((BITS * entries(d)).div_ceil(8)))
    }

    fn learning_rate(&self, _: usize) -> f64 {
        8.0 / 9.0
    }

    fn compressed(&self, support: &Support, m: &[f64], stream: Stream) -> Compressed {
        Compressed::alike(Body::Packed(natural(support, m, stream)))
    }

    fn read<'a>(&self, d: usize, body: &'a Body, _: Stream) -> Option<MatrixChange<'a>> {
        let Body::Packed(bytes) = body else { return None };
        (bytes.len() == self.part(d).1.largest()).then_some(MatrixChange::Powers(bytes))
    }

    /// Numbers that are not finite come only from a diverged agent.
    fn accepts(&self, d: usize, body: &Body) -> bool {
        let are_finite = |bytes: &[u8]| (0..entries(d)).all(|place| unpacked(bytes, place).is_finite());
        *body == self.nothing(d) || matches!(self.read(d, body, Stream::default()), Some(MatrixChange::Powers(bytes)) if are_finite(bytes))
    }
}

/// The sign and exponent of each entry after rounding to a power of two, two in three bytes.
fn natural(support: &Support, m: &[f64], mut stream: Stream) -> Vec<u8> {
    const FRACTION: u64 = (1 << 52) - 1;
    let mut code = |x: f64| {
        let bits = x.to_bits();
        let top = (bits >> 52) as u16;
        // `2^a (1 + f)` becomes `2^(a + 1)` with probability f; the largest exponent stays.
        let exponent = top & 0x7ff;
        let up = (1..0x7fe).contains(&exponent) && (stream.bits() >> 12) < (bits & FRACTION);
        if exponent == 0 { 0 } else { top + u16::from(up) }
    };
    let mut bytes = vec![0; (BITS * entries(support.rows())).div_ceil(8)];
    support.each(|at, place, _, _| {
        let (code, first) = (code(m[at]), BITS * place / 8);
        let [low, high] = if place.is_multiple_of(2) { code } else { code << 4 }.to_le_bytes();
        bytes[first] |= low;
        bytes[first + 1] |= high;
    });
    bytes
}
