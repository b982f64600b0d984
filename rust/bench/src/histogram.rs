//! A log-linear histogram: exact to 31, then 16 buckets an octave, so no bucket is wider than 1/16 of its lower end.

/// Buckets an octave: 16, for a relative width of at most 6.25 %.
const PER_OCTAVE_LOG2: u32 = 4;
const PER_OCTAVE: u64 = 1 << PER_OCTAVE_LOG2;

/// Enough for every `u64`.
const BUCKETS: usize = ((64 - PER_OCTAVE_LOG2 as usize) << PER_OCTAVE_LOG2) + PER_OCTAVE as usize;

/// Counts of `u64` values with exact maximum, sum and count. Bucket bounds are fixed, so merging is exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; BUCKETS].into(), count: 0, sum: 0, max: 0 }
    }

    #[inline]
    pub(crate) fn add(&mut self, value: u64) {
        self.buckets[index(value)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The non-empty buckets, as (lowest value, highest value, count), ascending.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, count)| {
            let (low, high) = bounds(index);
            (low, high, *count)
        })
    }
}

#[inline]
fn index(value: u64) -> usize {
    if value < PER_OCTAVE {
        return value as usize;
    }
    let octave = value.ilog2() - PER_OCTAVE_LOG2; // 0 for 16..=31
    (((u64::from(octave) + 1) << PER_OCTAVE_LOG2) + ((value >> octave) & (PER_OCTAVE - 1))) as usize
}

/// Lowest and highest value of a bucket.
fn bounds(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < PER_OCTAVE {
        return (index, index);
    }
    let octave = (index >> PER_OCTAVE_LOG2) - 1;
    let low = (PER_OCTAVE + (index & (PER_OCTAVE - 1))) << octave;
    (low, low + ((1 << octave) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spread() -> impl Strategy<Value = u64> {
        (0_u32..64, any::<u64>()).prop_map(|(shift, value)| value >> shift)
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_values_and_is_narrow(value in spread()) {
            let (low, high) = bounds(index(value));
            prop_assert!(low <= value && value <= high);
            prop_assert!(high - low <= low / 16, "{low}..={high}");
        }

        #[test]
        fn merging_is_the_same_as_adding(a in prop::collection::vec(spread(), 0..50), b in prop::collection::vec(spread(), 0..50)) {
            let fill = |values: &[u64]| {
                let mut histogram = Histogram::new();
                for &value in values {
                    histogram.add(value);
                }
                histogram
            };
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            prop_assert_eq!(merged, fill(&[a, b].concat()));
        }
    }

    #[test]
    fn small_values_are_exact_and_buckets_touch() {
        for value in 0..32 {
            assert_eq!(bounds(index(value)), (value, value));
        }
        for bucket in 1..BUCKETS {
            assert_eq!(bounds(bucket - 1).1 + 1, bounds(bucket).0);
        }
        assert_eq!(bounds(BUCKETS - 1).1, u64::MAX);
        assert_eq!(index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn maximum_sum_and_count_are_exact() {
        let mut histogram = Histogram::new();
        for value in [1_000_003, 5, 1_000_001] {
            histogram.add(value);
        }
        assert_eq!((histogram.max(), histogram.sum(), histogram.count()), (1_000_003, 2_000_009, 3));
        assert_eq!(histogram.filled().collect::<Vec<_>>(), [(5, 5, 1), (983_040, 1_015_807, 2)]);
    }
}
