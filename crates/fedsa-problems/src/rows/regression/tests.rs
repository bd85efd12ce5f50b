use super::loss::{LogLoss, Loss, SquaredLoss};
use super::seen::SeenPoints;
use super::*;
use fedsa::cancel::Cancel;
use fedsa::linalg;
use fedsa::problem::equal_weights;
use fedsa::problem::linear_operators::LinearOperators;
use fedsa::random::{Purpose, stream};
use fedsa::triangle::{Support, entries};

const SIZES: [usize; 3] = [7, 12, 30];

/// Three agents' rows, dense or sparse, with a last column of ones; with offsets if the loss uses them.
fn parts<L: Loss>(d: usize, sparse: bool, ridge: f64, penalised: usize) -> Parts {
    let mut s = stream(5, Purpose::Fresh, 0, 0);
    let n: usize = SIZES.iter().sum();
    let mut values: Vec<f64> = (0..n * d)
        .map(|k| {
            if k % d == d - 1 {
                1.0
            } else if s.uniform() < 0.4 {
                s.normal()
            } else {
                0.0
            }
        })
        .collect();
    if !<L as Loss>::IS_LINEAR {
        // Rows times their labels.
        values.chunks_mut(d).filter(|_| s.uniform() < 0.5).for_each(|row| row.iter_mut().for_each(|x| *x = -*x));
    }
    let rows = Rows::Dense { d, values };
    let offsets = (0..if <L as Loss>::IS_LINEAR { n } else { 0 }).map(|_| s.normal()).collect();
    let rows = if sparse { rows.to_sparse() } else { rows };
    Parts { rows, first: vec![0, 7, 19, 49], offsets, ridge, penalised, weights: vec![0.5, 0.2, 0.3], mixing_time: 1.0, clip: None }
}

fn problem<L: Loss>(d: usize, sparse: bool, ridge: f64, penalised: usize) -> Regression<L> {
    Regression::new(parts::<L>(d, sparse, ridge, penalised), L::default(), Sampling::default(), Isa::best()).unwrap()
}

fn point(d: usize, number: u64) -> Vec<f64> {
    let mut s = stream(6, Purpose::Fresh, number, 0);
    (0..d).map(|_| s.normal()).collect()
}

/// The loss by its definition, on dense rows.
fn direct_loss<L: Loss>(p: &Regression<L>, c: usize, theta: &[f64]) -> f64 {
    let mean = p.range(c).map(|j| {
        let t: f64 = p.parts.rows.row(j).map(|(i, x)| x * theta[i]).sum();
        if <L as Loss>::IS_LINEAR { (t + p.parts.offsets[j]).powi(2) / 2.0 } else { (1.0 + (-t).exp()).ln() }
    });
    let n = mean.len() as f64;
    mean.sum::<f64>() / n + p.parts.ridge / 2.0 * theta[..p.parts.penalised].iter().map(|x| x * x).sum::<f64>()
}

