//! Numbers as they stand in a trace: decimal, with or without a fraction.
//!
//! Times become whole nanoseconds, so that a sum over a trace is exact and the same everywhere; a
//! fraction is kept to nine digits and cut off there.

/// Nanoseconds of one second.
pub(crate) const NS_PER_SECOND: u64 = 1_000_000_000;

/// So many digits are always within 64 bits.
pub(crate) const SHORT_MAX: usize = 19;

/// A decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// Whether a minus stands before it.
    pub(crate) negative: bool,
    /// What stands before the point.
    pub(crate) whole: u64,
    /// What stands behind the point, in billionths.
    pub(crate) billionths: u32,
}

/// Why a word is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberError {
    /// Something else than digits, a minus and a point.
    NotANumber,
    /// The whole part does not fit into 64 bits.
    TooLarge,
}

impl Decimal {
    /// Reads one word.
    pub(crate) fn parse(word: &[u8]) -> Result<Decimal, NumberError> {
        let (negative, digits) = match word {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, word),
        };
        let mut whole: u64 = 0;
        for (index, &byte) in digits.iter().enumerate() {
            let digit = match byte {
                b'0'..=b'9' => u64::from(byte - b'0'),
                b'.' => {
                    let billionths = billionths(&digits[index + 1..], index > 0)?;
                    return Ok(Decimal { negative, whole, billionths });
                }
                _ => return Err(NumberError::NotANumber),
            };
            let next = whole.checked_mul(10).and_then(|tenfold| tenfold.checked_add(digit));
            whole = next.ok_or(NumberError::TooLarge)?;
        }
        if digits.is_empty() {
            return Err(NumberError::NotANumber);
        }
        Ok(Decimal { negative, whole, billionths: 0 })
    }

    /// Whether it is the -1 that stands for "not known".
    pub(crate) fn is_unknown(self) -> bool {
        self.negative && self.whole == 1 && self.billionths == 0
    }

    /// Whether it is below 0 (a "-0" is not).
    pub(crate) fn is_below_zero(self) -> bool {
        self.negative && (self.whole, self.billionths) != (0, 0)
    }

    /// A number of seconds as nanoseconds, the sign left out; None if it does not fit.
    pub(crate) fn seconds_to_ns(self) -> Option<u64> {
        self.whole.checked_mul(NS_PER_SECOND)?.checked_add(u64::from(self.billionths))
    }
}

/// What stands behind a point. Either side of the point may be empty, not both.
fn billionths(digits: &[u8], digits_before: bool) -> Result<u32, NumberError> {
    if digits.is_empty() && !digits_before {
        return Err(NumberError::NotANumber);
    }
    let (mut sum, mut unit) = (0, 100_000_000);
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return Err(NumberError::NotANumber);
        }
        sum += u32::from(byte - b'0') * unit;
        unit /= 10;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(negative: bool, whole: u64, billionths: u32) -> Result<Decimal, NumberError> {
        Ok(Decimal { negative, whole, billionths })
    }

    #[test]
    fn decimals_with_and_without_fraction() {
        assert_eq!(Decimal::parse(b"0"), number(false, 0, 0));
        assert_eq!(Decimal::parse(b"+007"), number(false, 7, 0));
        assert_eq!(Decimal::parse(b"-1"), number(true, 1, 0));
        assert_eq!(Decimal::parse(b"342.55"), number(false, 342, 550_000_000));
        assert_eq!(Decimal::parse(b"5."), number(false, 5, 0));
        assert_eq!(Decimal::parse(b".5"), number(false, 0, 500_000_000));
        assert_eq!(Decimal::parse(b"1.12345678999"), number(false, 1, 123_456_789));
        assert_eq!(Decimal::parse(b"18446744073709551615"), number(false, u64::MAX, 0));
    }

    #[test]
    fn other_words_are_refused() {
        for word in ["", "-", "+", ".", "-.", "1e5", "0x1", "1-", "--1", "1.2.3", "nan", "1,5"] {
            let parsed = Decimal::parse(word.as_bytes());
            assert_eq!(parsed, Err(NumberError::NotANumber), "'{word}'");
        }
        assert_eq!(Decimal::parse(b"18446744073709551616"), Err(NumberError::TooLarge));
    }

    #[test]
    fn only_minus_one_is_the_unknown() {
        let is_unknown = |word: &str| Decimal::parse(word.as_bytes()).unwrap().is_unknown();
        assert!(is_unknown("-1") && is_unknown("-1.000"));
        assert!(!is_unknown("1") && !is_unknown("-1.5") && !is_unknown("-2"));
        assert!(!Decimal::parse(b"-0.0").unwrap().is_below_zero());
        assert!(Decimal::parse(b"-0.5").unwrap().is_below_zero());
    }

    #[test]
    fn seconds_that_do_not_fit_are_none() {
        let ns = |word: &str| Decimal::parse(word.as_bytes()).unwrap().seconds_to_ns();
        assert_eq!(ns("1.5"), Some(1_500_000_000));
        assert_eq!(ns("18446744073.709551615"), Some(u64::MAX));
        assert_eq!(ns("18446744073.709551616"), None);
        assert_eq!(ns("18446744074"), None);
    }
}
