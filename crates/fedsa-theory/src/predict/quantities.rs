//! The quantities that theory predicts, by name.

use std::sync::OnceLock;

use super::outlook::{MeanSquareRadius, Outlook};
use super::{Forecast, PredictedFloor};
use crate::Accuracy;
use crate::exact_mse::MeanSquare;
use fedsa::error::{Error, ErrorCode, ErrorKind, Result, quoted};

/// A quantity that theory predicts for a method.
pub struct Quantity {
    /// The name of the quantity.
    pub name: &'static str,
    /// A short description.
    pub about: &'static str,
    known: fn(&Forecast) -> Result<()>,
    value: Value,
}

/// The origin of a quantity's value.
enum Value {
    /// Its own computation.
    Alone(fn(&Forecast) -> Result<f64>),
    /// The floor.
    Floor(fn(&MeanSquare) -> f64),
    /// The floor to leading order.
    LeadingOrder(fn(&MeanSquare) -> f64),
    /// The radius of the map of second moments.
    MeanSquareRadius,
}

/// The floors and radii from which quantities are read, with the accuracy of the floors. Each is computed once, on request. A cancelled
/// computation is repeated on the next request.
#[derive(Default)]
pub struct FloorCache {
    floor: OnceLock<Result<PredictedFloor>>,
    leading: OnceLock<Result<MeanSquare>>,
    accuracy: OnceLock<Result<Accuracy>>,
    radius: OnceLock<Result<f64>>,
    outlook: OnceLock<Outlook>,
}

/// The value in `cell`, or else a new one, which is kept unless the computation was cancelled.
fn kept<T>(cell: &OnceLock<Result<T>>, compute: impl FnOnce() -> Result<T>) -> Result<&T> {
    if cell.get().is_none() {
        match compute() {
            Err(e) if e.kind() == ErrorKind::Cancelled => return Err(e),
            computed => drop(cell.set(computed)),
        }
    }
    cell.get().expect("it was just set").as_ref().map_err(Clone::clone)
}

impl FloorCache {
    /// The floor, as [`Forecast::predicted_floor`].
    ///
    /// # Errors
    /// As [`Forecast::predicted_floor`].
    pub fn floor(&self, of: &Forecast) -> Result<&PredictedFloor> {
        kept(&self.floor, || of.predicted_floor())
    }

    /// The floor to leading order, as [`Forecast::leading_order_floor`].
    ///
    /// # Errors
    /// As [`Forecast::leading_order_floor`].
    pub fn leading_order(&self, of: &Forecast) -> Result<&MeanSquare> {
        kept(&self.leading, || of.leading_order_floor())
    }

    /// The accuracy of the floor, as [`Forecast::floor_accuracy`].
    ///
    /// # Errors
    /// As [`Forecast::floor_accuracy`].
    pub fn floor_accuracy(&self, of: &Forecast) -> Result<Accuracy> {
        kept(&self.accuracy, || of.floor_accuracy()).copied()
    }

    /// The radius of the map of second moments, as [`MeanSquareRadius::at`].
    ///
    /// # Errors
    /// As [`MeanSquareRadius::at`] and [`MeanSquareRadius::new`].
    pub fn mean_square_radius(&self, of: &Forecast) -> Result<f64> {
        kept(&self.radius, || MeanSquareRadius::new(of).and_then(|map| map.at(of))).copied()
    }

    /// The radii that decide whether the method is stable, as [`Forecast::outlook`].
    pub fn outlook(&self, of: &Forecast) -> Outlook {
        if let Some(known) = self.outlook.get() {
            return known.clone();
        }
        let outlook = of.outlook_with(|| self.mean_square_radius(of));
        if !outlook.is_cancelled() {
            let _ = self.outlook.set(outlook.clone());
        }
        outlook
    }
}

/// All quantities.
pub const QUANTITIES: &[Quantity] = &[
    Quantity {
        name: "bias2",
        about: "squared distance of the noiseless limit from theta*",
        known: |of| of.knows_limit(),
        value: Value::Alone(|of| of.bias_sq()),
    },
    Quantity {
        name: "noise",
        about: "mean-square error of the floor around its mean",
        known: |of| of.knows_floor(),
        value: Value::Floor(|floor| floor.noise),
    },
    Quantity {
        name: "floor",
        about: "mean-square error in the end: floor_bias2 and noise",
        known: |of| of.knows_floor(),
        value: Value::Floor(MeanSquare::mse),
    },
    Quantity {
        name: "floor_bias2",
        about: "squared distance of the mean iterate in the end from theta*: bias2, and what Markov samples add",
        known: |of| of.knows_floor(),
        value: Value::Floor(MeanSquare::bias_sq),
    },
    Quantity {
        name: "floor_leading_order",
        about: "the floor to leading order in the step size, under Markov samples or of nonlinear operators",
        known: |of| of.knows_leading_order(),
        value: Value::LeadingOrder(MeanSquare::mse),
    },
    Quantity {
        name: "noise_leading_order",
        about: "the noise of the floor to leading order",
        known: |of| of.knows_leading_order(),
        value: Value::LeadingOrder(|floor| floor.noise),
    },
    Quantity {
        name: "bias2_leading_order",
        about: "the squared bias of the floor to leading order",
        known: |of| of.knows_leading_order(),
        value: Value::LeadingOrder(MeanSquare::bias_sq),
    },
    Quantity {
        name: "limit_distance",
        about: "distance of the noiseless limit from theta*",
        known: |of| of.knows_limit(),
        value: Value::Alone(|of| Ok(of.bias_sq()?.sqrt())),
    },
    Quantity {
        name: "radius",
        about: "spectral radius of a noiseless round",
        known: |of| of.knows_radius(),
        value: Value::Alone(|of| of.radius()),
    },
    Quantity {
        name: "mean_square_radius",
        about: "spectral radius of the map of second moments",
        known: |of| MeanSquareRadius::new(of).map(|_| ()),
        value: Value::MeanSquareRadius,
    },
];

