//! The distribution function of the gamma distribution: the incomplete gamma function, by its
//! series where that converges fast and by its continued fraction elsewhere.

const STEPS_MAX: u32 = 1_000;
const PRECISION: f64 = 1e-14;

/// The probability that a gamma variable of this shape and scale is at most `x`.
pub(crate) fn gamma_cdf(x: f64, shape: f64, scale: f64) -> f64 {
    let x = x / scale;
    if x <= 0.0 {
        return 0.0;
    }
    let front = libm::exp(shape * libm::log(x) - x - libm::lgamma(shape));
    if x < shape + 1.0 { front * series(x, shape) } else { 1.0 - front * fraction(x, shape) }
}

/// The sum of x^n / (shape (shape + 1) ... (shape + n)).
fn series(x: f64, shape: f64) -> f64 {
    let mut term = 1.0 / shape;
    let mut sum = term;
    for step in 1..STEPS_MAX {
        term *= x / (shape + f64::from(step));
        sum += term;
        if term < sum * PRECISION {
            break;
        }
    }
    sum
}

/// The continued fraction of the complement, evaluated forwards by the method of Lentz. Its
/// denominators are above 0 for x >= shape + 1.
fn fraction(x: f64, shape: f64) -> f64 {
    let mut b = x + 1.0 - shape;
    let mut c = f64::MAX;
    let mut d = 1.0 / b;
    let mut value = d;
    for step in 1..STEPS_MAX {
        let step = f64::from(step);
        let a = -step * (step - shape);
        b += 2.0;
        d = 1.0 / (a * d + b);
        c = b + a / c;
        value *= c * d;
        if (c * d - 1.0).abs() < PRECISION {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
    }

    #[test]
    fn shapes_with_a_closed_form() {
        for x in [0.0, 0.1, 0.9, 1.0, 2.5, 10.0, 50.0] {
            assert_close(gamma_cdf(3.0 * x, 1.0, 3.0), 1.0 - (-x).exp());
            assert_close(gamma_cdf(x, 0.5, 1.0), libm::erf(x.sqrt()));
            let erlang_3 = 1.0 - (-x).exp() * (1.0 + x + x * x / 2.0);
            assert_close(gamma_cdf(x, 3.0, 1.0), erlang_3);
        }
    }
}
