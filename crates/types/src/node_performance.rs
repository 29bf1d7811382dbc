//! What nodes can do, and how busy they are: the estimates by which placements choose among them
//! (GRM paper, section 5.1, formulas 1 to 3).
//!
//! Figures come from a benchmark, load averages from the kernel; both enter as events. All is in
//! whole numbers: estimates are only compared with each other.
//!
//! - loading = l1 x now + l2 x five minutes + l3 x fifteen minutes, over l1 + l2 + l3: the averages
//!   of the kernel stand for the load at different times
//! - peak = p1 x int + p2 x float + p3 x double + p4 x memory + p5 x network + p6 x latency, each
//!   figure counted in means of all nodes that are up, so that weights mean the same whatever the
//!   unit. A node that was never measured counts as the mean. Of latency less is better, so the
//!   mean is counted in the node's own, up to [`LATENCY_GAIN_MAX`].
//! - performance = peak / (loading + 1), with the load for each processor of the node

use crate::params::Params;
use serde::{Deserialize, Serialize};

/// What a node was measured to do, the more the better; each in a unit that is the same on all
/// nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Figures {
    /// With whole numbers.
    pub int: u32,
    /// With numbers of 32 bits.
    pub float: u32,
    /// With numbers of 64 bits.
    pub double: u32,
    /// In moving memory.
    pub memory: u32,
}

/// What a node's network was measured to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetworkFigures {
    /// Bandwidth, in MB a second.
    pub bandwidth_mb_s: u32,
    /// Latency of one way, in microseconds.
    pub latency_us: u32,
}

/// How many processes wanted to run on a node on average, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoadAverages {
    /// Over the last minute.
    pub now: u32,
    /// Over the last five minutes.
    pub five_minutes: u32,
    /// Over the last fifteen minutes.
    pub fifteen_minutes: u32,
}

/// How much each figure counts for a job. All zero: nothing tells nodes apart but their load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Weights {
    /// Of [`Figures::int`].
    pub int: u32,
    /// Of [`Figures::float`].
    pub float: u32,
    /// Of [`Figures::double`].
    pub double: u32,
    /// Of [`Figures::memory`].
    pub memory: u32,
    /// Of [`NetworkFigures::bandwidth_mb_s`].
    pub network: u32,
    /// Of [`NetworkFigures::latency_us`], of which less is better.
    pub latency: u32,
}

impl Weights {
    /// Nothing counts.
    pub const NONE: Self = Self { int: 0, float: 0, double: 0, memory: 0, network: 0, latency: 0 };
}

/// Weights as a job's specification is stored: journals from before the network was measured have
/// the first two.
#[derive(Serialize, Deserialize)]
enum StoredWeights {
    None,
    OfProcessors([u32; 4]),
    OfAll([u32; 6]),
}

/// Stores weights so that journals from before the network was measured are read.
pub(crate) mod stored {
    use super::{StoredWeights, Weights};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        weights: &Option<Weights>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match *weights {
            None => StoredWeights::None,
            Some(Weights { int, float, double, memory, network: 0, latency: 0 }) => {
                StoredWeights::OfProcessors([int, float, double, memory])
            }
            Some(Weights { int, float, double, memory, network, latency }) => {
                StoredWeights::OfAll([int, float, double, memory, network, latency])
            }
        }
        .serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Weights>, D::Error> {
        Ok(match StoredWeights::deserialize(deserializer)? {
            StoredWeights::None => None,
            StoredWeights::OfProcessors([int, float, double, memory]) => {
                Some(Weights { int, float, double, memory, ..Weights::NONE })
            }
            StoredWeights::OfAll([int, float, double, memory, network, latency]) => {
                Some(Weights { int, float, double, memory, network, latency })
            }
        })
    }
}

/// One, in the fixed point in which loads are counted.
const UNIT: u64 = 1000;
/// One, in the fixed point of figures in means, and of peaks.
pub const MEAN: u64 = 1_000_000;
/// How many means a node's latency counts as at most: that of two nodes of one machine may be far
/// below any other.
pub const LATENCY_GAIN_MAX: u64 = 10;

impl Figures {
    const fn values(self) -> [u32; 4] {
        [self.int, self.float, self.double, self.memory]
    }
}

