//! What an assignment means for memory: for each bundle, the weight of its users on each node and
//! the node where its memory is cheapest. Worked out once, since every task and every region asks.

use crate::demand::{Amounts, Bundle, Demand};

/// One for each bundle of a demand, in its order.
pub struct Outlook(Vec<Prospect>);

/// A bundle's.
pub struct Prospect {
    /// The weight of its users on each node that has some.
    pub weights: Amounts,
    /// Where its memory is cheapest, moving it there included.
    pub memory: usize,
}

impl Outlook {
    /// For tasks where `at` says.
    #[must_use]
    pub fn new(demand: &Demand, at: &[usize]) -> Outlook {
        let prospect = |bundle: &Bundle| {
            let weights = bundle.weights(at);
            let memory = demand.best_memory(bundle, &weights).0;
            Prospect { weights, memory }
        };
        Outlook(demand.bundles.iter().map(prospect).collect())
    }

    /// Of these, one for each bundle of a demand.
    #[must_use]
    pub fn of_all(prospects: impl Iterator<Item = Prospect>) -> Outlook {
        Outlook(prospects.collect())
    }

    /// That of one bundle.
    #[must_use]
    pub fn of(&self, bundle: usize) -> &Prospect {
        &self.0[bundle]
    }
}
