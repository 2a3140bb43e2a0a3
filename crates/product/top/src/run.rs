//! The terminal: keys in, pictures out, until the user quits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use longshore_api::pool::Pool;
use longshore_api::state::{Event, Session};
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers};

use crate::app::{App, Key, Order, Update};
use crate::draw::draw;
use longshore_api::sample::Sample;

/// How often is looked whether something came.
const STEP: Duration = Duration::from_millis(100);

/// Where the numbers come from. Its calls block.
pub trait Source: Send {
    /// # Errors
    /// Why the server does not answer.
    fn sample(&mut self) -> Result<Sample, String>;

    /// # Errors
    /// Why the server does not answer.
    fn sessions(&mut self) -> Result<Vec<Session>, String>;

    /// None, where the server has none to tell of.
    ///
    /// # Errors
    /// Why the server does not answer.
    fn pools(&mut self) -> Result<Vec<Pool>, String>;

    /// Events that came since the last call.
    ///
    /// # Errors
    /// Why the server does not answer.
    fn events(&mut self) -> Result<Vec<Event>, String>;

    /// # Errors
    /// Why the session is not closed.
    fn close_session(&mut self, id: &str) -> Result<(), String>;
}

/// What is asked of the thread that speaks to the server.
enum Request {
    CloseSession(String),
}

/// Shows what the source says until a key or `stop` ends it. The terminal is as before when it returns, whatever happens.
///
/// # Errors
/// The terminal cannot be used.
pub fn run(mut app: App, source: Box<dyn Source>, stop: &AtomicBool) -> io::Result<()> {
    let interval = Arc::new(AtomicU64::new(app.interval_ms));
    let (updates, inbox) = channel();
    let (requests, outbox) = channel();
    let shared = Arc::clone(&interval);
    thread::Builder::new()
        .name("samples".to_owned())
        .spawn(move || fetch(source, &shared, &updates, &outbox))?;
    // Its panic hook restores the terminal, too.
    let mut terminal = ratatui::try_init()?;
    let outcome = (|| {
        let mut is_changed = true;
        while !stop.load(Ordering::Relaxed) {
            while let Ok(update) = inbox.try_recv() {
                app.update(update);
                is_changed = true;
            }
            if is_changed {
                terminal.draw(|frame| draw(frame, &app))?;
            }
            is_changed = event::poll(STEP)?;
            if !is_changed {
                continue;
            }
            let Some(key) = key(&event::read()?) else {
                continue;
            };
            match app.press(key) {
                Order::Nothing => {}
                Order::Quit => return Ok(()),
                Order::Interval(ms) => interval.store(ms, Ordering::Relaxed),
                Order::CloseSession(id) => {
                    let _ = requests.send(Request::CloseSession(id));
                }
            }
        }
        Ok(())
    })();
    ratatui::restore();
    outcome
}

/// Asks the server from time to time, in a thread of its own: keys work while it does not answer.
fn fetch(
    mut source: Box<dyn Source>,
    interval: &AtomicU64,
    updates: &Sender<Update>,
    requests: &Receiver<Request>,
) {
    let mut next = Instant::now();
    loop {
        if updates.send(update(source.as_mut())).is_err() {
            return;
        }
        next = (next + Duration::from_millis(interval.load(Ordering::Relaxed))).max(Instant::now());
        loop {
            let left = next.saturating_duration_since(Instant::now());
            // The interval may become shorter meanwhile.
            match requests.recv_timeout(left.min(STEP)) {
                Ok(Request::CloseSession(id)) => {
                    let told = match source.close_session(&id) {
                        Ok(()) => format!("session {id} is asked to log out"),
                        Err(error) => error,
                    };
                    let _ = updates.send(Update::Told(told));
                    break;
                }
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            }
            if next <= Instant::now() {
                break;
            }
        }
    }
}

fn update(source: &mut dyn Source) -> Update {
    let asked = (|| {
        let sample = source.sample()?;
        let sessions = source.sessions()?;
        let pools = source.pools()?;
        let events = source.events()?;
        Ok::<_, String>(Update::Sample {
            sample: Box::new(sample),
            sessions,
            pools,
            events,
        })
    })();
    asked.unwrap_or_else(Update::Gone)
}

fn key(input: &Input) -> Option<Key> {
    let Input::Key(key) = input else {
        return None;
    };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => Some(Key::Interrupt),
        KeyCode::Char(_) if is_control => None,
        KeyCode::Char(letter) => Some(Key::Char(letter)),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Escape),
        KeyCode::Backspace => Some(Key::Backspace),
        KeyCode::Tab => Some(Key::Tab),
        _ => None,
    }
}
