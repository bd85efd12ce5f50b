//! Where sums over the rows of all agents come from: rows of this process, or answers of machines.

use fedsa::error::Result;
use fedsa_problems::rows::glm::family::ModelFamily;
use fedsa_problems::rows::preparation::quality::LabelledRows;

use super::agent_sums::{ModelSums, Want};
use super::data_sums::DataSums;
use super::layout::Layout;

/// Sums over the rows of all agents.
pub(super) trait Source {
    /// The sums that do not depend on theta.
    ///
    /// # Errors
    /// When agents do not answer.
    fn data(&mut self) -> Result<DataSums>;

    /// The sums at theta.
    ///
    /// # Errors
    /// When agents do not answer.
    fn at(&mut self, theta: &[f64], want: Want) -> Result<ModelSums>;
}

/// The rows of agents in this process.
pub(super) struct OfRows<'a> {
    pub family: ModelFamily,
    pub part: &'a LabelledRows,
}

impl Source for OfRows<'_> {
    fn data(&mut self) -> Result<DataSums> {
        Ok(DataSums::of(self.family, self.part))
    }

    fn at(&mut self, theta: &[f64], want: Want) -> Result<ModelSums> {
        Ok(ModelSums::of(self.family, self.part, theta, want))
    }
}

/// Asks all agents for their vectors at theta ([`super::layout`]), and returns the sum.
pub(super) type Ask<'a> = &'a mut dyn FnMut(&[f64]) -> Result<Vec<f64>>;

/// Agents elsewhere. One question asks for everything at a theta.
pub(super) struct OfAgents<'a> {
    pub layout: Layout,
    pub ask: Ask<'a>,
    /// The theta of the first question, which tells the sums that do not depend on theta.
    pub start: &'a [f64],
    /// The questions so far.
    pub asked: usize,
    last: Option<(Vec<f64>, DataSums, ModelSums)>,
}

impl<'a> OfAgents<'a> {
    pub fn new(layout: Layout, start: &'a [f64], ask: Ask<'a>) -> Self {
        Self { layout, ask, start, asked: 0, last: None }
    }

    fn answers(&mut self, theta: &[f64]) -> Result<&(Vec<f64>, DataSums, ModelSums)> {
        if self.last.as_ref().is_none_or(|(at, ..)| at != theta) {
            let (data, sums) = self.layout.read(&(self.ask)(theta)?)?;
            self.asked += 1;
            self.last = Some((theta.to_vec(), data, sums));
        }
        Ok(self.last.as_ref().expect("there is an answer"))
    }
}

impl Source for OfAgents<'_> {
    fn data(&mut self) -> Result<DataSums> {
        let start = self.start;
        self.answers(start).map(|(_, data, _)| data.clone())
    }

    fn at(&mut self, theta: &[f64], _: Want) -> Result<ModelSums> {
        self.answers(theta).map(|(.., sums)| sums.clone())
    }
}
