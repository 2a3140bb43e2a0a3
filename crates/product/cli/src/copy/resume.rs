//! The command with which an interrupted copy goes on.

use std::ffi::OsString;

use longshore_initiator::url::Url;

/// This command with `--resume`, to be pasted into a shell. Passwords in URLs are left out.
pub fn command(arguments: Vec<OsString>) -> String {
    let mut words: Vec<String> = arguments.into_iter().map(without_password).collect();
    if !words.iter().any(|word| word == "--resume") {
        // Behind the verb.
        let at = words.len().min(2);
        words.insert(at, "--resume".to_owned());
    }
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

fn without_password(word: OsString) -> String {
    let word = word.to_string_lossy().into_owned();
    match word.parse::<Url>() {
        Ok(Url::Iscsi(url)) if url.password.is_some() || url.target_password.is_some() => {
            Url::Iscsi(url).to_string()
        }
        _ => word,
    }
}

/// As a POSIX shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "-_./:=@+,[]%".contains(it);
    // Brackets and the rest mean nothing to a shell in what begins with a scheme or an option.
    let harmless = !word.is_empty() && word.chars().all(plain) && !word.contains(['[', ']']);
    if harmless {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> String {
        command(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_option_is_added_once() {
        let expected = "longshore copy --resume --verify a b";
        assert_eq!(of(&["longshore", "copy", "--verify", "a", "b"]), expected);
        assert_eq!(
            of(&["longshore", "copy", "--resume", "--verify", "a", "b"]),
            expected
        );
    }

    #[test]
    fn what_a_shell_would_change_is_quoted() {
        assert_eq!(
            of(&["longshore", "copy", "a b", "it's", ""]),
            r"longshore copy --resume 'a b' 'it'\''s' ''"
        );
        assert_eq!(
            of(&[
                "longshore",
                "copy",
                "a",
                "iscsi://[::1]/iqn.2026-11.local:a/0"
            ]),
            "longshore copy --resume a 'iscsi://[::1]/iqn.2026-11.local:a/0'"
        );
    }

    #[test]
    fn passwords_are_left_out() {
        let text = of(&[
            "longshore",
            "copy",
            "a",
            "iscsi://me%geheim@h/iqn.2026-11.local:a/0",
        ]);
        assert!(!text.contains("geheim") && text.contains("me@h"), "{text}");
    }
}
