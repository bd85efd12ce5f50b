//! Greedy actions.

/// Values that differ by less than this share are equal: sums in another order must not choose another action.
const TIE: f64 = 1e-9;

/// The greedy action of these action values q: the lowest one whose value is within `1e-9 (1 + |max q|)` of the largest.
pub fn greedy(q: &[f64]) -> usize {
    let most = q.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = most - TIE * (1.0 + most.abs());
    q.iter().position(|q| *q >= least).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_the_lowest_action() {
        assert_eq!(greedy(&[1.0, 3.0, 2.0]), 1);
        assert_eq!(greedy(&[5.0, 5.0]), 0);
        // 6e-9 apart at 5, and 3 apart at 1e10.
        assert_eq!(greedy(&[5.0 - 5.9e-9, 5.0]), 0);
        assert_eq!(greedy(&[5.0 - 6.1e-9, 5.0]), 1);
        assert_eq!(greedy(&[-1e10 - 3.0, -1e10]), 0);
    }
}
