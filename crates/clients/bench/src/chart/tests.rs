use super::*;

/// A panel by queue depth.
pub(crate) fn panel(lines: Vec<Line>) -> Panel {
    Panel {
        x: Axis {
            name: "queue depth".into(),
            scale: Scale::Doubling,
            label: |x| x.to_string(),
        },
        y: Axis {
            name: "of something".into(),
            scale: Scale::Linear,
            label: thousands,
        },
        right: None,
        lines,
    }
}

fn chart(points: &[(f64, f64)]) -> Chart {
    Chart {
        title: "a chart".to_owned(),
        panels: vec![panel(vec![Line {
            name: "a line".to_owned(),
            points: points.to_vec(),
            ..Line::default()
        }])],
        ..Chart::default()
    }
}

#[test]
fn a_picture_needs_no_font_of_the_system() {
    let folder = tempfile::tempdir().unwrap();
    let some = chart(&[(1.0, 10.0), (2.0, 30.0)]);
    let file = folder.path().join("chart.svg");
    draw(&file, &some).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
    assert!(text.contains("queue depth") && text.contains("a line"));
    let file = folder.path().join("chart.png");
    draw(&file, &some).unwrap();
    assert!(fs::read(&file).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn solid_and_dashed_lines_have_one_width() {
    let mut some = chart(&[(1.0, 10.0), (2.0, 30.0), (4.0, 5.0)]);
    let lines = &mut some.panels[0].lines;
    let dashed = Line {
        dashed: true,
        colour: 1,
        ..lines[0].clone()
    };
    lines[0].colour = 0;
    lines.push(dashed);
    let text = svg(&some).unwrap();
    for colour in ["#0072B2", "#D55E00"] {
        let lines = text.lines().filter(|line| {
            line.contains("<polyline") && line.contains(&format!("stroke=\"{colour}\""))
        });
        let widths: Vec<bool> = lines
            .map(|line| line.contains("stroke-width=\"2\""))
            .collect();
        assert!(
            !widths.is_empty() && widths.iter().all(|width| *width),
            "{colour}: {text}"
        );
    }
}

#[test]
fn every_pair_of_scales_can_be_drawn_with_an_axis_at_the_right() {
    for x in [Scale::Linear, Scale::Doubling] {
        for y in [Scale::Linear, Scale::Decades] {
            let mut some = chart(&[(1.0, 10.0), (2.0, 30.0)]);
            let panel = &mut some.panels[0];
            (panel.x.scale, panel.y.scale) = (x, y);
            panel.right = Some(("bytes per second", 4096.0));
            panel.lines[0].labels = vec!["one".to_owned(), "two".to_owned()];
            let text = svg(&some).unwrap();
            assert!(
                text.contains("bytes per second") && text.contains("two"),
                "{x:?} {y:?}"
            );
        }
    }
}

#[test]
fn other_formats_and_single_points_are_refused() {
    let refused = draw(Path::new("chart.gif"), &chart(&[(1.0, 1.0), (2.0, 2.0)]));
    assert!(matches!(refused, Err(PlotError::Format(_))));
    assert!(matches!(svg(&chart(&[(1.0, 1.0)])), Err(PlotError::TooFew)));
    assert!(matches!(svg(&chart(&[])), Err(PlotError::TooFew)));
}

#[test]
fn large_numbers_are_short() {
    for (value, text) in [
        (0.0, "0"),
        (12.5, "12"),
        (2500.0, "2500"),
        (20_000.0, "20 k"),
        (1_500_000.0, "1.5 M"),
        (2_000_000_000.0, "2 G"),
    ] {
        assert_eq!(thousands(value), text);
    }
}
