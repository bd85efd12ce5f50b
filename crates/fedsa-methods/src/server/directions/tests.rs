use faer::Mat;
use faer::linalg::solvers::DenseSolveCore;
use fedsa::linalg::{self, column};
use fedsa::random::{Purpose, stream};

use super::*;

/// Points along the Newton-like iterates of a random convex quadratic with gradients, d = 6.
fn pairs(count: usize) -> Vec<(Vec<f64>, Vec<f64>)> {
    let (d, mut draw) = (6, stream(3, Purpose::System, 0, 0));
    let g = Mat::from_fn(d, d, |_, _| draw.normal());
    let a = &g * g.transpose() + Mat::<f64>::identity(d, d);
    (0..count)
        .map(|_| {
            let s: Vec<f64> = (0..d).map(|_| draw.normal()).collect();
            let y = linalg::mat_vec(&a, &s);
            (s, y)
        })
        .collect()
}

/// BFGS updates the Hessian B itself by `B - B s s^T B / s^T B s + y y^T / s^T y` (Nocedal and Wright, eq. 6.19), a different formula from
/// its inverse's: both stay inverses of each other.
fn by_hessian(start: f64, pairs: &[(Vec<f64>, Vec<f64>)]) -> Mat<f64> {
    let d = pairs[0].0.len();
    let mut b = Mat::<f64>::identity(d, d) * faer::Scale(1.0 / start);
    for (s, y) in pairs {
        let bs = linalg::mat_vec(&b, s);
        let (sbs, sy) = (dot(s, &bs), dot(s, y));
        b = &b - column(&bs) * column(&bs).transpose() * faer::Scale(1.0 / sbs) + column(y) * column(y).transpose() * faer::Scale(1.0 / sy);
    }
    b.partial_piv_lu().inverse()
}

fn apart(a: &[f64], b: &[f64]) -> f64 {
    linalg::distance_sq(a, b).sqrt() / linalg::norm_sq(b).sqrt()
}

#[test]
fn the_update_of_the_inverse_is_the_inverse_of_the_update() {
    let pairs = pairs(9);
    let mut w: Vec<f64> = (0..36).map(|at| if at % 7 == 0 { 0.3 } else { 0.0 }).collect();
    pairs.iter().for_each(|(s, y)| update_inverse(&mut w, s, y));
    let expected = by_hessian(0.3, &pairs);
    assert!((linalg::from_rows(6, 6, &w) - &expected).norm_l2() < 1e-10 * expected.norm_l2());
    // The secant equation, and exact symmetry.
    let (s, y) = pairs.last().unwrap();
    assert!(apart(&times(&w, y), s) < 1e-12);
    assert!((0..6).all(|i| (0..6).all(|j| w[6 * i + j] == w[6 * j + i])));
}

/// Both rules visit the same points; L-BFGS uses the last m pairs and the scale of the latest one.
#[test]
fn directions_are_those_of_dense_updates() {
    let pairs = pairs(9);
    let (mut bfgs, mut lbfgs) = (BfgsDirection::default(), LbfgsDirection::new(4));
    let (mut x, mut g) = (vec![0.0; 6], vec![1.0, -1.0, 2.0, 0.5, 0.3, -2.0]);
    let minus = |m: &Mat<f64>, g: &[f64]| linalg::mat_vec(m, g).iter().map(|x| -x).collect::<Vec<f64>>();
    assert_eq!(bfgs.direction(&x, &g, true), g.iter().map(|g| -g).collect::<Vec<_>>());
    lbfgs.direction(&x, &g, true);
    for (k, (s, y)) in pairs.iter().enumerate() {
        x.iter_mut().zip(s).for_each(|(x, s)| *x += s);
        g.iter_mut().zip(y).for_each(|(g, y)| *g += y);
        let scale = |(s, y): &(Vec<f64>, Vec<f64>)| dot(s, y) / dot(y, y);
        let dense = minus(&by_hessian(scale(&pairs[0]), &pairs[..=k]), &g);
        assert!(apart(&bfgs.direction(&x, &g, true), &dense) < 1e-9, "pair {k}");
        let dense = minus(&by_hessian(scale(&pairs[k]), &pairs[(k + 1).saturating_sub(4)..=k]), &g);
        assert!(apart(&lbfgs.direction(&x, &g, true), &dense) < 1e-9, "pair {k}");
    }
}

/// The gradient of `x^T A x / 2 - b^T x`, on which argmin 0.11.0 computed the iterates below, with whole steps from 0.
fn gradient(x: &[f64]) -> Vec<f64> {
    let a = [[0.9, 0.2, -0.1], [0.2, 0.5, 0.1], [-0.1, 0.1, 0.7]];
    a.iter().zip([1.0, -1.0, 0.5]).map(|(row, b)| dot(row, x) - b).collect()
}

fn moved(x: &[f64], p: &[f64]) -> Vec<f64> {
    x.iter().zip(p).map(|(x, p)| x + p).collect()
}

/// The iterates of L-BFGS with 3 pairs.
const LBFGS_OF_ARGMIN: [[f64; 3]; 6] = [
    [1.0, -1.0, 0.5],
    [1.7336112163698374, -3.5070102311481626, 1.642667677150436],
    [2.162893808924218, -3.0730899794093327, 1.3985542267448507],
    [1.9526689740911454, -3.0701102551430903, 1.4289141811795867],
    [1.9515893533203088, -3.0672633008440617, 1.4305434441817988],
    [1.9516699385273644, -3.066862376281531, 1.4311790960242523],
];

