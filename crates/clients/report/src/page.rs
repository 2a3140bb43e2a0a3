//! A report as one HTML page.

use std::fmt::Write as _;

use longshore_model::advice::Advice;
use longshore_model::parameter::Name;
use longshore_model::pipeline::Pipeline;
use longshore_model::probe::{Direction, Fitted, Probe};

use crate::diagram;
use crate::escape::{markup, size, time};

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// None: a running server was looked at.
    pub probe: Option<&'a Probe>,
    pub pipelines: &'a [Pipeline],
    pub advice: Option<&'a Advice>,
}

const STYLE: &str = "body{font:15px/1.45 sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;margin:.8em 0}\
th,td{text-align:left;padding:.25em .8em .25em 0;border-bottom:1px solid #ddd;vertical-align:top}\
svg{max-width:100%;height:auto}.small{color:#555;font-size:.9em}ul{padding-left:1.2em}";

/// The whole page, as bytes of one file have it.
#[must_use]
pub fn html(document: &Document<'_>) -> String {
    let name = document
        .probe
        .map_or("a running server", |probe| probe.subject.name.as_str());
    let name = markup(name);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>Longshore: {name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
    );
    if let Some(probe) = document.probe {
        subject(&mut page, probe);
    }
    if let Some(advice) = document.advice {
        advised(&mut page, advice);
    }
    if !document.pipelines.is_empty() {
        page += "<h2>The life of an operation</h2>\n";
    }
    for pipeline in document.pipelines {
        page += &diagram::svg(pipeline);
    }
    if let Some(probe) = document.probe {
        for (direction, fitted) in [("reads", &probe.fitted), ("writes", &probe.fitted_writes)] {
            if let Some(fitted) = fitted {
                parts(&mut page, direction, fitted, probe);
            }
        }
        remarks(&mut page, probe);
    }
    page += "</body>\n</html>\n";
    page
}

fn subject(page: &mut String, probe: &Probe) {
    let subject = &probe.subject;
    let product = subject.product.as_deref().unwrap_or("this machine");
    let _ = writeln!(
        page,
        "<p>{} · {} in blocks of {} · measured for {} s</p>",
        markup(product),
        size(subject.volume_bytes),
        size(subject.block_size),
        probe.took_ms / 1000
    );
}

fn advised(page: &mut String, advice: &Advice) {
    let direction = match advice.goal.direction {
        Direction::Read => "reads",
        Direction::Write => "writes",
    };
    let _ = writeln!(
        page,
        "<h2>Advice for {direction} of {}, depth {}</h2>",
        size(advice.goal.size_bytes),
        advice.goal.depth
    );
    let ceiling = &advice.ceiling;
    let _ = writeln!(
        page,
        "<p>{:.0} operations a second are predicted, {:.0} % of what the limit allows: {}.</p>",
        advice.iops,
        ceiling.reached_percent,
        markup(&ceiling.limit)
    );
    if advice.items.is_empty() {
        let _ = writeln!(
            page,
            "<p>No change gains more than the {:.1} % that measurement and model leave open.</p>",
            advice.threshold_percent
        );
        return;
    }
    *page += "<table><tr><th>change<th>gain<th>where<th>how<th>cost and risk<th>check</tr>\n";
    for item in &advice.items {
        let gain = item.gain_percent;
        let how: Vec<String> = item.how.iter().map(|it| markup(it)).collect();
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{:+.0} % <span class=\"small\">({:.0} to {:.0})</span><td>{}<td>{}<td>{}; {}<td>{}</tr>",
            markup(&item.what),
            gain.value,
            gain.low,
            gain.high,
            item.place.name(),
            how.join("<br>"),
            markup(item.cost),
            markup(item.risk),
            markup(item.check)
        );
    }
    *page += "</table>\n";
}

fn parts(page: &mut String, direction: &str, fitted: &Fitted, probe: &Probe) {
    let _ = writeln!(
        page,
        "<h2>Parts of {direction}</h2>\n<table><tr><th>part<th>value<th><th>source</tr>"
    );
    for part in &fitted.parameters {
        let value = match Name::find(&part.name) {
            Ok(Name::Key(key)) => key.definition().unit.show(part.value).to_string(),
            _ => String::new(),
        };
        let percent = 100.0 * part.uncertainty / part.value.max(f64::MIN_POSITIVE);
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}<td>±{percent:.0} %<td>{}</tr>",
            markup(&part.name),
            markup(&value),
            markup(&part.note)
        );
    }
    *page += "</table>\n";
    for group in &fitted.confounded {
        let _ = writeln!(
            page,
            "<p>{} cannot be told apart by the measurements.</p>",
            markup(&group.join(" and "))
        );
    }
    let Some(error) = fitted.error else { return };
    let _ = writeln!(
        page,
        "<p>Loads that were kept back are predicted with a median error of {:.1} %, {:.1} % at worst.</p>\n\
         <table><tr><th>kept back<th>measured<th>spread<th>error</tr>",
        error.median_percent, error.worst_percent
    );
    for held in &fitted.held {
        if let Some(point) = probe.points.get(held.point) {
            let _ = writeln!(
                page,
                "<tr><td>{}, depth {}<td>{}<td>±{:.1} %<td>{:+.1} %</tr>",
                size(point.size_bytes),
                point.depth,
                time(point.latency_us.value),
                held.spread_percent,
                held.latency_percent
            );
        }
    }
    *page += "</table>\n";
}

fn remarks(page: &mut String, probe: &Probe) {
    if probe.remarks.is_empty() {
        return;
    }
    *page += "<h2>Remarks</h2>\n<ul>\n";
    for remark in &probe.remarks {
        let _ = writeln!(page, "<li>{}</li>", markup(&remark.text));
    }
    *page += "</ul>\n";
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_model::advice::{advise, usual_goal};
    use longshore_model::identify;
    use longshore_model::pipeline::of_probe;
    use longshore_model::probe::{Remark, RemarkKind};

    #[test]
    fn a_page_is_whole_and_what_a_server_says_stays_text() {
        let bytes = include_bytes!("../../model/tests/probes/longshore-iscsi.json");
        let mut probe = Probe::parse(bytes).unwrap();
        let hostile = "<img src=http://192.0.2.9/x onerror='alert(1)'>";
        probe.subject.name = hostile.to_owned();
        probe.subject.product = Some(hostile.to_owned());
        probe.remarks.push(Remark {
            kind: RemarkKind::Other,
            text: hostile.to_owned(),
        });
        let mut point = probe.points[0].clone();
        for size in [512, 8192, 65536] {
            point.size_bytes = size;
            probe.points.push(point.clone());
        }
        identify::complete(&mut probe).unwrap();
        if let Some(fitted) = &mut probe.fitted {
            fitted.confounded.push(vec![hostile.to_owned()]);
        }
        let goal = usual_goal(&probe, None);
        let advice = advise(&probe, &goal).unwrap();
        let parts = identify::parts(&probe, goal.direction).unwrap().parts;
        let pipelines = of_probe(&probe, &parts, goal.direction, goal.size_bytes);
        let page = html(&Document {
            probe: Some(&probe),
            pipelines: &pipelines,
            advice: Some(&advice),
        });
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert!(!page.contains("<img") && !page.contains("<script") && !page.contains("href="));
        assert!(page.matches("&lt;img").count() >= 4, "{page}");
        assert!(page.contains("<svg") && page.contains("Remarks"));
        // The only address is the name of SVG.
        assert_eq!(
            page.matches("http://").count(),
            page.matches("<svg").count() + page.matches("src=http").count()
        );
    }
}
