//! A headless Chromium, by the protocol of WebDriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_tests::scratch::Scratch;
use serde_json::{Value, json};

/// How long a command, or what is waited for, may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// The name of an element's reference in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys as WebDriver writes them.
const TAB: &str = "\u{e004}";
pub const ENTER: &str = "\u{e007}";
pub const SPACE: &str = " ";

/// A browser with one window. It ends when this value goes away.
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _scratch: Scratch,
}

/// Colours that the system is said to prefer.
#[derive(Clone, Copy, Debug)]
pub enum Scheme {
    Light,
    Dark,
}

impl Scheme {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

impl Browser {
    pub fn start() -> Result<Self> {
        let scratch = Scratch::new("browser");
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            // Profiles go with the folder.
            .env("TMPDIR", scratch.path())
            .env("HOME", scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start chromedriver")?;
        let output = driver.stdout.take().context("its output")?;
        let mut lines = BufReader::new(output).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            let rest = line.split("successfully on port ").nth(1)?;
            rest.trim_end_matches('.').parse::<u16>().ok()
        });
        // The driver would stop at a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self {
            driver,
            address: (
                Ipv4Addr::LOCALHOST,
                port.context("the port of chromedriver")?,
            )
                .into(),
            session: String::new(),
            _scratch: scratch,
        };
        let options = json!({
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--force-color-profile=srgb", "--no-first-run", "--disable-background-networking", "--window-size=1280,900",
            ],
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = browser.ask("POST", "/session", Some(&wanted))?;
        let id = made["sessionId"].as_str().context("a session")?;
        id.clone_into(&mut browser.session);
        Ok(browser)
    }

