//! What somebody does with the dashboard, in a real browser.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::browser::{Browser, ENTER, SPACE, Scheme};
use super::load::Clients;
use crate::command::run_for_output;
use crate::counts::Counts;
use crate::served::Served;

/// The checker of accessibility.
const AXE: &str = include_str!("axe/axe.min.js");

/// Dialogs of a page that are looked at: rows of a table have the same.
const DIALOGS: usize = 8;

/// What the story creates.
const TARGET: &str = "iqn.2026-11.com.example:story";

struct Story {
    browser: Browser,
    served: Served,
}

type Chapter = (&'static str, fn(&Story) -> Result<()>);

const CHAPTERS: [Chapter; 9] = [
    ("a URL logs in once", logs_in_once),
    ("numbers are live, and paused while nobody looks", is_live),
    (
        "a volume is created by the keyboard alone",
        creates_by_keyboard,
    ),
    ("refusals are shown where they belong", shows_refusals),
    (
        "a volume is mapped, resized and removed",
        maps_resizes_and_removes,
    ),
    ("a configuration is planned before it is applied", plans),
    ("another page cannot use the log-in", keeps_strangers_out),
    (
        "no page has a serious finding of axe, moves, or is too wide",
        is_accessible,
    ),
    ("pages can be read without a script", works_without_script),
];

pub fn log_in(served: &Served) -> Result<String> {
    let output = run_for_output(
        Command::new(&served.program)
            .args(["dashboard", "--server"])
            .arg(format!("http://{}", served.address))
            .arg("--token-file")
            .arg(served.token_file()),
    )?;
    Ok(output.trim().to_owned())
}

pub fn run() -> Result<Counts> {
    let served = Served::start()?;
    let story = Story {
        browser: Browser::start()?,
        served,
    };
    let mut counts = Counts::default();
    for (name, chapter) in CHAPTERS {
        let told = chapter(&story).and_then(|()| story.is_quiet());
        match told {
            Ok(()) => {
                println!("ok   dashboard {name}");
                counts += Counts::PASSED;
            }
            Err(error) => {
                println!("FAIL dashboard {name}: {error:#}");
                counts += Counts::FAILED;
            }
        }
    }
    Ok(counts)
}

impl Story {
    fn go(&self, path: &str) -> Result<()> {
        self.browser
            .open(&format!("http://{}{path}", self.served.address))?;
        self.browser
            .wait("a live page", "document.body.dataset.live === 'on'")
    }

    /// The console has nothing to say.
    fn is_quiet(&self) -> Result<()> {
        let complaints = self.browser.complaints()?;
        ensure!(complaints.is_empty(), "the console says {complaints:?}");
        Ok(())
    }

    fn volume(&self, name: &str) -> Result<Value> {
        let answer = self.served.get("/api/v1/volumes", "application/json")?;
        let volumes: Value = serde_json::from_str(&answer.body)?;
        let items = volumes["items"].as_array().context("a list")?;
        Ok(items
            .iter()
            .find(|it| it["name"] == name)
            .cloned()
            .unwrap_or_default())
    }
}

fn logs_in_once(story: &Story) -> Result<()> {
    let Story { browser, served } = story;
    let url = log_in(served)?;
    browser.open(&format!("http://{}/ui/volumes", served.address))?;
    ensure!(
        browser.url()?.ends_with("/login"),
        "a page without a log-in"
    );
    browser.open(&url)?;
    browser.wait(
        "the overview",
        "document.querySelector('h1')?.textContent === 'Overview'",
    )?;
    ensure!(
        !browser.url()?.contains('#'),
        "the code is in the address: {}",
        browser.url()?
    );
    let cookies = browser.run("return document.cookie")?;
    ensure!(cookies == "", "a script sees the cookie: {cookies}");
    browser.open("about:blank")?;
    browser.open(&url)?;
    browser.wait(
        "the refusal",
        "document.body.innerText.includes('not valid')",
    )?;
    // The refusal is one of the console, too.
    browser.complaints()?;
    story.go("/")
}

fn is_live(story: &Story) -> Result<()> {
    let Story { browser, served } = story;
    story.go("/")?;
    let _clients = Clients::start(served, &[0])?;
    let number = "document.querySelector('dd[data-live=operations]').textContent";
    browser.wait("operations", &format!("{number} !== '0'"))?;
    let before = browser.text("dd[data-live=operations]")?;
    browser.wait("another number", &format!("{number} !== {before:?}"))?;
    browser.wait(
        "points of the chart",
        "document.querySelectorAll('[data-history] tr').length > 2",
    )?;
    browser.wait(
        "a chart",
        "document.querySelector('.uplot canvas') !== null",
    )?;
    browser.wait("the busy volume", "[...document.querySelectorAll('[data-volume=disk0] [data-live=operations]')].some((it) => it.textContent !== '0')")?;
    let hide = |hidden: bool| {
        browser.run(&format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); \
             document.dispatchEvent(new Event('visibilitychange'));"
        ))
    };
    hide(true)?;
    browser.wait("a pause", "document.body.dataset.live === 'off'")?;
    hide(false)?;
    browser.wait(
        "the end of the pause",
        "document.body.dataset.live === 'on'",
    )?;
    story.go("/ui/pipeline")?;
    browser.wait(
        "a pipeline",
        "document.querySelector('figure.pipeline svg') !== null",
    )
}

