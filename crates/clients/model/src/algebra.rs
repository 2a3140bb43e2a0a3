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

#[cfg(test)]
mod tests {
    use super::*;

    const MATRIX: [f64; 9] = [4.0, 1.0, 0.5, 1.0, 3.0, 0.2, 0.5, 0.2, 2.0];

    #[test]
    fn a_triangle_times_its_transpose_is_the_matrix() {
        let lower = cholesky(3, &MATRIX).unwrap();
        for row in 0..3 {
            for column in 0..3 {
                let sum: f64 = (0..3)
                    .map(|k| lower[row * 3 + k] * lower[column * 3 + k])
                    .sum();
                assert!((sum - MATRIX[row * 3 + column]).abs() < 1e-12);
            }
        }
        assert!(cholesky(2, &[1.0, 2.0, 2.0, 1.0]).is_none());
    }
}
