//! The hot loop: H local steps `theta += eta_h (g_c(theta, z) + drift)` of up to eight agents.
//!
//! Every kernel performs the same floating-point operations for an agent in the same order. Results are
//! therefore equal bit for bit on every instruction set, and with one agent or eight:
//!
//! - a dot product keeps eight partial sums, element `i` going to sum `i mod 8`
//!   by `mul_add`, reduced as `((0+1)+(2+3))+((4+5)+(6+7))` ([`dot`]);
//! - a step is `g = ...; s = g + drift; theta = eta.mul_add(s, theta)`, each
//!   operation rounded once.
//!
//! The generic kernel ([`generic`]) runs every problem through its `sample` and `apply`. `fedsa_problems` has faster
//! ones for some problems; tests compare their results with the generic kernel's, bit for bit.

/// A function that is compiled for every instruction set; the first argument selects one.
#[macro_export]
macro_rules! per_isa {
    ($(#[$doc:meta])* fn $name:ident$(<$f:ident: $bound:path>)?($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$doc])*
        pub fn $name$(<$f: $bound>)?(isa: $crate::kernel::Isa, $($arg: $type),*) $(-> $out)? {
            #[inline(always)]
            fn body$(<$f: $bound>)?($($arg: $type),*) $(-> $out)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
            fn avx512$(<$f: $bound>)?($($arg: $type),*) $(-> $out)? {
                body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2$(<$f: $bound>)?($($arg: $type),*) $(-> $out)? {
                body($($arg),*)
            }
            assert!(isa.is_available());
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the instruction set is available; the body itself is safe.
                $crate::kernel::Isa::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::kernel::Isa::Avx2 => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}

pub mod blocks;
pub mod generic;
pub mod products;
pub mod remove;
pub mod rows;
pub mod select;
pub mod triangle;
pub mod vector;

use std::sync::OnceLock;

use crate::random::{ALL, Key, Purpose, Stream, Streams};

/// Agents processed side by side.
pub const LANES: usize = 8;

/// Eight consecutive components of a vector; vectors are padded to whole chunks with zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub struct Chunk(pub [f64; 8]);

/// The number of chunks of a vector of `d` components.
pub const fn chunks(d: usize) -> usize {
    d.div_ceil(8)
}

/// A vector as zero-padded chunks.
pub fn to_chunks(v: &[f64]) -> Vec<Chunk> {
    let mut out = vec![Chunk::default(); chunks(v.len())];
    flat_mut(&mut out)[..v.len()].copy_from_slice(v);
    out
}

/// The components of chunks, padding included.
pub fn flat(v: &[Chunk]) -> &[f64] {
    bytemuck::cast_slice(v)
}

/// The components of chunks, padding included.
pub fn flat_mut(v: &mut [Chunk]) -> &mut [f64] {
    bytemuck::cast_slice_mut(v)
}

/// The instruction set a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Any processor. Without hardware FMA, `mul_add` is a slow library call.
    Portable,
    /// AVX2, FMA and BMI2.
    Avx2,
    /// AVX-512 F, DQ and VL.
    Avx512,
}

impl Isa {
    const ALL: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512];

    /// The instruction sets that this processor supports, slowest first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// The fastest instruction set that this processor supports.
    #[inline]
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Isa::ALL.into_iter().rfind(|isa| isa.is_detected()).expect("portable code runs everywhere"))
    }

    /// Whether this processor supports the instruction set. Each instruction set includes the slower ones.
    #[inline]
    pub fn is_available(self) -> bool {
        self <= Isa::best()
    }

    fn is_detected(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("bmi2"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_detected()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

/// The working state of up to eight agents: iterates, drifts, sampling processes and random streams.
#[derive(Debug, Clone)]
pub struct Lanes {
    /// The agents' places in the data. Entries of lanes from `len` on are not used.
    pub agents: [usize; LANES],
    /// The agents' numbers in the federation, which key their random draws.
    pub identities: [usize; LANES],
    /// The number of lanes in use.
    pub len: usize,
    /// Chunks per vector.
    pub width: usize,
    /// `theta_c` of every lane, `width` chunks each.
    pub theta: Vec<Chunk>,
    /// The drift of every lane, `width` chunks each.
    pub drift: Vec<Chunk>,
    /// Whether all drifts are known to be zero.
    pub(crate) is_still: bool,
    /// The state of every lane's sampling process, `chain_len` words each.
    pub chains: Vec<u64>,
    /// Words per sampling process.
    pub chain_len: usize,
    /// The random stream of every lane.
    pub streams: Streams<LANES>,
    /// `g_c(theta, z)` of every lane after an observation, `width` chunks each.
    pub observed: Vec<Chunk>,
    /// The step sizes of the present local phase.
    pub(crate) etas: Vec<f64>,
    /// The common value of `etas`, if all are known to be equal.
    pub(crate) eta: Option<f64>,
    /// The key that streams were last opened with, after its seed, purpose and round.
    pub(crate) opened: ((u64, Purpose, u64), Key),
    /// The iterate that all lanes started from in this round, `width` chunks. A round may take several local phases.
    pub start: Vec<Chunk>,
    /// Working memory of the kernels and output of idle lanes; `width` chunks.
    pub spare: Vec<Chunk>,
}

impl Lanes {
    /// Lanes for vectors of `d` components and sampling processes of `chain_len` words.
    pub fn new(d: usize, chain_len: usize) -> Self {
        let width = chunks(d);
        let opened = ((0, Purpose::Fresh, 0), Key::new(0, Purpose::Fresh, 0));
        Self {
            agents: [0; LANES],
            identities: [0; LANES],
            len: 0,
            width,
            theta: vec![Chunk::default(); LANES * width],
            drift: vec![Chunk::default(); LANES * width],
            is_still: true,
            chains: vec![0; LANES * chain_len],
            chain_len,
            streams: Streams::open(&opened.1, &[ALL; LANES]),
            opened,
            observed: vec![Chunk::default(); LANES * width],
            etas: Vec::new(),
            eta: None,
            start: vec![Chunk::default(); width],
            spare: vec![Chunk::default(); width],
        }
    }

    /// The random stream of lane `l`.
    pub fn stream(&self, l: usize) -> Stream {
        self.streams.get(l)
    }

    /// Replaces the random stream of lane `l`.
    pub fn set_stream(&mut self, l: usize, stream: Stream) {
        self.streams.set(l, stream);
    }

    /// The iterate of lane `l`, with its padding, to be changed.
    pub fn theta_mut(&mut self, l: usize) -> &mut [f64] {
        flat_mut(&mut self.theta[l * self.width..(l + 1) * self.width])
    }

    /// The iterate of lane `l`, padding included.
    pub fn theta(&self, l: usize) -> &[f64] {
        flat(&self.theta[l * self.width..(l + 1) * self.width])
    }

    /// Whether all drifts are known to be zero.
    pub fn is_still(&self) -> bool {
        self.is_still
    }

    /// The iterate of lane `l`, to be changed, and its drift, both with their padding.
    pub fn theta_and_drift(&mut self, l: usize) -> (&mut [f64], &[f64]) {
        let range = l * self.width..(l + 1) * self.width;
        (flat_mut(&mut self.theta[range.clone()]), flat(&self.drift[range]))
    }

    /// The drift of lane `l`, with its padding, to be changed.
    pub fn drift_mut(&mut self, l: usize) -> &mut [f64] {
        self.is_still = false;
        flat_mut(&mut self.drift[l * self.width..(l + 1) * self.width])
    }
}

/// The dot product of two vectors of the same length, in the kernels' order of operations.
#[inline(always)]
pub fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut acc = [0.0f64; 8];
    for (x, y) in x.chunks(8).zip(y.chunks(8)) {
        for ((acc, x), y) in acc.iter_mut().zip(x).zip(y) {
            *acc = x.mul_add(*y, *acc);
        }
    }
    tree(acc)
}

/// The sum of eight partial sums, in the kernels' order of operations.
#[inline(always)]
pub fn tree(a: [f64; 8]) -> f64 {
    ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]))
}