/// The iterates of BFGS from `W = 0.8 I`, each with the inverse Hessian W by its lower triangle.
const BFGS_OF_ARGMIN: [([f64; 3], [f64; 6]); 4] = [
    (
        [0.8, -0.8, 0.4],
        [1.1860618014464173, -0.7142669296515454, 1.8424720578566736, 0.3366206443129522, -0.5007232084155164, 1.040105193951348],
    ),
    (
        [2.0686390532544383, -2.807100591715977, 1.3573964497041424],
        [1.0838182342500184, -0.7042539868563611, 2.066705713805869, 0.3191814482504453, -0.5876497593742185, 1.0720132750668456],
    ),
    (
        [2.0049248922602674, -3.0147133932979515, 1.4306919471849902],
        [1.200676185316402, -0.49515776687160695, 2.1886077056560254, 0.2630360556901567, -0.5730957968496013, 1.0465435550948485],
    ),
    (
        [1.953077910813688, -3.066377173865083, 1.4368581925988786],
        [1.2243875932344066, -0.48866493311921444, 2.1780033525708666, 0.3006092872859084, -0.5336174616382208, 1.0372708731489462],
    ),
];

#[test]
fn updates_are_those_of_argmin() {
    let (mut rule, mut x) = (LbfgsDirection::new(3), vec![0.0; 3]);
    for expected in LBFGS_OF_ARGMIN {
        let p = rule.direction(&x, &gradient(&x), true);
        x = moved(&x, &p);
        assert!(apart(&x, &expected) < 1e-13, "{x:?} {expected:?}");
    }
    let (mut w, mut x) = (vec![0.8, 0.0, 0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.8], vec![0.0; 3]);
    for (iterate, triangle) in BFGS_OF_ARGMIN {
        let expected = [&iterate[..], &triangle].concat();
        let g = gradient(&x);
        let s: Vec<f64> = times(&w, &g).iter().map(|p| -p).collect();
        let next = moved(&x, &s);
        let y: Vec<f64> = gradient(&next).iter().zip(&g).map(|(new, old)| new - old).collect();
        update_inverse(&mut w, &s, &y);
        x = next;
        let got: Vec<f64> = x.iter().copied().chain((0..3).flat_map(|i| (0..=i).map(move |j| 3 * i + j)).map(|at| w[at])).collect();
        assert!(apart(&got, &expected) < 1e-12, "{got:?} {expected:?}");
    }
}

/// A pair is used only if both gradients are whole and the curvature is positive.
#[test]
fn pairs_without_curvature_or_of_other_agents_are_left_out() {
    let (zero, one) = (vec![0.0, 0.0], vec![1.0, 0.0]);
    let mut rule = LbfgsDirection::new(3);
    rule.direction(&zero, &[1.0, 1.0], true);
    rule.direction(&one, &[0.5, 1.0], true);
    assert!(rule.history.pairs.is_empty(), "negative curvature");
    rule.direction(&zero, &[0.0, 1.0], false);
    rule.direction(&one, &[1.0, 1.0], true);
    assert!(rule.history.pairs.is_empty(), "a gradient that is not whole");
    rule.direction(&zero, &[0.0, 1.0], true);
    assert_eq!(rule.history.pairs.len(), 1);
    let mut other = LbfgsDirection::new(3);
    other.restore(&rule.state()).unwrap();
    assert_eq!(other, rule);
    rule.failed(&zero, 0.25, true);
    assert_eq!(rule, LbfgsDirection::new(3));
}

/// Without a step at a point that stays, the next search begins where this one ended; later ones become longer again.
#[test]
fn searches_that_fail_begin_with_shorter_steps() {
    let (x, g) = ([0.0, 0.0], [1.0, -2.0]);
    let mut rules: [Box<dyn Direction>; 4] = [
        Box::new(Steepest::new(1.0)),
        Box::new(BfgsDirection::default()),
        Box::new(LbfgsDirection::new(2)),
        Box::new(AcceleratedDirection::new(Momentum::Restarted, 1.0)),
    ];
    for rule in &mut rules {
        assert_eq!(rule.direction(&x, &g, true), [-1.0, 2.0]);
        rule.failed(&x, 0.25, false);
        assert_eq!(rule.direction(&x, &g, true), [-1.0, 2.0]);
        rule.failed(&x, 0.25, true);
        assert_eq!(rule.direction(&x, &g, true), [-0.125, 0.25]);
        let state = rule.state();
        rule.restore(&state).unwrap();
        assert_eq!(rule.direction(&x, &g, true), [-0.125, 0.25]);
    }
    let mut steepest = Steepest::new(1.0);
    steepest.failed(&x, 0.25, true);
    assert_eq!((steepest.scale.0, steepest.unit()), (0.125, Some(0.125)));
    steepest.moved(&x, &x, 1.0, true);
    let mut other = Steepest::new(1.0);
    other.restore(&steepest.state()).unwrap();
    assert_eq!(other, steepest);
    steepest.moved(&x, &x, 0.5, true);
    assert_eq!((steepest.scale.0, steepest.unit()), (0.25, Some(0.25)));
}

/// The losses of some agents along a gradient of others allow short steps only, which is no reason for shorter steps when all agents
/// answer.
#[test]
fn searches_without_the_losses_of_all_agents_shorten_no_later_step() {
    let (x, g) = ([0.0, 0.0], [1.0, -2.0]);
    let mut accelerated = AcceleratedDirection::new(Momentum::Restarted, 1.0);
    accelerated.moved(&x, &x, 0.25, false);
    assert_eq!(accelerated.direction(&x, &g, true), [-1.0, 2.0]);
    accelerated.moved(&x, &x, 0.25, true);
    assert_eq!(accelerated.direction(&x, &g, true), [-0.25, 0.5]);
}
