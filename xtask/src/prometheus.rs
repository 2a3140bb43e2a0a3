//! Prometheus reads a server under load, and every query of the dashboard in `dist` must find data.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longshore_tests::server::{TARGET, free_port};
use serde_json::Value;

use crate::arguments::Arguments;
use crate::command::run_captured;
use crate::counts::Counts;
use crate::served::Served;
use crate::workspace;

/// The subsystem of volumes of the command line.
const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

/// Until when each query has found data, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long one query may take.
const LIMIT: Duration = Duration::from_secs(30);

/// What the server chooses the form of its metrics by, and how that form is called.
const FORMS: &[(&str, &str)] = &[
    ("text/plain; version=0.0.4", "text/plain"),
    (
        "application/openmetrics-text; version=1.0.0",
        "application/openmetrics-text",
    ),
];

pub fn run(arguments: Arguments) -> Result<Counts> {
    arguments.finish()?;
    let served = Served::start()?;
    let mut counts = Counts::default();
    let mut load = Load::start(&served)?;
    count(&mut counts, "promtool", lint(&served));
    let prometheus = Prometheus::start(&served)?;
    for query in queries()? {
        let found = prometheus.finds_data(&query);
        count(&mut counts, &query, found);
    }
    load.check()?;
    Ok(counts)
}

fn count(counts: &mut Counts, what: &str, result: Result<()>) {
    match result {
        Ok(()) => {
            println!("ok   prometheus {what}");
            *counts += Counts::PASSED;
        }
        Err(error) => {
            println!("FAIL prometheus {what}: {error:#}");
            *counts += Counts::FAILED;
        }
    }
}

/// Both forms are served; promtool reads the older one. The other is what Prometheus asks for when it scrapes.
fn lint(served: &Served) -> Result<()> {
    for (accept, expected) in FORMS {
        let answer = served.get("/metrics", accept)?;
        if !answer.content_type.starts_with(expected) {
            bail!("{expected} is answered with {}", answer.content_type);
        }
    }
    let text = served.get("/metrics", FORMS[0].0)?.body;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start promtool")?;
    let mut input = promtool.stdin.take().context("its input")?;
    input.write_all(text.as_bytes())?;
    drop(input);
    let output = promtool.wait_with_output()?;
    if !output.status.success() || !output.stderr.is_empty() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Clients of both protocols that read and write. Killed when this value goes away.
struct Load(Vec<Child>);

impl Load {
    fn start(served: &Served) -> Result<Self> {
        let urls = [
            format!("iscsi://{}/{TARGET}/0", served.server.portal(0)),
            format!("nvme+tcp://{}/{SUBSYSTEM}/2", served.server.nvme(0)),
        ];
        let mut load = Self(Vec::new());
        for url in urls {
            let client = Command::new(&served.program)
                .args(["bench", &url, "--time", "1h", "--rw", "randrw"])
                .args(["--rate", "200", "--output", "json"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .context("start a client")?;
            load.0.push(client);
        }
        Ok(load)
    }

    /// Whether all still run.
    fn check(&mut self) -> Result<()> {
        for client in &mut self.0 {
            if let Some(status) = client.try_wait()? {
                bail!("a client has ended: {status}");
            }
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for client in &mut self.0 {
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}

/// Prometheus on a loopback port. Killed when this value goes away.
struct Prometheus {
    child: Child,
    url: String,
    log: PathBuf,
}

impl Prometheus {
    fn start(served: &Served) -> Result<Self> {
        let folder = workspace::work_folder("prometheus")?;
        let data = folder.join("data");
        // Of an earlier run.
        let _ = std::fs::remove_dir_all(&data);
        let config = folder.join("prometheus.yml");
        std::fs::write(&config, configuration(served))?;
        let address = free_port();
        let log = folder.join("log");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .spawn()
            .context("start prometheus")?;
        let url = format!("http://{address}");
        Ok(Self { child, url, log })
    }

    /// Asks until there is a sample that is a number.
    fn finds_data(&self, query: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            let answer = self.ask(query);
            match answer {
                Ok(values) if values.iter().any(|value| !value.is_nan()) => return Ok(()),
                answer if begin.elapsed() > PATIENCE => {
                    let found = answer?;
                    let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                    bail!("no data, but {found:?}\n{log}");
                }
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// The values that `/api/v1/query` gives now.
    fn ask(&self, query: &str) -> Result<Vec<f64>> {
        let mut command = Command::new("promtool");
        command.args(["query", "instant", "-o", "json", &self.url, query]);
        let ended = run_captured(&mut command, LIMIT)?;
        if !ended.is_success() {
            bail!("promtool ended {}: {}", ended.how(), ended.output);
        }
        let samples: Value = serde_json::from_str(&ended.output).context("samples in JSON")?;
        let values = samples.as_array().context("a list of samples")?.iter();
        let number = |sample: &Value| sample["value"][1].as_str()?.parse().ok();
        Ok(values.filter_map(number).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(served: &Served) -> String {
    format!(
        "global: {{scrape_interval: 1s}}\n\
         scrape_configs:\n\
         - job_name: longshore\n  \
           authorization: {{credentials_file: '{}'}}\n  \
           static_configs: [{{targets: ['{}']}}]\n",
        served.token_file().display(),
        served.address
    )
}

/// Every query of the dashboards in `dist`, with its variables filled in.
fn queries() -> Result<Vec<String>> {
    let mut queries = vec!["up == 1".to_owned()];
    for entry in std::fs::read_dir(workspace::root().join("dist"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("grafana") && name.ends_with(".json") {
            let before = queries.len();
            queries.extend(queries_of(&path)?);
            if queries.len() == before {
                bail!("{} has no query", path.display());
            }
        }
    }
    if queries.len() == 1 {
        bail!("there is no dashboard");
    }
    Ok(queries)
}

fn queries_of(path: &Path) -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let mut found = Vec::new();
    collect(&dashboard, &mut found);
    found.iter().map(|query| fill_in(query)).collect()
}

/// Expressions of panels, and what variables are made of.
fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(
                fields
                    .get("expr")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            let variable = fields.get("query").and_then(Value::as_str);
            let series = variable
                .and_then(|query| query.strip_prefix("label_values("))
                .and_then(|query| query.rsplit_once(','))
                .map(|(series, _)| series.to_owned());
            found.extend(series);
            fields.values().for_each(|value| collect(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

fn fill_in(query: &str) -> Result<String> {
    let filled = query
        .replace("$__rate_interval", "10s")
        .replace("$instance", ".*")
        .replace("$volume", ".*");
    if filled.contains('$') {
        bail!("an unknown variable in {query}");
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_variables_of_the_dashboard_are_filled_in() {
        let queries = queries().unwrap();
        assert!(queries.len() > 10, "{queries:?}");
        assert!(fill_in("rate(a[$__unknown])").is_err());
    }
}