fn creates_by_keyboard(story: &Story) -> Result<()> {
    let browser = &story.browser;
    story.go("/ui/volumes")?;
    browser.tab_to("[data-opens=create-dialog]")?;
    browser.press(ENTER)?;
    browser.wait(
        "the dialog",
        "document.getElementById('create-dialog').open",
    )?;
    browser.tab_to("#create-name")?;
    browser.press("story")?;
    browser.tab_to("#create-path")?;
    browser.press(&story.served.path("story.img"))?;
    browser.tab_to("#create-size")?;
    browser.press("2M")?;
    browser.tab_to("#create button[type=submit]")?;
    browser.press(ENTER)?;
    browser.wait(
        "the page of the volume",
        "location.pathname === '/ui/volumes/story'",
    )?;
    let made = story.volume("story")?;
    ensure!(made["facts"]["size-bytes"] == 2 << 20, "{made}");
    ensure!(made["keys"]["backend"] == "file", "{made}");
    Ok(())
}

fn shows_refusals(story: &Story) -> Result<()> {
    let browser = &story.browser;
    story.go("/ui/volumes")?;
    browser.click("[data-opens=create-dialog]")?;
    browser.click("#create button[type=submit]")?;
    browser.wait(
        "the missing name",
        "document.getElementById('create-name-error').textContent !== ''",
    )?;
    browser.fill("#create-name", "story")?;
    browser.run("document.getElementById('create-backend').value = 'mem'; document.getElementById('create-backend').dispatchEvent(new Event('change', { bubbles: true }))")?;
    browser.fill("#create-size", "many")?;
    browser.click("#create button[type=submit]")?;
    browser.wait(
        "the wrong size",
        "document.getElementById('create-size').getAttribute('aria-invalid') === 'true'",
    )?;
    ensure!(
        browser.run("return document.activeElement.id")? == "create-size",
        "the focus is not on the field"
    );
    browser.fill("#create-size", "9M")?;
    browser.click("#create button[type=submit]")?;
    browser.wait(
        "the name that is taken",
        "document.getElementById('create-dialog').innerText.includes('with other keys')",
    )?;
    let size = &story.volume("story")?["facts"]["size-bytes"];
    ensure!(
        *size == 2 << 20,
        "a refused change has changed the size to {size}"
    );
    Ok(())
}