fn check_derivatives<L: Loss>() {
    for (d, sparse, penalised) in [(5, false, 5), (5, true, 4), (9, true, 9), (12, false, 11)] {
        let p = problem::<L>(d, sparse, 0.3, penalised);
        for (c, number) in [(0, 1), (1, 2), (2, 3)] {
            let (theta, v) = (point(d, number), point(d, 100 + number));
            let along = |t: f64| theta.iter().zip(&v).map(|(x, v)| x + t * v).collect::<Vec<_>>();
            let loss = p.loss(c, &theta);
            assert!((loss - direct_loss(&p, c, &theta)).abs() < 1e-14 * (1.0 + loss), "{loss}");
            let (mut g, mut hv, mut h) = (vec![0.0; d], vec![0.0; d], Mat::zeros(d, d));
            p.gradient(c, &theta, &mut g);
            p.hessian_vector(c, &theta, &v, &mut hv);
            p.hessian(c, &theta, &mut h);
            // Central differences: errors of h^2 f''' / 6 and of rounding / h.
            let eps = 1e-5;
            let slope = (direct_loss(&p, c, &along(eps)) - direct_loss(&p, c, &along(-eps))) / (2.0 * eps);
            let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
            assert!((slope - dot(&g, &v)).abs() < 1e-8 * (1.0 + slope.abs()), "{slope} {}", dot(&g, &v));
            let (mut high, mut low) = (vec![0.0; d], vec![0.0; d]);
            p.gradient(c, &along(eps), &mut high);
            p.gradient(c, &along(-eps), &mut low);
            for i in 0..d {
                assert!(((high[i] - low[i]) / (2.0 * eps) - hv[i]).abs() < 1e-8 * (1.0 + hv[i].abs()));
            }
            assert!(linalg::distance_sq(&linalg::mat_vec(&h, &v), &hv).sqrt() < 1e-13 * (1.0 + linalg::norm_sq(&hv).sqrt()));
            // Five vectors at a time: four side by side, and one.
            let (five, mut images) = ([&v, &theta, &v, &g, &v].map(|v| &v[..]).concat(), vec![0.0; 5 * d]);
            p.hessian_products(c, &theta)(&five, &mut images);
            for (v, image) in five.chunks(d).zip(images.chunks(d)) {
                p.hessian_vector(c, &theta, v, &mut hv);
                assert_eq!(image, hv);
            }
            let steps = [0.0, 1.0, 0.5, -0.25];
            let mut losses = [0.0; 4];
            p.losses_along(c, &theta, &v, &steps, &mut losses);
            for (s, loss) in steps.iter().zip(losses) {
                let there = p.loss(c, &along(*s));
                assert!((loss - there).abs() < 1e-13 * (1.0 + there), "{s}: {loss} {there}");
            }
            let mut mean = vec![0.0; d];
            assert!(p.mean(c, &theta, &mut mean));
            assert!(mean.iter().zip(&g).all(|(m, g)| *m == -g));
        }
    }
}

#[test]
fn derivatives_are_those_of_the_loss_written_out() {
    check_derivatives::<LogLoss>();
    check_derivatives::<SquaredLoss>();
}

fn check_sparse<L: Loss>() {
    for (d, penalised) in [(5, 5), (9, 8), (17, 17)] {
        let (dense, sparse) = (problem::<L>(d, false, 0.2, penalised), problem::<L>(d, true, 0.2, penalised));
        let theta = point(d, 7);
        let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for c in 0..3 {
            assert_eq!(dense.loss(c, &theta).to_bits(), sparse.loss(c, &theta).to_bits());
            let (mut x, mut y) = (vec![0.0; d], vec![0.0; d]);
            dense.gradient(c, &theta, &mut x);
            sparse.gradient(c, &theta, &mut y);
            assert_eq!(bits(&x), bits(&y));
            for z in dense.range(c) {
                dense.apply(c, &theta, &z, &mut x);
                sparse.apply(c, &theta, &z, &mut y);
                assert_eq!(bits(&x), bits(&y));
            }
            let (mut x, mut y) = (Mat::zeros(d, d), Mat::zeros(d, d));
            dense.hessian(c, &theta, &mut x);
            sparse.hessian(c, &theta, &mut y);
            assert!((&x - &y).norm_max() < 1e-15 * 10.0);
        }
        let (x, y) = (root(&dense), root(&sparse));
        assert!(linalg::distance_sq(&x, &y).sqrt() < 1e-13);
    }
}

#[test]
fn sparse_rows_give_the_bits_of_dense_ones() {
    check_sparse::<LogLoss>();
    check_sparse::<SquaredLoss>();
}

fn check_samples<L: Loss>() {
    let (d, p) = (6, problem::<L>(6, true, 0.4, 5));
    let theta = point(d, 3);
    for (c, n) in SIZES.iter().enumerate() {
        let (mut g, mut mean, mut sum) = (vec![0.0; d], vec![0.0; d], vec![0.0; d]);
        p.mean(c, &theta, &mut mean);
        for z in p.range(c) {
            p.apply(c, &theta, &z, &mut g);
            sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / *n as f64);
        }
        assert!(linalg::distance_sq(&sum, &mean).sqrt() < 1e-14);
        let law = p.law(c).unwrap();
        assert!(linalg::distance_sq(&law.mean(&theta), &mean).sqrt() < 1e-14);
        assert_eq!(law.moments().is_some(), <L as Loss>::IS_LINEAR);
    }
}

#[test]
fn samples_have_the_mean_operator_as_their_mean() {
    check_samples::<LogLoss>();
    check_samples::<SquaredLoss>();
}

