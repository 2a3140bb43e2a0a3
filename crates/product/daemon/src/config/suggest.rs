//! "Did you mean": the nearest known word to a misspelt one.

/// The known word nearest to `word`, if one is near enough to be what was meant.
#[must_use]
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&word, candidate), *candidate))
        // A common beginning alone says little: `name` is not half of `namespaces`.
        .filter(|(likeness, candidate)| {
            *likeness > 0.8 && strsim::normalized_damerau_levenshtein(&word, candidate) >= 0.5
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The end of an error message that names all known words: `; did you mean …?`, or nothing.
#[must_use]
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    nearest(word, known).map_or_else(String::new, |candidate| {
        format!("; did you mean `{candidate}`?")
    })
}

/// The end of an error message: `; did you mean …?`, or the list of what there is.
#[must_use]
pub fn sentence(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(candidate) => format!("; did you mean `{candidate}`?"),
        None if known.is_empty() => String::new(),
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
        assert_eq!(nearest("Block_Size", &known), Some("block-size"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("name", &["nqn", "namespaces"]), None);
        assert_eq!(did_you_mean("pth", &known), "; did you mean `path`?");
        assert_eq!(did_you_mean("colour", &known), "");
    }
}
