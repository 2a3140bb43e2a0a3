//! Reads the `[[pool]]` tables of a file.

use super::file::ConfigFile;
use super::pool::{PoolConfig, PoolTable};
use super::problem::{Problem, ProblemKind};
use super::volume;

/// The pools of a file, for those who need nothing else of it.
///
/// # Errors
/// The first mistake.
pub fn of_file(file: &ConfigFile) -> Result<Vec<PoolConfig>, Problem> {
    let (pools, problems) = read(file);
    match problems.into_iter().next() {
        None => Ok(pools),
        Some(problem) => Err(problem),
    }
}

/// The pools of a file, and what is wrong with others.
pub(super) fn read(file: &ConfigFile) -> (Vec<PoolConfig>, Vec<Problem>) {
    let mut pools: Vec<PoolConfig> = Vec::new();
    let mut problems = Vec::new();
    for table in &file.document.pool {
        let name = table.name.get_ref();
        match read_one(file, table) {
            Ok(_) if pools.iter().any(|pool| pool.name == *name) => {
                let kind = ProblemKind::DuplicatePool(name.clone());
                problems.push(file.problem(table.name.span(), kind));
            }
            Ok(pool) => pools.push(pool),
            Err(problem) => problems.push(problem),
        }
    }
    (pools, problems)
}

fn read_one(file: &ConfigFile, table: &PoolTable) -> Result<PoolConfig, Problem> {
    let name = table.name.get_ref();
    let at = |kind| file.problem(table.name.span(), kind);
    volume::check_name(name).map_err(|_| at(ProblemKind::BadPoolName(name.clone())))?;
    let drives = table.drives.get_ref();
    if drives.is_empty() {
        let kind = ProblemKind::NoDrives(name.clone());
        return Err(file.problem(table.drives.span(), kind));
    }
    Ok(PoolConfig {
        name: name.clone(),
        drives: drives.iter().map(|drive| file.resolve(drive)).collect(),
        direct: table.direct.unwrap_or(false),
    })
}
