//! Values that several formats write alike.

use crate::configuration::Negotiated;

/// `1`, `yes`, `on`, `true`, and their opposites.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "yes" | "on" | "true" | "enable" | "enabled" => Some(true),
        "0" | "no" | "off" | "false" | "disable" | "disabled" => Some(false),
        _ => None,
    }
}

/// A key of iSCSI negotiation in any case, with its value: what `[target.iscsi]` says.
pub(crate) fn negotiated(key: &str, value: &str) -> Option<Result<Negotiated, String>> {
    let number = |name: &'static str, low: u64, high: u64| {
        let parsed = value.trim().parse::<u64>().ok();
        match parsed.filter(|it| (low..=high).contains(it)) {
            Some(number) => Ok(Negotiated::Number(name, number)),
            None => Err(format!("`{value}` is no number from {low} to {high}")),
        }
    };
    let word = |name: &'static str| {
        switch(value)
            .map(|on| Negotiated::Switch(name, on))
            .ok_or_else(|| format!("`{value}` is neither yes nor no"))
    };
    let digest = |name: &'static str| {
        let mut accepted = Vec::new();
        for part in value.split([',', ' ']).filter(|part| !part.is_empty()) {
            match part.to_ascii_lowercase().as_str() {
                "none" => accepted.push("none"),
                "crc32c" => accepted.push("crc32c"),
                _ => return Err(format!("`{part}` is no digest")),
            }
        }
        match accepted.is_empty() {
            true => Err("no digest is named".to_owned()),
            false => Ok(Negotiated::Words(name, accepted)),
        }
    };
    let segments = (512, (1 << 24) - 1);
    Some(match key.to_ascii_lowercase().as_str() {
        "maxrecvdatasegmentlength" => {
            number("max-recv-data-segment-length", segments.0, segments.1)
        }
        "maxburstlength" => number("max-burst-length", segments.0, segments.1),
        "firstburstlength" => number("first-burst-length", segments.0, segments.1),
        "maxoutstandingr2t" => number("max-outstanding-r2t", 1, 65_535),
        "defaulttime2wait" => number("default-time2wait", 0, 3_600),
        "defaulttime2retain" => number("default-time2retain", 0, 3_600),
        "initialr2t" => word("initial-r2t"),
        "immediatedata" => word("immediate-data"),
        "headerdigest" => digest("header-digest"),
        "datadigest" => digest("data-digest"),
        _ => return None,
    })
}

/// Bytes of `64`, `10G`, `512 MB`: powers of 1024, as all of these servers count.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The worldwide name as the configuration writes it, where hosts can be told it.
pub(crate) fn naa(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_prefix("naa.").unwrap_or(&text);
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let length = match digits.bytes().next()? {
        b'3' | b'5' => 16,
        b'6' => 32,
        _ => return None,
    };
    (digits.len() == length).then(|| format!("naa.{digits}"))
}

/// An identifier of a namespace with this number of hexadecimal digits, without `-`; `none` if it is zero.
pub(crate) fn namespace_name(text: &str, digits: usize) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_prefix("0x").unwrap_or(&text).replace('-', "");
    let is_name = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_zero = text.bytes().all(|byte| byte == b'0');
    match (is_name, is_zero) {
        (true, false) => Some(text),
        (true, true) => Some("none".to_owned()),
        (false, _) => None,
    }
}

/// Hash functions of DH-HMAC-CHAP, as Linux names them and here.
pub(crate) const DHCHAP_HASHES: [(&str, Option<&str>); 3] = [
    ("hmac(sha256)", Some("sha256")),
    ("hmac(sha384)", Some("sha384")),
    ("hmac(sha512)", Some("sha512")),
];

/// Its groups. `null` is none.
pub(crate) const DHCHAP_GROUPS: [(&str, Option<&str>); 6] = [
    ("null", None),
    ("ffdhe2048", Some("ffdhe2048")),
    ("ffdhe3072", Some("ffdhe3072")),
    ("ffdhe4096", Some("ffdhe4096")),
    ("ffdhe6144", Some("ffdhe6144")),
    ("ffdhe8192", Some("ffdhe8192")),
];

/// Whether a text has the form of a secret of DH-HMAC-CHAP.
pub(crate) fn is_dhchap_secret(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    matches!(&*parts, ["DHHC-1", hash, secret, ""] if hash.len() == 2 && !secret.is_empty())
}

/// 1 to `max` printable ASCII characters.
pub(crate) fn printable(text: &str, max: usize) -> bool {
    let allowed = |byte: u8| (0x20..0x7f).contains(&byte);
    !text.is_empty() && text.len() <= max && text.bytes().all(allowed)
}

/// A UUID in its usual form that is not zero.
pub(crate) fn uuid(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    let digits = text.bytes().filter(|byte| *byte != b'-');
    let hexadecimal = digits.clone().all(|byte| byte.is_ascii_hexdigit());
    let zero = digits.clone().all(|byte| byte == b'0');
    (parts == [8, 4, 4, 4, 12] && hexadecimal && !zero).then_some(text)
}

/// Whether initiators can be told by this name: RFC 7143 §4.2.7.
pub(crate) fn iscsi_name(name: &str) -> bool {
    let form = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|form| name.to_ascii_lowercase().starts_with(form));
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':');
    form && name.len() <= 223 && name.chars().all(allowed)
}

/// A pattern of initiator names with `*` and `?`.
pub(crate) fn initiator_pattern(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| !matches!(c, '*' | '?')).collect();
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':');
    !name.is_empty() && name.len() <= 223 && plain.chars().all(allowed)
}
