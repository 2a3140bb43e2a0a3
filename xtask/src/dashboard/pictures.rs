//! Pictures of the pages: for people who look whether they are beautiful, and one for the README.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::browser::{Browser, Scheme};
use super::load::Clients;
use super::story::log_in;
use crate::counts::Counts;
use crate::served::Served;
use crate::workspace;

/// Where the picture of the README is.
const README: &str = "docs/operating/dashboard.png";

const SIZES: [(u32, u32); 3] = [(390, 844), (1280, 900), (1920, 1080)];

const PAGES: [(&str, &str); 10] = [
    ("overview", "/"),
    ("volumes", "/ui/volumes"),
    ("volume", "/ui/volumes/mail"),
    ("targets", "/ui/targets"),
    ("target", "/ui/targets/iqn.2026-11.com.example%3Ashop"),
    ("sessions", "/ui/sessions"),
    ("cores", "/ui/cores"),
    ("pipeline", "/ui/pipeline"),
    ("events", "/ui/events"),
    ("configuration", "/ui/configuration"),
];

/// A server that looks like one in use.
fn busy() -> Result<Served> {
    let served = Served::with(&[
        "mail,backend=mem,size=64M",
        "shop,backend=mem,size=128M",
        "archive,backend=null,size=40T",
        "builds,backend=mem,size=256M",
    ])?;
    let name = "iqn.2026-11.com.example:shop";
    let document = json!({
        "volumes": {"scratch": {"backend": "mem", "size": "32M"}},
        "targets": {name: {
            "luns": [{"lun": 0, "volume": "shop"}, {"lun": 1, "volume": "scratch", "read-only": true}],
            "access": [{"initiators": ["iqn.2026-11.com.example:web1", "iqn.2026-11.com.example:web2"]}],
        }},
        "subsystems": {"nqn.2026-11.com.example:builds": {"namespaces": [{"nsid": 1, "volume": "builds"}]}},
    });
    served.put("/api/v1/config", &document)?;
    Ok(served)
}

/// One with a thousand volumes.
fn large() -> Result<Served> {
    let served = Served::with(&["mail,backend=mem,size=64M"])?;
    let volume = |number: u32| {
        let keys = json!({"backend": "null", "size": format!("{}G", 1 + number % 500)});
        (format!("customer-{number:04}"), keys)
    };
    let volumes: serde_json::Map<String, Value> = (0..1000).map(volume).collect();
    let luns: Vec<Value> = (0..1000)
        .map(|number| json!({"lun": number, "volume": format!("customer-{number:04}")}))
        .collect();
    let targets = json!({"iqn.2026-11.com.example:shop": {"luns": luns}});
    served.put(
        "/api/v1/config",
        &json!({"volumes": volumes, "targets": targets}),
    )?;
    Ok(served)
}

/// All pages, in all sizes and both themes, of an empty server, a busy one, and one with a thousand volumes.
pub fn all(folder: &Path) -> Result<Counts> {
    std::fs::create_dir_all(folder)?;
    let browser = Browser::start()?;
    let mut counts = Counts::default();
    for kind in ["busy", "empty", "large"] {
        let served = match kind {
            "busy" => busy()?,
            "empty" => Served::with(&[])?,
            _ => large()?,
        };
        let luns: &[u32] = if kind == "busy" { &[0, 1, 3] } else { &[] };
        let _clients = Clients::start(&served, luns)?;
        browser.resize(1280, 900)?;
        browser.open("about:blank")?;
        browser.open(&log_in(&served)?)?;
        browser.wait("the overview", "document.body.dataset.live === 'on'")?;
        if kind == "busy" {
            std::thread::sleep(Duration::from_secs(12));
        }
        for (name, path) in PAGES {
            if kind == "empty" && ["volume", "target"].contains(&name) {
                continue;
            }
            for scheme in [Scheme::Light, Scheme::Dark] {
                browser.prefer(scheme)?;
                for (width, height) in SIZES {
                    browser.resize(width, height)?;
                    browser.open(&format!("http://{}{path}", served.address))?;
                    browser.wait("a live page", "document.body.dataset.live === 'on'")?;
                    std::thread::sleep(Duration::from_millis(if kind == "busy" {
                        1100
                    } else {
                        200
                    }));
                    let file = format!("{kind}-{name}-{width}-{}.png", scheme.name());
                    std::fs::write(folder.join(file), browser.picture(true)?)?;
                    counts += Counts::PASSED;
                }
            }
        }
    }
    Ok(counts)
}

/// The picture of the README: the overview of a busy server.
pub fn readme() -> Result<Counts> {
    let (browser, served) = (Browser::start()?, busy()?);
    let _clients = Clients::start(&served, &[0, 1, 3])?;
    browser.resize(1280, 900)?;
    browser.prefer(Scheme::Light)?;
    browser.open(&log_in(&served)?)?;
    browser.wait(
        "a chart with points",
        "document.querySelectorAll('[data-history] tr').length >= 40",
    )?;
    let picture = browser.picture(false)?;
    std::fs::write(workspace::root().join(README), picture)?;
    println!("dashboard: {README} is new");
    Ok(Counts::PASSED)
}
