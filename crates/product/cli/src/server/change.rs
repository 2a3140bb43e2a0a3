//! Changes, as all verbs ask for them and show them.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use longshore_api::change::{Action, Applied, KeyChange, Plan, Revision, Step};
use longshore_api::envelope::Versioned;
use longshore_api::operation::{Operation, OperationState};
use serde_json::Value;

use super::ServerArguments;
use super::client::{Ask, Client, ClientError};

/// How often is asked whether volumes have drained.
const POLL: Duration = Duration::from_millis(300);
/// How long storage may not answer after the time of its volumes is over.
const STUCK: Duration = Duration::from_secs(3);
/// Exit status of a plan with changes.
pub const CHANGES: u8 = 10;

/// Options of all changes.
#[derive(Clone, Debug, Default, Args)]
pub struct ChangeArguments {
    /// Print the changes without making them; exit status 10 if there are any
    #[arg(long)]
    pub dry_run: bool,

    /// Refuse unless the configuration is at this revision
    #[arg(long, value_name = "N")]
    pub revision: Option<u64>,

    /// Also remove objects in use, after accepted commands have ended
    #[arg(long)]
    pub drain: bool,

    /// The same, without waiting for commands
    #[arg(long)]
    pub force: bool,

    /// Allow another volume under a number that clients use; they may confuse the two
    #[arg(long)]
    pub replace: bool,

    /// Do not wait for removed volumes to drain
    #[arg(long)]
    pub no_wait: bool,

    /// Only if it is not there, or is the same.
    #[arg(skip)]
    pub create: bool,
}

impl ChangeArguments {
    /// The same for what is not there yet.
    pub fn creating(&self) -> Self {
        Self {
            create: true,
            ..self.clone()
        }
    }

    /// The path with these options in its query.
    fn query(&self, path: &str) -> String {
        let options = [
            (self.dry_run, "dry-run"),
            (self.drain, "drain"),
            (self.force, "force"),
            (self.replace, "replace"),
        ];
        let given = options.iter().filter(|(given, _)| *given);
        let names: Vec<&str> = given.map(|(_, name)| *name).collect();
        if names.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{}", names.join("&"))
        }
    }
}

/// Asks for a change, and shows what was done or would be.
pub fn change(
    server: &ServerArguments,
    client: &Client,
    options: &ChangeArguments,
    (method, path): (&str, &str),
    body: Option<Value>,
) -> Result<ExitCode, ClientError> {
    let answer = client.ask(Ask {
        method,
        path: options.query(path),
        body,
        if_match: options.revision.map(Revision),
        create: options.create,
    })?;
    if options.dry_run {
        return show_plan(server, &answer.read()?);
    }
    let applied: Versioned<Applied> = answer.read()?;
    let printed = server.print(&applied, |applied| done(&applied.body));
    if let Some(place) = answer.location.filter(|_| !options.no_wait) {
        wait(client, &place)?;
    }
    Ok(printed)
}

/// Prints a plan. The exit status tells whether there is something to do.
pub fn show_plan(
    server: &ServerArguments,
    plan: &Versioned<Plan>,
) -> Result<ExitCode, ClientError> {
    let printed = server.print(plan, |plan| planned(&plan.body));
    let has_changes = !plan.body.is_empty();
    Ok(if has_changes {
        ExitCode::from(CHANGES)
    } else {
        printed
    })
}

fn wait(client: &Client, place: &str) -> Result<(), ClientError> {
    let mut told = Vec::new();
    let mut stuck_since = None;
    loop {
        let operation: Versioned<Operation> = client.get(place)?.read()?;
        let operation = operation.body;
        match operation.state {
            OperationState::Done => return Ok(()),
            OperationState::Failed => {
                let failure = operation.failure.unwrap_or_default();
                return Err(ClientError::Ending(format!(
                    "revision {} is in force, and {failure}",
                    operation.revision.0
                )));
            }
            OperationState::Stuck => {
                let since = *stuck_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= STUCK {
                    return Err(stuck(&operation));
                }
            }
            OperationState::Running => stuck_since = None,
        }
        if operation.draining != told {
            eprintln!(
                "waiting for accepted commands: {}",
                operation.draining.join(", ")
            );
            told = operation.draining;
        }
        thread::sleep(POLL);
    }
}