#[test]
fn systems_and_operators_of_least_squares_are_its_derivatives() {
    let p = problem::<SquaredLoss>(6, true, 0.4, 5);
    let systems = p.systems.as_ref().unwrap();
    let (theta, mut mean, mut product, mut offset) = (point(6, 1), vec![0.0; 6], vec![0.0; 6], vec![0.0; 6]);
    for c in 0..3 {
        p.mean(c, &theta, &mut mean);
        assert!(linalg::distance_sq(&systems.of(c).mean(&theta), &mean).sqrt() < 1e-14);
        p.product(c, &theta, &mut product);
        p.offset(c, &mut offset);
        let by_products: Vec<f64> = offset.iter().zip(&product).map(|(b, ax)| b - ax).collect();
        assert!(linalg::distance_sq(&by_products, &mean).sqrt() < 1e-14);
        let mut entries = Mat::<f64>::zeros(6, 6);
        p.entries(c, &mut |i, j, a| entries[(i, j)] = a);
        assert!((&entries - &systems.of(c).a).norm_max() < 1e-15);
    }
}

/// Gradients and Hessians computed together have the bits of separate ones, on a support that misses no entry.
fn check_supports<L: Loss>() {
    for (d, sparse, penalised) in [(70, true, 69), (9, true, 9), (9, false, 8)] {
        let p = problem::<L>(d, sparse, 0.3, penalised);
        // One buffer for agents of different supports.
        for (c, number) in [(0, 1), (2, 2), (1, 3), (0, 4)] {
            let theta = point(d, number);
            let (mut alone, mut whole) = (vec![0.0; d], Mat::zeros(d, d));
            p.gradient(c, &theta, &mut alone);
            p.hessian(c, &theta, &mut whole);
            let support = p.hessian_support(c).map_or_else(|| Support::all(d), |support| (*support).clone());
            assert!(support.len() < entries(d) || d == 9);
            let (mut gradient, mut hessian) = (vec![f64::NAN; d], vec![f64::NAN; support.len()]);
            p.gradient_and_hessian(c, &theta, &mut gradient, &mut hessian);
            assert_eq!(gradient, alone);
            let mut together = vec![f64::NAN; d];
            let loss = p.loss_and_gradient(c, &theta, &mut together);
            assert_eq!((loss.to_bits(), together), (p.loss(c, &theta).to_bits(), alone));
            let lower: Vec<f64> = (0..d).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|at| whole[at]).collect();
            assert_eq!(support.widened(&hessian, &Support::all(d)), lower);
            assert_eq!(support.on_diagonal().len(), d);
        }
    }
}

#[test]
fn hessians_on_their_supports_are_those_with_all_entries() {
    check_supports::<LogLoss>();
    check_supports::<SquaredLoss>();
}

/// Binary rows times labels, with a last column of ones.
fn binary(d: usize, sparse: bool) -> Parts {
    let mut parts = parts::<LogLoss>(d, false, 0.3, d - 1);
    if let Rows::Dense { values, .. } = &mut parts.rows {
        for row in values.chunks_mut(d) {
            let label = row[d - 1];
            row.iter_mut().for_each(|x| *x = if *x == 0.0 { 0.0 } else { label });
        }
    }
    if sparse {
        parts.rows = parts.rows.to_sparse();
    }
    parts
}

