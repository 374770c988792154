//! Named, seeded streams of random numbers, one per purpose: drawing more from one changes
//! nothing in another. SplitMix64 (Steele, Lea and Flood 2014).

/// One stream.
#[derive(Clone, Debug)]
pub struct Stream(u64);

impl Stream {
    /// For this purpose.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Stream {
        let mixed = name.bytes().fold(seed ^ 0x6e75_6d61, |state, byte| {
            (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Stream(mixed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From so many per mille below 1 up to as many above it.
    pub fn around_one(&mut self, permille: f64) -> f64 {
        1.0 + (self.unit() - 0.5) * 2.0 * permille / 1000.0
    }

    /// From 0 up to, not including, `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.unit() * bound as f64) as u64
    }
}