/// The time of its volumes is over.
fn stuck(operation: &Operation) -> ClientError {
    ClientError::Ending(format!(
        "revision {} is in force, and the storage of {} does not answer: accepted commands, or the last flush, are \
         not completed\nLook at that storage. The volume is closed when it answers; longshore volume list shows it as \
         stuck until then",
        operation.revision.0,
        operation.draining.join(", ")
    ))
}

fn done(applied: &Applied) -> String {
    if applied.plan.is_empty() {
        return format!("no changes (revision {})\n", applied.revision.0);
    }
    let mut text = steps(&applied.plan);
    let _ = writeln!(text, "revision {}", applied.revision.0);
    text
}

fn planned(plan: &Plan) -> String {
    let revision = plan.revision.map_or(0, |Revision(revision)| revision);
    let mut text = steps(plan);
    let _ = match plan.steps.len() + plan.listeners.len() + plan.settings.len() {
        0 => writeln!(text, "no changes (revision {revision})"),
        1 => writeln!(text, "1 change to revision {revision}"),
        number => writeln!(text, "{number} changes to revision {revision}"),
    };
    text
}

fn steps(plan: &Plan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        text += &shown(step);
    }
    for step in &plan.listeners {
        let mark = if step.action == Action::Add { '+' } else { '-' };
        let _ = writeln!(text, "{mark} {step}");
    }
    if !plan.settings.is_empty() {
        text += "~ change settings\n";
        text += &plan.settings.iter().map(key_change).collect::<String>();
    }
    for key in &plan.needs_restart {
        let _ = writeln!(text, "! {key} takes effect at the next start");
    }
    for warning in &plan.warnings {
        let _ = writeln!(text, "! {warning}");
    }
    text
}

/// A step with the keys that change.
fn shown(step: &Step) -> String {
    let (mark, verb) = match step.action {
        Action::Add => ('+', "add"),
        Action::Change => ('~', "change"),
        Action::Adopt => ('=', "adopt"),
        Action::Remove => ('-', "remove"),
    };
    let mut text = format!("{mark} {verb} {}", step.id);
    if let Some(effect) = &step.effect {
        let _ = write!(text, " ({effect})");
    }
    text.push('\n');
    text += &step.changes.iter().map(key_change).collect::<String>();
    text
}

fn key_change(change: &KeyChange) -> String {
    let key = &change.key;
    match (&change.before, &change.after) {
        (None, Some(after)) => format!("    + {key} = {after}\n"),
        (Some(before), None) => format!("    - {key} = {before}\n"),
        (Some(before), Some(after)) => format!("    ~ {key}: {before} -> {after}\n"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use longshore_api::object::{ObjectId, ObjectKind, Owner};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_reads_as_a_difference() {
        let change = |key: &str, before, after| KeyChange {
            key: key.to_owned(),
            before,
            after,
        };
        let plan = Plan {
            revision: Some(Revision(7)),
            steps: vec![Step {
                action: Action::Change,
                id: ObjectId {
                    kind: ObjectKind::Volume,
                    name: "a".to_owned(),
                },
                owner: Owner::Api,
                changes: vec![
                    change("size", Some(json!("1G")), Some(json!("2G"))),
                    change("direct", None, Some(json!(true))),
                ],
                effect: Some("hosts see the new size".to_owned()),
            }],
            listeners: Vec::new(),
            settings: Vec::new(),
            needs_restart: vec!["engine.cores".to_owned()],
            warnings: Vec::new(),
        };
        assert_eq!(
            planned(&plan),
            "~ change volume a (hosts see the new size)\n    \
             ~ size: \"1G\" -> \"2G\"\n    + direct = true\n\
             ! engine.cores takes effect at the next start\n1 change to revision 7\n"
        );
        assert_eq!(planned(&Plan::default()), "no changes (revision 0)\n");
    }

    #[test]
    fn options_become_a_query() {
        let options = ChangeArguments {
            dry_run: true,
            force: true,
            ..ChangeArguments::default()
        };
        assert_eq!(options.query("/x"), "/x?dry-run&force");
        assert_eq!(ChangeArguments::default().query("/x"), "/x");
    }
}