fn maps_resizes_and_removes(story: &Story) -> Result<()> {
    let browser = &story.browser;
    story.go("/ui/targets")?;
    browser.click("[data-opens=create-target-dialog]")?;
    browser.fill("#create-target-name", TARGET)?;
    browser.click("#create-target button[type=submit]")?;
    browser.wait(
        "the page of the target",
        "location.pathname.startsWith('/ui/targets/iqn')",
    )?;
    browser.wait("a live page", "document.body.dataset.live === 'on'")?;
    browser.fill("#map-lun", "3")?;
    browser.fill("#map-volume", "story")?;
    browser.click("#map button[type=submit]")?;
    browser.wait(
        "the map",
        "document.getElementById('part-maps').innerText.includes('story')",
    )?;
    story.go("/ui/volumes/story")?;
    browser.wait(
        "who maps it",
        &format!("document.getElementById('part-maps').innerText.includes({TARGET:?})"),
    )?;
    browser.fill("#resize-size", "4M")?;
    browser.click("#resize button[type=submit]")?;
    browser.wait(
        "the new size",
        "document.getElementById('part-facts').innerText.includes('4 MiB')",
    )?;
    // Another client changes something, and the page shows it.
    let patched = json!({"read-only": true});
    story.served.patch("/api/v1/volumes/story", &patched)?;
    browser.wait(
        "the change of another",
        "/read-only\\s+yes/.test(document.getElementById('part-facts').innerText)",
    )?;
    story.go(&format!("/ui/targets/{}", TARGET.replace(':', "%3A")))?;
    browser.click("[data-opens=unmap-3-dialog]")?;
    browser.click("#unmap-3 button[type=submit]")?;
    browser.wait(
        "an empty map",
        "document.getElementById('part-maps').innerText.includes('maps no volume')",
    )?;
    story.go("/ui/volumes/story")?;
    browser.tab_to("[data-opens=remove-dialog]")?;
    browser.press(SPACE)?;
    browser.wait(
        "the dialog",
        "document.getElementById('remove-dialog').open",
    )?;
    browser.tab_to("#remove button[type=submit]")?;
    browser.press(ENTER)?;
    browser.wait("the list", "location.pathname === '/ui/volumes'")?;
    ensure!(
        story.volume("story")?.is_null(),
        "the volume is still there"
    );
    Ok(())
}

fn plans(story: &Story) -> Result<()> {
    let browser = &story.browser;
    story.go("/ui/configuration")?;
    let document = json!({"volumes": {"planned": {"backend": "null", "size": "1G"}}}).to_string();
    let set = format!(
        "const it = document.getElementById('document'); it.value = {document:?}; it.dispatchEvent(new Event('input', {{ bubbles: true }}))"
    );
    browser.run(&set)?;
    browser.click("#editor [data-step=plan]")?;
    browser.wait(
        "the plan",
        "document.querySelector('#editor [data-plan]').innerText.includes('Add volume planned')",
    )?;
    ensure!(
        story.volume("planned")?.is_null(),
        "a plan has changed something"
    );
    browser.click("#editor [data-step=apply]")?;
    browser.wait(
        "the change",
        "document.querySelector('#editor [data-plan]').innerText.includes('Done: revision')",
    )?;
    ensure!(
        story.volume("planned")?["state"] == "up",
        "the plan was not applied"
    );
    browser.wait(
        "the document",
        "document.getElementById('part-running').innerText.includes('planned')",
    )
}

fn keeps_strangers_out(story: &Story) -> Result<()> {
    let browser = &story.browser;
    let url = format!(
        "http://{}/api/v1/volumes/planned:disable",
        story.served.address
    );
    // Another port of this machine is another origin of the same site: the browser sends the cookie from there. The
    // same machine by another name is another site: it does not.
    let other = Served::start()?;
    for foreign in [
        format!("http://{}/healthz", other.address),
        format!("http://localhost:{}/healthz", story.served.address.port()),
    ] {
        browser.open(&foreign)?;
        let tried = browser.run_async(&format!(
            "const done = arguments[0]; fetch({url:?}, {{ method: 'POST', mode: 'no-cors', credentials: 'include' }})\
             .then(() => done('sent'), (error) => done(String(error)))"
        ))?;
        ensure!(
            tried == "sent",
            "the request of {foreign} was not sent: {tried}"
        );
        ensure!(
            story.volume("planned")?["state"] == "up",
            "a page of {foreign} has disabled a volume"
        );
        browser.complaints()?;
    }
    Ok(())
}

