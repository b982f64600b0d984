//! Chance with a seed: the interleaving of cells, and the choice of a lock in a round.

/// A small generator with a good avalanche (`SplitMix64`): every seed is as good as another, and the stream is the same
/// on every platform.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `bound` (at least 1), by the high half of a product: the bias of at most `bound / 2^64` is nothing here.
    #[inline]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// The order in which `rounds` rounds visit `cells` cells: each round a random permutation, so that slow drifts of the
/// machine fall on all cells alike. The same arguments give the same order, everywhere.
#[must_use]
pub fn order(seed: u64, cells: usize, rounds: usize) -> Vec<Vec<usize>> {
    let mut random = Random::new(seed);
    (0..rounds)
        .map(|_| {
            let mut visit: Vec<usize> = (0..cells).collect();
            for last in (1..cells).rev() {
                visit.swap(last, random.below(last + 1));
            }
            visit
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_round_is_a_permutation(seed: u64, cells in 0_usize..40, rounds in 0_usize..8) {
            let rounds_visited = order(seed, cells, rounds);
            prop_assert_eq!(rounds_visited.len(), rounds);
            for mut visit in rounds_visited {
                visit.sort_unstable();
                prop_assert_eq!(visit, (0..cells).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_order_is_fixed_by_the_seed_and_differs_between_rounds() {
        assert_eq!(order(7, 12, 5), order(7, 12, 5));
        assert_ne!(order(7, 12, 5), order(8, 12, 5));
        let rounds = order(7, 12, 5);
        assert!(rounds.windows(2).all(|pair| pair[0] != pair[1]));
        // Written down, so that a change of the stream is seen: stored results name their seed.
        assert_eq!(order(1, 5, 1), [[1, 0, 3, 4, 2]]);
    }

    #[test]
    fn every_place_is_about_equally_likely() {
        let mut first = [0_u32; 5];
        for visit in order(3, 5, 10_000) {
            first[visit[0]] += 1;
        }
        assert!(first.iter().all(|&count| (1_800..2_200).contains(&count)), "{first:?}");
    }
}
