//! Parts of tables: states, bars, numbers that the script keeps up to date, pages of long lists.

use longshore_api::object::ObjectState;
use maud::{Markup, html};

use crate::figures;

/// Rows on a page of a list.
pub(crate) const ROWS_MAX: usize = 100;

/// A state as word and shape.
pub(crate) fn state(state: ObjectState) -> Markup {
    let word = figures::state(state);
    html! { span class={ "state " (word) } { (word) } }
}

/// A number that the script keeps up to date under a name.
pub(crate) fn live(name: &str, text: &str) -> Markup {
    html! { td.number data-live=(name) { (text) } }
}

/// Parts of a whole in percent, as a bar. The numbers beside it say the same.
pub(crate) fn bar(parts: &[(&str, f64)]) -> Markup {
    let mut end = 0.0;
    let placed = parts.iter().map(|(name, percent)| {
        let (from, width) = (end, percent.clamp(0.0, 100.0 - end));
        end += width;
        (name, from, width)
    });
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            @for (name, from, width) in placed {
                rect class=(name) data-bar=(name) x=(format!("{from:.2}")) y="0" width=(format!("{width:.2}")) height="10" {}
            }
        }
    }
}

/// Rows that a page shows, and how to get to the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Rows hold this text.
    pub filter: String,
    /// The page of the list, from 0.
    pub page: usize,
}

impl Selection {
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    /// The rows of this page, and the number of pages.
    pub(crate) fn cut<'a, T>(&self, rows: &'a [T]) -> (&'a [T], usize) {
        let pages = rows.len().div_ceil(ROWS_MAX).max(1);
        let from = self.page.min(pages - 1) * ROWS_MAX;
        (&rows[from..rows.len().min(from + ROWS_MAX)], pages)
    }

    /// The form that filters a list.
    pub(crate) fn form(&self, path: &str, what: &str, shown: usize, all: usize) -> Markup {
        html! {
            form.filter method="get" action=(path) role="search" {
                label for="filter" { "Filter" }
                input id="filter" name="filter" type="search" value=(self.filter) autocomplete="off";
                button type="submit" { "Show" }
                span.count id="part-count" data-part="" { (shown) " of " (all) " " (what) }
            }
        }
    }

    /// Links to the other pages of a list.
    pub(crate) fn links(&self, path: &str, pages: usize) -> Markup {
        let link = |page: usize| {
            let filter = figures::encoded(&self.filter);
            format!("{path}?filter={filter}&page={}", page + 1)
        };
        let page = self.page.min(pages - 1);
        html! {
            @if pages > 1 {
                nav.pages aria-label="Pages of this list" {
                    @if page > 0 { a href=(link(page - 1)) rel="prev" { "Previous" } }
                    span { "Page " (page + 1) " of " (pages) }
                    @if page + 1 < pages { a href=(link(page + 1)) rel="next" { "Next" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_into_pages_and_a_page_that_is_not_there_is_the_last_one() {
        let rows: Vec<usize> = (0..250).collect();
        let mut selection = Selection::default();
        assert_eq!(selection.cut(&rows), (&rows[..100], 3));
        selection.page = 2;
        assert_eq!(selection.cut(&rows), (&rows[200..], 3));
        selection.page = usize::MAX;
        assert_eq!(selection.cut(&rows), (&rows[200..], 3));
        assert_eq!(selection.cut(&rows[..0]), (&rows[..0], 1));
        assert!(
            selection
                .links("/x", 3)
                .into_string()
                .contains("Page 3 of 3")
        );
    }

    #[test]
    fn a_filter_ignores_case_and_stays_text() {
        let selection = Selection {
            filter: "\"><B>".to_owned(),
            page: 0,
        };
        assert!(selection.matches("a\"><b>c") && !selection.matches("b"));
        let form = selection.form("/x", "volumes", 1, 2).into_string();
        assert!(!form.contains("<B>"), "{form}");
        assert!(
            selection
                .links("/x", 2)
                .into_string()
                .contains("filter=%22%3E%3CB%3E")
        );
    }

    #[test]
    fn a_bar_never_leaves_its_place() {
        let bar = bar(&[("a", 70.0), ("b", 70.0), ("c", f64::NAN.max(0.0))]).into_string();
        assert!(bar.contains("x=\"70.00\" y=\"0\" width=\"30.00\""), "{bar}");
    }
}
