//! CHAP accounts: where their secrets come from, and what is refused or warned about.

use longshore_iscsi::chap::{ChapAlgorithm, Secret};
use longshore_iscsi::server::directory::{Authentication, ChapAccount, ChapAuthentication};
use toml::Spanned;

use super::document::AccountTable;
use super::file::ConfigFile;
use super::problem::{Problem, ProblemKind};
use super::secret_file;
use super::warning::Warning;

/// The algorithms by their names in the file.
const ALGORITHMS: [(&str, ChapAlgorithm); 4] = [
    ("sha3-256", ChapAlgorithm::Sha3_256),
    ("sha256", ChapAlgorithm::Sha256),
    ("sha1", ChapAlgorithm::Sha1),
    ("md5", ChapAlgorithm::Md5),
];

/// What a table says about authentication.
pub(super) struct Demand<'a> {
    /// CHAP accounts; nobody has to prove anything when there are none.
    pub accounts: &'a [AccountTable],
    /// What we prove ourselves with when asked.
    pub mutual: Option<&'a AccountTable>,
    /// Allowed algorithms; all of them when not given.
    pub algorithms: Option<&'a Spanned<Vec<String>>>,
}

/// Reads the secrets and checks them against each other.
pub(super) fn authentication(
    file: &ConfigFile,
    demand: &Demand<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Authentication, Problem> {
    let algorithms = demand
        .algorithms
        .map(|list| algorithms(file, list))
        .transpose()?;
    if demand.accounts.is_empty() {
        return match demand.mutual {
            Some(mutual) => {
                Err(file.problem(mutual.user.span(), ProblemKind::MutualWithoutAccounts))
            }
            None => Ok(Authentication::none()),
        };
    }
    let mut accounts: Vec<ChapAccount> = Vec::with_capacity(demand.accounts.len());
    for table in demand.accounts {
        let account = account(file, table, warnings)?;
        if accounts.iter().any(|other| other.name == account.name) {
            let kind = ProblemKind::DuplicateAccount(account.name);
            return Err(file.problem(table.user.span(), kind));
        }
        accounts.push(account);
    }
    let mutual = match demand.mutual {
        Some(table) => {
            let mutual = account(file, table, warnings)?;
            if let Some(same) = accounts.iter().find(|other| other.secret == mutual.secret) {
                let kind = ProblemKind::SecretReused(same.name.clone());
                return Err(file.problem(table.user.span(), kind));
            }
            Some(mutual)
        }
        None => None,
    };
    Ok(Authentication::chap_required(ChapAuthentication {
        accounts,
        mutual,
        algorithms: algorithms.unwrap_or_default(),
    }))
}

/// One account with its secret.
fn account(
    file: &ConfigFile,
    table: &AccountTable,
    warnings: &mut Vec<Warning>,
) -> Result<ChapAccount, Problem> {
    let user = table.user.get_ref();
    if !(1..=255).contains(&user.len()) || user.chars().any(char::is_control) {
        return Err(file.problem(table.user.span(), ProblemKind::BadUser));
    }
    let (text, span) = match (&table.secret, &table.secret_file) {
        (Some(secret), None) => (secret.get_ref().0.clone().into(), secret.span()),
        (None, Some(path)) => {
            let place = secret_file::place(file, path.get_ref());
            let found = secret_file::read(&place).map_err(|source| {
                let kind = ProblemKind::SecretUnreadable {
                    path: place.clone(),
                    source,
                };
                file.problem(path.span(), kind)
            })?;
            if found.is_for_all() {
                warnings.push(Warning::SecretFileForAll { path: place });
            }
            (found.text, path.span())
        }
        _ => {
            let kind = ProblemKind::SecretMissing(user.clone());
            return Err(file.problem(table.user.span(), kind));
        }
    };
    if !(1..=255).contains(&text.len()) {
        let kind = ProblemKind::SecretLength {
            user: user.clone(),
            length: text.len(),
        };
        return Err(file.problem(span, kind));
    }
    let secret = Secret::new(text.as_bytes());
    if secret.is_short() {
        warnings.push(Warning::ShortSecret { user: user.clone() });
    }
    Ok(ChapAccount {
        name: user.clone(),
        secret,
    })
}

/// Reads a list of algorithms.
fn algorithms(
    file: &ConfigFile,
    list: &Spanned<Vec<String>>,
) -> Result<Vec<ChapAlgorithm>, Problem> {
    if list.get_ref().is_empty() {
        return Err(file.problem(list.span(), ProblemKind::NoAlgorithm));
    }
    let find = |name: &String| {
        let lower = name.to_ascii_lowercase();
        ALGORITHMS
            .into_iter()
            .find(|(known, _)| *known == lower)
            .map(|(_, algorithm)| algorithm)
    };
    list.get_ref()
        .iter()
        .map(|name| {
            let unknown = || file.problem(list.span(), ProblemKind::UnknownAlgorithm(name.clone()));
            find(name).ok_or_else(unknown)
        })
        .collect()
}
