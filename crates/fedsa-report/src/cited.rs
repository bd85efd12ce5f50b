//! The sources of methods.

/// The source of this kind of method.
pub fn source(kind: &str) -> Option<&'static str> {
    const SCAFFLSA: &str = "P. Mangold, S. Samsonov, S. Labbi, I. Levin, R. Alami, A. Naumov, E. Moulines: SCAFFLSA: Taming heterogeneity in federated linear \
         stochastic approximation and TD learning. NeurIPS 2024, arXiv:2402.04114";
    const FEDHSA: &str =
        "Achieving tighter finite-time rates for heterogeneous federated stochastic approximation under Markovian sampling (FedHSA)";
    const THESIS: &str = "N. Dal Fabbro: Pushing the boundaries of federated learning: super-linear convergence and reinforcement learning over wireless. \
         Ph.D. thesis, University of Padova, 2023";
    Some(match kind {
        "fedlsa" | "fedavg" | "scafflsa" | "scafflsa-random" => SCAFFLSA,
        "fedhsa" => FEDHSA,
        "fedtd" | "qfedtd" | "oacfedtd" | "asyncfedtd" | "delayed-sa" | "shed" | "q-shed" => THESIS,
        "scaffold" => "S. P. Karimireddy et al.: SCAFFOLD: Stochastic controlled averaging for federated learning. ICML 2020",
        "fedlin" => {
            "A. Mitra, R. Jaafar, G. J. Pappas, H. Hassani: Linear convergence in federated learning: tackling client heterogeneity and sparse gradients. NeurIPS 2021"
        }
        "fedprox" => {
            "T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith: Federated optimization in heterogeneous networks. MLSys 2020"
        }
        "importance-averaging" => {
            "J. Woo, G. Joshi, Y. Chi: The blessing of heterogeneity in federated Q-learning: Linear speedup and beyond. JMLR 2025"
        }
        "one-shot" => "H. Tian et al., 2024: one-shot averaging of TD learning",
        "projected-td" => {
            "H. Wang, A. Mitra, H. Hassani, G. J. Pappas, J. Anderson: Federated temporal difference learning with linear function approximation under environmental heterogeneity. 2023"
        }
        "delay-adaptive-sa" => {
            "A. Adibi, N. Dal Fabbro, L. Schenato, S. Kulkarni, H. V. Poor, G. J. Pappas, H. Hassani, A. Mitra: Stochastic approximation with delayed updates. AISTATS 2024"
        }
        "dasa" => {
            "N. Dal Fabbro, A. Adibi, H. V. Poor, S. R. Kulkarni, A. Mitra, G. J. Pappas: DASA: Delay-adaptive multi-agent stochastic approximation. 2024"
        }
        "anderson" => "H. F. Walker, P. Ni: Anderson acceleration for fixed-point iterations. SIAM Journal on Numerical Analysis, 2011",
        "lstd" => "S. J. Bradtke, A. G. Barto: Linear least-squares algorithms for temporal difference learning. Machine Learning, 1996",
        "lspi" => "M. G. Lagoudakis, R. Parr: Least-squares policy iteration. Journal of Machine Learning Research, 2003",
        "fitted-q" => {
            "D. Ernst, P. Geurts, L. Wehenkel: Tree-based batch mode reinforcement learning. Journal of Machine Learning Research, 2005"
        }
        "gmres" => "Y. Saad, M. H. Schultz: GMRES. SIAM Journal on Scientific and Statistical Computing, 1986",
        "newton" => {
            "L. Armijo: Minimization of functions having Lipschitz continuous first partial derivatives. Pacific Journal of Mathematics, 1966 (its line search)"
        }
        "gd" | "agd" => "Y. Nesterov: Introductory lectures on convex optimization. 2004",
        "bfgs" | "lbfgs" | "adaptive-newton" => {
            "D. C. Liu, J. Nocedal: On the limited memory BFGS method for large scale optimization. Mathematical Programming, 1989"
        }
        "giant" => {
            "S. Wang, F. Roosta-Khorasani, P. Xu, M. W. Mahoney: GIANT: Globally improved approximate Newton method for distributed optimization. NeurIPS 2018"
        }
        "done" => "C. T. Dinh et al.: DONE: Distributed approximate Newton-type method for federated edge learning. 2022",
        "fednl" => {
            "M. Safaryan, R. Islamov, X. Qian, P. Richt\u{e1}rik: FedNL: Making Newton-type methods applicable to federated learning. ICML 2022"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_method_has_a_source() {
        let without: Vec<&str> = fedsa_methods::KINDS.iter().map(|kind| kind.name).filter(|kind| super::source(kind).is_none()).collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