/// The quantity of this name.
///
/// # Errors
/// When there is none.
pub fn quantity(name: &str) -> Result<&'static Quantity> {
    QUANTITIES.iter().find(|quantity| quantity.name == name).ok_or_else(|| {
        let names: Vec<&str> = QUANTITIES.iter().map(|quantity| quantity.name).collect();
        Error::new("", format!("there is no predicted quantity `{}`", quoted(name)), names.join(", ")).coded(ErrorCode::UnknownName)
    })
}

impl Quantity {
    /// Checks that the quantity has a closed form. Its value may still not exist.
    ///
    /// # Errors
    /// When it has no closed form; gives the reason.
    pub fn known(&self, of: &Forecast) -> Result<()> {
        (self.known)(of)
    }

    /// The value of the quantity, read from floors that are computed once; `cache` must belong to `of`.
    ///
    /// # Errors
    /// When the value is not known or does not exist; gives the reason.
    pub fn value_with(&self, of: &Forecast, cache: &FloorCache) -> Result<f64> {
        match self.value {
            Value::Alone(value) => value(of),
            Value::Floor(read) => cache.floor(of).map(|floor| read(&floor.value)),
            Value::LeadingOrder(read) => cache.leading_order(of).map(read),
            Value::MeanSquareRadius => cache.mean_square_radius(of),
        }
    }

    /// The accuracy that the value would have, without computing the value; `None` if it is not a mean square.
    ///
    /// # Errors
    /// As [`Forecast::floor_accuracy`], for quantities that are read from the floor.
    pub fn expected_accuracy(&self, of: &Forecast, cache: &FloorCache) -> Result<Option<Accuracy>> {
        match self.value {
            Value::Alone(_) | Value::MeanSquareRadius => Ok(None),
            Value::Floor(_) => cache.floor_accuracy(of).map(Some),
            Value::LeadingOrder(_) => Ok(Some(Accuracy::LeadingOrder)),
        }
    }

    /// The accuracy of the value; `None` if it is not a mean square or does not exist. `cache` must belong to `of`.
    pub fn accuracy(&self, of: &Forecast, cache: &FloorCache) -> Option<Accuracy> {
        match self.value {
            Value::Alone(_) => None,
            Value::Floor(_) => cache.floor(of).ok().map(|floor| floor.accuracy),
            Value::LeadingOrder(_) => cache.leading_order(of).ok().map(|_| Accuracy::LeadingOrder),
            Value::MeanSquareRadius => cache.mean_square_radius(of).ok().map(|_| Accuracy::Exact),
        }
    }

    /// Whether measurements may be compared with the value within their standard errors; not for values to leading order only.
    pub fn is_level(&self) -> bool {
        !matches!(self.value, Value::LeadingOrder(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact_mse::InitialControls;
    use fedsa::cancel::Cancel;
    use fedsa::kernel::Isa;
    use fedsa::sampling::Sampling;
    use fedsa::uplink::Uplink;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_problems::td::garnet::Garnet;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    #[test]
    fn what_is_cancelled_is_an_error_that_nothing_remembers() {
        let garnet = Garnet::default().with_agents(3).with_states(6).with_features(2).with_seed(2);
        let field = garnet.field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        let of = Forecast::over(&field, &FedLsa::new(0.1, 4), &Uplink::default());
        let cancel = Cancel::new();
        cancel.cancel();
        let (cancelled, cache, start) = (of.clone().with_cancel(&cancel), FloorCache::default(), [1.0; 2]);
        let zero = InitialControls::Zero;
        let kinds = [
            cancelled.floor().unwrap_err(),
            cancelled.curve(&start, &zero, &[5]).unwrap_err(),
            cancelled.mean(&start, &[5]).unwrap_err(),
            cancelled.radius().unwrap_err(),
            cancelled.largest_stable_step().unwrap_err(),
            cancelled.stable_sets(&[1, 4], None).unwrap_err(),
            cancelled.region().map(|_| ()).unwrap_err(),
            cancelled.reach(0.1, Some(&start), &zero, &cache).unwrap_err(),
            cancelled.statements(&start, 9, 1.0).map(|_| ()).unwrap_err(),
            cancelled.outlook().radius.unwrap_err(),
        ];
        assert!(kinds.iter().all(|e| e.kind() == ErrorKind::Cancelled), "{kinds:?}");
        for quantity in QUANTITIES {
            let cache = FloorCache::default();
            let before = quantity.value_with(&cancelled, &cache);
            // Without Markov samples there is no leading order.
            let known = quantity.value_with(&of, &FloorCache::default());
            assert!(before.is_err_and(|e| e.kind() == ErrorKind::Cancelled), "{}", quantity.name);
            assert_eq!(quantity.value_with(&of, &cache).ok(), known.ok(), "{}", quantity.name);
        }
        assert!(cache.outlook(&cancelled).radius.is_err() && cache.outlook(&of).radius.is_ok());
    }
}