/// Gradients, losses and products of binary rows have the bits of dense ones. Hessians keep their bits once rows are listed, on the support
/// and as matrices.
#[test]
fn binary_rows_have_the_bits_of_others() {
    for d in [9, 40] {
        let [dense, sparse] =
            [false, true].map(|sparse| Regression::new(binary(d, sparse), LogLoss, Sampling::default(), Isa::best()).unwrap());
        assert!(sparse.units.is_some() && dense.units.is_none());
        for c in 0..3 {
            let (theta, v) = (point(d, c as u64), point(d, 9));
            assert_eq!(dense.loss(c, &theta).to_bits(), sparse.loss(c, &theta).to_bits());
            let of = |p: &Regression<LogLoss>| {
                let (mut gradient, mut product, mut along) = (vec![0.0; d], vec![0.0; 2 * d], [0.0; 3]);
                p.gradient(c, &theta, &mut gradient);
                p.hessian_products(c, &theta)(&[&v[..], &theta[..]].concat(), &mut product);
                p.losses_along(c, &theta, &v, &[0.0, 1.0, 1e-3], &mut along);
                (gradient, product, along)
            };
            assert_eq!(of(&dense), of(&sparse));
            let support = sparse.hessian_support(c).unwrap();
            let hessians = || {
                let (mut gradient, mut on_support, mut whole) = (vec![0.0; d], vec![f64::NAN; support.len()], Mat::full(d, d, f64::NAN));
                sparse.gradient_and_hessian(c, &theta, &mut gradient, &mut on_support);
                sparse.hessian(c, &theta, &mut whole);
                (on_support, whole)
            };
            let first = hessians();
            support.each(|at, _, i, j| assert_eq!((first.0[at], first.0[at]), (first.1[(i, j)], first.1[(j, i)])));
            assert!((0..BEFORE_LISTS).all(|_| hessians() == first));
            assert_eq!(sparse.formed[c].load(std::sync::atomic::Ordering::Relaxed), BEFORE_LISTS + 1);
            let mut whole = Mat::zeros(d, d);
            dense.hessian(c, &theta, &mut whole);
            assert!((&whole - &first.1).norm_max() < 1e-15);
        }
    }
}

/// Short steps that share a series, and longer ones, have the losses of their end points.
#[test]
fn losses_at_short_steps_are_those_of_their_points() {
    let (d, p) = (12, problem::<LogLoss>(12, true, 0.3, 12));
    let (theta, v) = (point(d, 1), point(d, 2));
    let steps: Vec<f64> = std::iter::once(0.0).chain((0..21).map(|k| 0.5f64.powi(k))).collect();
    for c in 0..3 {
        let mut losses = vec![0.0; steps.len()];
        p.losses_along(c, &theta, &v, &steps, &mut losses);
        assert_eq!(losses[0].to_bits(), p.loss(c, &theta).to_bits());
        for (s, loss) in steps.iter().zip(&losses) {
            let there = p.loss(c, &linalg::along(&theta, *s, &v));
            assert!((loss - there).abs() <= 8.0 * f64::EPSILON * there, "{s}: {loss} {there}");
        }
        // A direction that is not finite is outside the radius.
        let mut far = v.clone();
        far[d - 1] = f64::NAN;
        p.losses_along(c, &theta, &far, &[1e-9], &mut losses[..1]);
        assert!(losses[0].is_nan());
    }
}

fn mean_gradient<L: Loss>(p: &Regression<L>, theta: &[f64]) -> Vec<f64> {
    let (mut sum, mut g) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
    for (c, weight) in p.parts.weights.iter().enumerate() {
        p.gradient(c, theta, &mut g);
        sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += weight * g);
    }
    sum
}

/// Accelerated gradient descent on the mean loss with restarts, from 0, until it stalls.
fn by_accelerated_gradients<L: Loss>(p: &Regression<L>, lipschitz: f64) -> Vec<f64> {
    let d = p.d();
    let (mut x, mut y, mut k) = (vec![0.0; d], vec![0.0; d], 0.0);
    let mut last = f64::INFINITY;
    for _ in 0..200_000 {
        let g = mean_gradient(p, &y);
        let norm = linalg::norm_sq(&g).sqrt();
        if norm < 1e-14 {
            break;
        }
        let next: Vec<f64> = y.iter().zip(&g).map(|(y, g)| y - g / lipschitz).collect();
        k = if norm > last { 0.0 } else { k + 1.0 };
        last = norm;
        y = next.iter().zip(&x).map(|(next, x)| next + k / (k + 3.0) * (next - x)).collect();
        x = next;
    }
    x
}

fn root<L: Loss>(problem: &Regression<L>) -> Vec<f64> {
    problem.own_root(&Cancel::never()).unwrap().unwrap().theta
}

fn check_optimum<L: Loss>() {
    for (ridge, penalised) in [(0.1, 6), (1e-2, 5), (1e-3, 6)] {
        let p = problem::<L>(6, false, ridge, penalised);
        let theta = root(&p);
        assert!(linalg::norm_sq(&mean_gradient(&p, &theta)).sqrt() <= 1e-15 * 10.0);
        let certificate = p.monotone();
        assert_eq!(certificate.is_some(), <L as Loss>::IS_LINEAR || penalised == 6);
        let lipschitz = certificate.map_or(20.0, |known| known.lipschitz);
        let other = by_accelerated_gradients(&p, lipschitz);
        assert!(linalg::distance_sq(&theta, &other).sqrt() < 1e-9, "{ridge}: {theta:?} {other:?}");
    }
}

