//! Random numbers from a seed: SplitMix64. The same seed gives the same numbers on every machine.

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The sequence of a seed that belongs to a name.
    #[must_use]
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = Self(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.bits();
        random
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From 0 to 1, without 1.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The numbers below `count` in another order.
    #[must_use]
    pub fn shuffled(mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            let place = self.bits() % (last as u64 + 1);
            order.swap(last, usize::try_from(place).expect("less than the count"));
        }
        order
    }

    /// Mean 1, never negative.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }
}

/// Standard deviations from the mean of a normal distribution, below which a share of it lies (Acklam's
/// approximation, to a relative error of 1.2e-9).
#[must_use]
pub fn normal_quantile(share: f64) -> f64 {
    const CENTRE: [f64; 6] = [
        -39.696_830_286_653_76,
        220.946_098_424_520_5,
        -275.928_510_446_968_7,
        138.357_751_867_269,
        -30.664_798_066_147_16,
        2.506_628_277_459_239,
    ];
    const CENTRE_BELOW: [f64; 6] = [
        -54.476_098_798_224_06,
        161.585_836_858_040_9,
        -155.698_979_859_886_6,
        66.801_311_887_719_72,
        -13.280_681_552_885_72,
        1.0,
    ];
    const TAIL: [f64; 6] = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_5,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const TAIL_BELOW: [f64; 5] = [
        0.007_784_695_709_041_462,
        0.322_467_129_070_039_8,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let polynomial = |all: &[f64], x: f64| all.iter().fold(0.0, |sum, factor| sum * x + factor);
    if share > 0.5 {
        return -normal_quantile(1.0 - share);
    }
    if share < 0.02425 {
        let x = (-2.0 * share.ln()).sqrt();
        return polynomial(&TAIL, x) / polynomial(&TAIL_BELOW, x);
    }
    let x = share - 0.5;
    polynomial(&CENTRE, x * x) * x / polynomial(&CENTRE_BELOW, x * x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moments_are_those_of_the_distributions() {
        let mut random = Random::new(7);
        let count = 100_000;
        let sum: f64 = (0..count).map(|_| random.exponential()).sum();
        assert!((sum / f64::from(count) - 1.0).abs() < 0.02);
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (share, quantile) in [
            (0.001, -3.090_232),
            (0.05, -1.644_854),
            (0.5, 0.0),
            (0.975, 1.959_964),
        ] {
            assert!((normal_quantile(share) - quantile).abs() < 1e-6, "{share}");
        }
    }

    #[test]
    fn an_order_has_every_number_once() {
        let mut order = Random::new(3).shuffled(100);
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn names_have_sequences_of_their_own() {
        assert_ne!(Random::named(1, "a").bits(), Random::named(1, "b").bits());
        assert_eq!(Random::named(1, "a").bits(), Random::named(1, "a").bits());
    }
}
