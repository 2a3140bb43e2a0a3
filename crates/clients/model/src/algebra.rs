//! Small dense matrices, row by row.

/// The lower triangle whose product with its transpose is the matrix. None if the matrix is not symmetric and positive.
pub(crate) fn cholesky(count: usize, matrix: &[f64]) -> Option<Vec<f64>> {
    if matrix.len() != count * count {
        return None;
    }
    let mut lower = vec![0.0; count * count];
    for row in 0..count {
        for column in 0..=row {
            let done: f64 = (0..column)
                .map(|k| lower[row * count + k] * lower[column * count + k])
                .sum();
            let left = matrix[row * count + column] - done;
            if row == column {
                if left.is_nan() || left <= 0.0 {
                    return None;
                }
                lower[row * count + row] = left.sqrt();
            } else {
                lower[row * count + column] = left / lower[column * count + column];
            }
        }
    }
    Some(lower)
}

/// The vector that the matrix of a triangle makes `right` of.
pub(crate) fn solve(count: usize, lower: &[f64], right: &[f64]) -> Vec<f64> {
    let mut found = right.to_vec();
    for row in 0..count {
        let done: f64 = (0..row).map(|k| lower[row * count + k] * found[k]).sum();
        found[row] = (found[row] - done) / lower[row * count + row];
    }
    for row in (0..count).rev() {
        let done: f64 = (row + 1..count)
            .map(|k| lower[k * count + row] * found[k])
            .sum();
        found[row] = (found[row] - done) / lower[row * count + row];
    }
    found
}

/// The inverse of the matrix of a triangle.
pub(crate) fn inverse(count: usize, lower: &[f64]) -> Vec<f64> {
    let mut inverse = vec![0.0; count * count];
    for column in 0..count {
        let mut unit = vec![0.0; count];
        unit[column] = 1.0;
        for (row, value) in solve(count, lower, &unit).into_iter().enumerate() {
            inverse[row * count + column] = value;
        }
    }
    inverse
}

/// Sweeps of rotations; a dozen parameters need less than ten.
const SWEEPS: usize = 50;

/// Eigenvalues of a symmetric matrix, each with its vector, by Jacobi's rotations.
pub(crate) fn eigen(count: usize, matrix: &[f64]) -> Vec<(f64, Vec<f64>)> {
    let mut a = matrix.to_vec();
    let mut vectors = vec![0.0; count * count];
    for place in 0..count {
        vectors[place * count + place] = 1.0;
    }
    for _ in 0..SWEEPS {
        for p in 0..count {
            for q in p + 1..count {
                let off = a[p * count + q];
                if off.abs() < 1e-300 {
                    continue;
                }
                let theta = (a[q * count + q] - a[p * count + p]) / (2.0 * off);
                let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
                let c = 1.0 / t.hypot(1.0);
                let s = t * c;
                for k in 0..count {
                    let (x, y) = (a[k * count + p], a[k * count + q]);
                    a[k * count + p] = c * x - s * y;
                    a[k * count + q] = s * x + c * y;
                }
                for k in 0..count {
                    let (x, y) = (a[p * count + k], a[q * count + k]);
                    a[p * count + k] = c * x - s * y;
                    a[q * count + k] = s * x + c * y;
                    let (x, y) = (vectors[k * count + p], vectors[k * count + q]);
                    vectors[k * count + p] = c * x - s * y;
                    vectors[k * count + q] = s * x + c * y;
                }
            }
        }
    }
    let vector = |column: usize| {
        (0..count)
            .map(|row| vectors[row * count + column])
            .collect()
    };
    (0..count)
        .map(|it| (a[it * count + it], vector(it)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATRIX: [f64; 9] = [4.0, 1.0, 0.5, 1.0, 3.0, 0.2, 0.5, 0.2, 2.0];

    #[test]
    fn an_inverse_makes_the_unit_matrix() {
        let lower = cholesky(3, &MATRIX).unwrap();
        let inverse = inverse(3, &lower);
        for row in 0..3 {
            for column in 0..3 {
                let sum: f64 = (0..3)
                    .map(|k| MATRIX[row * 3 + k] * inverse[k * 3 + column])
                    .sum();
                let unit = f64::from(u8::from(row == column));
                assert!((sum - unit).abs() < 1e-12);
            }
        }
        assert!(cholesky(2, &[1.0, 2.0, 2.0, 1.0]).is_none());
    }

    #[test]
    fn eigenvectors_are_only_stretched() {
        for (value, vector) in eigen(3, &MATRIX) {
            for row in 0..3 {
                let made: f64 = (0..3).map(|k| MATRIX[row * 3 + k] * vector[k]).sum();
                assert!((made - value * vector[row]).abs() < 1e-9);
            }
        }
    }
}
