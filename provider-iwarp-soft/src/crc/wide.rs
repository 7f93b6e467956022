//! CRC32C by carry-less multiplication of 256 bits at a time.
//!
//! Four vectors of 32 bytes are remainders in the making: each step multiplies them by what 128
//! bytes further on means for the polynomial and adds the next 128 bytes. In the end they are
//! folded into one of 16 bytes, which the processor's CRC instruction reduces.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi32_si128,
    _mm_extract_epi64, _mm_set_epi64x, _mm_xor_si128, _mm256_castsi256_si128,
    _mm256_clmulepi64_epi128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_set_epi64x,
    _mm256_xor_si256, _mm256_zextsi128_si256,
};

/// What is shorter is faster with the CRC instruction alone.
pub(super) const LEN_MIN: usize = 256;

const VECTOR: usize = size_of::<__m256i>();
const LANES: usize = 4;
const BLOCK: usize = LANES * VECTOR;

/// The polynomial of CRC32C, bits in the order in which they are sent.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Says that the processor has what it takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wide(());

impl Wide {
    /// `None` where it cannot, or where `crc_fast` has something better.
    #[inline]
    pub(super) fn detect() -> Option<Self> {
        let can = is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("pclmulqdq")
            && is_x86_feature_detected!("sse4.2")
            && !is_x86_feature_detected!("avx512vl");
        can.then_some(Self(()))
    }

    /// CRC32C of `bytes`.
    #[inline]
    pub(super) fn crc32c(self, bytes: &[u8]) -> u32 {
        // SAFETY: a value of this type says that the processor has these instructions.
        !unsafe { crc32c_from(u32::MAX, bytes) }
    }
}

/// Goes on from `crc`, the remainder of what comes before.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn crc32c_from(mut crc: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    if let Some((first, blocks)) = blocks.split_first() {
        crc = reduce(fold_blocks(crc, first, blocks));
    }
    let (words, tail) = rest.as_chunks::<8>();
    let crc = words.iter().fold(u64::from(crc), |crc, word| {
        _mm_crc32_u64(crc, u64::from_le_bytes(*word))
    });
    tail.iter()
        .fold(crc as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
}

#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold_blocks(crc: u32, first: &[u8; BLOCK], blocks: &[[u8; BLOCK]]) -> [__m256i; LANES] {
    let mut lanes = load(first);
    let crc = _mm256_zextsi128_si256(_mm_cvtsi32_si128(crc.cast_signed()));
    lanes[0] = _mm256_xor_si256(lanes[0], crc);
    let shift = const { Shift::by(BLOCK) }.wide();
    for block in blocks {
        for (lane, next) in lanes.iter_mut().zip(load(block)) {
            *lane = fold(*lane, shift, next);
        }
    }
    lanes
}

/// The remainder of four neighbouring vectors.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
fn reduce([first, rest @ ..]: [__m256i; LANES]) -> u32 {
    let shift = const { Shift::by(VECTOR) }.wide();
    let last = rest
        .into_iter()
        .fold(first, |sum, next| fold(sum, shift, next));
    let shift = const { Shift::by(VECTOR / 2) }.narrow();
    let (low, high) = (
        _mm256_castsi256_si128(last),
        _mm256_extracti128_si256::<1>(last),
    );
    let moved = _mm_xor_si128(
        _mm_clmulepi64_si128::<0x00>(low, shift),
        _mm_clmulepi64_si128::<0x11>(low, shift),
    );
    let sum = _mm_xor_si128(moved, high);
    let crc = _mm_crc32_u64(0, _mm_extract_epi64::<0>(sum).cast_unsigned());
    _mm_crc32_u64(crc, _mm_extract_epi64::<1>(sum).cast_unsigned()) as u32
}

/// `sum` moved to where `next` is, and added to it.
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold(sum: __m256i, shift: __m256i, next: __m256i) -> __m256i {
    let low = _mm256_clmulepi64_epi128::<0x00>(sum, shift);
    let high = _mm256_clmulepi64_epi128::<0x11>(sum, shift);
    _mm256_xor_si256(_mm256_xor_si256(low, high), next)
}

#[target_feature(enable = "avx2")]
fn load(block: &[u8; BLOCK]) -> [__m256i; LANES] {
    let (vectors, _) = block.as_chunks::<VECTOR>();
    std::array::from_fn(|lane| {
        // SAFETY: reads 32 bytes, which are there, wherever they lie.
        unsafe { _mm256_loadu_si256(vectors[lane].as_ptr().cast()) }
    })
}

/// What 128 bits are multiplied by to be moved so many bytes on, the lower half and the upper.
struct Shift {
    low: i64,
    high: i64,
}

impl Shift {
    const fn by(bytes: usize) -> Self {
        let bits = 8 * bytes;
        // A product of two reflected numbers is one bit short, and the remainder takes 32.
        Self {
            low: power(bits + 31),
            high: power(bits - 33),
        }
    }

    #[target_feature(enable = "avx2")]
    fn wide(&self) -> __m256i {
        _mm256_set_epi64x(self.high, self.low, self.high, self.low)
    }

    #[target_feature(enable = "sse2")]
    fn narrow(&self) -> __m128i {
        _mm_set_epi64x(self.high, self.low)
    }
}

/// `x` to this power, modulo the polynomial.
const fn power(exponent: usize) -> i64 {
    let mut remainder: u32 = 1 << 31;
    let mut step = 0;
    while step < exponent {
        let carry = remainder & 1 == 1;
        remainder >>= 1;
        if carry {
            remainder ^= POLYNOMIAL;
        }
        step += 1;
    }
    remainder as i64
}
