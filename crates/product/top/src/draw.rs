//! Draws what is looked at. 80 columns and 24 lines are enough for all of it.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, TableState};

use crate::app::{App, Mode, PoolRates, View};
use longshore_api::pool::{Pool, PoolSideState, PoolUsage, PoolWorkKind, PoolWorkState};
use longshore_api::rates::Rates;
use longshore_api::sample::INTERVALS;

/// Where there is no number yet.
const NONE: &str = "–";
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let [header, tabs, page, footer] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(self::header(app)), header);
    frame.render_widget(Paragraph::new(self::tabs(app)), tabs);
    match app.view {
        View::Volumes => volumes(frame, app, page),
        View::Sessions => sessions(frame, app, page),
        View::Cores => cores(frame, app, page),
        View::Stages => stages(frame, app, page),
        View::Pools => pools(frame, app, page),
        View::Events => events(frame, app, page),
    }
    frame.render_widget(Paragraph::new(self::footer(app)), footer);
    match &app.mode {
        Mode::Help => help(frame),
        Mode::Detail => detail(frame, app),
        Mode::Close(id) => confirm(frame, app, id),
        Mode::Look | Mode::Filter => {}
    }
}

fn colored(app: &App, color: Color) -> Style {
    if app.has_colors {
        Style::new().fg(color)
    } else {
        Style::new()
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn header(app: &App) -> Vec<Line<'static>> {
    let (state, color) = match (&app.gone, &app.rates) {
        (Some(_), _) => ("does not answer".to_owned(), Color::Red),
        (None, _) if app.is_paused => ("paused".to_owned(), Color::Yellow),
        (None, None) => ("first sample".to_owned(), Color::Yellow),
        (None, Some(_)) => (String::new(), Color::Reset),
    };
    let uptime = app.last.as_ref().map(|sample| uptime(sample.uptime_ms));
    // What is cut on a narrow terminal comes last.
    let mut first = vec![Span::styled("longshore  ", bold())];
    if !state.is_empty() {
        first.push(Span::styled(format!("{state}  "), colored(app, color)));
    }
    if let Some(uptime) = uptime {
        first.push(Span::raw(format!("up {uptime}  ")));
    }
    if let Some(rates) = &app.rates {
        first.push(Span::raw(totals(rates)));
    }
    first.push(Span::raw(printable(&app.server)));
    let second = match (&app.gone, &app.rates) {
        (Some(reason), _) => Span::styled(printable(reason), colored(app, Color::Red)),
        (None, Some(rates)) => Span::raw(format!("limited by {}", rates.limited_by)),
        (None, None) => Span::raw("limited by –"),
    };
    vec![first.into(), second.into()]
}

fn totals(rates: &Rates) -> String {
    let sum = |value: fn(&longshore_api::rates::VolumeRates) -> f64| -> f64 {
        rates.volumes.iter().map(value).sum()
    };
    format!(
        "{}/s  read {}/s  write {}/s  ",
        count(rates.operations()),
        bytes(sum(|it| it.read_bytes)),
        bytes(sum(|it| it.written_bytes))
    )
}

fn tabs(app: &App) -> Line<'static> {
    let mut spans = Vec::new();
    for view in View::ALL {
        let style = if view == app.view {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        spans.push(Span::styled(
            format!(" {} {} ", view.key(), view.name()),
            style,
        ));
    }
    if !app.filter.is_empty() || app.mode == Mode::Filter {
        let cursor = if app.mode == Mode::Filter { "_" } else { "" };
        spans.push(Span::raw(format!("  /{}{cursor}", printable(&app.filter))));
    }
    if app.only_active {
        spans.push(Span::raw("  active only"));
    }
    spans.into()
}

fn footer(app: &App) -> Line<'static> {
    if let Some(told) = &app.told {
        return Line::raw(printable(told));
    }
    // 80 columns are enough for this.
    let keys = match app.view {
        View::Sessions => ["", "  x close"],
        _ => ["  p pause", ""],
    };
    Line::raw(format!(
        "? help  o sort: {}  / filter  a active{}  +/- {} s{}  q quit",
        app.sort.name(),
        keys[0],
        interval(app.interval_ms),
        keys[1]
    ))
}

fn interval(ms: u64) -> String {
    match ms % 1000 {
        0 => (ms / 1000).to_string(),
        _ => format!("{}.{:02}", ms / 1000, ms % 1000 / 10),
    }
}