#[test]
fn optima_are_those_of_gradient_descent() {
    check_optimum::<LogLoss>();
    check_optimum::<SquaredLoss>();
}

#[test]
fn optima_do_not_depend_on_the_number_of_threads() {
    let of = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| root(&problem::<LogLoss>(9, true, 1e-2, 9)))
    };
    assert_eq!(of(1), of(4));
}

/// Such problems are legal, and say why no optimum is known.
#[test]
fn losses_without_a_minimum_have_no_root() {
    fn why_of<L: Loss>(parts: Parts) -> String {
        let problem = Regression::new(parts, L::default(), Sampling::default(), Isa::best()).unwrap();
        problem.own_root(&Cancel::never()).unwrap().unwrap_err()
    }
    fn has_root<L: Loss>(parts: Parts) -> bool {
        Regression::new(parts, L::default(), Sampling::default(), Isa::best()).unwrap().own_root(&Cancel::never()).unwrap().is_ok()
    }
    let of = |values: Vec<f64>, d: usize, ridge: f64| Parts {
        first: vec![0, values.len() / d],
        offsets: vec![1.0; values.len() / d],
        rows: Rows::Dense { d, values },
        ridge,
        penalised: d,
        weights: equal_weights(1),
        mixing_time: 1.0,
        clip: None,
    };
    let plain = |parts: Parts| Parts { offsets: Vec::new(), ..parts };
    // The second column is twice the first.
    let dependent = || vec![1.0, 2.0, -3.0, -6.0, 0.5, 1.0];
    assert!(why_of::<SquaredLoss>(of(dependent(), 2, 0.0)).contains("depend on each other"));
    assert!(why_of::<LogLoss>(plain(of(dependent(), 2, 0.0))).contains("singular"));
    // A column in which all signed rows have the same sign separates.
    let separated = vec![1.0, 0.3, 2.0, -0.5, 0.7, 0.2, 1.5, 0.9];
    assert!(why_of::<LogLoss>(plain(of(separated.clone(), 2, 0.0))).contains("separates"));
    assert!(has_root::<LogLoss>(plain(of(separated, 2, 1e-6))));
    assert!(has_root::<SquaredLoss>(of(dependent(), 2, 1e-6)));
    // Squares of the gradient's size overflow.
    let huge = Regression::new(of(vec![1e200, 1.0], 2, 1.0), SquaredLoss, Sampling::default(), Isa::best()).unwrap_err();
    assert_eq!(huge.key, "data", "{huge}");
}

/// The problem's answers for agent c at one point, asked in this order: the bits of losses, gradients, losses along a line, Hessians.
fn asked<L: Loss>(p: &Regression<L>, c: usize, d: usize, number: u64, order: [usize; 5]) -> [Vec<u64>; 5] {
    let (theta, along) = (point(d, number), point(d, 50 + number));
    let mut said: [Vec<u64>; 5] = Default::default();
    for what in order {
        let mut out = vec![0.0; d];
        let numbers = match what {
            0 => vec![p.loss(c, &theta)],
            1 => {
                p.gradient(c, &theta, &mut out);
                out
            }
            2 => {
                let loss = p.loss_and_gradient(c, &theta, &mut out);
                out.into_iter().chain([loss]).collect()
            }
            3 => {
                p.losses_along(c, &theta, &along, &[0.0, 0.5, 1.0], &mut out[..3]);
                out
            }
            _ => {
                let mut hessian = Mat::zeros(d, d);
                p.hessian(c, &theta, &mut hessian);
                (0..d).flat_map(|j| hessian.col_as_slice(j).to_vec()).collect()
            }
        };
        said[what] = numbers.into_iter().map(f64::to_bits).collect();
    }
    said
}

