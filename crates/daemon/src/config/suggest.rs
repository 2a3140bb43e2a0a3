//! "Did you mean": the nearest known word to a misspelt one.

/// The known word nearest to `word`, if one is near enough to be what was meant.
#[must_use]
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), *candidate))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The end of an error message: `; did you mean …?`, or the list of what there is.
#[must_use]
pub fn sentence(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(candidate) => format!("; did you mean `{candidate}`?"),
        None => format!("; known are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_the_word_and_nonsense_finds_none() {
        let known = ["backend", "path", "size", "block-size"];
        assert_eq!(nearest("pth", &known), Some("path"));
        assert_eq!(nearest("blocksize", &known), Some("block-size"));
        assert_eq!(nearest("colour", &known), None);
    }
}