fn table<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    headings: &[&'static str],
    rows: Vec<Row<'a>>,
    widths: &[Constraint],
    selected: Option<usize>,
) {
    let table = Table::new(rows, widths.to_vec())
        .header(Row::new(headings.to_vec()).style(bold()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

fn volumes(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let shown = app.shown_volumes();
    let has_rates = app.rates.is_some();
    let spark = usize::from(area.width.saturating_sub(70)).clamp(8, crate::app::HISTORY);
    let columns = match area.width {
        72.. => 8,
        46.. => 5,
        _ => 3,
    };
    let rows = shown.iter().map(|volume| {
        let rate = |text: String| if has_rates { text } else { NONE.to_owned() };
        let cells = [
            printable(&volume.name),
            right(rate(count(volume.reads)), 7),
            right(rate(count(volume.writes)), 7),
            right(rate(bytes(volume.read_bytes)), 9),
            right(rate(bytes(volume.written_bytes)), 9),
            right(volume.mean_ns.map_or_else(|| NONE.to_owned(), micros), 8),
            right(volume.errors.to_string(), 6),
            sparkline(app, &volume.name, spark),
        ];
        Row::new(cells.into_iter().take(columns))
    });
    let headings = [
        "VOLUME",
        " READ/s",
        "WRITE/s",
        "   READ B",
        "  WRITE B",
        "    MEAN",
        "ERRORS",
        "LAST MINUTE",
    ];
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(u16::try_from(spark).unwrap_or(8).max(11)),
    ];
    table(
        frame,
        area,
        &headings[..columns],
        rows.collect(),
        &widths[..columns],
        (!shown.is_empty()).then_some(app.selected.min(shown.len().saturating_sub(1))),
    );
}

fn sparkline(app: &App, name: &str, width: usize) -> String {
    let Some(history) = app.history.get(name) else {
        return String::new();
    };
    let highest = history.iter().copied().max().unwrap_or(0).max(1);
    let skipped = history.len().saturating_sub(width);
    let steps = history.iter().skip(skipped).map(|value| {
        let place = value.saturating_mul(7).div_ceil(highest);
        BARS[usize::try_from(place).unwrap_or(0).min(7)]
    });
    steps.collect()
}

fn sessions(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let shown = app.shown_sessions();
    let rows = shown.iter().map(|session| {
        let rates = app.session_rates(session);
        let rate = |text: String| match app.rates {
            Some(_) => text,
            None => NONE.to_owned(),
        };
        Row::new([
            printable(&session.id),
            session.protocol.clone(),
            printable(&session.peer_name),
            session.addresses.first().cloned().unwrap_or_default(),
            right(session.connections.to_string(), 5),
            right(rate(count(rates.operations)), 7),
            right(rate(bytes(rates.sent_bytes)), 9),
            right(rate(bytes(rates.received_bytes)), 9),
        ])
    });
    table(
        frame,
        area,
        &[
            "ID",
            "PROTO",
            "CLIENT",
            "ADDRESS",
            "CONNS",
            "   OP/s",
            "   SENT B",
            "   RECV B",
        ],
        rows.collect(),
        &[
            Constraint::Length(5),
            Constraint::Length(5),
            Constraint::Fill(3),
            Constraint::Fill(2),
            Constraint::Length(5),
            Constraint::Length(7),
            Constraint::Length(9),
            Constraint::Length(9),
        ],
        (!shown.is_empty()).then_some(app.selected.min(shown.len().saturating_sub(1))),
    );
}

fn cores(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let cores = app.rates.iter().flat_map(|rates| &rates.cores);
    let width = usize::from(area.width.saturating_sub(58)).clamp(10, 60);
    let rows = cores.map(|core| {
        Row::new([
            right(core.core.to_string(), 4),
            right(format!("{:.0} %", core.working), 7),
            right(format!("{:.0} %", core.polling), 7),
            right(format!("{:.0} %", core.waiting), 7),
            right(format!("{:.0} %", core.asleep), 6),
            right(count(core.operations), 7),
            right(count(core.turns), 7),
            match core.answers {
                true => bar(core.working, width),
                false => "does not answer".to_owned(),
            },
        ])
    });
    table(
        frame,
        area,
        &[
            "LOOP", "WORKING", "POLLING", "WAITING", "ASLEEP", "   OP/s", " TURN/s", "WORKING",
        ],
        rows.collect(),
        &[
            Constraint::Length(4),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Length(6),
            Constraint::Length(7),
            Constraint::Length(7),
            Constraint::Fill(1),
        ],
        None,
    );
}

/// A bar of a percentage.
#[allow(clippy::cast_precision_loss)]
fn bar(percent: f64, width: usize) -> String {
    let filled = crate::app::whole(percent.clamp(0.0, 100.0) * width as f64 / 100.0);
    let filled = usize::try_from(filled).unwrap_or(0).min(width);
    format!("{}{}", "█".repeat(filled), "░".repeat(width - filled))
}

fn stages(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let stages = app.rates.iter().flat_map(|rates| &rates.stages);
    let rows = stages.filter(|it| app.filter.is_empty() || it.volume.contains(&app.filter));
    let rows = rows.map(|kind| {
        let mut cells = vec![
            printable(&kind.volume),
            format!("{} {}", kind.protocol, kind.direction),
            right(bytes_whole(kind.bytes_up_to), 8),
            right(micros(kind.mean_ns), 7),
        ];
        cells.extend(
            kind.parts
                .iter()
                .map(|part| right(format!("{part:.0} %"), 5)),
        );
        Row::new(cells)
    });
    let rows: Vec<Row<'_>> = rows.collect();
    if rows.is_empty() {
        let text =
            "No operation was followed since the last sample. One in many is (--sample of serve).";
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let mut headings = vec!["VOLUME", "KIND", "    UPTO", "   MEAN"];
    headings.extend(["PARSE", " DATA", " GATE", " STOR", " ANSW", " SEND"]);
    let mut widths = vec![
        Constraint::Fill(1),
        Constraint::Length(14),
        Constraint::Length(8),
        Constraint::Length(7),
    ];
    widths.extend([Constraint::Length(5); INTERVALS.len()]);
    table(frame, area, &headings, rows, &widths, None);
}

fn pools(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let shown = app.shown_pools();
    if app.pools.is_empty() {
        let text = "The server has no pool open, and none in its file (longshore pool).";
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let rows = shown.iter().map(|pool| {
        let usage = |text: fn(&PoolUsage) -> String| pool.usage.as_ref().map_or_else(none, text);
        let rates = app.rates_of_pool(pool);
        let rate = |of: fn(&PoolRates) -> f64| rates.as_ref().map_or_else(none, |it| bytes(of(it)));
        Row::new([
            printable(&pool.name),
            pool.state.name().to_owned(),
            right(usage(|it| format!("{} %", percent(it))), 5),
            right(usage(|it| bytes_whole(it.used_bytes)), 9),
            right(usage(|it| bytes_whole(it.capacity_bytes)), 9),
            right(rate(|it| it.host), 9),
            right(rate(|it| it.drives), 9),
            attention(pool),
        ])
    });
    table(
        frame,
        area,
        &[
            "POOL",
            "STATE",
            " FULL",
            "     USED",
            " CAPACITY",
            "  WRITE B",
            " DRIVES B",
            "WORK",
        ],
        rows.collect(),
        &[
            Constraint::Fill(1),
            Constraint::Length(6),
            Constraint::Length(5),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(16),
        ],
        (!shown.is_empty()).then_some(app.selected.min(shown.len().saturating_sub(1))),
    );
}

/// What an operator should know of first: a mirror with one side, then work that is under way.
fn attention(pool: &Pool) -> String {
    let sides = pool.mirrors.iter();
    let stale = sides.filter(|side| side.state == PoolSideState::Stale);
    match (stale.count(), &pool.work) {
        (0, Some(work)) if work.state == PoolWorkState::Running => {
            let share = work.done_bytes.saturating_mul(100) / work.sum_bytes.max(1);
            format!("{} {share} %", kind(work.kind))
        }
        (0, _) => String::new(),
        (1, _) => "1 side stale".to_owned(),
        (count, _) => format!("{count} sides stale"),
    }
}

const fn kind(kind: PoolWorkKind) -> &'static str {
    match kind {
        PoolWorkKind::Scrub => "scrub",
        PoolWorkKind::RemoveDrive => "removal",
        PoolWorkKind::Rebuild => "rebuild",
    }
}

/// How full a pool is, with what is reserved.
fn percent(usage: &PoolUsage) -> u64 {
    let taken = usage.used_bytes.saturating_add(usage.reserved_bytes);
    taken.saturating_mul(100) / usage.capacity_bytes.max(1)
}

fn none() -> String {
    NONE.to_owned()
}

fn events(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let shown = app.events.iter().rev();
    let shown = shown.filter(|event| {
        app.filter.is_empty() || event.message.contains(&app.filter) || event.topic == app.filter
    });
    let height = usize::from(area.height).saturating_sub(1);
    let rows = shown.skip(app.selected).take(height).map(|event| {
        Row::new([
            clock(event.time_ms),
            event.topic.clone(),
            printable(&event.message),
        ])
    });
    table(
        frame,
        area,
        &["UTC", "TOPIC", "EVENT"],
        rows.collect(),
        &[
            Constraint::Length(8),
            Constraint::Length(8),
            Constraint::Fill(1),
        ],
        None,
    );
}

/// A window over the page.
fn window(frame: &mut Frame<'_>, title: &str, lines: Vec<String>) {
    let area = frame.area();
    let widest = lines.iter().map(|line| line.chars().count()).max();
    let width = u16::try_from(widest.unwrap_or(0).max(title.chars().count()) + 4);
    let width = width.unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let height = height.min(area.height);
    let place = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(format!(" {title} "));
    let lines: Vec<Line<'_>> = lines
        .into_iter()
        .map(|line| Line::raw(format!(" {line}")))
        .collect();
    frame.render_widget(Paragraph::new(lines).block(block), place);
}

const HELP: &[&str] = &[
    "v s c g l e, 1-6, Tab volumes, sessions, cores, stages, pools, events",
    "arrows, PgUp, PgDn    select",
    "Enter                 everything known of the row",
    "o                     sort by operations, bytes, latency, name",
    "/                     show only what contains a text; Esc: all",
    "a                     show only what is active",
    "p, space              pause",
    "+ -                   longer and shorter intervals",
    "x                     close the session (asks first)",
    "q                     quit",
    "",
    "Rates go by the clock of the server. MEAN is that of the operations",
    "that the server follows through their stages, one in many.",
];

fn help(frame: &mut Frame<'_>) {
    let lines = HELP.iter().map(|line| (*line).to_owned());
    window(frame, "longshore top", lines.collect());
}

fn detail(frame: &mut Frame<'_>, app: &App) {
    if app.view == View::Pools {
        if let Some(pool) = app.shown_pools().get(app.selected) {
            window(frame, &printable(&pool.name), pool_lines(app, pool));
        }
        return;
    }
    if app.view == View::Sessions {
        let shown = app.shown_sessions();
        let Some(session) = shown.get(app.selected) else {
            return;
        };
        let rates = app.session_rates(session);
        let mut lines = vec![
            format!("protocol     {}", session.protocol),
            format!("target       {}", printable(&session.target)),
            format!("volumes      {}", printable(&session.volumes.join(" "))),
            format!("connections  {}", session.connections),
            format!("operations   {}/s", count(rates.operations)),
            format!("sent         {}/s", bytes(rates.sent_bytes)),
            format!("received     {}/s", bytes(rates.received_bytes)),
            format!("to be sent   {}", bytes_whole(rates.pending_bytes)),
        ];
        lines.extend(
            session
                .addresses
                .iter()
                .map(|it| format!("address      {it}")),
        );
        window(frame, &printable(&session.peer_name), lines);
        return;
    }
    let shown = app.shown_volumes();
    let Some(volume) = shown.get(app.selected) else {
        return;
    };
    let mut lines = vec![
        format!(
            "reads        {}/s, {}/s",
            count(volume.reads),
            bytes(volume.read_bytes)
        ),
        format!(
            "writes       {}/s, {}/s",
            count(volume.writes),
            bytes(volume.written_bytes)
        ),
        format!("errors       {}", volume.errors),
        format!(
            "mean         {}",
            volume.mean_ns.map_or_else(|| NONE.to_owned(), micros)
        ),
    ];
    let stages = app.rates.iter().flat_map(|rates| &rates.stages);
    for kind in stages.filter(|it| it.volume == volume.name) {
        lines.push(format!(
            "{} {} up to {}: mean {}, p99 {}",
            kind.protocol,
            kind.direction,
            bytes_whole(kind.bytes_up_to),
            micros(kind.mean_ns),
            micros(kind.p99_ns)
        ));
    }
    let using = app
        .sessions
        .iter()
        .filter(|it| it.volumes.contains(&volume.name));
    lines.extend(using.map(|it| format!("session {}  {}", it.id, printable(&it.peer_name))));
    window(frame, &printable(&volume.name), lines);
}

fn pool_lines(app: &App, pool: &Pool) -> Vec<String> {
    let mut lines = vec![format!("state        {}", pool.state.name())];
    if let Some(usage) = &pool.usage {
        let (used, capacity) = (usage.used_bytes, usage.capacity_bytes);
        lines.extend([
            format!(
                "used         {} of {}",
                bytes_whole(used),
                bytes_whole(capacity)
            ),
            format!("reserved     {}", bytes_whole(usage.reserved_bytes)),
            format!("maps         {} of memory", bytes_whole(usage.map_bytes)),
        ]);
    }
    if let Some(rates) = app.rates_of_pool(pool) {
        lines.push(format!("written      {}/s by hosts", bytes(rates.host)));
        lines.push(format!(
            "             {}/s on the drives",
            bytes(rates.drives)
        ));
    }
    if let Some(work) = &pool.work {
        let (done, sum) = (bytes_whole(work.done_bytes), bytes_whole(work.sum_bytes));
        let state = work.state.name();
        lines.push(format!("{:<12} {state}, {done} of {sum}", kind(work.kind)));
    }
    match pool.mirrors.is_empty() {
        true => lines.extend(
            pool.drives
                .iter()
                .map(|it| format!("drive        {}", printable(it))),
        ),
        false => lines.extend(pool.mirrors.iter().map(|side| {
            let path = side.path.as_deref().unwrap_or("missing");
            format!(
                "mirror {:<5} {:<8} {}",
                side.mirror,
                side.state.name(),
                printable(path)
            )
        })),
    }
    lines.extend(pool.volumes.iter().map(|volume| {
        format!(
            "volume       {}: {} of {}, {} snapshots",
            printable(&volume.name),
            bytes_whole(volume.owned_bytes.saturating_add(volume.shared_bytes)),
            bytes_whole(volume.size_bytes),
            volume.snapshots.len()
        )
    }));
    lines
}

fn confirm(frame: &mut Frame<'_>, app: &App, id: &str) {
    let session = app.sessions.iter().find(|it| it.id == id);
    let name = session.map_or(id, |it| it.peer_name.as_str());
    let lines = vec![
        format!("Close the session of {}?", printable(name)),
        "It may log in again.".to_owned(),
        String::new(),
        "y yes   any other key no".to_owned(),
    ];
    window(frame, "close session", lines);
}

fn right(text: String, width: usize) -> String {
    format!("{text:>width$}")
}

/// Three digits and a unit: `999`, `1.23k`, `45.6M`.
fn count(rate: f64) -> String {
    scaled(rate, 1000.0, &["", "k", "M", "G"])
}

/// Bytes a second with a binary prefix, such as `1.5 MiB`.
fn bytes(rate: f64) -> String {
    scaled(rate, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

#[allow(clippy::cast_precision_loss)]
fn bytes_whole(bytes: u64) -> String {
    self::bytes(bytes as f64)
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value.max(0.0);
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let decimals = match (unit, value) {
        (0, _) => 0,
        (_, value) if value < 9.995 => 2,
        (_, value) if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{}", units[unit])
}

/// Nanoseconds as µs, ms or s.
fn micros(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{}.{} µs", ns / 1000, ns % 1000 / 100),
        10_000..1_000_000 => format!("{} µs", ns / 1000),
        1_000_000..1_000_000_000 => format!("{}.{} ms", ns / 1_000_000, ns % 1_000_000 / 100_000),
        _ => format!(
            "{}.{} s",
            ns / 1_000_000_000,
            ns % 1_000_000_000 / 100_000_000
        ),
    }
}

fn uptime(ms: u64) -> String {
    let minutes = ms / 60_000;
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, 0, 0) => format!("{} s", ms / 1000),
        (0, hours, minutes) => format!("{hours}:{minutes:02}"),
        (days, hours, minutes) => format!("{days} d {hours}:{minutes:02}"),
    }
}

fn clock(ms: u64) -> String {
    let second = ms / 1000 % 86_400;
    format!(
        "{:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// What peers choose cannot command the terminal.
fn printable(text: &str) -> String {
    let plain = text
        .chars()
        .map(|it| if it.is_control() { '\u{fffd}' } else { it });
    plain.collect()
}

#[cfg(test)]
mod tests;
