//! All pages, with texts that an enemy chose.

use longshore_api::access::Role;
use longshore_api::change::{Caller, Revision, RevisionInfo};
use longshore_api::object::{Document, Keys, Object, ObjectId, ObjectKind, ObjectState, Owner};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_api::sample::{Connection, Durations, Sample, Shard, Stages, Volume};
use longshore_api::state::{Event, Health, Listener, Session, Status};
use serde_json::{Value, json};

use super::*;
use crate::{Activity, Frame, Theme, Viewer};

const HOSTILE: &str = "x\"'><script src=//evil.example></script><img onerror=alert(1)>&amp;";

fn status() -> Status {
    Status {
        version: "1".to_owned(),
        pid: 7,
        started_ms: 1000,
        revision: Revision(3),
        engine: "epoll".to_owned(),
        sandbox: HOSTILE.to_owned(),
        config_file: Some(HOSTILE.to_owned()),
        listeners: vec![Listener {
            service: "iscsi".to_owned(),
            address: HOSTILE.to_owned(),
        }],
        volumes: 1,
        targets: 1,
        subsystems: 0,
        sessions: 1,
        needs_restart: vec![HOSTILE.to_owned()],
        health: Health {
            alive: true,
            ready: false,
            reasons: vec![HOSTILE.to_owned()],
        },
    }
}

fn viewer(role: Role) -> Viewer {
    Viewer {
        name: HOSTILE.to_owned(),
        role,
        theme: Theme::Dark,
        can_log_out: true,
    }
}

fn keys(value: &Value) -> Keys {
    value.as_object().cloned().unwrap()
}

fn objects(kind: ObjectKind, owner: Owner) -> Vec<Object> {
    let (list, number, peers) = match kind {
        ObjectKind::Subsystem => ("namespaces", "nsid", "hosts"),
        _ => ("luns", "lun", "initiators"),
    };
    vec![Object {
        id: ObjectId {
            kind,
            name: HOSTILE.to_owned(),
        },
        owner,
        state: ObjectState::Failed,
        location: Some(HOSTILE.to_owned()),
        keys: keys(&json!({
            "backend": "file", "path": HOSTILE,
            list: [{number: 1, "volume": HOSTILE}],
            "access": [{peers: [HOSTILE], "read-only": true}],
        })),
        facts: keys(
            &json!({"size-bytes": 1 << 30, "failure": HOSTILE, "sessions": 1, HOSTILE: HOSTILE}),
        ),
    }]
}

fn sessions() -> Vec<Session> {
    vec![Session {
        id: HOSTILE.to_owned(),
        protocol: "iscsi".to_owned(),
        peer_name: HOSTILE.to_owned(),
        addresses: vec![HOSTILE.to_owned()],
        target: HOSTILE.to_owned(),
        connections: 1,
        since_ms: 0,
        volumes: vec![HOSTILE.to_owned()],
    }]
}

fn sample(seconds: u64) -> Sample {
    let operations = 100 * seconds;
    let sum = Durations {
        sum_ns: operations * 20_000,
        ..Durations::default()
    };
    Sample {
        pid: 7,
        monotonic_ns: seconds * 1_000_000_000,
        uptime_ms: seconds * 1000,
        volumes: vec![Volume {
            name: HOSTILE.to_owned(),
            reads: operations,
            errors: 1,
            ..Volume::default()
        }],
        shards: vec![Shard::default()],
        connections: vec![Connection {
            peer: HOSTILE.to_owned(),
            protocol: HOSTILE.to_owned(),
            ..Connection::default()
        }],
        stages: vec![Stages {
            volume: HOSTILE.to_owned(),
            protocol: HOSTILE.to_owned(),
            direction: "read".to_owned(),
            bytes_up_to: 4096,
            operations,
            storage: sum,
            total: sum,
            ..Stages::default()
        }],
        ..Sample::default()
    }
}

fn activity() -> Activity {
    let moment = crate::Moment::default();
    Activity::between(&sample(1), &sample(2), vec![moment])
}

fn revisions() -> Vec<RevisionInfo> {
    vec![RevisionInfo {
        revision: Revision(2),
        time_ms: 0,
        caller: Caller {
            name: HOSTILE.to_owned(),
            from: HOSTILE.to_owned(),
        },
        steps: vec![HOSTILE.to_owned()],
    }]
}

/// All pages as a role sees them.
fn pages(role: Role) -> Vec<(&'static str, String)> {
    let (status, viewer, activity) = (status(), viewer(role), activity());
    let frame = Frame {
        viewer: &viewer,
        status: &status,
        time_ms: 90_000,
    };
    let happenings = [Event {
        sequence: 1,
        time_ms: 0,
        monotonic_ns: 0,
        topic: HOSTILE.to_owned(),
        message: HOSTILE.to_owned(),
        data: Value::Null,
    }];
    let [all_volumes, all_targets, all_subsystems] =
        ObjectKind::SERVED.map(|kind| objects(kind, Owner::Api));
    let mut document = Document::default();
    let described = keys(&json!({"path": HOSTILE}));
    document.volumes.insert(HOSTILE.to_owned(), described);
    let both = [all_targets.clone(), all_subsystems.clone()].concat();
    let content = Overview {
        volumes: &all_volumes,
        targets: &all_targets,
        events: &happenings,
        activity: &activity,
    };
    let listed = Targets {
        targets: &all_targets,
        subsystems: &all_subsystems,
        filter: "",
        page: 1,
    };
    let happened = Happenings {
        events: &happenings,
        revisions: &revisions(),
        topic: "",
    };
    let configured = Configuration {
        all: &document,
        of_api: &document,
        revisions: &revisions(),
    };
    vec![
        ("overview", overview(&frame, &content)),
        (
            "volumes",
            volumes(&frame, &all_volumes, &activity, HOSTILE, 1),
        ),
        (
            "volume",
            object(&frame, &all_volumes[0], &both, &sessions(), &activity),
        ),
        ("targets", targets(&frame, &listed)),
        (
            "target",
            object(
                &frame,
                &all_targets[0],
                &all_volumes,
                &sessions(),
                &activity,
            ),
        ),
        (
            "subsystem",
            object(
                &frame,
                &all_subsystems[0],
                &all_volumes,
                &sessions(),
                &activity,
            ),
        ),
        ("sessions", sessions_page(&frame, &activity)),
        ("cores", cores(&frame, &activity)),
        ("pipeline", pipeline(&frame, &activity)),
        ("events", events(&frame, &happened)),
        ("configuration", configuration(&frame, &configured)),
    ]
}