impl Weights {
    const fn values(self) -> [u32; 4] {
        [self.int, self.float, self.double, self.memory]
    }

    /// All of them together.
    #[must_use]
    pub fn sum(self) -> u64 {
        let of_network = [self.network, self.latency];
        self.values().into_iter().chain(of_network).map(u64::from).sum()
    }
}

/// What a mean node can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    figures: [u64; 4],
    bandwidth: u64,
    latency: u64,
}

impl Means {
    /// Of the nodes that have these figures.
    #[must_use]
    pub fn of(all: impl Iterator<Item = Figures>) -> Self {
        let mut sums = [0u64; 4];
        let mut count = 0u64;
        for figures in all {
            for (sum, value) in sums.iter_mut().zip(figures.values()) {
                *sum += u64::from(value);
            }
            count += 1;
        }
        let figures = sums.map(|sum| (sum / count.max(1)).max(1));
        Self { figures, bandwidth: 1, latency: 1 }
    }

    /// And of nodes with these figures of their network.
    #[must_use]
    pub fn with_network(self, all: impl Iterator<Item = NetworkFigures>) -> Self {
        let (mut bandwidth, mut latency, mut count) = (0u64, 0u64, 0u64);
        for network in all {
            bandwidth += u64::from(network.bandwidth_mb_s);
            latency += u64::from(network.latency_us);
            count += 1;
        }
        let mean = |sum: u64| (sum / count.max(1)).max(1);
        Self { bandwidth: mean(bandwidth), latency: mean(latency), ..self }
    }

    /// Formula 2, in millionths.
    #[must_use]
    pub fn peak(
        self,
        figures: Option<Figures>,
        network: Option<NetworkFigures>,
        weights: Weights,
    ) -> u64 {
        let in_means = |(value, mean): (u32, u64)| u64::from(value) * MEAN / mean;
        let figures = figures.map_or([MEAN; 4], |figures| {
            let values = figures.values();
            [0, 1, 2, 3].map(|index| in_means((values[index], self.figures[index])))
        });
        let network = network.map_or([MEAN; 2], |network| {
            let latency = self.latency * MEAN / u64::from(network.latency_us.max(1));
            let bandwidth = in_means((network.bandwidth_mb_s, self.bandwidth));
            [bandwidth, latency.min(LATENCY_GAIN_MAX * MEAN)]
        });
        let of_processors = figures.into_iter().zip(weights.values());
        let of_network = network.into_iter().zip([weights.network, weights.latency]);
        of_processors.chain(of_network).fold(0u64, |sum, (figure, weight)| {
            sum.saturating_add(figure.saturating_mul(u64::from(weight)))
        })
    }
}

/// Formula 3, in thousandths.
#[must_use]
pub fn loading(averages: LoadAverages, params: &Params) -> u64 {
    let LoadAverages { now, five_minutes, fifteen_minutes } = averages;
    let weights = params.load_weights();
    let terms = [now, five_minutes, fifteen_minutes].into_iter().zip(weights);
    let sum: u64 = terms.map(|(average, weight)| u64::from(average) * weight).sum();
    sum / weights.iter().sum::<u64>().max(1)
}

/// What one more task would get of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// See [`Means::peak`].
    pub peak: u64,
    /// See [`loading`].
    pub loading: u64,
    /// How many processors the node has.
    pub width: u32,
    /// How many of them are free for the job.
    pub free: u32,
    /// How many of the job's tasks it has been given.
    pub tasks: u32,
}

