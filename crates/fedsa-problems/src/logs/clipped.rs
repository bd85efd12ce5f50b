//! Logs with clipped importance ratios: `min(rho, level)`.
//!
//! Large ratios increase the variance of estimates. Clipping gives the evaluated policy's rare actions too little weight, which is a bias
//! (Ionides 2008, "Truncated importance sampling").

use crate::logs::left_out::LeftOutRows;
use crate::logs::log::Log;
use crate::logs::source::LogSource;
use fedsa::error::{Error, Result};

/// Replaces ratios above `level` by `level`.
pub fn clip(log: &mut Log, level: f64) {
    log.ratio.iter_mut().flatten().for_each(|rho| *rho = rho.min(level));
}

/// A log whose ratios are clipped on reading.
pub struct Clipped {
    source: Box<dyn LogSource>,
    level: f64,
}

impl Clipped {
    /// The log with ratios of at most `level`.
    pub fn new(source: Box<dyn LogSource>, level: f64) -> Self {
        Self { source, level }
    }
}

impl LogSource for Clipped {
    fn name(&self) -> &str {
        self.source.name()
    }
    fn columns(&self) -> &[String] {
        self.source.columns()
    }
    fn left_out(&self) -> Vec<LeftOutRows> {
        self.source.left_out()
    }
    fn next_follows(&self) -> bool {
        self.source.next_follows()
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        self.source.read(&mut |log| {
            // Invalid ratios stay as they are; later checks refuse them.
            let ratios = || log.ratio.iter().flatten();
            if ratios().all(|rho| *rho <= self.level) || ratios().any(|rho| !rho.is_finite()) {
                return see(log);
            }
            let mut log = log.clone();
            clip(&mut log, self.level);
            see(&log)
        })
    }
    fn located(&self, e: Error) -> Error {
        self.source.located(e)
    }
}
