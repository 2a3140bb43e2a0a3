//! Columns of text and numbers.

use std::fmt;

/// Rows under a head; texts to the left, numbers to the right.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

/// So many columns at the front hold texts.
const TEXT_COLUMNS: usize = 4;

impl Table {
    pub fn new(head: &[&str]) -> Self {
        let head = head.iter().map(|name| (*name).to_owned());
        Self {
            rows: vec![head.collect()],
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        // A column that is empty throughout, as that of parts mostly is, is left out.
        let is_empty = |column: usize| width(column) == 0;
        for row in &self.rows {
            let mut line = String::new();
            for column in (0..columns).filter(|column| !is_empty(*column)) {
                let (cell, width) = (&row[column], width(column));
                let gap = if line.is_empty() { "" } else { "  " };
                line += &if column < TEXT_COLUMNS {
                    format!("{gap}{cell:<width$}")
                } else {
                    format!("{gap}{cell:>width$}")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