impl Prospect {
    /// Formula 1, for one more task; tasks that outnumber the free processors are load for each
    /// other.
    #[must_use]
    pub fn performance(self) -> u64 {
        let own = (UNIT * (u64::from(self.tasks) + 1) / u64::from(self.free.max(1))).max(UNIT);
        let divisor = u128::from(self.foreign() + own);
        let scaled = u128::from(self.peak) * u128::from(UNIT) / divisor;
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// How loaded its processors are with the tasks that it has been given, in thousandths.
    #[must_use]
    pub fn load(self) -> u64 {
        self.foreign() + UNIT * u64::from(self.tasks) / u64::from(self.free.max(1))
    }

    fn foreign(self) -> u64 {
        self.loading / u64::from(self.width.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::{Figures, LoadAverages, MEAN, Means, NetworkFigures, Prospect, Weights, loading};
    use crate::params::Params;

    const ONE: Weights = Weights { int: 1, float: 1, double: 1, memory: 1, ..Weights::NONE };

    #[test]
    fn figures_count_in_means_and_who_was_not_measured_is_one() {
        let slow = Figures { int: 100, float: 10, double: 10, memory: 5000 };
        let fast = Figures { int: 300, float: 10, double: 30, memory: 5000 };
        let means = Means::of([slow, fast].into_iter());
        assert_eq!(means.peak(Some(slow), None, ONE), 3_000_000);
        assert_eq!(means.peak(Some(fast), None, ONE), 5_000_000);
        assert_eq!(means.peak(None, None, ONE), 4_000_000);
        let whole_numbers = Weights { int: 3, ..Weights::NONE };
        assert_eq!(means.peak(Some(fast), None, whole_numbers), 4_500_000);
        let most = Figures { int: u32::MAX, ..Figures::default() };
        let huge = Weights { int: u32::MAX, ..ONE };
        assert!(Means::of([].into_iter()).peak(Some(most), None, huge) > 0, "no overflow");
    }

    #[test]
    fn bandwidth_counts_in_means_and_of_latency_less_is_better() {
        let slow = NetworkFigures { bandwidth_mb_s: 10, latency_us: 300 };
        let fast = NetworkFigures { bandwidth_mb_s: 110, latency_us: 100 };
        let means = Means::of([].into_iter()).with_network([slow, fast].into_iter());
        let peak = |network, weights| means.peak(None, network, weights);
        let bandwidth = Weights { network: 2, ..Weights::NONE };
        assert_eq!(peak(Some(slow), bandwidth), 2 * (MEAN / 6));
        assert_eq!(peak(Some(fast), bandwidth), 2 * 110 * MEAN / 60);
        assert_eq!(peak(None, bandwidth), 2 * MEAN, "one that was not measured is a mean one");
        let latency = Weights { latency: 1, ..Weights::NONE };
        assert_eq!(peak(Some(slow), latency), 200 * MEAN / 300);
        assert_eq!(peak(Some(fast), latency), 2 * MEAN);
        let wonder = NetworkFigures { latency_us: 0, ..fast };
        assert_eq!(peak(Some(wonder), latency), 10 * MEAN);
        let all = Weights { int: 3, ..latency };
        assert_eq!((peak(Some(fast), all), all.sum()), (5 * MEAN, 4));
        let none = Means::of([].into_iter()).with_network([].into_iter());
        let most = NetworkFigures { bandwidth_mb_s: u32::MAX, latency_us: u32::MAX };
        let huge = Weights { network: u32::MAX, latency: u32::MAX, ..Weights::NONE };
        assert!(none.peak(None, Some(most), huge) > 0, "no overflow");
    }

    #[test]
    fn the_load_is_a_weighted_mean_of_averages() {
        let mut params = Params::default();
        let averages = LoadAverages { now: 3000, five_minutes: 1000, fifteen_minutes: 500 };
        let weights = ["weight_load_now", "weight_load_5m", "weight_load_15m"];
        let mut loaded = |values: [u64; 3]| {
            for (name, value) in weights.into_iter().zip(values) {
                params.set(name, value).unwrap();
            }
            loading(averages, &params)
        };
        assert_eq!(loaded([1, 0, 0]), 3000);
        assert_eq!(loaded([2, 1, 1]), 1875);
        assert_eq!(loaded([0, 0, 0]), 0, "no average counts");
    }

    #[test]
    fn performance_is_peak_over_load_and_one() {
        let alone = Prospect { peak: 4_000_000, loading: 0, width: 1, free: 1, tasks: 0 };
        assert_eq!(alone.performance(), 4_000_000);
        assert_eq!(Prospect { loading: 1000, ..alone }.performance(), 2_000_000);
        assert_eq!(Prospect { tasks: 3, ..alone }.performance(), 1_000_000);
        // Four processors: four tasks do not hinder each other, and load is shared among them.
        let wide = Prospect { width: 4, free: 4, loading: 4000, tasks: 3, ..alone };
        assert_eq!(wide.performance(), 2_000_000);
        assert_eq!(Prospect { tasks: 7, ..wide }.performance(), 4_000_000_000 / 3000);
        assert_eq!(wide.load(), 1750);
    }
}