fn sessions_page(frame: &Frame<'_>, activity: &Activity) -> String {
    super::sessions(frame, &sessions(), activity, "", 1)
}

#[test]
fn hostile_names_stay_text_on_every_page() {
    let problem = Problem::new(ProblemCode::NotFound, HOSTILE)
        .about(HOSTILE)
        .advise(HOSTILE);
    let mut all = pages(Role::Admin);
    all.push(("failure", failure(Theme::Light, &problem)));
    all.push(("log-in", log_in(Theme::Light, Some(HOSTILE))));
    for (name, page) in all {
        assert!(page.contains("&lt;script"), "{name} does not show the name");
        assert!(!page.contains("<script src=//"), "{name}");
        assert!(!page.contains("<img"), "{name}");
        // No attribute was ended.
        assert!(!page.contains("\"x\"'"), "{name}");
    }
}

#[test]
fn no_page_has_a_script_a_style_or_a_handler_within_it() {
    for (name, page) in pages(Role::Admin) {
        for script in page.split("<script").skip(1) {
            let tag = script.split('>').next().unwrap();
            assert!(tag.contains("src=\"/ui/assets/"), "{name}: {tag}");
            assert!(
                script.starts_with(&format!("{tag}></script>")),
                "{name}: {tag}"
            );
        }
        assert!(
            !page.contains("<style") && !page.contains(" style="),
            "{name}"
        );
        // In a tag, not in a text.
        let tags = page
            .split('<')
            .skip(1)
            .filter_map(|it| it.split('>').next());
        for tag in tags {
            assert!(
                !tag.contains(" onclick=") && !tag.contains("javascript:"),
                "{name}: {tag}"
            );
        }
    }
}

#[test]
fn who_may_only_read_sees_no_form_that_changes_something() {
    for (name, page) in pages(Role::Read) {
        assert!(!page.contains("data-method="), "{name}");
    }
    let may = |role, name| {
        let pages = pages(role);
        let (_, page) = pages.iter().find(|(it, _)| *it == name).unwrap();
        page.contains("data-method=")
    };
    assert!(may(Role::Operate, "sessions") && !may(Role::Operate, "volumes"));
    for (name, page) in pages(Role::Admin) {
        let changes = !["overview", "cores", "pipeline", "events"].contains(&name);
        assert_eq!(page.contains("data-method="), changes, "{name}");
    }
}

#[test]
fn an_object_of_the_file_is_shown_with_its_place_and_no_form() {
    let (status, viewer) = (status(), viewer(Role::Admin));
    let frame = Frame {
        viewer: &viewer,
        status: &status,
        time_ms: 0,
    };
    let target = &objects(ObjectKind::Target, Owner::File)[0];
    let page = object(&frame, target, &[], &[], &Activity::default());
    assert!(page.contains("belongs to the file") && page.contains("is changed there"));
    assert!(!page.contains("data-method="));
}

#[test]
fn forms_add_entries_and_the_last_rule_says_what_its_end_would_mean() {
    let (status, viewer) = (status(), viewer(Role::Admin));
    let frame = Frame {
        viewer: &viewer,
        status: &status,
        time_ms: 0,
    };
    let mut target = objects(ObjectKind::Target, Owner::Api).remove(0);
    let page = object(&frame, &target, &[], &[], &Activity::default());
    for form in ["id=\"map\"", "id=\"admit\""] {
        let (_, form) = page.split_once(form).unwrap();
        assert!(form.split_once('>').unwrap().0.contains("data-create"));
    }
    assert!(page.contains("id=\"deny-0-0-dialog\"") && page.contains("This is the last rule"));
    let rules = json!([{"initiators": ["a"]}, {"name": "group", "initiators": []}]);
    target.keys.insert("access".to_owned(), rules);
    let page = object(&frame, &target, &[], &[], &Activity::default());
    assert!(page.contains("id=\"deny-0-0-dialog\"") && !page.contains("This is the last rule"));
}

#[test]
fn every_field_and_chart_has_a_name_and_every_number_on_a_page_a_table() {
    for (name, page) in pages(Role::Admin) {
        let count = |text: &str| page.matches(text).count();
        assert_eq!(count("<h1"), 1, "{name}");
        let drawings = count("data-chart=") + count("figure class=\"pipeline\"");
        assert_eq!(count("As a table"), drawings, "{name}");
        let ids = page.split(" id=\"").skip(1);
        let mut ids: Vec<&str> = ids.filter_map(|it| it.split('"').next()).collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all, "{name}: an id is there twice");
    }
}

#[test]
fn an_overview_tells_what_is_wrong_and_what_limits() {
    let all = pages(Role::Read);
    let page = &all[0].1;
    assert!(page.contains("not ready") && page.contains("restart pending"));
    assert!(page.contains(" is failed") && page.contains("1 failed operations"));
    assert!(page.contains("event loop 0 does not answer"), "{page}");
}