    /// One request to the driver, and its value.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let mut stream = TcpStream::connect(self.address).context("reach chromedriver")?;
        stream.set_read_timeout(Some(LIMIT))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut reader = BufReader::new(stream);
        let mut length = None;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok();
            }
        }
        let mut answer = vec![0; length.context("the length of an answer")?];
        reader.read_exact(&mut answer)?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let value = answer["value"].clone();
        if let Some(error) = value.get("error").and_then(Value::as_str) {
            bail!("{method} {path}: {error}: {}", value["message"]);
        }
        Ok(value)
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let path = format!("/session/{}{path}", self.session);
        self.ask(method, &path, (method == "POST").then_some(body))
    }

    pub fn open(&self, url: &str) -> Result<()> {
        self.command("POST", "/url", &json!({ "url": url }))
            .map(drop)
    }

    pub fn url(&self) -> Result<String> {
        let url = self.command("GET", "/url", &Value::Null)?;
        Ok(url.as_str().context("a URL")?.to_owned())
    }

    /// The document as it is now.
    pub fn source(&self) -> Result<String> {
        let source = self.command("GET", "/source", &Value::Null)?;
        Ok(source.as_str().context("a document")?.to_owned())
    }

    /// Whether what a selector finds first can be seen.
    pub fn is_displayed(&self, selector: &str) -> Result<bool> {
        let path = format!("/element/{}/displayed", self.find(selector)?);
        Ok(self.command("GET", &path, &Value::Null)? == Value::Bool(true))
    }

    /// Waits until a question to the browser is answered by yes. Needs no script in the page.
    pub fn until(&self, what: &str, ask: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let begin = Instant::now();
        loop {
            // The page may be between two documents.
            match ask(self) {
                Ok(true) => return Ok(()),
                Ok(false) if begin.elapsed() > LIMIT => bail!("{what}: not seen in time"),
                Err(error) if begin.elapsed() > LIMIT => return Err(error.context(what.to_owned())),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Runs a script in the page, and gives what it returns.
    pub fn run(&self, script: &str) -> Result<Value> {
        let body = json!({ "script": script, "args": [] });
        self.command("POST", "/execute/sync", &body)
    }

    /// Runs a script that calls its last argument with the result.
    pub fn run_async(&self, script: &str) -> Result<Value> {
        let body = json!({ "script": script, "args": [] });
        self.command("POST", "/execute/async", &body)
    }

    /// Waits until an expression in the page is true.
    pub fn wait(&self, what: &str, expression: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            // The page may be between two documents.
            let found = self.run(&format!("return Boolean({expression})"));
            match found {
                Ok(Value::Bool(true)) => return Ok(()),
                _ if begin.elapsed() > LIMIT => {
                    let page = self
                        .run("return document.body.innerText")
                        .unwrap_or_default();
                    bail!(
                        "{what}: not seen in time; the page shows:\n{}",
                        page.as_str().unwrap_or("")
                    );
                }
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// The text that a selector finds first.
    pub fn text(&self, selector: &str) -> Result<String> {
        let text = self.run(&format!(
            "return document.querySelector({selector:?})?.innerText"
        ))?;
        let text = text
            .as_str()
            .with_context(|| format!("nothing is {selector}"))?;
        Ok(text.trim().to_owned())
    }

    /// Clicks what a selector finds first, as a pointer does.
    pub fn click(&self, selector: &str) -> Result<()> {
        let element = self.find(selector)?;
        let path = format!("/element/{element}/click");
        self.command("POST", &path, &json!({})).map(drop)
    }

    /// Types into what a selector finds first.
    pub fn fill(&self, selector: &str, text: &str) -> Result<()> {
        let element = self.find(selector)?;
        self.command("POST", &format!("/element/{element}/clear"), &json!({}))?;
        let body = json!({ "text": text });
        self.command("POST", &format!("/element/{element}/value"), &body)
            .map(drop)
    }

    fn find(&self, selector: &str) -> Result<String> {
        let body = json!({ "using": "css selector", "value": selector });
        let found = self.command("POST", "/element", &body)?;
        let element = found[ELEMENT].as_str().context("an element")?;
        Ok(element.to_owned())
    }

    /// Presses keys one after the other, wherever the focus is.
    pub fn press(&self, keys: &str) -> Result<()> {
        let each = keys.chars().map(String::from);
        let actions: Vec<Value> = each
            .flat_map(|key| {
                [
                    json!({"type": "keyDown", "value": key}),
                    json!({"type": "keyUp", "value": key}),
                ]
            })
            .collect();
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.command("POST", "/actions", &body).map(drop)
    }

    /// Presses Tab until the element in focus matches a selector.
    pub fn tab_to(&self, selector: &str) -> Result<()> {
        for _ in 0..80 {
            let is_there = format!("return document.activeElement?.matches({selector:?}) ?? false");
            if self.run(&is_there)? == Value::Bool(true) {
                return Ok(());
            }
            self.press(TAB)?;
        }
        bail!("the Tab key does not reach {selector}");
    }

    /// A command of Chromium's own protocol.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        let body = json!({ "cmd": command, "params": parameters });
        self.command("POST", "/goog/cdp/execute", &body)
    }

    pub fn prefer(&self, scheme: Scheme) -> Result<()> {
        let features =
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme.name()}]});
        self.devtools("Emulation.setEmulatedMedia", &features)
            .map(drop)
    }

    /// Makes the window so wide, in pixels of the page.
    pub fn resize(&self, width: u32, height: u32) -> Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size)
            .map(drop)
    }

    /// A picture (PNG) of the window, or of the page down to its end.
    pub fn picture(&self, is_whole: bool) -> Result<Vec<u8>> {
        let mut parameters = json!({"format": "png", "captureBeyondViewport": is_whole});
        if is_whole {
            let size = self.run("return [document.documentElement.clientWidth, document.documentElement.scrollHeight]")?;
            let height = size[1].as_u64().unwrap_or(900).min(4000);
            parameters["clip"] =
                json!({"x": 0, "y": 0, "width": size[0], "height": height, "scale": 1});
        }
        let made = self.devtools("Page.captureScreenshot", &parameters)?;
        let data = made["data"].as_str().context("a picture")?;
        Ok(STANDARD.decode(data)?)
    }

    /// What the console says, beside answers of the API that refuse something.
    pub fn complaints(&self) -> Result<Vec<String>> {
        let log = self.command("POST", "/se/log", &json!({"type": "browser"}))?;
        let entries = log.as_array().context("a log")?.iter();
        let messages = entries.filter_map(|entry| {
            let message = entry["message"].as_str()?;
            let refused = [" 409 ", " 422 ", " 403 "];
            let is_refusal =
                entry["source"] == "network" && refused.iter().any(|it| message.contains(it));
            (!is_refusal).then(|| message.to_owned())
        });
        Ok(messages.collect())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // This ends the browser; the driver would leave it.
        let _ = self.command("DELETE", "", &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