fn check_memory<L: Loss>() {
    let (d, order) = (90, [0, 1, 2, 3, 4]);
    for sparse in [false, true] {
        let mut remembering = problem::<L>(d, sparse, 0.3, d - 1);
        assert!(!remembering.points.keeps(), "few rows");
        remembering.points = SeenPoints::of(SIZES.len(), true);
        // Some points are asked for again: at once, after two others, and after so many that the cache has dropped them.
        for (k, number) in [1, 1, 2, 3, 1, 4, 5, 6, 7, 2, 1].into_iter().enumerate() {
            let rotated: [usize; 5] = std::array::from_fn(|i| order[(i + k) % 5]);
            for c in [0, 2] {
                let fresh = order.map(|what| asked(&problem::<L>(d, sparse, 0.3, d - 1), c, d, number, [what; 5])[what].clone());
                assert_eq!(asked(&remembering, c, d, number, rotated), fresh, "point {number} after {k}");
            }
        }
    }
}

/// Neither cached nor dropped values change any bit.
#[test]
fn what_is_remembered_has_the_bits_of_what_is_computed() {
    check_memory::<LogLoss>();
    check_memory::<SquaredLoss>();
    let rows = |n: usize, d: usize| Rows::Dense { d, values: vec![0.0; n * d] };
    assert!(SeenPoints::new(&rows(14_000, 300), 1, 28).keeps() && !SeenPoints::new(&rows(14_000, 8), 1, 28).keeps());
    assert!(!SeenPoints::new(&rows(280, 300), 1, 28).keeps());
}

/// Hessians are formed for many products, not for few, unless the matrix is larger than the rows: 40 columns and 7 or 12 rows.
#[test]
fn hessians_are_formed_where_that_is_faster() {
    let check = |p: &dyn Objective, where_faster: [bool; 3]| {
        for (c, is_faster) in where_faster.into_iter().enumerate() {
            assert_eq!([2, 1000].map(|products| p.is_better_formed(c, products)), [false, is_faster], "agent {c}");
        }
    };
    for (d, where_faster) in [(9, [true; 3]), (40, [false, false, true])] {
        check(&problem::<LogLoss>(d, false, 0.3, d - 1), where_faster);
        check(&problem::<LogLoss>(d, true, 0.3, d), where_faster);
        check(&Regression::new(binary(d, true), LogLoss, Sampling::default(), Isa::best()).unwrap(), where_faster);
    }
}

/// Whether products use a formed Hessian depends on the agent's own rows. The choice is the same beside an agent whose rows are not binary,
/// and with and without kept linear systems, which all agents' sizes decide.
#[test]
fn agents_decide_alone_as_they_do_beside_others() {
    let all = |p: &dyn Objective, c: usize| (1..1000).map(|products| p.is_better_formed(c, products)).collect::<Vec<bool>>();
    for d in [9, 40] {
        let of_three = || {
            let mut parts = binary(d, true);
            let Rows::Sparse { value, .. } = &mut parts.rows else { unreachable!("sparse rows") };
            value[0] = 0.5;
            parts
        };
        let three = Regression::new(of_three(), LogLoss, Sampling::default(), Isa::best()).unwrap();
        assert!(three.units.is_none());
        for c in 1..3 {
            let Parts { rows: Rows::Sparse { starts, index, value, .. }, ridge, penalised, .. } = of_three() else { unreachable!() };
            let own = three.range(c);
            let at = starts[own.start]..starts[own.end];
            let starts: Vec<usize> = starts[own.start..=own.end].iter().map(|start| start - at.start).collect();
            let rows = Rows::Sparse { d, starts, index: index[at.clone()].to_vec(), value: value[at].to_vec() };
            let parts = Parts {
                rows,
                first: vec![0, own.len()],
                offsets: Vec::new(),
                ridge,
                penalised,
                weights: vec![1.0],
                mixing_time: 1.0,
                clip: None,
            };
            let alone = Regression::new(parts, LogLoss, Sampling::default(), Isa::best()).unwrap();
            assert!(alone.units.is_some() && all(&alone, 0) == all(&three, c), "d = {d}, agent {c}");
        }
        let mut least_squares = problem::<SquaredLoss>(d, false, 0.3, d);
        let kept = all(&least_squares, 2);
        assert!(least_squares.systems.take().is_some() && all(&least_squares, 2) == kept && kept[998] && !kept[0], "d = {d}");
    }
}