fn is_accessible(story: &Story) -> Result<()> {
    let browser = &story.browser;
    let mut dialogs = 0;
    for scheme in [Scheme::Light, Scheme::Dark] {
        browser.prefer(scheme)?;
        for path in [
            "/",
            "/ui/volumes",
            "/ui/volumes/planned",
            "/ui/targets",
            "/ui/sessions",
            "/ui/cores",
            "/ui/pipeline",
            "/ui/events",
            "/ui/configuration",
        ] {
            story.go(path)?;
            // The page, and each dialog of it while it is open.
            let found = browser.run_async(&format!(
                "{AXE}; const done = arguments[0]; const look = async (at) => {{ \
                 const it = await axe.run(at, {{ resultTypes: ['violations'] }}); \
                 return it.violations.filter((it) => ['serious', 'critical'].includes(it.impact)) \
                 .map((it) => it.id + ': ' + it.nodes.map((node) => node.html).slice(0, 3).join(' ')); }}; \
                 const all = async () => {{ const found = await look(document); let dialogs = 0; \
                 for (const button of [...document.querySelectorAll('button[data-opens]')].slice(0, {DIALOGS})) {{ \
                 const dialog = document.getElementById(button.dataset.opens); button.click(); \
                 if (!dialog.open) {{ found.push(dialog.id + ' does not open'); continue; }} \
                 found.push(...(await look(dialog)).map((it) => dialog.id + ': ' + it)); dialog.close(); dialogs += 1; }} \
                 return {{ found, dialogs }}; }}; \
                 all().then(done, (error) => done({{ found: [String(error)], dialogs: 0 }}))"
            ))?;
            ensure!(
                found["found"] == json!([]),
                "{path} ({}): {found}",
                scheme.name()
            );
            dialogs += found["dialogs"].as_u64().context("a number of dialogs")?;
        }
    }
    ensure!(dialogs > 0, "no page has a dialog");
    for width in [390, 1280] {
        browser.resize(width, 844)?;
        for path in [
            "/",
            "/ui/volumes",
            "/ui/targets",
            "/ui/cores",
            "/ui/pipeline",
            "/ui/configuration",
        ] {
            story.go(path)?;
            browser.wait(
                "numbers",
                "document.querySelectorAll('[data-history] tr').length !== 1",
            )?;
            let wide = browser.run("return document.documentElement.scrollWidth - innerWidth")?;
            let wide = wide.as_i64().context("the width of the page")?;
            ensure!(wide <= 0, "{path} is {wide} pixels wider than {width}");
            let moved = browser.run_async(
                "const done = arguments[0]; let sum = 0; new PerformanceObserver((list) => { for (const it of list.getEntries()) sum += it.value; })\
                 .observe({ type: 'layout-shift', buffered: true }); setTimeout(() => done(sum), 1200)",
            )?;
            let moved = moved.as_f64().context("how far the page moves")?;
            ensure!(moved < 0.02, "{path} moves by {moved} at {width}");
        }
    }
    browser.resize(1280, 900)
}

fn works_without_script(story: &Story) -> Result<()> {
    let Story { browser, served } = story;
    let set = |off: bool| {
        browser.devtools(
            "Emulation.setScriptExecutionDisabled",
            &json!({ "value": off }),
        )
    };
    browser.devtools("Network.clearBrowserCookies", &json!({}))?;
    let url = log_in(served)?;
    let code = url.split_once('#').context("a code")?.1;
    set(true)?;
    browser.open(&format!("http://{}/login", served.address))?;
    browser.fill("#code", code)?;
    browser.click("form.login button")?;
    // Otherwise the redirect replaces the first page while it is being read.
    browser.until("the page behind the log-in", |browser| {
        Ok(browser.url()?.ends_with(&format!("{}/", served.address)))
    })?;
    for (path, text) in [
        ("/", "What limits it"),
        ("/ui/volumes", "disk0"),
        ("/ui/cores", "Working"),
        ("/ui/configuration", "[[volume]]"),
    ] {
        browser.open(&format!("http://{}{path}", served.address))?;
        browser.until(&format!("{text:?} on {path}"), |browser| {
            Ok(browser.source()?.contains(text))
        })?;
        browser.until(&format!("a table on {path}"), |browser| {
            browser.is_displayed(":not(details) > .scroll > table, main pre")
        })?;
    }
    set(false)?;
    Ok(())
}
